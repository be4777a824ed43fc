"""Models that take as long as their names say, short runs that measure them, and a baseline."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_modelperf.baselines.changes import plan_update
from pytest_modelperf.baselines.records import BaselineRecording
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.profiler.engines.source import EngineModule
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.checkout import ROOT
from tests.support.project import read_json
from tests.support.recordings import record_baseline
from tests.support.simulated import simulate
from tests.support.small_models import ones, parse

# A run ends as soon as it knows enough, however long it may go on on a machine that is busy.
TIMED = ("--modelperf", "--modelperf-engine=timed", "--modelperf-max-seconds=30")
UPDATE = "--modelperf-update-baseline"
JSON = "--modelperf-json=run.json"
# The twin is as fast as what has no time in its name, and others differ by a factor of 2.
TIMES = ("base", "equal_200us", "slow_400us", "fast_100us", "crash")

_MODEL = "g (float[N,16] x) => (float[N,{width}] y) {{ [product] y = MatMul(x, w) }}"
_CONFTEST = "from tests.support.faulty_plugin import modelperf_register_engines"


def write_timed_models(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, and a conftest.py that brings their engine, which runs in this process."""
    for weight, name in enumerate(TIMES, 1):
        write_timed(run.path / f"{name}.onnx", weight=weight)
    run.makeconftest(_CONFTEST)
    simulate(monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


def write_timed(path: Path, *, weight: float = 1.0, width: int = 8) -> None:
    model = parse(_MODEL.format(width=width), weights={"w": weight * ones(16, width)})
    path.write_bytes(model.SerializeToString())


def record_base(folder: Path) -> BaselineRecording:
    """Return the recording that a run would store of `base.onnx`."""
    path = folder / "base.onnx"
    write_timed(path)
    setup = Setup(
        engine=EngineModule("timed", "tests.support.timed"),
        policy=SamplingPolicy(max_seconds=30.0),
    )
    return record_baseline("base", str(path), ProfileRequest(), setup, dt.date(2026, 1, 31))


def store(recording: BaselineRecording, folder: Path) -> None:
    place = BaselineStore(folder)
    place.apply(plan_update(place.read(recording.name), recording))


def test_of(model: str, **words: object) -> str:
    """The source of a test of a model, held against the baseline of `base.onnx`."""
    given = ", ".join(f"{k}={v!r}" for k, v in {"baseline": "base.onnx", **words}.items())
    return f"""
        import pytest

        @pytest.mark.perf_case(model={model!r}, {given})
        def test_model():
            pass
    """


test_of.__test__ = False  # type: ignore[attr-defined]  # its name is for those who read its calls


def cases_of(run: pytest.Pytester) -> list[Mapping[str, Any]]:
    """Return the cases in the JSON of the last run."""
    cases: list[Mapping[str, Any]] = read_json(run.path / "run.json")["cases"]
    return cases
