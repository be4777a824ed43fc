"""Only the renderers of `report` escape the descriptions of a room."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pytest_modelperf

PACKAGE = Path(pytest_modelperf.__file__).parent
ESCAPING = "pytest_modelperf.text.escaping"
# The message of an error, which no renderer sees.
MESSAGES = {PACKAGE / "init" / "report.py"}
REPORTS = sorted(
    path
    for path in PACKAGE.rglob("report*.py")
    if "report" not in path.relative_to(PACKAGE).parts[:-1] and path not in MESSAGES
)


def test_there_are_reports() -> None:
    assert len(REPORTS) > 10


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_report_leaves_escaping_to_the_renderers(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert ESCAPING not in imported
