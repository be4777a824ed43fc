"""The search over units whose times are known: what it keeps, and what it asks for that."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.errors import ChangedModelError, MeasureError
from pytest_modelperf.reducing.records import StepAnswer, UnitSearch
from pytest_modelperf.reducing.search import ReduceRule, UnitQuestion, find_smallest, levels_for

LEVEL = 0.005
RULE = ReduceRule(allowed=0.05, level=LEVEL)


@dataclass
class TableUnits:
    """Answers by the times of units before and after, and keeps what it was asked.

    `together` are units that are slow only if all of them run. Those in `failing` do not run by
    themselves, and `open` says that nothing is ever shown.
    """

    before: Sequence[float]
    after: Sequence[float]
    together: Collection[int] = ()
    failing: Collection[int] = ()
    is_open: bool = False
    asked: list[UnitQuestion] = field(default_factory=list)

    def __call__(self, question: UnitQuestion) -> Metric:
        self.asked.append(question)
        if set(question.units) & set(self.failing):
            raise MeasureError("there is no kernel for Tan by itself")
        before = sum(self.before[unit] for unit in question.units)
        after = sum(self.after[unit] for unit in question.units)
        if self.together and set(self.together) <= set(question.units):
            after += before
        is_worse = after > before * (1 + question.allowed)
        verdict = Verdict.REGRESSED if is_worse else Verdict.PASSED
        return Metric(
            "latency_p50", before, after, Verdict.INCONCLUSIVE if self.is_open else verdict
        )


def search(units: TableUnits, longer: Sequence[float] | None = None) -> UnitSearch:
    told = [b - a for a, b in zip(units.before, units.after, strict=True)]
    return find_smallest(longer or told, units, RULE, lambda: 0.0)


@given(st.data(), st.integers(1, 80))
def test_one_slow_unit_is_found_wherever_it_is_and_whatever_a_profile_says(
    data: st.DataObject, count: int
) -> None:
    slow = data.draw(st.integers(0, count - 1))
    profile = data.draw(st.permutations([float(each) for each in range(count)]))
    after = [1.0] * count
    # So slow that all units together are still slower than allowed.
    after[slow] += count
    found = search(TableUnits([1.0] * count, after), profile)
    assert (found.kept, found.is_smallest) == ((slow,), True)


@given(st.integers(1, 200))
def test_a_profile_that_is_right_needs_one_question(count: int) -> None:
    units = TableUnits([1.0] * count, [1.0] * (count - 1) + [2.0])
    assert search(units).kept == (count - 1,)
    assert len(units.asked) == 1


def test_a_slowdown_that_is_everywhere_is_shown_by_one_unit() -> None:
    assert len(search(TableUnits([1.0] * 40, [1.1] * 40)).kept) == 1


@given(st.data(), st.integers(2, 24))
def test_units_that_are_slow_together_are_all_kept(data: st.DataObject, count: int) -> None:
    together = data.draw(st.sets(st.integers(0, count - 1), min_size=2, max_size=3))
    found = search(TableUnits([1.0] * count, [1.0] * count, together))
    assert (set(found.kept), found.is_smallest) == (together, True)


@given(st.data(), st.integers(1, 40), st.booleans())
def test_all_questions_and_the_one_of_the_files_keep_the_level(
    data: st.DataObject,
    count: int,
    is_open: bool,  # noqa: FBT001  # hypothesis gives it by name
) -> None:
    together = data.draw(st.sets(st.integers(0, count - 1), max_size=3))
    units = TableUnits([1.0] * count, [1.0] * count, together, is_open=is_open)
    search(units)
    of_files = levels_for(count, LEVEL).of(len(units.asked) + 1)
    assert sum(question.level for question in units.asked) + of_files <= LEVEL + 1e-12


def test_nothing_is_asked_twice() -> None:
    units = TableUnits([1.0] * 9, [1.0] * 9, {1, 7})
    search(units)
    assert len({question.units for question in units.asked}) == len(units.asked)


@pytest.mark.parametrize("is_open", [True, False])
def test_where_no_units_are_shown_to_be_slower_none_are_kept(is_open: bool) -> None:  # noqa: FBT001  # a parameter
    found = search(TableUnits([1.0] * 5, [1.0] * 5, is_open=is_open))
    assert (found.kept, found.is_smallest, found.shown_by) == ((), False, None)
    assert {step.shown for step in found.steps} == {
        StepAnswer.OPEN if is_open else StepAnswer.NOT_SLOWER
    }


def test_units_that_do_not_run_by_themselves_are_stepped_around() -> None:
    found = search(TableUnits([1.0] * 4, [3.0, 2.0, 2.0, 1.0], failing={0}))
    assert found.kept == ()
    assert found.steps[0].shown is StepAnswer.FAILED
    assert found.steps[0].reason == "there is no kernel for Tan by itself"


def test_the_step_that_showed_what_was_kept_is_known() -> None:
    found = search(TableUnits([1.0] * 6, [1.0] * 6, {2, 4}))
    step = found.shown_by
    assert step is not None
    assert (step.units, step.shown) == ((2, 4), StepAnswer.SLOWER)


def test_a_search_ends_with_its_time_and_says_so() -> None:
    now = iter(float(second) for second in range(1000))
    rule = ReduceRule(allowed=0.05, level=LEVEL, max_seconds=12.0)
    units = TableUnits([1.0] * 64, [1.0] * 64, {20, 40})
    found = find_smallest([0.0] * 64, units, rule, lambda: next(now))
    assert not found.is_smallest
    assert len(units.asked) < 12


def test_a_model_that_changes_ends_the_search() -> None:
    def judge(question: UnitQuestion) -> Metric:
        raise ChangedModelError(f"the model changed in question {question.number}")

    with pytest.raises(ChangedModelError):
        find_smallest([1.0, 0.0], judge, RULE)


def test_no_units_need_no_question() -> None:
    assert find_smallest([], TableUnits([], []), RULE, lambda: math.inf).steps == ()
