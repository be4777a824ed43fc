"""The words of errors: they say what to do, and neither scold nor beg."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest_modelperf
from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.errors import PLAIN, Remedy
from pytest_modelperf.testing.wording import PYTHON_WORDING, TABLE_WORDING

PACKAGE = Path(pytest_modelperf.__file__).parent
# Except as the name of an option: --bad.
SCOLDING = re.compile(
    r"!|(?<!--)\b(please|sorry|oops|invalid|illegal|bad|unable)\b|\berror:", re.IGNORECASE
)


def raised_texts(source: str) -> Iterator[str]:
    """The texts in the `raise` statements of a module, without the values filled in."""
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


def test_a_text_is_found_anywhere_in_an_error() -> None:
    source = 'def f(path):\n    raise UsageError(f"{path} is bad" + (" here" if path else "!"))\n'
    assert sorted(raised_texts(source)) == [" here", " is bad", "!"]


def test_a_remedy_names_only_settings_that_every_face_knows() -> None:
    faces = (PLAIN, COMMAND_WORDING, PYTHON_WORDING, TABLE_WORDING)
    assert {frozenset(face.names) for face in faces} == {frozenset(PLAIN.names)}
    remedies = [
        node.args[0].value
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id == "Remedy"
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    ]
    assert len(remedies) > 10
    for remedy in remedies:
        Remedy(remedy).worded(PLAIN)
