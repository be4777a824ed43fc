"""Measuring completes a model by what its run saw, and leaves the one it was given as it was."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measured_cases import measure_case, measure_model
from pytest_modelperf.profiler.measurements import Kernel, KernelRun, Noise, RowKind
from pytest_modelperf.profiler.model_in_worker import CasePlace, add_layer_times
from pytest_modelperf.profiler.pairs.run import Wanted, run_pair
from pytest_modelperf.profiler.prepare import Model, Pair, PreparedModel, prepare
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.profiles import make_measurement
from tests.support.small_models import parse

SETUP = Setup(policy=SamplingPolicy(max_seconds=0.2))
MODEL = parse(
    """
    g (float[16] x, float[16,8] w) => (float[M,8] y) {
        found = NonZero(x)
        i = Transpose <perm = [1, 0]> (found)
        rows = GatherND(w, i)
        y = MatMul(rows, v)
    }
    """,
    weights={"v": np.ones((8, 8), np.float32)},
)


@pytest.fixture
def model() -> PreparedModel:
    return prepare(Model.load(MODEL, ProfileRequest(), Extensions()))


def place_of(model: PreparedModel) -> CasePlace:
    return CasePlace(model.case(1), 1, 1, lambda _: None)


@pytest.mark.parametrize("takes_layers", [True, False])
def test_a_measured_model_is_returned_complete_and_stays_as_it_was(
    model: PreparedModel, *, takes_layers: bool
) -> None:
    before = model.static
    found = measure_case(model, SETUP, place_of(model), takes_layers=takes_layers)
    assert model.static is before
    assert before.coverage < 1.0
    assert found.model.static.graph_alone is before
    assert found.profile.static is found.model.static
    assert found.model.static.coverage == 1.0
    again = measure_case(found.model, SETUP, place_of(model), takes_layers=False)
    assert again.model is found.model


@pytest.mark.parametrize("is_detailed", [True, False])
def test_both_sides_of_a_pair_are_returned_complete(
    model: PreparedModel, *, is_detailed: bool
) -> None:
    pair = Pair(model, model, SETUP, SETUP)
    ran = run_pair(pair, Gate(), place_of(model), Wanted(lambda _: is_detailed))
    assert model.static.graph_alone is None
    for side in (ran.before, ran.after):
        assert side.model.static.coverage == side.profile.static.coverage == 1.0


@pytest.mark.parametrize(
    ("undisturbed", "others_ns", "waits"),
    [(True, 600_000_000, True), (True, 0, False), (False, 600_000_000, False)],
)
def test_layers_are_undisturbed_if_others_ran_and_the_policy_wants_it(
    model: PreparedModel, *, undisturbed: bool, others_ns: int, waits: bool
) -> None:
    measured = make_measurement(8.0)
    noise = Noise(wall_ns=1_000_000_000, others_ns=others_ns)
    rounds = tuple(replace(r, block=replace(r.block, noise=noise)) for r in measured.rounds)
    measured = replace(measured, rounds=rounds)
    kernel = Kernel(name="inserted", op_type="Inserted", self_ns=(3e6,) * 20)
    run = KernelRun(kernels=(kernel,), run_ns=(4e6,) * 20)
    found = add_layer_times(model, measured, run, None, undisturbed=undisturbed)
    first, *_, last = found.layer_times or ()
    assert (last.kind is RowKind.WAITING) == (first.ns == 3e6) == waits


def test_a_note_says_that_kernels_of_a_device_have_the_time_of_their_start(
    model: PreparedModel,
) -> None:
    def notes_of(provider: str) -> tuple[str, ...]:
        kernel = Kernel(name="k", op_type="Conv", self_ns=(3e6,) * 20, provider=provider)
        run = KernelRun(kernels=(kernel,), run_ns=(4e6,) * 20)
        return add_layer_times(model, make_measurement(8.0), run, None).notes

    assert notes_of("CPUExecutionProvider") == ()
    (note,) = notes_of("CUDAExecutionProvider")
    assert note == (
        "layers on CUDA have the time that it takes to start them, not to run them: "
        "what still runs when the last one has started is runtime overhead"
    )


@pytest.mark.slow
@pytest.mark.parametrize("setup", [SETUP, replace(SETUP, limit_s=50.0)])
def test_no_outputs_are_read_if_they_are_not_compared(model: PreparedModel, setup: Setup) -> None:
    pair = Pair(model, model, SETUP, setup)
    for compares_outputs in (True, False):
        wanted = Wanted(lambda _: True, compares_outputs=compares_outputs)
        ran = run_pair(pair, Gate(), place_of(model), wanted)
        assert [side.outputs is not None for side in (ran.before, ran.after)] == [
            compares_outputs
        ] * 2


def test_facts_from_one_run_hold_for_every_number_of_cores() -> None:
    first, second = measure_model(MODEL, ProfileRequest(cores=(1, 2)), SETUP).cases
    assert first.static.coverage == 1.0
    assert first.static is second.static
