"""The roofline on the page of a profile: a point and a row for each layer, and the roofs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_modelperf.profiles.records import NamedProfile
from pytest_modelperf.profiles.report import named_report
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.roofline.records import Roofline, place_layers, theoretical_roofs
from pytest_modelperf.roofline.report import roofline_additions
from tests.report.pages.browser import OpenPage
from tests.report.pages.conftest import assert_fits, chart_of, without_charts
from tests.support.peaks import make_peaks
from tests.support.profiles import measured_classifier, static_classifier
from tests.support.rendered import render_profile_page

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def roofline() -> Roofline:
    return place_layers(measured_classifier().cases[0], make_peaks())


@pytest.fixture
def page(open_page: OpenPage, roofline: Roofline) -> Page:
    profile = measured_classifier()
    additions = roofline_additions({profile.cases[0].case.id: roofline})
    return open_page(without_charts(render_profile_page(profile, additions=additions)))


def traces(page: Page) -> list[Any]:
    found: list[Any] = chart_of(page, "roofline")["data"]
    return found


def test_each_layer_with_macs_is_a_point_below_a_roof(page: Page, roofline: Roofline) -> None:
    drawn = [roof for roof in roofline.layers if roof.work.macs]
    points = traces(page)[-1]
    assert points["x"] == pytest.approx([roof.intensity for roof in drawn])
    rates = [roof.achieved_per_second for roof in drawn]
    assert points["y"] == pytest.approx([rate / 1e9 for rate in rates if rate is not None])


def test_a_roof_rises_with_the_memory_and_ends_at_the_peak(page: Page, roofline: Roofline) -> None:
    peaks = roofline.peaks
    for trace, rate in zip(traces(page), peaks.macs_per_second.values(), strict=False):
        low, bend, high = trace["y"]
        assert bend == high == pytest.approx(rate / 1e9)
        assert low == pytest.approx(trace["x"][0] * peaks.bytes_per_second / 1e9)


def test_an_axis_has_several_whole_numbers_unless_it_has_many_decades(page: Page) -> None:
    layout = chart_of(page, "roofline")["layout"]
    axis, rates = layout["xaxis"], layout["yaxis"]
    assert len(axis["tickvals"]) > 1
    assert [float(text) for text in axis["ticktext"]] == axis["tickvals"]
    assert rates["dtick"] == 1


def test_each_layer_has_a_row_and_the_text_of_the_terminal_is_next_to_it(
    page: Page, roofline: Roofline
) -> None:
    part = page.locator("#roofline")
    names = part.locator("tbody th").all_inner_texts()
    assert names == [roof.name or roof.id for roof in roofline.layers]
    assert "peaks on" in part.inner_text()
    part.locator("tbody .link").first.click()
    assert page.locator(".layer-details h3").inner_text() == names[0]


def test_a_gain_has_its_interval_and_is_faint_if_that_reaches_zero(
    page: Page, roofline: Roofline
) -> None:
    cells = page.locator("#roofline tbody td.change")
    for at, roof in enumerate(roofline.layers):
        assert roof.gain_interval_ns is not None
        low, high = (f"{bound / 1e6:.3f}" for bound in roof.gain_interval_ns)
        assert cells.nth(at).locator("small").inner_text() == f"{low} … {high}"
        is_faint = "faint" in (cells.nth(at).get_attribute("class") or "").split()
        assert is_faint == (roof.gain_interval_ns[0] <= 0)


def test_a_page_without_a_roofline_has_no_part_for_it(open_page: OpenPage) -> None:
    html = render_profile_page(measured_classifier(), additions=roofline_additions({}))
    assert open_page(without_charts(html)).locator("#roofline").count() == 0


def test_layers_that_never_ran_are_at_their_roofs(open_page: OpenPage) -> None:
    profile = static_classifier()
    roofs = {case.case.id: theoretical_roofs(case.static, make_peaks()) for case in profile.cases}
    counts = NamedProfile(name="flops", date=None, profile=profile, rooflines=roofs)
    page = open_page(without_charts(render_page(named_report(counts))))
    points = traces(page)[-1]
    roof = next(iter(make_peaks().macs_per_second.values())) / 1e9
    assert 0 < max(points["y"]) <= roof
    heads = page.locator("#roofline thead th").all_inner_texts()
    assert "least ms" in heads
    assert "ms" not in heads
    assert "least time" in page.locator("#roofline .tiles").inner_text()
    assert_fits(page)
