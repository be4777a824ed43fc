"""The folders of modules that a worker in another interpreter takes over from this one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_modelperf.profiler.engines.source import BUILT_IN, DEFAULT_ENGINE
from pytest_modelperf.profiler.sampling import worker_bench as module


@pytest.mark.parametrize("place", ["src/app", "src/app/tests", "local/src", "."])
def test_a_project_below_the_prefix_of_the_interpreter_is_the_users_own(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path / place)])
    assert list(module._own_paths(BUILT_IN[DEFAULT_ENGINE])) == [tmp_path / place]


@pytest.mark.parametrize(
    "place",
    [
        *("lib/python3.12", "lib/python3.12/lib-dynload", "lib/python312.zip"),
        *("lib/python3/dist-packages", "local/lib/python3.12/dist-packages"),
        *("Lib", "DLLs", "python312.zip", "Lib/site-packages", "Lib/site-packages/win32"),
    ],
)
def test_what_is_installed_is_not(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path / place)])
    assert not list(module._own_paths(BUILT_IN[DEFAULT_ENGINE]))
