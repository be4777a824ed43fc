"""The page of a report without data for scripts."""

from __future__ import annotations

from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.reducing.report import reduction_report
from pytest_modelperf.report.html.render import render_page
from tests.report.pages.browser import OpenPage
from tests.report.pages.conftest import assert_fits
from tests.support.reductions import make_reduction


def test_a_reduction_shows_its_answer_and_its_steps(open_page: OpenPage) -> None:
    report = reduction_report(make_reduction(), COMMAND_WORDING, "reduced")
    page = open_page(render_page(report), viewport={"width": 390, "height": 800})
    assert page.locator("p.verdict").inner_text().startswith("slower: +4.0 %")
    assert page.locator("details.case tbody tr").count() == 2
    assert page.locator("#status").inner_text() == ""
    assert_fits(page)
