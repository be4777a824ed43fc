"""A profile whose cases were measured by several machines."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_modelperf.cluster.cluster import run_on_cluster
from pytest_modelperf.cluster.records import Job, JobContext
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.profiler.engines.source import EngineModule
from pytest_modelperf.profiler.model_request import MeasureRequest, ModelRun
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.known import known
from tests.support.timed_models import write_timed

SETUP = Setup(
    engine=EngineModule("timed", "tests.support.timed"), policy=SamplingPolicy(max_seconds=30.0)
)


class SeveralKinds:
    """Carries out each job at once, on a machine of the next of these kinds."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = iter(kinds)

    def submit(self, job: Job) -> Future[str]:
        context = JobContext({m.digest: Path(m.path) for m in job.models}, lambda _: None)
        profile = from_text(job.work(job.request, context), Profile)
        (case,) = profile.cases
        machine = replace(known(profile.machine), microarchitecture=next(self._kinds))
        case = replace(case, measured=replace(known(case.measured), machine=machine))
        future: Future[str] = Future()
        future.set_result(to_text(replace(profile, cases=(case,), machine=machine)))
        return future


@pytest.mark.slow
@pytest.mark.parametrize(("kinds", "noted"), [(("zen4", "icelake"), 2), (("zen4", "zen4"), 0)])
def test_cases_of_several_kinds_of_machines_say_where_they_ran(
    tmp_path: Path, kinds: tuple[str, str], noted: int
) -> None:
    model = tmp_path / "base.onnx"
    write_timed(model)
    profile = run_on_cluster(
        SeveralKinds(kinds),  # type: ignore[arg-type]  # a fake one
        MeasureRequest(ModelRun(model, SETUP), ProfileRequest(batch_sizes=(1, 8))),
        plugins=["tests.support.faulty_plugin"],
        machines=(),
    )
    notes = [note for case in profile.cases if case.measured for note in case.measured.notes]
    found = [note for note in notes if note.startswith("run on machine ")]
    assert len(found) == noted
    assert all(kind in note for kind, note in zip(kinds, found, strict=False))
