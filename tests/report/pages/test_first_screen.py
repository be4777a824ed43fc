"""The first screen of a page in a browser: one choice of the case, the list of parts, and tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.report.pages import sample_data
from tests.report.pages.browser import OpenPage, pick, reload
from tests.report.pages.conftest import OpenData, without_charts
from tests.report.pages.test_every_page import PAGES
from tests.support.comparisons import FASTER, SAME, SLOWER
from tests.support.known import known
from tests.support.profiles import measured_cases
from tests.support.rendered import render_profile_page, render_run_page
from tests.support.run_reports import outcome, run

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def run_page(open_page: OpenPage) -> Page:
    """A model with three cases, the first of which is the worst."""
    return open_page(without_charts(render_run_page(run(*map(outcome, (SLOWER, FASTER, SAME))))))


def test_a_row_opens_its_case_for_the_whole_page(run_page: Page) -> None:
    assert _open_cases(run_page) == ["case-0-0"]
    run_page.locator("tr[data-case='1'] .number").first.click()
    assert _open_cases(run_page) == ["case-0-1"]
    assert "b4-c1" in run_page.get_by_label("Case").input_value()
    assert run_page.locator("tr[aria-current]").get_attribute("data-case") == "1"
    assert run_page.evaluate("location.hash") == "#case=b4-c1"
    reload(run_page)
    assert _open_cases(run_page) == ["case-0-1"]


def test_a_row_is_opened_by_the_keyboard_alone(run_page: Page) -> None:
    run_page.focus("tr[data-case='2'] a")
    run_page.keyboard.press("Enter")
    assert _open_cases(run_page) == ["case-0-2"]
    assert run_page.evaluate("document.activeElement.parentElement.id") == "case-0-2"
    run_page.keyboard.press("Enter")
    assert _open_cases(run_page) == []


def test_a_section_that_is_opened_chooses_its_case_and_closes_no_other(run_page: Page) -> None:
    run_page.click("#case-0-1 > summary")
    assert _open_cases(run_page) == ["case-0-0", "case-0-1"]
    assert "b4-c1" in run_page.get_by_label("Case").input_value()


def test_the_figures_are_those_of_the_chosen_case(open_page: OpenPage) -> None:
    page = open_page(without_charts(render_profile_page(measured_cases())))
    assert "0.1234 ms" in page.locator(".tiles:visible").inner_text()
    pick(page, "Case", "b8-c1")
    assert "0.9871 ms" in page.locator(".tiles:visible").inner_text()


@pytest.mark.parametrize("kind", ["compare", "run", "sweep", "tune", "whatif"])
def test_the_first_screen_has_the_machine_with_its_instruction_sets_and_the_engine(
    open_page: OpenPage, kind: str
) -> None:
    page = open_page(without_charts(PAGES[kind]()), viewport={"width": 1400, "height": 900})
    for text in ("avx512_vnni", "onnxruntime 1.3"):
        box = page.locator("#top > .line", has_text=text).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900


def test_the_list_of_parts_has_those_that_are_there(open_data: OpenData) -> None:
    page = open_data(sample_data.comparison(), draws=False)
    for link in page.locator("#parts a").all():
        part = page.locator(link.get_attribute("href") or "")
        assert link.is_visible() == part.is_visible()
    pick(page, "Case", "b8-c2")
    address = page.evaluate("location.hash")
    page.click("#parts a[href='#kernels']")
    assert page.evaluate("location.hash") == address
    assert page.evaluate("document.activeElement.id") == "kernels"
    bar = page.locator("#bar").bounding_box()
    heading = page.locator("#kernels h2").bounding_box()
    assert known(heading)["y"] >= known(bar)["height"]


@pytest.mark.parametrize("width", [390, 1400])
def test_the_list_of_parts_shows_the_one_that_is_read(open_data: OpenData, width: int) -> None:
    """All of its name, which is bold and so wider than the others."""
    data = sample_data.comparison()
    page = open_data(data, draws=False, viewport={"width": width, "height": 600})
    for part in ("graph", "kernels", "types"):
        page.locator(f"#{part}").evaluate("(part) => part.scrollIntoView()")
        link = page.locator(f"#parts a[href='#{part}'][aria-current]")
        link.wait_for()
        page.wait_for_function(
            """(link) => {
              const [inner, outer] = [link, link.closest("#parts").firstElementChild]
                .map((element) => element.getBoundingClientRect());
              return inner.left >= outer.left - 1 && inner.right <= outer.right + 1
                && inner.top >= 0 && inner.bottom <= innerHeight;
            }""",
            arg=link.element_handle(),
        )


def test_a_missing_part_is_reported_as_absent(open_data: OpenData) -> None:
    data = sample_data.run()
    case = data["models"][0]["cases"][0]
    case.update(word="new", latency=[None, case["latency"][1]], rounds=[[], []])
    page = open_data(data, fragment="case=b1-c1", draws=False)
    shown = page.locator("#absent").inner_text()
    assert "This case is new, so nothing is known of A, before." in shown
    assert "Samples by round: there are no samples." in shown
    assert not page.locator("#rounds").is_visible()
    pick(page, "Case", "b1-c2")
    assert page.locator("#absent").inner_text() == ""
    assert page.locator("#rounds").is_visible()


def _open_cases(page: Page) -> list[str]:
    opened: list[str] = page.locator("details.case[open]").evaluate_all("all => all.map(d => d.id)")
    return opened
