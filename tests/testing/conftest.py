"""A project to run pytest in, where it finds our plugin and no other that is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# A run inside of this process forgets the modules that it loaded, and numpy cannot be loaded twice:
# so all that a run may need is loaded here.
import pytest_modelperf
import pytest_modelperf.testing.ahead
import pytest_modelperf.testing.checking
import pytest_modelperf.testing.formats
import pytest_modelperf.testing.hooks
import pytest_modelperf.testing.report
from pytest_modelperf.baselines.records import BaselineRecording
from pytest_modelperf.files.store import FOLDER_VARIABLE
from pytest_modelperf.stats.quantiles import load_quantiles
from tests.support.project import write_dense, write_linear
from tests.support.timed_models import record_base, write_timed_models

load_quantiles()


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with two models; the terminal is 80 columns wide."""
    write_linear(pytester.path / "linear.onnx")
    write_dense(pytester.path / "dense.onnx")
    package = str(Path(pytest_modelperf.__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", package, prepend=os.pathsep)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_modelperf.plugin -p no:cacheprovider")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv(FOLDER_VARIABLE, f"{pytester.path}-cache")
    # The environment of these tests does not belong to what they test.
    for name in ("CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return pytester


@pytest.fixture
def models(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """The folder with models whose times are known, on an engine that runs in this process."""
    write_timed_models(run, monkeypatch)
    return run


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> BaselineRecording:
    """A baseline of `base.onnx`."""
    return record_base(tmp_path_factory.mktemp("recorded"))
