"""The look of the tables of an overview: figures in line, and names that break between words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.report.model import Report, Rows, Section
from pytest_modelperf.report.tables import Column, Table
from tests.report.pages import sample_data
from tests.report.pages.browser import OpenPage
from tests.report.pages.conftest import render_data, without_charts
from tests.support.rendered import render_case_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

NAME = "resnet50-quantized_per_channel"
# The right end of the text of a cell, without the room after it.
POINT = """
(cell) => {
  const range = document.createRange();
  const text = cell.firstChild;
  const point = text.data.indexOf(".");
  range.setStart(text, 0);
  range.setEnd(text, point < 0 ? text.data.search(/\\D|$/) : point);
  return range.getBoundingClientRect().right;
}
"""


# The widths by which the figures of a table are moved so that their decimal points meet.
PADS = "all => all.map((cell) => cell.style.getPropertyValue('--missing'))"


def table_of(*cells: str) -> Table:
    return Table(
        "",
        (Column("case", is_text=True, is_name=True), Column("figure")),
        tuple((NAME, cell) for cell in cells),
        caption="One note.\nAnother note.",
    )


def opened(open_page: OpenPage, *cells: str, width: int = 1200) -> Page:
    html = render_case_page({"models": []}, Report(title="", blocks=(Rows(table_of(*cells)),)))
    return open_page(without_charts(html), viewport={"width": width, "height": 900})


@pytest.mark.parametrize(
    "cells", [("6.708", "61.31", "1204"), ("6.7 ms", "61.31 ms", "1,204 ms")], ids=["plain", "unit"]
)
def test_decimal_points_of_a_column_are_aligned(
    open_page: OpenPage, cells: tuple[str, ...]
) -> None:
    page = opened(open_page, *cells)
    found = page.locator("#overview td.number").all()
    ends = [cell.evaluate(POINT) for cell in found if "," not in cell.inner_text()]
    assert ends == pytest.approx([ends[0]] * len(ends), abs=2.5)


def test_a_column_of_several_units_is_left_as_it_is(open_page: OpenPage) -> None:
    page = opened(open_page, "6.708 k", "61.3 M")
    assert page.locator("#overview td.number").evaluate_all(PADS) == ["", ""]


def test_a_table_of_a_closed_case_is_aligned_too(open_page: OpenPage) -> None:
    rows = Rows(table_of("1.25 ms", "9.5 ms"))
    section = Section(title="b1-c1", sentence="1 ms", blocks=(rows,), is_open=False)
    report = Report(title="", blocks=(section,))
    page = open_page(without_charts(render_case_page({"models": []}, report)))
    figures = page.locator("#overview td.number")
    assert figures.evaluate_all(PADS) == ["", "1ch"]


def test_a_table_of_the_overview_is_saved_as_it_reads(open_page: OpenPage) -> None:
    page = opened(open_page, "1.25 ms", "9.5 ms")
    with page.expect_download() as found:
        page.locator("#overview").get_by_role("button", name="CSV").click()
    lines = found.value.path().read_text("utf-8").splitlines()
    assert lines == ["case,figure", f"{NAME},1.25 ms", f"{NAME},9.5 ms"]


def test_a_name_breaks_after_what_joins_its_words_alone(open_page: OpenPage) -> None:
    name = opened(open_page, "1", width=390).locator("#overview tbody .name").first
    assert name.inner_text().replace("\n", "") == NAME
    pieces = name.evaluate("cell => [...cell.childNodes].filter((n) => n.data).map((n) => n.data)")
    assert pieces == ["resnet50-", "quantized_", "per_", "channel"]


def test_the_word_before_a_list_of_long_names_stays_whole(open_page: OpenPage) -> None:
    """On a phone, where the list takes the room that is left."""
    data = sample_data.comparison()
    for case in data["models"][0]["cases"]:
        case["name"] = f"models/{NAME * 2}.onnx::{case['id']}"
    page = open_page(without_charts(render_data(data)), viewport={"width": 390, "height": 800})
    lines = """label => {
      const range = document.createRange();
      range.selectNode(label.firstChild);
      return range.getClientRects().length;
    }"""
    assert page.locator(".picker").evaluate_all(f"all => all.map({lines})") == [1, 1]


def test_notes_below_a_table_are_in_one_line(open_page: OpenPage) -> None:
    notes = opened(open_page, "1").locator("#overview .hint")
    tops = {round(box["y"]) for note in notes.all() if (box := note.bounding_box())}
    assert notes.count() == 2
    assert len(tops) == 1
