"""Each row of the matrices of docs/reliability.md and docs/security.md names a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from pytest_modelperf.spec.run_definitions import RUN_SETTINGS
from tests.support.checkout import ROOT

FAULTS = (ROOT / "docs" / "reliability.md").read_text("utf-8")
SECURITY = (ROOT / "docs" / "security.md").read_text("utf-8")
_ROW = re.compile(r"^\| (?P<fault>.+?) \| (?P<outcome>.+?) \| (?P<tests>.+?) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
# Settings that only say how much is measured, and how strictly it is judged.
_FIGURES = {
    "max_seconds", "measure", "min_seconds", "no_cache", "output_sketch", "static_only", "strict",
    "timeout", "tolerance", "uncommitted", "warmup_seconds",
}  # fmt: skip
_HEADS = {"fault", "input"}


def rows() -> list[tuple[str, str]]:
    """What each row of a table is about, and its last cell."""
    found = [(row["fault"], row["tests"]) for row in _ROW.finditer(FAULTS + SECURITY)]
    return [(fault, tests) for fault, tests in found if fault not in _HEADS and set(fault) != {"-"}]


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("fault", "cell"), rows(), ids=lambda text: text[:50])
def test_each_row_names_a_test_that_there_is(fault: str, cell: str) -> None:
    named = _TEST.findall(cell)
    assert named, fault
    assert [name for file, name in named if name not in functions_of(file)] == []


def test_the_pages_have_all_rows() -> None:
    assert len(rows()) > 30


def test_each_setting_of_a_file_that_runs_connects_or_writes_is_told() -> None:
    """A new setting is told too, or is among the figures."""
    _, _, rest = SECURITY.partition("## What a project may do")
    section, _, _ = rest.partition("\n## ")
    keys = {option.table_key for option in RUN_SETTINGS if option.is_in_files}
    assert keys - set(re.findall(r"`([a-z_]+)`", section)) == _FIGURES
