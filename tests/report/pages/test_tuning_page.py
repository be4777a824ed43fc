"""The page of a tuning in a browser: every set of options is a point on its interval."""

from __future__ import annotations

import pytest

from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.tuning.report import tuning_report
from tests.report.pages.browser import OpenPage
from tests.report.pages.conftest import assert_fits
from tests.support.tunings import make_tuning


def test_every_set_of_options_has_a_row_and_what_ran_has_its_interval(open_page: OpenPage) -> None:
    page = open_page(render_page(tuning_report(make_tuning())))
    assert page.locator(".tuning-name").all_inner_texts() == [
        "fast_math=1",
        "graph_optimization_level=all",
        "enable_mem_pattern=0",
        "late=1",
        "no_such=1",
    ]
    assert page.locator(".tuning-winner").first.inner_text() == "graph_optimization_level=all"
    assert page.locator(".tuning-interval").count() == 3
    middles = [
        page.locator(".tuning-point").nth(place).evaluate("each => parseFloat(each.style.left)")
        for place in range(3)
    ]
    assert middles[0] > middles[1] > 50 > middles[2]


def test_the_answers_stand_in_one_line_on_a_phone(open_page: OpenPage) -> None:
    page = open_page(
        render_page(tuning_report(make_tuning())), viewport={"width": 390, "height": 800}
    )
    heights = page.locator(".tuning-figure").evaluate_all(
        "all => all.map((e) => e.clientHeight / parseFloat(getComputedStyle(e).lineHeight))"
    )
    assert heights == pytest.approx([1.0] * 5, abs=0.1)
    assert_fits(page)
