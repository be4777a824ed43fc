"""The recipe of conda-forge says what pyproject.toml says."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

import pytest
import yaml
from packaging.requirements import Requirement

from pytest_modelperf.text.version import __version__
from tests.support.checkout import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Loaded: TypeAlias = Mapping[str, Any]
_RECIPE = ROOT / "packaging" / "conda-forge" / "recipe.yaml"


@pytest.fixture(scope="module")
def recipe() -> Loaded:
    content: Loaded = yaml.safe_load(_RECIPE.read_text("utf-8"))
    return content


@pytest.fixture(scope="module")
def project() -> Loaded:
    content: Loaded = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return content


def requirements(lines: list[str]) -> dict[str, str]:
    """The range of each requirement. A package for every Python has no markers."""
    found = [Requirement(line.partition(";")[0]) for line in lines]
    return {each.name: ",".join(sorted(map(str, each.specifier))) for each in found}


def test_a_run_needs_what_the_wheel_needs(recipe: Loaded, project: Loaded) -> None:
    python, *others = recipe["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    assert requirements(others) == requirements(project["dependencies"])
    assert f">={recipe['context']['python_min']}" == project["requires-python"]


def test_the_recipe_has_the_names_of_the_wheel(recipe: Loaded, project: Loaded) -> None:
    assert recipe["context"]["name"] == project["name"]
    assert recipe["context"]["version"] == __version__
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["license"] == project["license"]
    scripts = [f"{name} = {place}" for name, place in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts


def test_its_build_needs_what_the_build_of_the_wheel_needs(recipe: Loaded) -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]
    needed = requirements(recipe["requirements"]["host"][1:])
    assert needed == {**requirements(build["requires"]), "pip": ""}
