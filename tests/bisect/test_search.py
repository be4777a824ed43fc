"""The search over versions whose times are known: what it finds, and what it asks for that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.bisect.records import Answer, BisectFigure, Regression, Search
from pytest_modelperf.bisect.search import SearchRule, find_regressions
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import ChangedModelError, MeasureError
from pytest_modelperf.stats.decisions import SearchLevels
from tests.support.bisects import NoisyJudge, TableJudge, Traits, make_versions
from tests.support.known import known

RULE = SearchRule()
ALL = SearchRule(finds_all=True)


def step_at(count: int, *steps: int, factor: float = 1.1) -> list[float]:
    """The times of versions that get slower by this factor at each of these places."""
    return [factor ** sum(place <= index for place in steps) for index in range(count)]


def search(times: list[float], rule: SearchRule = RULE, traits: Traits | None = None) -> Search:
    versions = make_versions(len(times))
    judge = TableJudge(versions, times, traits or Traits())
    return find_regressions(versions, judge, rule, lambda: 0.0)


def places(search: Search) -> list[tuple[str, str]]:
    return [(each.last_good.name, each.first_bad.name) for each in search.regressions]


def only(search: Search) -> Regression:
    (found,) = search.regressions
    return found


counts = st.integers(2, 60)


@given(st.data(), counts)
def test_the_version_with_the_step_is_found_in_the_planned_number_of_steps(
    data: st.DataObject, count: int
) -> None:
    step = data.draw(st.integers(1, count - 1))
    found = search(step_at(count, step))
    assert places(found) == [(f"1.{step - 1}", f"1.{step}")]
    assert len(found.steps) <= SearchLevels(count, 0.01).planned
    regression = only(found)
    assert known(regression.after.judged).ratio == pytest.approx(1.1)
    assert regression.before is None or regression.before.judged is not None
    assert not regression.is_gradual


@given(st.data(), st.integers(3, 40))
def test_every_step_is_found_if_all_are_requested(data: st.DataObject, count: int) -> None:
    steps = sorted(data.draw(st.sets(st.integers(1, count - 1), min_size=1, max_size=3)))
    found = search(step_at(count, *steps), ALL)
    assert places(found) == [(f"1.{step - 1}", f"1.{step}") for step in steps]
    assert found.is_whole


@given(st.data(), st.integers(3, 30))
def test_a_version_without_an_answer_is_stepped_around(data: st.DataObject, count: int) -> None:
    step = data.draw(st.integers(1, count - 1))
    inside = [f"1.{index}" for index in range(1, count - 1)]
    lost = data.draw(st.sets(st.sampled_from(inside)))
    kind = data.draw(st.sampled_from(["failing", "open_always"]))
    found = only(search(step_at(count, step), traits=Traits(**{kind: lost})))
    low, high = (int(each.name.removeprefix("1.")) for each in (found.last_good, found.first_bad))
    assert low < step <= high
    assert [each.name for each in found.between] == [f"1.{i}" for i in range(low + 1, high)]
    assert {each.name for each in found.between} <= lost


@given(st.data(), counts, st.booleans())
def test_all_comparisons_together_keep_the_level(
    data: st.DataObject,
    count: int,
    finds_all: bool,  # noqa: FBT001  # hypothesis gives it by name
) -> None:
    names = [f"1.{index}" for index in range(1, count - 1)]
    lost = data.draw(st.sets(st.sampled_from(names))) if names else set[str]()
    steps = data.draw(st.sets(st.integers(1, count - 1), min_size=1, max_size=3))
    versions = make_versions(count)
    judge = TableJudge(versions, step_at(count, *steps), Traits(open_always=lost))
    find_regressions(versions, judge, SearchRule(level=0.01, finds_all=finds_all))
    assert sum(question.level for question in judge.asked) <= 0.01 + 1e-12


def test_no_other_version_is_measured_if_the_ends_do_not_differ() -> None:
    found = search([1.0, 1.5, 1.5, 1.01])
    assert len(found.steps) == 1
    assert found.regressions == ()
    assert found.verdict is Verdict.PASSED


def test_a_faster_bad_end_is_the_answer() -> None:
    found = search([1.0, 1.0, 0.8])
    assert found.regressions == ()
    assert found.verdict is Verdict.IMPROVED


def test_ends_that_stay_open_are_reported() -> None:
    found = search([1.0, 1.1, 1.1], traits=Traits(open_always={"1.2"}))
    assert found.ends.answer is Answer.INCONCLUSIVE
    assert found.ends.attempts == 2
    assert found.regressions == ()
    assert len(found.steps) == 1


def test_an_open_step_is_decided_with_more_time() -> None:
    versions = make_versions(9)
    judge = TableJudge(versions, step_at(9, 3), Traits(open_first={"1.4"}))
    found = find_regressions(versions, judge, RULE)
    assert places(found) == [("1.2", "1.3")]
    asked = [question for question in judge.asked if question.other.name == "1.4"]
    assert [question.attempt for question in asked] == [0, 1]
    (step,) = (step for step in found.steps if step.version.name == "1.4")
    assert (step.answer, step.attempts) == (Answer.BAD, 2)


def test_a_failed_version_has_its_reason() -> None:
    found = search(step_at(5, 3), traits=Traits(failing={"1.2"}))
    (failed,) = (step for step in found.steps if step.answer is Answer.FAILED)
    assert failed.reason == "there is no wheel of 1.2"
    assert places(found) == [("1.1", "1.3")]
    assert [each.name for each in only(found).between] == ["1.2"]


def test_an_end_that_cannot_be_measured_is_an_error() -> None:
    with pytest.raises(MeasureError, match=r"no wheel of 1\.4"):
        search(step_at(5, 3), traits=Traits(failing={"1.4"}))


def test_a_model_that_changes_ends_the_search() -> None:
    versions = make_versions(5)
    table = TableJudge(versions, step_at(5, 3))

    def judge(question: object) -> object:
        if len(table.asked) == 2:
            raise ChangedModelError("the model changed")
        return table(question)  # type: ignore[arg-type]  # it is a question

    with pytest.raises(ChangedModelError):
        find_regressions(versions, judge, RULE)  # type: ignore[arg-type]  # likewise


def test_time_that_grows_in_small_steps_is_described_so() -> None:
    found = only(search([1.02**index for index in range(9)]))
    assert found.is_gradual
    assert found.pair is not None
    assert known(found.pair.judged).ratio == pytest.approx(1.02)


def test_versions_are_divided_halfway_between_the_ends() -> None:
    """A third of the way is good, two thirds are bad: the larger step is found first."""
    assert places(search([1.0, 1.04, 1.04, 1.12, 1.12])) == [("1.2", "1.3")]
    assert places(search([1.0, 1.08, 1.08, 1.12, 1.12])) == [("1.0", "1.1")]


def test_two_neighbours_are_compared_once_with_details() -> None:
    versions = make_versions(2)
    judge = TableJudge(versions, [1.0, 1.2])
    found = find_regressions(versions, judge, RULE)
    assert [question.has_details for question in judge.asked] == [True]
    assert only(found).pair is found.ends


def test_only_the_found_pair_is_asked_for_details() -> None:
    versions = make_versions(8)
    judge = TableJudge(versions, step_at(8, 5))
    find_regressions(versions, judge, RULE)
    assert [question.has_details for question in judge.asked] == [
        *[False] * (len(judge.asked) - 1),
        True,
    ]
    last = judge.asked[-1]
    assert (last.good.name, last.other.name, last.allowed) == ("1.4", "1.5", RULE.tolerance)


@pytest.mark.parametrize(("seed", "step"), [(seed, seed + 1) for seed in range(11)])
def test_noise_leads_to_no_other_version(seed: int, step: int) -> None:
    """Sessions differ by 1 %, as on a usual machine, and the step is one of 8 %."""
    versions = make_versions(12)
    judge = NoisyJudge(versions, step_at(12, step, factor=1.08), np.random.default_rng(seed))
    found = only(find_regressions(versions, judge, RULE))
    low, high = (int(each.name.removeprefix("1.")) for each in (found.last_good, found.first_bad))
    assert low < step <= high


@pytest.mark.parametrize("seed", range(8))
def test_noise_alone_does_not_count_as_a_regression(seed: int) -> None:
    versions = make_versions(12)
    judge = NoisyJudge(versions, [1.0] * 12, np.random.default_rng(seed))
    assert find_regressions(versions, judge, ALL).regressions == ()


@given(st.data(), counts)
def test_outputs_are_held_against_the_tolerance_itself_and_asked_once(
    data: st.DataObject, count: int
) -> None:
    """A small change before the large one is within the tolerance, so it is not found."""
    step = data.draw(st.integers(1, count - 1))
    small = data.draw(st.integers(0, step))
    lost = data.draw(st.sets(st.sampled_from([f"1.{n}" for n in range(1, count)]), max_size=2))
    lost -= {f"1.{count - 1}"}
    times = [1.0 + 0.005 * (n >= small) + 5.0 * (n >= step) for n in range(count)]
    rule = SearchRule(tolerance=0.01, judges=BisectFigure.OUTPUTS)
    found = search(times, rule, Traits(open_always=lost))
    regression = only(found)
    places = [int(e.name.removeprefix("1.")) for e in (regression.last_good, regression.first_bad)]
    assert places[0] < step <= places[1]
    assert all(each.attempts == 1 and each.allowed == 0.01 for each in found.steps)
