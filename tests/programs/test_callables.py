"""Two callables, or one and an ONNX model, in turn in this process; and the speedup of both."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.comparing.gates import median_gate
from pytest_modelperf.comparing.limits import Tolerances
from pytest_modelperf.comparing.records import CaseComparison, How, Metric, Speedup, Verdict
from pytest_modelperf.errors import EngineOptionError, UsageError
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY, SamplingPolicy
from pytest_modelperf.profiler.sampling.rounds import sample_duet
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.programs.callables import (
    ComparedPair,
    as_array,
    compare_callables,
    feeds_of,
    judge_callables,
    sent_outputs,
)
from pytest_modelperf.stats.records import Ratio
from tests.support.fake_bench import MS, US, FakeBench, FakeClock, FakeDuetBench, steady
from tests.support.project import write_dense
from tests.support.small_models import parse

GATE = median_gate(0.03, 0.01, 10.0)
SETUP = Setup(policy=SamplingPolicy(max_seconds=0.2))
CASE = Case(1, 1)
INPUTS = np.ones((4, 3), np.float32)

Array = npt.NDArray[np.float32]


def rounds_of(before_ns: int, after_ns: int) -> tuple[DuetRound, ...]:
    """The rounds of sides that take so long, of which rounds differ a little."""
    clock = FakeClock()
    sides = [
        FakeBench(clock, steady(ns), sessions=0.01, jitter=0.02, seed=seed, loads_once=True)
        for seed, ns in enumerate((before_ns, after_ns))
    ]
    policy = replace(DUET_POLICY, max_seconds=10.0, max_rounds=GATE.rounds)
    return sample_duet(FakeDuetBench(*sides), policy, clock, lambda _: None, GATE.is_decided)


def compare(before: Any, after: Any, *inputs: object) -> CaseComparison:  # noqa: ANN401  # of any kind
    return compare_callables(
        ComparedPair(before=before, after=after, inputs=inputs, setup=SETUP), GATE
    )


def test_a_comparison_with_a_number_holds_for_the_whole_interval() -> None:
    speedup = Speedup(2.0, 1.8, 2.2)
    assert speedup > 1.7
    assert speedup >= 1.8
    assert speedup < 2.3
    assert speedup <= 2.2
    assert not speedup > 1.9
    assert not speedup < 2.1
    assert not speedup > 1.8
    assert not speedup < 2.2


def test_a_speedup_without_an_interval_is_neither_more_nor_less_than_a_number() -> None:
    for unsure in (Speedup(2.0), Speedup()):
        assert not any((unsure > 1, unsure >= 1, unsure < 3, unsure <= 3))
    assert float(Speedup(2.0)) == 2.0
    assert math.isnan(float(Speedup()))


def test_a_speedup_is_the_slowdown_turned_around() -> None:
    speedup = Speedup.of_slowdown(Ratio(0.5, 0.4, 0.8))
    assert (speedup.value, speedup.low, speedup.high) == (2.0, 1.25, 2.5)


@pytest.mark.parametrize(
    ("speedup", "text"),
    [
        (Speedup(2.314, 2.2, 2.4399), "2.31x (2.20 to 2.44)"),
        (Speedup(0.4184, 0.395, 9.996), "0.418x (0.395 to 10.0)"),
        (Speedup(231.4, 99.96, math.inf), "231x (100 to inf)"),
        (Speedup(2.0), "2.00x (interval unknown)"),
        (Speedup(), "unknown"),
    ],
)
def test_a_failed_assertion_shows_the_speedup_with_its_interval(
    speedup: Speedup, text: str
) -> None:
    assert repr(speedup) == text


def test_work_that_is_the_same_on_both_sides_has_the_speedup_1() -> None:
    same = CaseComparison(CASE, (), (), outcome=Verdict.UNCHANGED)
    by_plan = CaseComparison(CASE, (), (), how=How.PLAN)
    assert same.speedup <= 1
    assert by_plan.speedup >= 1


def test_sides_that_did_not_run_in_turn_have_no_speedup() -> None:
    stored = Metric("latency_p50", 2.0, 1.0, Verdict.IMPROVED, interval=(0.4, 0.6))
    for how in (None, How.STORED):
        assert repr(CaseComparison(CASE, (stored,), (), how=how).speedup) == "unknown"
    assert repr(CaseComparison(CASE, (stored,), (), how=How.DUET).speedup) == "2.00x (1.67 to 2.50)"


def test_a_callable_that_takes_half_the_time_is_twice_as_fast() -> None:
    found = judge_callables(CASE, rounds_of(4 * MS, 2 * MS), GATE, ())
    assert found.verdict is Verdict.IMPROVED
    assert 1.8 < found.speedup < 2.2
    assert float(found.speedup) == pytest.approx(2.0, rel=0.02)


def test_callables_that_take_the_same_time_are_neither_faster_nor_slower() -> None:
    found = judge_callables(CASE, rounds_of(400 * US, 400 * US), GATE, ())
    assert found.verdict is Verdict.PASSED
    assert not found.speedup > 1
    assert not found.speedup < 1


def test_outputs_that_differ_by_more_than_rounding_are_noted() -> None:
    rounds = rounds_of(MS, MS)
    rounding = OutputChange(name="y", max_absolute=1e-6, largest=1.0)
    other = OutputChange(name="z", max_absolute=0.25, largest=1.0)
    shape = OutputChange(name="u", difference="other shapes: 1 before, 2 now", is_other=True)
    assert judge_callables(CASE, rounds, GATE, (rounding,)).notes == ()
    (note,) = judge_callables(CASE, rounds, GATE, (rounding, other, shape)).notes
    assert "z, by 25 % of its largest value; u, other shapes: 1 before, 2 now" in note


def test_outputs_fail_a_comparison_only_with_a_tolerance() -> None:
    rounds = rounds_of(MS, MS)
    other = OutputChange(name="z", max_absolute=0.25, largest=1.0)
    strict = replace(GATE, tolerances=replace(GATE.tolerances, figures=(("outputs", 0.1),)))
    assert judge_callables(CASE, rounds, GATE, (other,)).verdict is Verdict.PASSED
    assert judge_callables(CASE, rounds, strict, (other,)).verdict is Verdict.REGRESSED


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    """A model that multiplies by ones."""
    path = tmp_path / "dense.onnx"
    write_dense(path, width=5)
    return path


def multiply(x: Array) -> Array:
    return x @ np.ones((3, 5), np.float32)


def test_a_callable_and_a_model_get_the_same_inputs(dense: Path) -> None:
    found = compare(multiply, dense, INPUTS)
    (output,) = found.outputs
    assert (output.name, output.max_absolute) == ("output / y", 0.0)
    assert found.failure is None
    assert found.how is How.DUET


def test_a_model_in_memory_runs_as_its_file_does(dense: Path) -> None:
    found = compare(multiply, dense.read_bytes(), INPUTS)
    assert [each.max_absolute for each in found.outputs] == [0.0]


def test_a_dict_has_the_inputs_of_a_model_by_name(dense: Path) -> None:
    found = compare(dense, lambda feeds: multiply(feeds["x"]), {"x": INPUTS})
    assert [each.max_absolute for each in found.outputs] == [0.0]


def test_both_sides_run_in_turn_and_equally_often() -> None:
    calls: list[str] = []
    assert compare(lambda: calls.append("before"), lambda: calls.append("after")).failure is None
    assert calls.count("before") == calls.count("after")
    # The block of a round shuffles the sides, so no side runs many times in a row.
    longest = max(
        len(run)
        for side in ("before", "after")
        for run in "".join("#" if call == side else " " for call in calls).split()
    )
    assert longest <= 4


def test_a_side_that_fails_is_named_and_has_no_speedup(dense: Path) -> None:
    def fail(_: Array) -> None:
        raise RuntimeError("no luck today")

    for pair, side in (((fail, dense), "before"), ((dense, fail), "after")):
        found = compare(*pair, INPUTS)
        assert found.has_failed
        assert found.failed_side == side
        assert "no luck today" in str(found.failure)
        assert not any((found.speedup > 0, found.speedup < 1e9))


def test_a_model_that_the_engine_refuses_is_a_failed_side() -> None:
    model = parse("g (float[2,3] x) => (float[2,3] y) { y = my.ops.Blend(x) }")
    found = compare(lambda x: x, model, INPUTS)
    assert found.failed_side == "after"
    assert "my.ops" in str(found.failure)


@pytest.mark.parametrize("kind", ["coroutine", "generator"])
def test_a_function_whose_call_runs_nothing_is_refused(kind: str) -> None:
    async def coroutine() -> None: ...

    def generator() -> Any:  # noqa: ANN401  # a generator
        yield 1

    side: Callable[[], object] = {"coroutine": coroutine, "generator": generator}[kind]
    with pytest.raises(EngineOptionError, match=f"{kind}.*calling it runs nothing"):
        compare(side, lambda: None)


def test_inputs_of_a_model_are_in_its_order_or_by_name() -> None:
    in_order = feeds_of(["a", "b"], (1, [2.0]), "m.onnx")
    by_name = feeds_of(["a", "b"], ({"b": [2.0], "a": 1},), "m.onnx")
    assert {name: array.tolist() for name, array in in_order.items()} == {"a": 1, "b": [2.0]}
    assert {name: array.tolist() for name, array in by_name.items()} == {"a": 1, "b": [2.0]}


def test_inputs_that_a_model_does_not_have_are_refused() -> None:
    with pytest.raises(UsageError, match=r"m\.onnx has 1 input, and 2 are given"):
        feeds_of(["a"], (1, 2), "m.onnx")
    with pytest.raises(UsageError, match=r"m\.onnx has no input 'c'.*a"):
        feeds_of(["a"], ({"c": 1},), "m.onnx")


class Tensor:
    """A tensor as torch has it: an array only after `detach` and `cpu`."""

    def __init__(self, values: list[float], *, is_plain: bool = False) -> None:
        self._values = values
        self._is_plain = is_plain

    def detach(self) -> Tensor:
        return Tensor(self._values)

    def cpu(self) -> Tensor:
        return Tensor(self._values, is_plain=True)

    def __array__(self, dtype: Any = None, copy: Any = None) -> npt.NDArray[Any]:  # noqa: ANN401  # of numpy
        assert self._is_plain, "it is on a device or needs its gradient"
        return np.array(self._values)


def test_a_tensor_is_read_wherever_it_is() -> None:
    assert as_array(Tensor([1.0, 2.0])).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("result", "names"),
    [
        (INPUTS, ["output"]),
        ([INPUTS], ["output"]),
        ((INPUTS, INPUTS), ["output 1", "output 2"]),
        ({"a": INPUTS, "b": 1.0}, ["a", "b"]),
        (None, ["output"]),
    ],
)
def test_outputs_are_named_by_key_or_place(result: object, names: list[str]) -> None:
    assert list(sent_outputs(result)) == names


def test_outputs_of_a_model_have_its_names() -> None:
    assert list(sent_outputs([INPUTS, INPUTS], ["u", "v"])) == ["u", "v"]


def test_the_default_tolerances_judge_the_median_of_callables() -> None:
    gate = replace(GATE, tolerances=Tolerances())
    found = judge_callables(CASE, rounds_of(MS, 2 * MS), gate, ())
    assert found.verdict is Verdict.REGRESSED
    assert found.speedup < 0.6
