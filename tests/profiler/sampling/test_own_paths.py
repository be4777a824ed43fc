"""The paths on which a worker finds modules: those of this process, after its own packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_modelperf.profiler.engines.source import (
    BUILT_IN,
    CALLABLE_ENGINE,
    DEFAULT_ENGINE,
    EngineModule,
)
from pytest_modelperf.profiler.measured_cases import measure_function
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup, worker_request
from pytest_modelperf.profiler.sampling.worker_bench import start_worker
from pytest_modelperf.profiler.worker.gateway import python_spec

OTHER = python_spec("/other/venv/bin/python")


@pytest.mark.parametrize("place", ["src/app", "src/app/tests", "local/src", "."])
def test_a_project_below_the_prefix_of_the_interpreter_is_the_users_own(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path / place)])
    assert worker_request(Setup(), cores=1).paths == [str(tmp_path / place)]


@pytest.mark.parametrize(
    "place",
    [
        *("lib/python3.12", "lib/python3.12/lib-dynload", "lib/python312.zip"),
        *("lib/python3/dist-packages", "local/lib/python3.12/dist-packages"),
        *("Lib", "DLLs", "python312.zip", "Lib/site-packages", "Lib/site-packages/win32"),
    ],
)
def test_installed_packages_do_not_count_as_own_paths(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path / place)])
    assert worker_request(Setup(), cores=1).paths == []


@pytest.mark.parametrize(
    "engine", [BUILT_IN[CALLABLE_ENGINE], EngineModule("own", "my_package.my_engine")]
)
def test_imports_of_user_modules_find_those_of_the_test_in_their_order(
    engine: EngineModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, installed = str(tmp_path / "src"), str(tmp_path / "lib" / "site-packages")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [own, "tests", installed])
    request = worker_request(Setup(engine=engine), cores=1)
    assert request.is_whole_path
    assert request.paths[:3] == [own, str(tmp_path / "tests"), installed]
    # A function may be named from the working folder.
    assert request.paths[3:] == ([str(tmp_path)] if engine.name == CALLABLE_ENGINE else [])


@pytest.mark.parametrize("engine", [DEFAULT_ENGINE, CALLABLE_ENGINE])
def test_another_interpreter_has_packages_of_its_own(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, installed = str(tmp_path / "src"), str(tmp_path / "lib" / "site-packages")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [own, installed])
    request = worker_request(Setup(engine=BUILT_IN[engine], spec=OTHER), cores=1)
    assert not request.is_whole_path
    assert installed not in request.paths
    assert request.paths[0] == own


SEES_PATH = """
import sys

def describe(options):
    return {"path": sys.path}
"""


def test_a_function_is_read_from_the_file_that_the_test_would_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project has the package in `src`, and a release of it is installed."""
    for place in ("src", "site-packages"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "sold_package.py").write_text("def run(): pass\n")
    monkeypatch.setattr(
        sys, "path", [str(tmp_path / "src"), str(tmp_path / "site-packages"), *sys.path]
    )
    setup = Setup(engine=BUILT_IN[CALLABLE_ENGINE], policy=SamplingPolicy(max_seconds=0.2))
    profile = measure_function("sold_package:run", ProfileRequest(), setup)
    assert profile.model.function_file == str(tmp_path / "src" / "sold_package.py")


def test_another_interpreter_imports_what_is_installed_there_before_our_pythonpath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the side of the older version would import the new one."""
    (tmp_path / "sees_path.py").write_text(SEES_PATH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    setup = Setup(spec=python_spec(sys.executable), engine=EngineModule("own", "sees_path"))
    with start_worker(setup, cores=1) as worker:
        path = worker.use_engine(setup.engine, {})["path"]
    assert path.count(str(tmp_path)) == 1
    assert path.index(str(tmp_path)) > max(n for n, p in enumerate(path) if "packages" in p)
