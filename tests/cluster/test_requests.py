"""Requests for a case as JSON, and read back."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.cluster.cluster import request_job, run_request
from pytest_modelperf.cluster.records import JobContext
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.errors import UsageError, Wording
from pytest_modelperf.graph.binding import Binding, InputSpec
from pytest_modelperf.graph.structure import Generation, Phase
from pytest_modelperf.profiler.hookspecs import Extensions, load_extensions
from pytest_modelperf.profiler.inputs.dim_sizes import pair_sizes
from pytest_modelperf.profiler.inputs.given import read_given
from pytest_modelperf.profiler.inputs.mixture import Arrivals, Mixture, WorkloadMember
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.model_request import ModelRun
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.timed_models import write_timed


class Arrived(Struct, frozen=True):
    """A request as it arrived at a machine."""

    source: str
    bindings: tuple[Binding, ...]
    seed: int


class EchoRequest(Struct, frozen=True):
    """A request that runs nothing."""

    models: tuple[ModelRun, ...]
    request: ProfileRequest

    def run(self, _: Extensions, __: Watch) -> Arrived:
        (model,) = self.models
        return Arrived(str(model.source), tuple(self.request.bindings()), self.request.seed)


def sent(request: ProfileRequest) -> list[ProfileRequest]:
    texts = [to_text(case) for case in request.split()]
    return [from_text(text, ProfileRequest) for text in texts]


def test_each_case_is_one_request_with_the_name_that_it_has_among_all() -> None:
    inputs = (InputSpec("ids", "int64", (1, 5), (7.0,)),)
    request = ProfileRequest(
        batch_sizes=(1, 8), cores=(1, 2), dims={"seq": (64, 128), "x": (3,)}, inputs=inputs, seed=5
    )
    cases = sent(request)
    assert len(cases) == 8
    assert {(c.batch_sizes, c.cores, tuple(c.dims.values())) for c in cases} == {
        ((batch,), (cores,), ((seq,), (3,)))
        for batch in (1, 8)
        for cores in (1, 2)
        for seq in (64, 128)
    }
    for case in cases:
        (binding,) = case.bindings()
        assert case.varying(binding) == (("seq", binding.dims["seq"]),)
        assert (case.inputs, case.seed) == (inputs, 5)


def test_each_phase_of_a_generation_is_one_request() -> None:
    state = {"h": "hn"}
    request = ProfileRequest(generations=(Generation(5, 3, state), Generation(5, 9, state)))
    cases = sent(request)
    assert [binding for case in cases for binding in case.bindings()] == list(request.bindings())
    assert [len(list(case.bindings())) for case in cases] == [1, 1, 1]


def test_a_workload_is_sent_with_the_arrays_of_its_members() -> None:
    members = (
        WorkloadMember(name="seq=3", weight=2, dims={"seq": 3}),
        WorkloadMember(name="a", given=read_given({"x": np.ones((1, 9), np.float32)})),
    )
    mixture = Mixture.of(members)
    request = ProfileRequest(
        dims={"k": (1, 2)}, given=mixture.largest.given, mixture=mixture, arrivals=Arrivals(20.0, 2)
    )
    cases = sent(request)
    assert [binding for case in cases for binding in case.bindings()] == list(request.bindings())
    for case in cases:
        assert case.arrivals == request.arrivals
        assert case.mixture is not None
        assert case.mixture.facts == mixture.facts
        given = case.mixture.members[1].given
        assert given is not None
        np.testing.assert_array_equal(given.arrays["x"], np.ones((1, 9), np.float32))


@pytest.mark.parametrize(
    "request_",
    [
        ProfileRequest(generations=(Generation(5, 3), Generation(5, 9)), phases=(Phase.STEP,)),
        ProfileRequest(batch_sizes=(None, 8), cores=(1, 2), dims={"seq": (64, 128), "x": (3,)}),
        ProfileRequest(dims=pair_sizes([{"seq": 64, "x": 0}, {"seq": 1, "x": 9}]), seed=5),
        ProfileRequest(inputs=(InputSpec("ids", "int64", (1, 5), (7.0,)),)),
    ],
    ids=["generations", "combinations", "pairs", "inputs"],
)
def test_a_whole_request_arrives_with_all_its_cases(
    request_: ProfileRequest, tmp_path: Path
) -> None:
    write_timed(tmp_path / "here.onnx")
    asked = EchoRequest((ModelRun(tmp_path / "here.onnx"),), request_)
    job = request_job(asked, "echo", plugins=(), machines=("board",))
    assert (job.name, job.machines, job.cores) == ("echo", ("board",), max(request_.cores))
    (content,) = job.models
    assert str(tmp_path) not in job.request
    context = JobContext({content.digest: Path("there.onnx")}, lambda _: None)
    found = from_text(run_request(job.request, context), Arrived)
    assert found == Arrived("there.onnx", tuple(request_.bindings()), request_.seed)


def test_arrays_arrive_as_a_model_takes_them() -> None:
    given = read_given(
        {
            "floats": np.arange(6, dtype=np.float32).reshape(2, 3),
            "halves": np.array([1.5, -2.0], dtype=ml_dtypes.bfloat16),
            "texts": np.array(["a", "longer"], dtype=object),
        }
    )
    (case,) = sent(ProfileRequest(given=given))
    assert case.given is not None
    arrays = case.given.arrays
    assert arrays["floats"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["halves"].view(ml_dtypes.bfloat16).tolist() == [1.5, -2.0]
    assert arrays["texts"].tolist() == ["a", "longer"]
    assert case.given.source == given.source


def test_a_function_that_makes_inputs_does_not_travel() -> None:
    request = ProfileRequest(given=read_given(lambda types: types))
    with pytest.raises(UsageError, match=r"numpy\.savez"):
        request_job(EchoRequest((), request), "echo", plugins=(), machines=())


def test_a_setup_comes_back_without_the_words_of_a_face() -> None:
    engine = load_extensions(["tests.support.faulty_plugin"]).engines.find("timed")
    setup = Setup(engine=engine, options={"a": "b"}, limit_s=7.0, stretch_seconds=3.0)
    sent_setup = replace(setup, wording=Wording("make baselines"))
    assert from_text(to_text(sent_setup), Setup) == setup
