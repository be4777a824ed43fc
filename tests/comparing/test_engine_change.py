"""Which version of an engine is installed, whichever package brings it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

import pytest

from pytest_modelperf.comparing.since_recorded import EngineChange, change_of_engine, with_builds

Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Has an environment of these packages alone, as in `("onnxruntime-gpu", "1.31.1")`."""

    def only(*packages: tuple[str, str]) -> None:
        versions = dict(packages)

        def version(name: str) -> str:
            if name not in versions:
                raise importlib.metadata.PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(importlib.metadata, "version", version)

    return only


def test_another_build_has_the_version_of_its_engine(install: Install) -> None:
    install(("onnxruntime-gpu", "1.31.1"))
    change = change_of_engine("onnxruntime", "1.30.0")
    assert change == EngineChange("onnxruntime", "1.30.0", "1.31.1")
    assert change.recorded_requirement == "onnxruntime-gpu==1.30.0"


def test_packages_name_an_engine_that_another_build_brings(install: Install) -> None:
    install(("onnxruntime-gpu", "1.31.1"))
    assert with_builds({"onnx": "1.23"}) == {"onnx": "1.23", "onnxruntime": "1.31.1"}
    assert with_builds({"onnxruntime": "1.30.0"}) == {"onnxruntime": "1.30.0"}
    install()
    assert with_builds({}) == {}


def test_no_change_is_told_while_one_of_several_builds_has_the_recorded_version(
    install: Install,
) -> None:
    install(("onnxruntime", "1.30.0"), ("onnxruntime-gpu", "1.31.1"))
    assert change_of_engine("onnxruntime", "1.31.1") is None


def test_an_engine_that_no_package_brings_has_not_changed(install: Install) -> None:
    install()
    assert change_of_engine("onnxruntime", "1.30.0") is None
