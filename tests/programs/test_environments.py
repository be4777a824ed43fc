"""The requirements of the older side, and the Python that has them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from pytest_modelperf.environments.installing import read_requirements
from pytest_modelperf.environments.records import Environment
from pytest_modelperf.errors import UsageError
from pytest_modelperf.programs.trees import (
    changed_requirements,
    own_distributions,
    python_of,
    python_with,
    recorded_requirements,
)
from tests.support.stored_programs import seen_of, stored_program

SEEN = seen_of({}, distributions={"magika": "1.0.2", "numpy": "2.1.0", "PyYAML": "6.0"})


class Maker:
    """Remembers what it was asked to make."""

    def __init__(self) -> None:
        self.asked: tuple[str, ...] = ()

    def __call__(self, requirements: tuple[str, ...]) -> Environment:
        self.asked = requirements
        return Environment(Path("/made/python"), {}, Path("/made"))


def test_recorded_versions_are_exact_and_ours_are_added(tmp_path: Path) -> None:
    maker = Maker()
    assert python_of(stored_program(SEEN), tmp_path, maker) == Path("/made/python")
    assert {"magika==1.0.2", "numpy==2.1.0", "pyyaml==6.0"} <= set(maker.asked)
    names = read_requirements(maker.asked).names
    assert "pytest" in names
    assert "pytest-modelperf" not in names


def test_another_build_of_the_engine_takes_its_place(tmp_path: Path) -> None:
    seen = seen_of({}, distributions={"onnxruntime-gpu": "1.20.0"})
    names = read_requirements(recorded_requirements(seen, tmp_path)).names
    assert "onnxruntime-gpu" in names
    assert "onnxruntime" not in names


def test_one_requirement_is_changed(tmp_path: Path) -> None:
    maker = Maker()
    python_with("Magika==1.0.3", SEEN, tmp_path, maker)
    assert [each for each in maker.asked if each.lower().startswith("magika")] == ["Magika==1.0.3"]
    assert "numpy==2.1.0" in maker.asked


def test_a_requirement_of_ours_can_be_changed(tmp_path: Path) -> None:
    asked = changed_requirements("numpy==2.0.0", SEEN, tmp_path)
    assert [each for each in asked if each.startswith("numpy")] == ["numpy==2.0.0"]


def test_a_distribution_that_the_program_does_not_import_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"does not import torch.*PyYAML, magika, numpy"):
        changed_requirements("torch==2.0", SEEN, tmp_path)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose own distribution is installed from its folder, and another one."""
    site = tmp_path / "site"
    for name, folder in (("my_reader", tmp_path / "project"), ("other", tmp_path / "elsewhere")):
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "direct_url.json").write_text(
            f'{{"url": "{folder.as_uri()}", "dir_info": {{"editable": true}}}}'
        )
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    return tmp_path / "project"


def test_the_projects_own_distribution_is_left_out(project: Path) -> None:
    assert own_distributions(project) == {"my-reader"}
    seen = seen_of({}, distributions={"my_reader": "1.0", "magika": "1.0.2"})
    names = read_requirements(recorded_requirements(seen, project)).names
    assert "my-reader" not in names
    assert "magika" in names


def test_another_version_of_the_project_is_a_commit(project: Path) -> None:
    seen = seen_of({}, distributions={"my_reader": "1.0"})
    with pytest.raises(UsageError, match="by its commit or tag"):
        changed_requirements("my-reader==0.9", seen, project)
