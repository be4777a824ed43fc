"""How far the outputs of two models lie apart, and what is said where they cannot be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pytest_modelperf.baselines.output_sketch import sketch_tensors
from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.comparing.figures import describe_outputs
from pytest_modelperf.comparing.output_changes import (
    compare_outputs,
    compare_with_sketch,
    judge_outputs,
)
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.comparing.verdict_lines import describe_metric, output_lines
from pytest_modelperf.profiler.model_in_worker import Sent
from pytest_modelperf.profiler.records import Case


def sent(values: Any, dtype: npt.DTypeLike = np.float32) -> Sent:  # noqa: ANN401  # anything numpy takes
    array = np.asarray(values, dtype)
    return array.dtype.str, array.shape, array.tobytes()


def test_equal_outputs_do_not_differ() -> None:
    (change,) = compare_outputs({"y": sent([1, -2])}, {"y": sent([1, -2])})
    assert (change.max_absolute, change.max_relative) == (0.0, 0.0)
    assert change.cosine == pytest.approx(1.0)
    assert change.difference is None


def test_the_largest_difference_is_told_absolutely_and_relatively() -> None:
    (change,) = compare_outputs({"y": sent([100, 1, 0])}, {"y": sent([102, 0.5, 0])})
    assert change.max_absolute == 2.0
    assert change.max_relative == 0.5
    assert change.cosine == pytest.approx(1.0, abs=1e-4)


def test_outputs_of_other_precision_are_compared_by_value() -> None:
    (change,) = compare_outputs({"y": sent([0.5, 2])}, {"y": sent([0.5, 2], np.float16)})
    assert change.max_absolute == 0.0


def test_whole_numbers_do_not_wrap_around() -> None:
    (change,) = compare_outputs({"y": sent([0], np.uint8)}, {"y": sent([255], np.uint8)})
    assert change.max_absolute == 255.0


def test_whole_numbers_that_no_float_tells_apart_differ() -> None:
    before, after = (sent([2**53, number], np.int64) for number in (2**53, 2**53 + 1))
    (change,) = compare_outputs({"y": before}, {"y": after})
    assert change.max_absolute == 1.0


def test_the_same_infinity_is_no_difference_and_another_one_is_told() -> None:
    before = sent([np.inf, np.nan, 1])
    (same,) = compare_outputs({"y": before}, {"y": before})
    assert same.max_absolute == 0.0
    (other,) = compare_outputs({"y": before}, {"y": sent([np.inf, 0, 1])})
    assert other.difference == "1 of 3 are finite on one side only"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (sent([[1, 2]]), sent([1, 2]), "other shapes: 1x2 before, 2 now"),
        (sent([1]), sent([1], np.int64), "other types: float32 before, int64 now"),
        (("<f4", (9,), None), sent([1] * 9), "not compared: no numbers, or more than 64.00 MiB"),
    ],
)
def test_what_cannot_be_compared_is_said(before: Sent, after: Sent, said: str) -> None:
    (change,) = compare_outputs({"y": before}, {"y": after})
    assert (change.difference, change.max_absolute) == (said, None)


def held_against_sketch(before: Sent, after: Sent | None) -> OutputChange:
    sketch = sketch_tensors({"y": before}, {"y"})
    (change,) = compare_with_sketch(sketch, {} if after is None else {"y": after})
    return change


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (sent([[1, 2]]), sent([1, 2])),
        (sent([1]), sent([1], np.int64)),
        (sent([1]), None),
        (sent([0, 1]), sent([np.inf, 1])),
    ],
)
def test_what_differs_from_a_sketch_in_more_than_values_has_no_figure(
    before: Sent, after: Sent | None
) -> None:
    change = held_against_sketch(before, after)
    assert (change.is_other, change.max_absolute) == (True, None)


def test_a_value_that_is_a_number_now_and_was_none_is_told_as_such() -> None:
    change = held_against_sketch(sent([np.nan, 1]), sent([0, 1]))
    assert (change.difference, change.share) == ("other counts of NaN and infinity", None)
    assert judge_outputs([change], 0.01).verdict is Verdict.REGRESSED


def test_an_output_too_large_to_be_read_is_not_held_against_a_sketch() -> None:
    change = held_against_sketch(sent([1]), ("<f4", (1,), None))
    assert judge_outputs([change], 0.01).verdict is Verdict.INCONCLUSIVE


def test_an_output_of_one_side_only_is_said() -> None:
    gone, kept, added = compare_outputs(
        {"old": sent([1]), "y": sent([1])}, {"y": sent([1]), "new": sent([1])}
    )
    assert (gone.name, gone.difference) == ("old", "only before")
    assert (kept.name, kept.difference) == ("y", None)
    assert (added.name, added.difference) == ("new", "only now")


def test_outputs_that_were_all_renamed_are_compared_by_place() -> None:
    (change,) = compare_outputs({"a": sent([1])}, {"b": sent([3])})
    assert (change.name, change.max_absolute) == ("a / b", 2.0)


def test_nothing_at_all_has_no_direction() -> None:
    (change,) = compare_outputs({"y": sent([0, 0])}, {"y": sent([0, 0])})
    assert change.cosine is None


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        ([100.9, 0.0], Verdict.PASSED),
        ([101.1, 0.0], Verdict.REGRESSED),
        # Beside the largest value, a value near 0 may be anything small.
        ([100.0, 0.9], Verdict.PASSED),
        ([100.0, 1.1], Verdict.REGRESSED),
        ([np.nan, 0.0], Verdict.REGRESSED),
        ([100.0], Verdict.REGRESSED),
    ],
)
def test_outputs_may_differ_by_a_share_of_their_largest_value(
    now: list[float], verdict: Verdict
) -> None:
    changes = compare_outputs({"y": sent([100.0, 0.0])}, {"y": sent(now)})
    assert judge_outputs(changes, 0.01).verdict is verdict


def test_outputs_that_were_not_compared_leave_it_open_and_lost_ones_do_not() -> None:
    equal = compare_outputs({"y": sent([1.0])}, {"y": sent([1.0])})
    too_large = OutputChange(name="z", difference="not compared: more than 64 MiB")
    assert judge_outputs((*equal, too_large), 0.01).verdict is Verdict.INCONCLUSIVE
    assert judge_outputs((), 0.01).verdict is Verdict.INCONCLUSIVE
    lost = compare_outputs({"y": sent([1.0]), "z": sent([1.0])}, {"y": sent([1.0])})
    assert judge_outputs(lost, 0.01).verdict is Verdict.REGRESSED


def test_the_difference_of_outputs_is_said_as_a_share() -> None:
    found = judge_outputs(compare_outputs({"y": sent([8.0])}, {"y": sent([10.0])}), 0.01)
    assert describe_metric(found, None) == "outputs differ by 25 %, allowed +1 %"


def test_a_difference_that_is_no_share_is_said_without_one() -> None:
    same, zero = {"y": sent([1.0])}, {"y": sent([0.0])}
    for found in (compare_outputs(same, {}), compare_outputs(zero, same)):
        assert describe_metric(judge_outputs(found, 0.01), None) == "outputs differ, allowed +1 %"
    assert describe_metric(judge_outputs((), 0.01), None) == "outputs unknown, allowed +1 %"


def test_outputs_that_were_nothing_but_zeros_differ_by_no_share() -> None:
    outputs = compare_outputs({"y": sent([0.0])}, {"y": sent([3.0])})
    (line,) = output_lines(CaseComparison(Case(1, 1), (), (), outputs=outputs))
    assert line == "they differ: one was 0 everywhere before"
    metric = judge_outputs(outputs, 0.01)
    assert describe_outputs(metric) == "outputs differ where all of them were 0, allowed 1 %"
