"""The page of kept profiles in a browser: two of them at a time, by one choice."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.profiles.records import NamedProfile, ProfileList
from pytest_modelperf.profiles.report import profile_list_report
from pytest_modelperf.profiles.side_by_side import put_beside_first
from pytest_modelperf.report.html.render import render_page
from tests.profiles.test_profiles import timed
from tests.report.pages.browser import OpenPage
from tests.report.pages.conftest import assert_fits, chart_of, without_charts

if TYPE_CHECKING:
    from playwright.sync_api import Page

DATE = dt.datetime(2026, 1, 31, 12, 5, 9, tzinfo=dt.timezone.utc)


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """Three profiles, two of which are compared with the first."""
    kept = [
        NamedProfile(name=name, date=DATE, profile=timed(ms))
        for name, ms in (("before", 2.0), ("pruned", 1.0), ("quantized", 0.5))
    ]
    found = ProfileList(model="classifier.onnx", flops=None, kept=tuple(kept))
    report = profile_list_report(found, put_beside_first(kept))
    return open_page(without_charts(render_page(report)))


def test_a_row_of_the_kept_profiles_chooses_its_pair_for_the_whole_page(page: Page) -> None:
    assert "1.996 ms" in page.locator(".tiles:visible").inner_text()
    page.focus("tr[data-model='1'] a")
    page.keyboard.press("Enter")
    assert page.get_by_label("Profiles").input_value() == "1"
    assert "-75.0 %" in page.locator(".tiles:visible").inner_text()
    names = [trace["name"] for trace in chart_of(page, "time")["data"]]
    assert names == ["A: before", "B: quantized"]
    assert page.locator("#kernels tbody tr").count() > 1
    # They did not take turns, so no change is called better or worse.
    assert page.locator("#types .better, #types .worse, #kernels .better").count() == 0


def test_the_page_is_not_wider_than_its_window(page: Page) -> None:
    assert_fits(page)
