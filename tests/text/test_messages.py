"""The words of errors: they tell a user what to do, and neither scold nor beg."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest_modelperf

PACKAGE = Path(pytest_modelperf.__file__).parent
SCOLDING = re.compile(
    r"!|\b(please|sorry|oops|invalid|illegal|bad|unable)\b|\berror:", re.IGNORECASE
)


def raised_texts(source: str) -> Iterator[str]:
    """The texts that stand in the `raise` statements of a module, without what is filled in."""
    raised = (node.exc for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise))
    for error in filter(None, raised):
        for part in ast.walk(error):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def test_no_error_scolds_or_begs() -> None:
    modules = sorted(PACKAGE.rglob("*.py"))
    found = [
        (str(module.relative_to(PACKAGE)), text)
        for module in modules
        for text in raised_texts(module.read_text("utf-8"))
        if SCOLDING.search(text)
    ]
    assert modules
    assert found == []


def test_a_text_is_found_wherever_it_stands_in_an_error() -> None:
    source = 'def f(path):\n    raise UsageError(f"{path} is bad" + (" here" if path else "!"))\n'
    assert sorted(raised_texts(source)) == [" here", " is bad", "!"]
