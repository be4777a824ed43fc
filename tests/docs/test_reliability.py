"""Each row of the tables of docs/reliability.md and docs/security.md has tests that provoke it."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from pytest_modelperf.spec.run_definitions import RUN_SETTINGS
from tests.support.checkout import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECURITY = (ROOT / "docs" / "security.md").read_text("utf-8")
# The tests of each row, by the name of the page and the first cell of the row.
FAULTS = tomllib.loads((Path(__file__).parent / "faults.toml").read_text("utf-8"))
_ROW = re.compile(r"^\| (?P<fault>.+?) \| (?P<outcome>.+?) \|$", re.MULTILINE)
# Settings that only say how much is measured, and how strictly it is judged.
_FIGURES = {
    "max_seconds", "measure", "min_seconds", "no_cache", "output_sketch", "static_only", "strict",
    "timeout", "tolerance", "uncommitted", "warmup_seconds",
}  # fmt: skip
_HEADS = {"fault", "input"}


def rows_of(page: str) -> list[str]:
    """Return the first cell of each row in the tables of a page."""
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    found = [row["fault"] for row in _ROW.finditer(text)]
    return [fault for fault in found if fault not in _HEADS and set(fault) != {"-"}]


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("page", FAULTS)
def test_each_row_has_its_tests_and_each_entry_a_row(page: str) -> None:
    assert rows_of(page) == [*FAULTS[page]]


@pytest.mark.parametrize(
    ("fault", "tests"),
    [each for page in FAULTS.values() for each in page.items()],
    ids=lambda value: value[:50] if isinstance(value, str) else "tests",
)
def test_each_row_names_tests_that_exist(fault: str, tests: list[str]) -> None:
    assert tests, fault
    pairs = [test.split("::") for test in tests]
    assert [name for file, name in pairs if name not in functions_of(file)] == []


def test_the_pages_have_all_rows() -> None:
    assert sum(map(len, FAULTS.values())) > 30


def test_each_setting_of_a_file_that_runs_connects_or_writes_is_documented() -> None:
    """A new setting is listed too, or is among the figures."""
    _, _, rest = SECURITY.partition("## What a project may do")
    section, _, _ = rest.partition("\n## ")
    keys = {option.table_key for option in RUN_SETTINGS if option.is_in_files}
    assert keys - set(re.findall(r"`([a-z_]+)`", section)) == _FIGURES
