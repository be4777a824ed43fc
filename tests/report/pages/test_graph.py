"""The graph of the kernels: what a page draws of it, and what keys, clicks and the search do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.report.picture.drawn import picture_entry
from pytest_modelperf.report.picture.records import Box, Picture
from tests.report.pages import sample_data
from tests.report.pages.conftest import OpenData
from tests.report.pages.sample_data import Data
from tests.support.known import known

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

BOXES = "#graph .graph-box"
WINDOW = "#graph .graph-window"
SAID = "#graph .graph-said"


def graph_of(data: Data) -> Data:
    graph: Data = data["models"][0]["cases"][0]["graph"]
    return graph


def titles(page: Page) -> list[str]:
    """The operators in view, from the top down."""
    return page.locator(f"{BOXES} .title").all_text_contents()


def chosen(page: Page) -> Locator:
    return page.locator(f"{BOXES}.current")


def large(count: int) -> Data:
    """A profile with `count` kernels in a chain, of which each fifth takes time."""
    data = sample_data.profile()
    case = data["models"][0]["cases"][0]
    boxes = tuple(
        Box(
            op_type=f"Op{at}", name=f"op{at}", inputs=(at - 1,) if at else (),
            values=(1.0 + at / count if at % 5 == 0 else 0.001,),
            row=at if at < len(case["layers"]) else None,
        )
        for at in range(count)
    )  # fmt: skip
    case["graph"] = picture_entry(Picture(boxes))
    return data


@pytest.fixture
def pair(open_data: OpenData) -> Page:
    return open_data(sample_data.comparison(), draws=False)


def test_a_profile_shows_each_kernel_once_with_its_time(open_data: OpenData) -> None:
    data = sample_data.profile()
    graph = graph_of(data)
    page = open_data(data, draws=False)
    page.get_by_role("button", name="show all").click()
    assert page.locator(BOXES).count() == len(graph["type"])
    figures = page.locator(f"{BOXES} .figure").all_text_contents()
    assert figures == [f"{ms:.3f} ms" for ms in graph["values"][0]][: len(figures)]


def test_a_click_on_a_box_opens_the_details_of_its_layer(open_data: OpenData) -> None:
    data = sample_data.profile()
    page = open_data(data, draws=False)
    page.locator(BOXES).nth(1).click()
    name = data["models"][0]["cases"][0]["layers"][1]["names"][0]
    details = page.locator("#graph .layer-details")
    assert name in details.locator("h3").inner_text()
    page.keyboard.press("Escape")
    assert not details.is_visible()


def test_arrow_keys_walk_along_the_lines_and_enter_opens(open_data: OpenData) -> None:
    page = open_data(sample_data.profile(), draws=False)
    page.locator(WINDOW).focus()
    page.keyboard.press("ArrowDown")
    first = page.locator(SAID).inner_text()
    page.keyboard.press("ArrowDown")
    assert page.locator(SAID).inner_text() != first
    page.keyboard.press("ArrowUp")
    assert page.locator(SAID).inner_text() == first
    assert chosen(page).count() == 1
    page.keyboard.press("Enter")
    assert page.locator("#graph .layer-details h3").is_visible()


def test_a_fold_names_its_kernels_and_their_sum_and_opens_by_a_click(open_data: OpenData) -> None:
    data = large(300)
    graph = graph_of(data)
    page = open_data(data, draws=False)
    first, last = graph["folds"][0]
    fold = page.locator(f"{BOXES}.fold").first
    assert fold.locator(".title").text_content() == f"{last - first + 1} kernels"
    hidden = sum(graph["values"][0][first : last + 1])
    assert fold.locator(".figure").text_content() == f"{hidden:.3f} ms"
    fold.click()
    names = [graph["types"][graph["type"][at]] for at in range(first, last + 1)]
    assert set(names) <= set(titles(page))


def test_enter_unfolds_the_stretch_that_is_chosen(open_data: OpenData) -> None:
    page = open_data(large(300), draws=False)
    folds = page.locator(f"{BOXES}.fold").count()
    page.locator(WINDOW).focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    assert "fold" in (chosen(page).get_attribute("class") or "")
    page.keyboard.press("Enter")
    assert page.locator(f"{BOXES}.fold").count() < folds
    assert chosen(page).locator(".title").text_content() == "Op1"


def columns(page: Page) -> list[float]:
    """The left ends of the boxes that can be seen, from the left to the right."""
    window = known(page.locator(WINDOW).bounding_box())
    lefts = page.locator(BOXES).evaluate_all(
        "all => all.map((box) => box.getBoundingClientRect().x)"
    )
    return sorted({round(x) for x in lefts if window["x"] <= x < window["x"] + window["width"]})


def test_a_tall_graph_goes_on_in_columns_that_fill_the_window(open_data: OpenData) -> None:
    page = open_data(large(300), draws=False)
    assert len(columns(page)) > 3
    heights = page.locator(f"{BOXES} text").evaluate_all("""all => all.map((text) =>
      parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)""")
    assert min(heights) >= 11


def test_a_phone_has_one_column(open_data: OpenData) -> None:
    page = open_data(large(300), draws=False, viewport={"width": 390, "height": 900})
    assert len(columns(page)) == 1


def test_the_first_view_on_a_phone_has_a_box_however_many_lines_pass_it(
    open_data: OpenData,
) -> None:
    data = large(100)
    boxes = tuple(
        Box(
            op_type="Add",
            name=f"op{at}",
            inputs=tuple({max(0, at - 1), max(0, at - 30)} if at else ()),
            values=(1.0,),
            row=None,
        )
        for at in range(100)
    )
    data["models"][0]["cases"][0]["graph"] = picture_entry(Picture(boxes))
    page = open_data(data, draws=False, viewport={"width": 390, "height": 900})
    window = known(page.locator(WINDOW).bounding_box())
    box = known(page.locator(BOXES).first.bounding_box())
    assert window["x"] <= box["x"]
    assert box["x"] + box["width"] <= window["x"] + window["width"]


def modules(names: Sequence[str | None]) -> Data:
    """A profile with a chain of kernels of these names, of which None is a change of layout."""
    data = sample_data.profile()
    case = data["models"][0]["cases"][0]
    named = [name for name in names if name is not None]
    for layer, name in zip(case["layers"], named, strict=False):
        layer["names"] = [name]
    rows = iter(range(len(named)))
    boxes = tuple(
        Box(
            op_type="ReorderInput" if name is None else "Conv",
            name=name or "",
            inputs=(at - 1,) if at else (),
            values=(1.0,),
            row=None if name is None else next(rows),
        )
        for at, name in enumerate(names)
    )
    case["graph"] = picture_entry(Picture(boxes))
    return data


def test_a_module_has_a_frame_that_holds_its_changes_of_layout(open_data: OpenData) -> None:
    names = (
        "/net/model.0/conv",
        None,
        "/net/model.0/act",
        "/net/model.22/cv1",
        "/net/model.22/cv2",
    )
    page = open_data(modules(names), draws=False)
    frames = page.locator("#graph .graph-frame-text.module").all_text_contents()
    assert frames == ["model.0", "model.22"]


def test_a_module_that_others_interrupt_has_a_frame_for_each_stretch(open_data: OpenData) -> None:
    names = ("/n/a/0", "/n/a/1", "/n/b/0", "/n/a/2", "/n/a/3")
    page = open_data(modules(names), draws=False)
    assert page.locator("#graph .graph-frame-text.module").all_text_contents() == ["a", "a"]


def test_a_box_leaves_out_what_all_names_begin_with(open_data: OpenData) -> None:
    start = "/backbone/" + "a_stage_with_a_long_name/" * 4
    page = open_data(modules([f"{start}model.0/conv", f"{start}model.1/conv"]), draws=False)
    texts = page.locator(f"{BOXES} .name").all_text_contents()
    assert texts == ["model.0/conv", "model.1/conv"]
    assert start in (page.locator(f"{BOXES} title").first.text_content() or "")


def test_a_line_to_the_next_column_passes_no_box(open_data: OpenData) -> None:
    page = open_data(large(300), draws=False)
    page.get_by_role("button", name="show all").click()
    crossing = page.evaluate("""() => {
      const boxes = [...document.querySelectorAll("#graph .graph-box")]
        .map((box) => box.transform.baseVal.consolidate().matrix);
      const line = document.querySelector("#graph .graph-lines path");
      const inside = ({ x, y }) => boxes.filter(({ e, f }) =>
        x > e + 1 && x < e + 199 && y > f + 1 && y < f + 45);
      const length = line.getTotalLength();
      const at = [...Array(2000).keys()].map((step) => (length * step) / 2000);
      return at.filter((way) => inside(line.getPointAtLength(way)).length).length;
    }""")
    assert crossing == 0


def test_only_what_is_in_view_is_in_the_document(open_data: OpenData) -> None:
    page = open_data(large(2000), draws=False)
    page.get_by_role("button", name="every kernel").click()
    assert page.locator(BOXES).count() < 200
    page.locator(WINDOW).focus()
    page.keyboard.press("End")
    # Boxes that come into view are drawn in the next frame.
    page.locator(BOXES).filter(has_text="Op1999").wait_for()
    assert page.locator(BOXES).count() < 200


def test_the_search_marks_what_it_finds_and_enter_goes_to_the_next(open_data: OpenData) -> None:
    """Also to a kernel in a fold, which is opened for it."""
    page = open_data(large(300), draws=False)
    search = page.get_by_role("searchbox", name="find kernels")
    search.fill("Op173")
    assert "1 found" in page.locator("#graph .graph-count").inner_text()
    search.press("Enter")
    assert chosen(page).locator(".title").text_content() == "Op173"
    assert "found" in (chosen(page).get_attribute("class") or "")
    search.fill("nothing like it")
    assert page.locator("#graph .graph-count").inner_text() == "0 found"


def test_keys_and_buttons_zoom(open_data: OpenData) -> None:
    page = open_data(sample_data.profile(), draws=False)

    def width() -> float:
        found = known(page.locator(BOXES).first.bounding_box())
        return found["width"]

    whole = width()
    page.get_by_role("button", name="zoom in").click()
    assert width() > whole
    page.locator(WINDOW).focus()
    page.keyboard.press("-")
    assert width() == pytest.approx(whole)


def test_a_drag_moves_the_picture_and_opens_nothing(open_data: OpenData) -> None:
    page = open_data(large(300), draws=False)
    box = page.locator(BOXES).nth(2)
    box.scroll_into_view_if_needed()
    before = known(box.bounding_box())
    page.mouse.move(before["x"] + 20, before["y"] + 20)
    page.mouse.down()
    page.mouse.move(before["x"] + 20, before["y"] - 40, steps=3)
    page.mouse.up()
    assert known(box.bounding_box())["y"] == pytest.approx(before["y"] - 60, abs=2)
    assert not page.locator("#graph .layer-details").is_visible()


def test_two_sides_mark_what_changed_and_frame_its_part(pair: Page) -> None:
    assert pair.locator(f"{BOXES}.state-changed").count() == 1
    gone = pair.locator(f"{BOXES}.state-gone")
    assert "layout" in (gone.get_attribute("class") or "")
    assert pair.locator("#graph .graph-frame:not(.module)").count() == 1
    assert (
        pair.locator("#graph .graph-frame-text:not(.module)").text_content()
        == "+0.310 ms (+0.280 … +0.350)"
    )
    assert pair.locator(f"{BOXES}.fold").count() > 0


def test_side_by_side_each_side_has_its_own_kernels(pair: Page) -> None:
    pair.get_by_role("button", name="side by side").click()
    pair.get_by_role("button", name="every kernel").click()
    pair.get_by_role("button", name="show all").click()
    graph = graph_of(sample_data.comparison())
    assert graph["state"].count(3) + graph["state"].count(4) == 2
    assert pair.locator(BOXES).count() == 2 * len(graph["state"]) - 2
    assert pair.locator(f"{BOXES}.state-gone").count() == 1
    assert pair.locator("#graph .graph-head").all_text_contents()[:2] == ["A", "B"]


def test_side_by_side_both_sides_are_in_the_first_view(pair: Page) -> None:
    pair.get_by_role("button", name="side by side").click()
    window = known(pair.locator(WINDOW).bounding_box())
    for name in ("A", "B"):
        head = known(pair.locator("#graph .graph-head").filter(has_text=name).first.bounding_box())
        assert window["x"] <= head["x"] <= window["x"] + window["width"]


def test_a_picture_that_is_not_known_says_why(open_data: OpenData) -> None:
    data = sample_data.profile()
    data["models"][0]["cases"][0]["graph"] = {"reason": "It is not known."}
    page = open_data(data, draws=False)
    assert page.locator("#graph .body").inner_text() == "It is not known."


def test_names_in_the_picture_stay_text(open_data: OpenData) -> None:
    data = sample_data.hostile()
    name = sample_data.HOSTILE_NAMES[0]
    graph_of(data)["types"][0] = name
    page = open_data(data, draws=False)
    page.locator("#graph").get_by_role("button", name="every kernel").click()
    assert titles(page)[0].startswith("<script>")
    assert page.locator(f"{BOXES} .name").first.text_content() == name
    assert page.locator("#graph script").count() == 0


def test_the_legend_has_no_scale_if_no_box_has_a_figure(open_data: OpenData) -> None:
    data = sample_data.profile()
    graph = graph_of(data)
    zeros = [0 for _ in graph["type"]]
    graph.update(unit="macs", values=[zeros], figure=zeros, most=0, total=0)
    page = open_data(data, draws=False)
    assert page.locator("#graph .scale-time").count() == 0
    heats = page.locator(BOXES).evaluate_all(
        "all => all.map((box) => Number(box.style.getPropertyValue('--heat')))"
    )
    assert set(heats) == {0}
