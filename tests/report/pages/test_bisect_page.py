"""The page of a bisect in a browser: its steps as a picture, and the versions that they found."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_modelperf.bisect.report import bisect_report
from pytest_modelperf.bisect.search import SearchRule, find_regressions
from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.report.html.render import render_page
from tests.bisect.test_reports import bisected, bisected_by_outputs
from tests.report.pages.browser import OpenPage
from tests.report.pages.conftest import assert_fits, chart_of, without_charts
from tests.support.bisects import TableJudge, Traits
from tests.support.comparisons import SLOWER
from tests.support.known import known

if TYPE_CHECKING:
    from playwright.sync_api import Page

TIMES = [2.0] * 5 + [2.2] * 4


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """The fifth of nine releases is slower, and one could not be installed."""
    found = bisected(TIMES, traits=Traits(failing={"1.4"}))
    steps = found.search.steps
    (regression,) = found.search.regressions
    judged = known(steps[-1].judged)
    pair = replace(steps[-1], judged=replace(judged, comparison=SLOWER))
    search = replace(found.search, regressions=(replace(regression, pair=pair),))
    html = render_page(bisect_report(replace(found, search=search), COMMAND_WORDING))
    return open_page(without_charts(html))


def test_each_step_of_a_bisect_is_a_mark_with_its_number(page: Page) -> None:
    drawn = chart_of(page, "bisect")
    marks = {trace["name"]: trace for trace in drawn["data"]}
    assert sorted(number for a in ("good", "bad", "failed") for number in marks[a]["text"]) == [
        "1", "2 failed", "3", "4", "5",
    ]  # fmt: skip
    assert marks["good"]["x"] == [3]
    # Only the last step is against another version than the good end.
    assert marks["bad"]["marker"]["symbol"] == ["diamond", "diamond", "diamond-open"]
    assert marks["bad"]["y"][0] == pytest.approx(10.0)
    assert marks["bad"]["error_y"]["array"][0] == pytest.approx(0.55)
    assert marks["not tried"]["x"] == [1, 2, 6, 7]
    (band,) = drawn["layout"]["shapes"]
    assert (band["x0"], band["x1"]) == (3.5, 5.5)


def test_a_step_that_failed_is_at_the_axis_and_not_at_no_change(page: Page) -> None:
    drawn = chart_of(page, "bisect")
    marks = {trace["name"]: trace for trace in drawn["data"]}
    (height,) = marks["failed"]["y"]
    assert height == drawn["layout"]["yaxis"]["range"][0] < 0.0
    assert "error_y" not in marks["failed"] or marks["failed"]["error_y"]["array"] == [None]
    (place,) = marks["failed"]["x"]
    assert place not in [round(x) for x in marks["limit between good and bad"]["x"] if x]


def test_on_a_phone_each_step_is_a_card(open_page: OpenPage) -> None:
    found = bisected(TIMES, traits=Traits(failing={"1.4"}))
    html = without_charts(render_page(bisect_report(found, COMMAND_WORDING)))
    page = open_page(html, viewport={"width": 390, "height": 800})
    table = page.locator("#overview .cards")
    assert table.evaluate("e => e.scrollWidth <= e.clientWidth")
    failed = table.locator("tr", has=page.get_by_text("failed", exact=True))
    assert "there is no wheel of 1.4" in failed.inner_text()
    title = "e => getComputedStyle(e, '::before').content"
    assert failed.locator("th").evaluate(title) == '"step "'


def test_a_bisect_begins_with_its_steps_and_ends_with_what_to_do(page: Page) -> None:
    assert page.locator("#parts a").first.inner_text() == "Steps"
    assert "slower engine 1.5" in page.locator(".finding").inner_text()
    assert page.locator("#overview tbody tr").first.locator(".pill").inner_text() == "bad"
    assert "there is no wheel of 1.4" in page.locator("#overview tbody").first.inner_text()
    shown = page.locator("#top").inner_text()
    assert "--requirement-a engine==1.3 --requirement-b engine==1.5" in shown
    shown = page.locator("#overview").inner_text()
    assert "--all finds them" in shown
    assert page.locator("#kernels").is_visible()


def test_names_of_many_versions_do_not_overlap_and_those_found_are_there(
    open_page: OpenPage,
) -> None:
    found = bisected([2.0] * 30 + [2.2] * 20 + [2.6] * 30, finds_all=True)
    page = open_page(without_charts(render_page(bisect_report(found, COMMAND_WORDING))))
    named = sorted(chart_of(page, "bisect")["layout"]["xaxis"]["tickvals"])
    width = page.evaluate("document.querySelector('#bisect .plot').clientWidth")
    gaps = [after - before for before, after in itertools.pairwise(named)]
    assert min(gaps) * width / len(found.range.versions) >= 85
    assert {30, 50} <= {*named}


def test_the_page_is_not_wider_than_its_window(page: Page) -> None:
    assert_fits(page)


def test_a_bisect_by_outputs_shows_how_far_they_differ(open_page: OpenPage) -> None:
    found = bisected_by_outputs([0.0, 0.0, 0.00002, 0.031, 0.031])
    page = open_page(without_charts(render_page(bisect_report(found, COMMAND_WORDING))))
    drawn = chart_of(page, "bisect")
    (bad,) = (trace for trace in drawn["data"] if trace["name"] == "bad")
    assert bad["y"] == pytest.approx([3.1, 3.1, 3.098])
    assert "outputs" in drawn["layout"]["yaxis"]["title"]["text"]
    assert "other outputs engine 1.3" in page.locator(".finding").inner_text()


def test_the_subject_of_a_commit_is_shown_as_it_is(open_page: OpenPage) -> None:
    found = bisected([2.0, 2.2])
    versions = tuple(replace(each, title="Fuse <Relu> & Add") for each in found.range.versions)
    searched = find_regressions(versions, TableJudge(versions, [2.0, 2.2]), SearchRule())
    found = replace(found, range=replace(found.range, versions=versions), search=searched)
    page = open_page(without_charts(render_page(bisect_report(found, COMMAND_WORDING))))
    (bad,) = (trace for trace in chart_of(page, "bisect")["data"] if trace["name"] == "bad")
    assert bad["hovertext"][0].split("<br>")[1] == "Fuse &lt;Relu&gt; &amp; Add"
