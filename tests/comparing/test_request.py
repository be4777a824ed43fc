"""The sides that a request to compare makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.request import CompareRequest
from pytest_modelperf.environments.store import make_environment
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_request import ModelRun
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.installers import FakeInstaller


def test_a_side_with_requirements_runs_in_an_environment_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELPERF_CACHE_DIR", str(tmp_path))
    made = make_environment(["engine==1.0"], installer=FakeInstaller())
    model = tmp_path / "model.onnx"
    asked = CompareRequest(
        before=ModelRun(model, Setup(), ("engine==1.0",)),
        after=ModelRun(model),
        request=ProfileRequest(),
        gate=Gate(),
    )
    with asked.opened_sides(Extensions(), lambda _: None) as (before, after):
        assert before.source == model
        assert before.setup.spec == f"popen//python={made.python}"
        assert after.setup == Setup()
