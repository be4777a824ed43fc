"""The page of a checkup in a browser: charts of the chosen number of cores, and advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_modelperf.profiler.doctor.records import Checkup, Outlook, SessionTimes
from pytest_modelperf.profiler.doctor.report import checkup_report
from pytest_modelperf.profiler.measurements import Noise
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.stats.records import Ratio
from tests.profiler.doctor.test_document import CHECKUP
from tests.report.pages.browser import OpenPage, pick
from tests.report.pages.conftest import assert_fits, chart_of, without_charts
from tests.support.comparisons import SLOWER
from tests.support.profiles import MACHINE, make_measurement, make_rounds

if TYPE_CHECKING:
    from playwright.sync_api import Page

OUTLOOK = (
    Outlook(rounds=6, seconds=2.0, change=0.05),
    Outlook(rounds=35, seconds=12.0, change=0.02),
)


def checkup(cores: int, ratios: tuple[float, ...]) -> Checkup:
    latency = make_measurement(rounds=make_rounds(2.0, rounds=len(ratios), samples=12)).latency
    spreads = SLOWER.after.rounds if SLOWER.after is not None else ()
    return replace(
        CHECKUP,
        cores=cores,
        ratio=Ratio(1.01, 0.99, 1.03),
        noise=(Noise(wall_ns=100, others_ns=20, stolen_ns=0, involuntary_switches=3),)
        * len(ratios),
        outlook=OUTLOOK,
        sessions=(SessionTimes(latency=latency, rounds=spreads),) * 2,
        ratios=ratios,
    )


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    checkups = (checkup(1, (1.01, 0.98)), checkup(2, (1.1, 0.9)))
    html = render_page(checkup_report(replace(MACHINE, governor="powersave"), checkups))
    return open_page(without_charts(html))


def test_the_charts_of_a_checkup_are_those_of_the_chosen_cores(page: Page) -> None:
    (drawn,) = chart_of(page, "duet")["data"]
    assert drawn["y"] == pytest.approx([1.0, -2.0])
    pick(page, "Case", "c2")
    (drawn,) = chart_of(page, "duet")["data"]
    assert drawn["y"] == pytest.approx([10.0, -10.0])
    lines = chart_of(page, "detectable")["data"]
    assert [line["y"] for line in lines] == [pytest.approx([5.0, 2.0])] * 2
    others, stolen = chart_of(page, "disturbances")["data"]
    # Of two processors, of which the worker has one.
    assert others["y"] == pytest.approx([20.0, 20.0])
    assert stolen["y"] == [0, 0]


def test_a_checkup_says_what_to_do_about_the_machine(page: Page) -> None:
    assert page.locator(".verdict").inner_text() == "fit to measure"
    assert "powersave" in page.locator("details.case").inner_text()
    assert "2.0 % in 12.0 s" in page.locator("#overview").inner_text()


def test_it_is_not_wider_than_its_window(page: Page) -> None:
    assert_fits(page)
