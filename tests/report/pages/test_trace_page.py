"""The page of a trace in a browser: what is found, marked and summed up, by mouse and keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_modelperf.tracing.records import Span
from tests.report.pages.browser import OpenPage
from tests.report.pages.conftest import assert_fits
from tests.support.known import known
from tests.support.recorded_spans import recorded_spans
from tests.support.rendered import render_trace_page

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    return open_page(render_trace_page(recorded_spans()))


def said(page: Page) -> str:
    """Return the summary of the spans in view, once the next frame is drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.locator("#trace .body > p").last.inner_text()


def sums(page: Page) -> list[list[str]]:
    return [
        row.locator("th, td").all_inner_texts() for row in page.locator("#trace tbody tr").all()
    ]


def test_the_whole_trace_is_summed_up_by_operator(page: Page) -> None:
    assert said(page) == (
        "Wholly in view: 13 of 13 spans found, 35.000 ms without the spans inside, on average "
        "2.692 ms, 100.0 % of all."
    )
    assert sums(page) == [
        ["Conv", "3", "15.000", "5.000", "15.000", "42.9 %"],
        ["inference", "3", "30.000", "10.000", "9.000", "25.7 %"],
        ["read data", "1", "5.000", "5.000", "5.000", "14.3 %"],
        ["Relu", "3", "3.000", "1.000", "3.000", "8.6 %"],
        ["Gemm", "3", "3.000", "1.000", "3.000", "8.6 %"],
    ]


def test_a_search_sums_up_what_it_finds_and_goes_through_it(page: Page) -> None:
    page.get_by_label("Find spans").fill("RELU")
    assert said(page).startswith("Wholly in view: 3 of 3 spans found, 3.000 ms")
    assert said(page).endswith("8.6 % of all.")
    for start in ("6.000000 ms", "26.000000 ms", "46.000000 ms", "6.000000 ms"):
        page.get_by_role("button", name="Next").click()
        assert start in page.locator("#trace dl").inner_text()
    page.get_by_role("button", name="Previous").click()
    details = page.locator("#trace dl").inner_text()
    assert "46.000000 ms" in details
    assert "python · MainThread" in details
    page.get_by_label("Find spans").fill("no such span")
    assert said(page).startswith("Wholly between the marks: 0 of 0 spans found")


def test_a_click_marks_a_span_and_keys_zoom_to_it(page: Page) -> None:
    said(page)
    box = known(page.locator(".trace-window").bounding_box())
    # The first inference is in the first lane below the axis and the name of its thread.
    page.mouse.click(box["x"] + box["width"] * 5 / 50, box["y"] + 24 + 22 + 10)
    assert said(page).startswith("Wholly between the marks: 5 of 13 spans found, 15.000 ms")
    assert "inference" in page.locator("#trace dl").inner_text()
    page.locator(".trace-window").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert said(page).startswith("Wholly in view: 5 of 13 spans found")
    page.keyboard.press("ArrowRight")
    assert said(page).startswith("Wholly in view: 3 of 13 spans found")
    page.keyboard.press("0")
    assert said(page).startswith("Wholly in view: 13 of 13 spans found")


def test_a_drag_moves_and_with_shift_marks(page: Page) -> None:
    said(page)
    box = known(page.locator(".trace-window").bounding_box())
    y = box["y"] + 60

    def drag(start_ms: float, end_ms: float) -> None:
        page.mouse.move(box["x"] + box["width"] * start_ms / 50, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * end_ms / 50, y, steps=4)
        page.mouse.up()

    page.keyboard.down("Shift")
    drag(0.5, 12)
    page.keyboard.up("Shift")
    assert said(page).startswith("Wholly between the marks: 4 of 13 spans found, 12.000 ms")
    page.locator(".trace-window").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("+")
    before = said(page)
    drag(30, 10)
    assert said(page) != before


def test_a_long_trace_says_what_its_page_leaves_out(open_page: OpenPage) -> None:
    page = open_page(render_trace_page(recorded_spans(), most=5))
    assert "the timeline leaves out the last 8 spans" in page.locator("#overview").inner_text()


def test_names_are_text_and_may_be_long(open_page: OpenPage) -> None:
    evil = "<img src=x onerror=alert(1)>" + "/block" * 20
    spans = [replace(each, name=evil) for each in recorded_spans(1) if isinstance(each, Span)]
    page = open_page(render_trace_page(spans))
    page.get_by_label("Find spans").fill(evil[:20])
    page.get_by_role("button", name="Next").click()
    assert evil in page.locator("#trace dl").inner_text()
    assert_fits(page)


def test_the_page_is_not_wider_than_its_window(page: Page) -> None:
    assert_fits(page)
