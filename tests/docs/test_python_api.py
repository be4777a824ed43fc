"""The public names are those that docs/python-api.md lists, and each of them is explained."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import get_origin

import pytest

import pytest_modelperf
from tests.support.checkout import ROOT

PACKAGE = "pytest_modelperf"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TEXT = (ROOT / "docs/python-api.md").read_text(encoding="utf-8")


def listed() -> dict[str, list[str]]:
    """The names of each module in the table of public names."""
    table = TEXT.partition("<!-- public -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+) \|$", table, re.MULTILINE)
    return {module: re.findall(r"`(\w+)`", names) for module, names in rows}


PUBLIC = listed()
FUNCTIONS = sorted(
    {
        found
        for module, names in PUBLIC.items()
        for name in names
        if inspect.isfunction(found := getattr(importlib.import_module(module), name))
    },
    key=lambda function: function.__name__,
)


def imports_of(code: str) -> list[tuple[str, str]]:
    """The module and the name of each import from the package."""
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE)
        for alias in node.names
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_page_lists_what_a_public_module_has(name: str) -> None:
    module = importlib.import_module(name)
    assert sorted(PUBLIC[name]) == sorted(module.__all__)
    assert all(hasattr(module, each) for each in PUBLIC[name])


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_defines_nothing_that_is_not_listed(name: str) -> None:
    defined = set()
    for node in ast.parse(inspect.getsource(importlib.import_module(name))).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined.update(ast.unparse(target) for target in targets)
    shown = {each for each in defined if not each.startswith("_")}
    assert shown <= {*PUBLIC[name], "TYPE_CHECKING"}


def test_help_names_the_public_modules() -> None:
    said = set(re.findall(r"`(\w+)`", (pytest_modelperf.__doc__ or "").partition("are public")[0]))
    assert {PACKAGE, *(f"{PACKAGE}.{name}" for name in said)} == set(PUBLIC)


@pytest.mark.parametrize("name", [PACKAGE, f"{PACKAGE}.api"])
def test_a_prompt_completes_public_names_alone(name: str) -> None:
    assert dir(importlib.import_module(name)) == sorted(PUBLIC[name])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_import_public_names(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for code in re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for module, name in imports_of(code):
            assert name in PUBLIC[module]
    for module in re.findall(rf"(?<![/\w])({PACKAGE}(?:\.\w+)+)", text):
        # The pages about the code name internal modules, too.
        is_public = any(f"{module}.".startswith(f"{each}.") for each in (*PUBLIC, *NAMED))
        assert is_public or page.name in ABOUT_THE_CODE, module


# The modules that settings of other programs name.
NAMED = tuple(re.findall(rf"`({PACKAGE}\.[\w.]+)`, for", TEXT))
ABOUT_THE_CODE = ("architecture.md", "changing.md", "statistics.md")


def test_the_types_of_words_are_used_by_their_public_names() -> None:
    code = (ROOT / "tests/typing/words.py").read_text(encoding="utf-8")
    assert set(imports_of(code)) == {
        (PACKAGE, name) for name in ("BudgetWords", "CaseWords", "ModelPerf", "api")
    }


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_public_function_has_types_and_an_example(function: object) -> None:
    assert inspect.isfunction(function)
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(each.annotation is not each.empty for each in signature.parameters.values())
    indented = re.findall(r"(?:^ {4}.+\n?)+", inspect.getdoc(function) or "", re.MULTILINE)
    called = {
        ast.unparse(node.func)
        for example in indented
        for node in ast.walk(ast.parse(textwrap.dedent(example)))
        if isinstance(node, ast.Call)
    }
    assert function.__name__ in called


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_class_has_a_docstring(module: str) -> None:
    found = [getattr(importlib.import_module(module), name) for name in PUBLIC[module]]
    # Python 3.10 takes an alias such as `Callable[[int], str]` for a class.
    classes = [each for each in found if inspect.isclass(each) and get_origin(each) is None]
    assert [each for each in classes if not each.__dict__["__doc__"]] == []
