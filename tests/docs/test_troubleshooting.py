"""Each message that docs/troubleshooting.md quotes is one that the package can print."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import pytest_modelperf
from tests.support.checkout import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
PACKAGE = Path(pytest_modelperf.__file__).parent
# Replaces a name or a figure, on the page and in the texts of the sources.
ANY = "…"


def quoted_messages() -> list[str]:
    """The first cell of each row, without its quotes."""
    cells = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    assert len(cells) == len(re.findall(r"^\| (?!message|---)", PAGE, re.MULTILINE))
    return cells


def text_of(node: ast.AST) -> str | None:
    """A text of a source, with `…` for each value that is put into it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or ANY for part in node.values)
    return None


def texts_in(source: str) -> Iterator[str]:
    """Every text of a source file that is neither a docstring nor a part of another text."""
    tree = ast.parse(source)
    parents = (node for node in ast.walk(tree) if not isinstance(node, (ast.Expr, ast.JoinedStr)))
    children = (child for node in parents for child in ast.iter_child_nodes(node))
    yield from filter(None, map(text_of, children))


@cache
def texts_of_the_package() -> tuple[str, ...]:
    files = PACKAGE.rglob("*.py")
    return tuple(text for path in files for text in texts_in(path.read_text("utf-8")))


@pytest.mark.parametrize("message", quoted_messages())
def test_a_quoted_message_is_one_of_the_package(message: str) -> None:
    words = re.compile(".*".join(map(re.escape, message.strip(f"{ANY} ").split(ANY))))
    assert any(words.search(text) for text in texts_of_the_package())


def test_a_docstring_is_not_a_message_and_a_value_in_a_text_matches_anything() -> None:
    source = 'def f(n):\n    "A docstring of words."\n    raise E(f"no {n} " f"here")\n'
    assert list(texts_in(source)) == ["no … here"]
