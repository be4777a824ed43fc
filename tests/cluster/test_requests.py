"""Requests for a case as JSON, and read back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

from pytest_modelperf.cluster.requests import WholeRequest, split_request
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.errors import UsageError, Wording
from pytest_modelperf.graph.binding import InputSpec
from pytest_modelperf.graph.phases import Generation, Phase
from pytest_modelperf.profiler.hookspecs import load_extensions
from pytest_modelperf.profiler.inputs.dim_sizes import PairedSizes, pair_sizes
from pytest_modelperf.profiler.inputs.given import read_given
from pytest_modelperf.profiler.inputs.mixture import Arrivals, Mixture, WorkloadMember
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup


def sent(request: ProfileRequest) -> list[ProfileRequest]:
    texts = [to_text(case) for case in split_request(request)]
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
        dims={"k": (1, 2)},
        given=mixture.largest.given,
        mixture=mixture,
        arrivals=Arrivals(20.0, 2),
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


def test_a_whole_request_keeps_its_generations_and_their_phases() -> None:
    request = ProfileRequest(generations=(Generation(5, 3), Generation(5, 9)), phases=(Phase.STEP,))
    back = from_text(to_text(WholeRequest.of(request)), WholeRequest).to_request()
    assert list(back.bindings()) == list(request.bindings())


@pytest.mark.parametrize(
    "dims", [{"seq": (64, 128), "x": (3,)}, pair_sizes([{"seq": 64, "x": 0}, {"seq": 1, "x": 9}])]
)
def test_a_whole_request_comes_back_with_all_its_cases(dims: dict[str, tuple[int, ...]]) -> None:
    inputs = (InputSpec("ids", "int64", (1, 5), (7.0,)),)
    given = read_given({"x": np.ones(3, np.float32)})
    request = ProfileRequest(
        batch_sizes=(None, 8), cores=(1, 2), dims=dims, inputs=inputs, seed=5, given=given
    )
    back = from_text(to_text(WholeRequest.of(request)), WholeRequest).to_request()
    assert back == replace(request, given=back.given)
    assert isinstance(back.dims, PairedSizes) is isinstance(dims, PairedSizes)
    assert back.given is not None
    assert back.given.arrays["x"].tolist() == [1, 1, 1]


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
    with pytest.raises(UsageError, match=r"numpy\.savez"):
        split_request(ProfileRequest(given=read_given(lambda types: types)))


def test_a_setup_comes_back_without_the_words_of_a_face() -> None:
    engine = load_extensions(["tests.support.faulty_plugin"]).engines.find("timed")
    setup = Setup(engine=engine, options={"a": "b"}, limit_s=7.0, stretch_seconds=3.0)
    sent_setup = replace(setup, wording=Wording("make baselines"))
    assert from_text(to_text(sent_setup), Setup) == setup
