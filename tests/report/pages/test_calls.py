"""The calls of a program as an icicle: as wide as their time, coloured by its change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.report.pages import sample_data
from tests.report.pages.conftest import OpenData
from tests.report.pages.sample_data import Data, call

if TYPE_CHECKING:
    from playwright.sync_api import Page

PARTS = """
() => [...document.querySelectorAll("#calls .icicle button")].map((button) => [
  button.textContent, {
    width: Number(button.style.getPropertyValue("--width")),
    heat: Number(button.style.getPropertyValue("--heat")),
    kind: button.classList[0],
    title: button.ariaDescription,
  },
])
"""
READ = "reader.py:Reader.read"
PREPARE = "reader.py:Reader.prepare"


def parts_of(page: Page) -> dict[str, Data]:
    return dict(page.evaluate(PARTS))


def program_of(*calls: Data) -> Data:
    data = sample_data.program(deep=0)
    data["models"][0]["cases"][0]["calls"] = list(calls)
    return data


def test_a_function_is_as_wide_as_its_share_of_the_time_of_one_side(open_data: OpenData) -> None:
    page = open_data(sample_data.program(deep=0), draws=False)
    now = parts_of(page)
    assert (now[READ]["width"], now[PREPARE]["width"]) == (1.0, 0.75)
    page.locator("#calls").get_by_role("button", name="time before").click()
    before = parts_of(page)
    assert (before[READ]["width"], before[PREPARE]["width"]) == (1.0, 0.25)
    # The colour shows the change, so both sides have the same.
    assert before[PREPARE]["heat"] == now[PREPARE]["heat"] == 1.0


def test_a_function_of_one_side_is_drawn_there_and_named_on_both(open_data: OpenData) -> None:
    page = open_data(sample_data.program(deep=0), draws=False)
    new, old = sample_data.HOSTILE_NAMES[0], "reader.py:Reader.old"
    assert page.locator(".calls-named").all_inner_texts() == [
        f"New: {new} (4.000 ms)",
        f"Gone: {old} (0.200 ms)",
    ]
    now = parts_of(page)
    assert old not in now
    assert now[new]["kind"] == "kind-new"
    assert now[new]["title"] == f"{new}: new, 4.000 ms, 300 calls, 40.0 % of the call"
    page.locator("#calls").get_by_role("button", name="time before").click()
    before = parts_of(page)
    assert new not in before
    assert before[old]["kind"] == "kind-gone"


@pytest.mark.parametrize(
    ("ms", "kind", "text"),
    [
        ((1.0, 3.0), "kind-longer", "1.000 → 3.000 ms (+2.000), 1 → 2 calls"),
        ((3.0, 1.0), "kind-shorter", "3.000 → 1.000 ms (\N{MINUS SIGN}2.000), 1 → 2 calls"),
    ],
)
def test_a_changed_function_says_how_much(
    open_data: OpenData, ms: tuple[float, float], kind: str, text: str
) -> None:
    page = open_data(program_of(call(READ, 0, ms, (1, 2))), draws=False)
    part = parts_of(page)[READ]
    assert (part["kind"], part["heat"]) == (kind, 1.0)
    assert part["title"] == f"{READ}: {text}, 100.0 % of the call"


def test_keys_zoom_into_a_function_and_back(open_data: OpenData) -> None:
    page = open_data(sample_data.program(), draws=False)
    page.locator("#calls .icicle button[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert next(iter(parts_of(page))) == PREPARE
    assert page.locator("#calls .icicle-said").inner_text().startswith(f"{PREPARE}: ")
    page.keyboard.press("Escape")
    assert next(iter(parts_of(page))) == READ


def test_a_side_without_calls_cannot_be_chosen(open_data: OpenData) -> None:
    page = open_data(program_of(call(READ, 0, (None, 3.0), (None, 1))), draws=False)
    assert page.locator("#calls .toggle button").all_inner_texts() == ["time now"]


def test_parts_that_exceed_their_whole_stay_within_it(open_data: OpenData) -> None:
    calls = (call("a", 0, (2.0, 2.0)), call("b", 1, (2.0, 2.0)), call("c", 1, (2.0, 2.0)))
    parts = parts_of(open_data(program_of(*calls), draws=False))
    assert parts["b"]["width"] == parts["c"]["width"] == 0.5


def test_a_case_without_profiled_calls_has_no_section(open_data: OpenData) -> None:
    page = open_data(sample_data.comparison(), draws=False)
    assert not page.locator("#calls").is_visible()
