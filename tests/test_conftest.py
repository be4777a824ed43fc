"""The fixtures and hooks that all tests share work as documented."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn() -> list[tuple[int, str]]:
    found = []

    @given(st.integers(), st.text())
    def draw(number: int, text: str) -> None:
        found.append((number, text))

    draw()
    return found


def test_examples_do_not_depend_on_the_modules_that_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.default is None or not settings.default.derandomize:
        pytest.skip("this profile looks for new examples")
    before = drawn()
    (tmp_path / "constants.py").write_text(
        f"NUMBERS = {[10**6 + 7919 * each for each in range(500)]}\n"
        f"TEXTS = {[f'text {each}' for each in range(500)]}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "constants", None)  # only to be undone
    del sys.modules["constants"]
    importlib.import_module("constants")
    assert drawn() == before
