"""Ratios chained across baselines: levels add up, and so do their variances."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.history.records import (
    HISTORY,
    History,
    HistoryLine,
    HistoryMetric,
    Tag,
    shift_since,
)
from pytest_modelperf.history.report import history_report
from pytest_modelperf.history.store import HistoryStore
from pytest_modelperf.history.summary import (
    ChainOfCase,
    HistoryQuery,
    chain_cases,
    summarize_case,
    variances_of,
)
from pytest_modelperf.report.exports import render_csv
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.stats.linked_levels import moderated
from tests.history.lines import FIRST_DAY, make_line, make_ratio
from tests.support.known import known

RATIOS = st.floats(min_value=0.2, max_value=5)
ERRORS = st.floats(min_value=1e-4, max_value=0.1)


def chain(*lines: HistoryLine, metric: HistoryMetric = HistoryMetric.P50) -> ChainOfCase:
    (found,) = chain_cases(lines, metric).values()
    return found


@given(ratio=RATIOS, error=ERRORS)
def test_the_variance_is_the_one_that_the_interval_was_made_of(ratio: float, error: float) -> None:
    (variance,) = variances_of([make_ratio(ratio, error)])
    assert variance == pytest.approx(error**2, rel=1e-6)


@given(links=st.lists(st.tuples(RATIOS, ERRORS), min_size=1, max_size=6))
def test_ratios_multiply_along_the_links_and_variances_add(
    links: list[tuple[float, float]],
) -> None:
    """Each model is measured against the one before, and then becomes the baseline."""
    found = chain(
        *(
            make_line(day, ratio, error, baseline=f"{day}", digest=f"{day + 1}")
            for day, (ratio, error) in enumerate(links)
        )
    )
    last = found.points[-1]
    variances = moderated([error**2 for _, error in links])
    assert last.level == pytest.approx(sum(math.log(ratio) for ratio, _ in links), abs=1e-9)
    assert last.variance == pytest.approx(variances[-1], rel=1e-6)
    assert last.variance + last.link_variance == pytest.approx(
        sum(variances[len(links) > 1 :]), rel=1e-6
    )
    assert found.earlier_points == 0


def test_an_update_without_a_ratio_is_linked_by_an_earlier_run_of_the_model() -> None:
    found = chain(
        make_line(0, 1.1, baseline="a", digest="b", verdict="regressed"),
        make_line(1, None, baseline="a", digest="b", verdict="recorded", recorded=True),
        make_line(2, 1.2, baseline="b", digest="c"),
    )
    assert [math.exp(point.level) for point in found.points] == pytest.approx([1.1, 1.32])
    assert found.earlier_points == 0


def test_a_baseline_that_was_never_measured_begins_a_new_chain() -> None:
    found = chain(
        make_line(0, 1.1, baseline="a", digest="b"),
        make_line(1, None, baseline="a", digest="z", verdict="recorded", recorded=True),
        make_line(2, 1.2, baseline="z", digest="c"),
    )
    assert [math.exp(point.level) for point in found.points] == pytest.approx([1.2])
    assert found.earlier_points == 1


def test_an_older_baseline_that_comes_back_keeps_its_level() -> None:
    found = chain(
        make_line(0, 1.5, baseline="a", digest="b"),
        make_line(1, 1.0, baseline="b", digest="c"),
        make_line(2, 1.0, baseline="a", digest="d"),
    )
    assert [math.exp(point.level) for point in found.points] == pytest.approx([1.5, 1.5, 1.0])


@given(order=st.permutations(range(4)))
def test_older_lines_behind_newer_ones_change_nothing(order: list[int]) -> None:
    lines = [
        make_line(0, 1.1, baseline="a", digest="b"),
        make_line(1, 1.0, baseline="b", digest="c"),
        make_line(2, 1.2, baseline="c", digest="d"),
        make_line(3, 1.0, baseline="d"),
    ]
    assert chain(*(lines[day] for day in order)).points == chain(*lines).points


@given(errors=st.permutations([0.0026, 0.003, 0.004]), ratios=st.tuples(RATIOS, RATIOS, RATIOS))
def test_the_most_certain_measurement_of_a_model_links_it(
    errors: list[float], ratios: tuple[float, float, float]
) -> None:
    measured = [make_line(day, ratios[day], errors[day], digest="b") for day in range(3)]
    found = chain(*measured, make_line(9, 1.0, baseline="b"))
    last = found.points[-1]
    assert last.level == pytest.approx(math.log(ratios[errors.index(0.0026)]), abs=1e-9)
    assert found.levels.linked.variances == pytest.approx([0.0, 0.0026**2], rel=1e-6)


def test_a_point_that_measured_a_later_baseline_is_a_link() -> None:
    """Only the most certain run of one model is a link, and that of a baseline is not."""
    found = chain(
        make_line(0, 1.0, 0.0, baseline="a", digest="a"),
        make_line(1, 1.1, 0.004, baseline="a", digest="b"),
        make_line(2, 1.1, 0.003, baseline="a", digest="b"),
        make_line(3, 1.0, 0.0, baseline="b", digest="b"),
        make_line(4, 1.1, 0.002, baseline="b", digest="c"),
    )
    assert found.levels.are_links == [False, False, True, False, False]
    assert found.since(FIRST_DAY + dt.timedelta(days=2)).levels.are_links == [True, False, False]


def test_the_step_to_a_new_baseline_is_as_certain_as_its_measurement() -> None:
    """The run that measured the new model also links its baseline to the one before."""
    lines = [make_line(day, 1.0, 0.0, baseline="a", digest="a") for day in range(9)]
    lines.append(make_line(9, 1.05, 0.01, baseline="a", digest="b"))
    lines += [make_line(day, 1.0, 0.0, baseline="b", digest="b") for day in range(10, 20)]
    ((key, found),) = chain_cases(lines, HistoryMetric.P50).items()
    file = HistoryStore(Path("history")).file("m", "linux")
    case = known(summarize_case(file, *key, found, HistoryQuery()))
    (step,) = case.steps
    assert step.after is found.point(9)
    assert step.shift.error == pytest.approx(0.01, rel=0.01)


def test_the_errors_of_links_do_not_count_between_points_of_one_baseline() -> None:
    found = chain(
        make_line(0, 1.0, 0.05, baseline="a", digest="b"),
        make_line(1, 1.0, 0.003, baseline="b"),
        make_line(2, 1.1, 0.004, baseline="b"),
    )
    assert found.shift(1, 2).error == pytest.approx(0.005, rel=1e-6)


def test_a_run_that_measured_a_baseline_has_no_error_of_its_own() -> None:
    """Its error is that of the link, which the points of the baseline have as well."""
    found = chain(
        make_line(0, 1.0, 0.0025, baseline="a"),
        make_line(1, 1.1, 0.05, baseline="a", digest="b"),
        make_line(2, 1.0, 0.003, baseline="b"),
    )
    assert found.shift(1, 2).error == pytest.approx(0.003, rel=1e-6)
    assert found.shift(0, 2).error == pytest.approx(math.hypot(0.0025, 0.05, 0.003), rel=1e-6)


def test_a_run_whose_rounds_agree_by_chance_has_the_error_of_the_others() -> None:
    """It would report a drift that did not happen; an unchanged model has an error of zero."""
    found = chain(
        make_line(0, 1.0, 0.0),
        *(make_line(day, 1.0, 0.01) for day in range(1, 6)),
        make_line(6, 1.005, 0.0001),
    )
    assert found.shift(0, 6).error == pytest.approx(math.sqrt(0.5) * 0.01, rel=1e-6)


def test_baselines_on_both_sides_of_a_reverted_one_share_no_link() -> None:
    found = chain(
        make_line(0, 1.0, 0.006, baseline="a", digest="b"),
        make_line(1, 1.0, 0.005, baseline="b"),
        make_line(2, 1.0, 0.006, baseline="a", digest="d"),
        make_line(3, 1.1, 0.004, baseline="d"),
    )
    error = pytest.approx(math.hypot(0.006, 0.005, 0.006, 0.004), rel=1e-6)
    assert found.shift(1, 3).error == error
    later = found.since(FIRST_DAY + dt.timedelta(days=1))
    assert shift_since(later.point(0), later.point(2)).error == error
    query = HistoryQuery(tag=Tag("v1", "elsewhere", FIRST_DAY + dt.timedelta(days=1)))
    file = HistoryStore(Path("history")).file("m", "linux")
    case = known(summarize_case(file, "b1-c1", None, found, query))
    assert known(case.since_tag).error == error


def test_a_chain_of_the_largest_ratios_is_listed_in_every_form() -> None:
    """Forty of them multiply to more than a float can hold."""
    models = [f"{number:064d}" for number in range(40)]
    lines = [
        make_line(day, 1e8, baseline=before, digest=after)
        for day, (before, after) in enumerate(itertools.pairwise(models))
    ]
    ((key, chain),) = chain_cases(lines, HistoryMetric.P50).items()
    file = HistoryStore(Path("history")).file("m", "linux")
    case = known(summarize_case(file, *key, chain, HistoryQuery()))
    assert case.count == len(lines)
    history = History(metric=HistoryMetric.P50, cases=(case,))
    report = history_report(history)
    assert "39" in render_report(report, TextStyle())
    ratios = [point["ratio"] for point in json.loads(HISTORY.dump(history))["cases"][0]["points"]]
    assert ratios == sorted(ratios)
    assert math.isfinite(ratios[-1])
    assert len(render_csv(report).splitlines()) == 1 + len(lines)


def test_each_case_has_a_chain_of_its_own() -> None:
    lines = [make_line(0, 1.1), make_line(0, 2.0, case="b8-c1"), make_line(1, 1.2)]
    found = chain_cases(lines, HistoryMetric.P50)
    assert {key[0]: len(each.points) for key, each in found.items()} == {"b1-c1": 2, "b8-c1": 1}


def test_exact_figures_need_no_baseline_and_have_no_error() -> None:
    found = chain(
        make_line(0, None, baseline=None, macs=10),
        make_line(1, None, baseline="z", macs=20),
        metric=HistoryMetric.MACS,
    )
    shift = shift_since(*found.points)
    assert shift.change == pytest.approx(1.0)
    assert shift.error == 0.0
