"""The page of a history in a real browser: its curves, the runs on them, filters and the table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from msgspec.structs import replace

from pytest_modelperf.history.records import CaseHistory, History, HistoryPoint, Tag
from pytest_modelperf.history.report import history_report
from pytest_modelperf.report.html.render import render_page
from tests.report.pages.browser import OpenPage, reload
from tests.report.pages.sample_data import HOSTILE_NAMES
from tests.support.histories import FIRST_DAY, REASON, commit_of, make_case, make_history
from tests.support.known import known

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

OpenHistory: TypeAlias = "Callable[..., Page]"

RUN_URL = "https://ci.example.org/runs/7"
COMMIT_URL = "https://git.example.org/c/{commit}"
DAY = 24 * 3600
UNKNOWN = "\u2013"
CARDS = ".history-card"
ROWS = ".history-cases tbody tr"
SLOWER = make_case()
SLOWER = replace(SLOWER, tagged=SLOWER.points[1], since_tag=SLOWER.since_first)
FASTER = make_case([0.0, 0.0, 0.0, -0.2, -0.2], steps=(3,), model="detector", case="b8-c2")
SAME = make_case([0.0] * 3, steps=(), machine="linux-aarch64-4c", engine="openvino")
HISTORY = make_history(SLOWER, FASTER, SAME, tag=Tag("v1.0", commit_of(1), FIRST_DAY))


# At this width a curve has next to no room for dates.
NARROW = {"width": 600, "height": 900}


@pytest.fixture
def open_history(open_page: OpenPage) -> OpenHistory:
    """Opens the page of a history, with the options of `open_page`."""

    def open_built(history: History = HISTORY, **options: object) -> Page:
        page = open_page(render_page(history_report(history, commit_url=COMMIT_URL)), **options)
        if history.cases:
            # Curves are drawn when they come near the view.
            card(page, 0).scroll_into_view_if_needed()
            card(page, 0).locator(".history-line").wait_for(state="attached")
        return page

    return open_built


def shown_models(page: Page, place: str) -> list[str]:
    """The models of the cards, or of the rows, in their order."""
    return page.locator(place).all_inner_texts()


def card(page: Page, index: int) -> Locator:
    return page.locator(CARDS).nth(index)


def picker(page: Page, label: str) -> Locator:
    return page.get_by_role("combobox", name=label)


def run_of(page: Page, index: int = 0) -> str:
    """The run that a card describes."""
    return " ".join(card(page, index).locator(".history-point").inner_text().split())


def points_of(page: Page, index: int, path: str) -> list[tuple[float, float]]:
    """The corners of a path of the card's curve."""
    data = card(page, index).locator(path).first.get_attribute("d") or ""
    words = data.replace("M", " ").replace("L", " ").replace("Z", "").replace("h0", "").split()
    numbers = [float(word) for word in words]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_each_case_has_a_curve_in_its_interval(open_history: OpenHistory) -> None:
    page = open_history()
    assert page.locator(CARDS).count() == 3
    line = points_of(page, 0, ".history-line")
    assert len(line) == 4
    # Later runs are on the right, and higher costs above.
    assert [x for x, _ in line] == sorted(x for x, _ in line)
    heights = [y for _, y in line]
    assert heights[0] == heights[1] > heights[2] == heights[3]
    band = points_of(page, 0, ".history-band")
    upper, lower = band[:4], band[4:][::-1]
    for (_, top), (_, middle), (_, bottom) in list(zip(upper, line, lower, strict=True))[1:]:
        assert top < middle < bottom


def test_steps_and_new_baselines_are_between_their_runs(open_history: OpenHistory) -> None:
    page = open_history()
    (_, before, after, _) = (x for x, _ in points_of(page, 0, ".history-line"))
    for path in (".history-step", ".history-baseline"):
        data = card(page, 0).locator(path).get_attribute("d") or ""
        assert before < float(data[1:].split(maxsplit=1)[0]) < after
    assert card(page, 0).locator(".history-step.tone-bad").count() == 1
    assert card(page, 1).locator(".history-step.tone-good").count() == 1
    assert card(page, 2).locator(".history-step").count() == 0
    assert "+10.5 %" in card(page, 0).locator("svg").text_content()  # type: ignore[operator]  # it has text


def test_the_pointer_shows_the_run_below_it(open_history: OpenHistory) -> None:
    page = open_history()
    assert run_of(page).startswith("2026-01-04 08:30 · 000000004 · passed")
    chart = card(page, 0).locator(".history-chart")
    chart.scroll_into_view_if_needed()
    box = known(chart.bounding_box())
    x = points_of(page, 0, ".history-line")[2][0]
    page.mouse.move(box["x"] + x + 3, box["y"] + 50)
    assert run_of(page) == (
        "2026-01-03 08:30 · 000000003 · regressed · +10.5 % (+9.7 … +11.3 %) · step +10.5 % "
        f"(+9.9 … +11.1 %) · baseline 111111111 {REASON}"
    )
    link = card(page, 0).locator("a")
    assert link.get_attribute("href") == COMMIT_URL.format(commit=commit_of(2))
    assert link.get_attribute("rel") == "noopener noreferrer"


def test_a_later_run_with_the_same_reasons_leads_to_the_first(open_history: OpenHistory) -> None:
    case = make_case()
    points = (*case.points[:3], replace(case.points[3], reasons=(REASON,)))
    page = open_history(make_history(replace(case, points=points)))
    assert REASON not in run_of(page)
    page.get_by_role("button", name="the same reasons as 2026-01-03 08:30").click()
    assert run_of(page).startswith("2026-01-03")
    assert run_of(page).endswith(REASON)


def test_a_run_is_a_link_to_its_page(open_history: OpenHistory) -> None:
    page = open_history(make_history(make_case(run_url=RUN_URL)))
    link = card(page, 0).get_by_role("link", name="the run")
    assert link.get_attribute("href") == RUN_URL
    assert link.get_attribute("rel") == "noopener noreferrer"


def test_keys_go_from_run_to_run_and_say_it(open_history: OpenHistory) -> None:
    page = open_history()
    chart = card(page, 0).locator(".history-chart")
    chart.focus()
    for key, day in (("ArrowLeft", 3), ("Home", 1), ("ArrowLeft", 1), ("ArrowRight", 2),
                     ("End", 4), ("PageDown", 1)):  # fmt: skip
        page.keyboard.press(key)
        assert run_of(page).startswith(f"2026-01-0{day}")
        assert chart.get_attribute("aria-valuenow") == f"{day}"
        spoken = chart.get_attribute("aria-valuetext") or ""
        assert spoken.startswith(f"2026-01-0{day} 08:30, 00000000{day}, passed" if day != 3 else "")
    assert chart.get_attribute("role") == "slider"


def test_filters_leave_the_cases_that_fit_and_survive_areload(open_history: OpenHistory) -> None:
    page = open_history()
    picker(page, "Machine").select_option("linux-aarch64-4c")
    assert page.locator(CARDS).count() == page.locator(ROWS).count() == 1
    assert "openvino" in card(page, 0).inner_text()
    picker(page, "Machine").select_option("*")
    picker(page, "Engine").select_option("onnxruntime")
    assert page.locator(CARDS).count() == 2
    picker(page, "Model").select_option("detector.onnx")
    assert shown_models(page, f"{CARDS} h3") == ["detector.onnx"]
    assert page.get_by_text("1 of 3 cases").is_visible()
    reload(page)
    assert shown_models(page, f"{CARDS} h3") == ["detector.onnx"]
    picker(page, "Engine").select_option("openvino")
    assert page.get_by_text("No case fits these choices.").is_visible()


def case_at(*seconds: float) -> CaseHistory:
    """A case with one run for each number of seconds after the first day."""
    made = make_case([0.0] * len(seconds), steps=())
    dates = (FIRST_DAY + dt.timedelta(seconds=each) for each in seconds)
    points = tuple(map(with_date, made.points, dates))
    return replace(made, points=points, first=points[0])


def with_date(point: HistoryPoint, date: dt.datetime) -> HistoryPoint:
    return replace(point, date=date)


@pytest.mark.parametrize("axis", ["run", "date"])
@pytest.mark.parametrize(
    ("seconds", "ends"),
    [
        pytest.param((0, 10, 20), ("01-01 08:30", "01-01 08:30"), id="seconds"),
        pytest.param((0, 1800, 7200), ("01-01 08:30", "01-01 10:30"), id="hours"),
        pytest.param((0, DAY, 4.1 * DAY), ("2026-01-01", "2026-01-05"), id="few days"),
        pytest.param((0, 20 * DAY, 40 * DAY), ("2026-01-01", "2026-02-10"), id="weeks"),
        pytest.param((0, 0, 0), ("01-01 08:30", "01-01 08:30"), id="one moment"),
    ],
)
def test_the_labels_of_the_dates_differ_and_do_not_touch(
    open_history: OpenHistory, seconds: tuple[float, ...], ends: tuple[str, str], axis: str
) -> None:
    page = open_history(make_history(case_at(*seconds)), fragment=f"axis={axis}", viewport=NARROW)
    shown = card(page, 0).locator(".history-date")
    labels = shown.all_text_contents()
    assert len(labels) == len(set(labels))
    assert (labels[0], labels[-1]) == ends
    boxes: list[Any] = [label.bounding_box() for label in shown.all()]
    assert all(one["x"] + one["width"] < other["x"] for one, other in pairwise(boxes))


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        (3 * DAY, ["01-01 08:30", "01-04 08:35", "01-04 08:42", "01-04 08:49"]),
        (40 * DAY, ["2026-01-01", "2026-02-10"]),
    ],
    ids=["the minute", "one label"],
)
def test_neighbouring_runs_of_one_day_have_different_labels_or_share_one(
    open_history: OpenHistory, gap: float, expected: list[str]
) -> None:
    """A label with the year has no room for the minute."""
    case = case_at(0, *(gap + 60 * run for run in range(20)))
    page = open_history(make_history(case), fragment="axis=run", viewport=NARROW)
    assert card(page, 0).locator(".history-date").all_text_contents() == expected


def test_only_cases_with_steps_are_shown_if_wanted(open_history: OpenHistory) -> None:
    page = open_history()
    page.get_by_role("button", name="with steps").click()
    assert page.locator(CARDS).count() == 2


def test_the_last_verdict_has_its_colour(open_history: OpenHistory) -> None:
    pills = open_history().locator(".history-cases .pill").all()
    tones = {"regressed": "tone-bad", "improved": "tone-good", "passed": "tone-plain"}
    assert pills
    for pill in pills:
        assert tones[pill.inner_text()] in (pill.get_attribute("class") or "")


def test_the_table_sorts_itself_and_the_curves(open_history: OpenHistory) -> None:
    page = open_history()
    orders = {
        "change": ["models/encoder.onnx", "models/encoder.onnx", "detector.onnx"],
        "model": ["detector.onnx", "models/encoder.onnx", "models/encoder.onnx"],
        "runs": ["detector.onnx", "models/encoder.onnx", "models/encoder.onnx"],
    }
    for column, order in orders.items():
        page.locator(f"[data-column={column}]").click()
        assert shown_models(page, f"{ROWS} th") == order
        assert shown_models(page, f"{CARDS} h3") == order
    page.locator("[data-column=tag]").click()
    since_tag = [text.split() for text in page.locator(f"{ROWS} td:nth-child(8)").all_inner_texts()]
    # Unknown changes come last.
    assert since_tag == [["+10.5", "%", "+9.7", "…", "+11.3", "%"], [UNKNOWN], [UNKNOWN]]


def test_a_name_in_the_table_leads_to_its_curve(open_history: OpenHistory) -> None:
    page = open_history()
    page.locator(".history-jump").nth(2).click()
    assert card(page, 2).locator(".history-chart:focus").count() == 1


def test_runs_are_spaced_evenly_or_by_their_dates(open_history: OpenHistory) -> None:
    page = open_history(make_history(make_case([0.0, 0.1, 0.0], steps=())))
    by_date = points_of(page, 0, ".history-line")
    page.get_by_role("button", name="run by run").click()
    assert points_of(page, 0, ".history-line") == by_date
    assert page.url.endswith("#axis=run")


@pytest.mark.parametrize("count", [1, 2, 400])
def test_curves_of_any_length_are_drawn(open_history: OpenHistory, count: int) -> None:
    page = open_history(make_history(make_case([0.0] * count, steps=())))
    assert len(points_of(page, 0, ".history-line")) == count


@pytest.mark.parametrize("size", [0.0, 1e-4, 0.013, 0.3, 5.0])
def test_every_range_has_some_lines_with_changes(open_history: OpenHistory, size: float) -> None:
    page = open_history(make_history(make_case([0.0, size, -size / 3], steps=())))
    assert 2 <= card(page, 0).locator(":is(.history-grid, .history-zero)").count() <= 6
    assert card(page, 0).locator(".history-zero").count() == 1


def test_a_wide_interval_among_many_does_not_flatten_the_curve(open_history: OpenHistory) -> None:
    case = make_case([0.0, 0.02] * 50, steps=())
    points = (*case.points[:50], replace(case.points[50], variance=1.0), *case.points[51:])
    page = open_history(make_history(replace(case, points=points)))
    heights = [y for _, y in points_of(page, 0, ".history-line")]
    assert max(heights) - min(heights) > 50
    assert all(0 <= y <= 190 for _, y in points_of(page, 0, ".history-band"))


def test_only_curves_near_the_view_are_in_the_document(open_history: OpenHistory) -> None:
    page = open_history(make_history(*(make_case(case=f"b{at}-c1") for at in range(100))))
    assert page.locator(CARDS).count() == 100
    assert page.locator(f"{CARDS} .history-line").count() < 20
    last = page.locator(CARDS).nth(99)
    last.scroll_into_view_if_needed()
    last.locator(".history-line").wait_for(state="attached")
    assert card(page, 0).locator(".history-line").count() == 0
    assert page.locator(f"{CARDS} .history-line").count() < 20


def test_paper_has_the_first_curves_and_says_so(open_history: OpenHistory) -> None:
    page = open_history(make_history(*(make_case(case=f"b{at}-c1") for at in range(70))))
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(f"{CARDS} .history-line").count() == 60
    assert page.locator(f"{CARDS}:not([hidden])").count() == 60
    assert "The first 60 of 70 curves." in page.locator("#history").text_content()  # type: ignore[operator]  # it has text
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(f"{CARDS}:not([hidden])").count() == 70


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_nothing_is_wider_than_the_page(open_history: OpenHistory, width: int) -> None:
    page = open_history(viewport={"width": width, "height": 900})
    root: dict[str, Any] = page.evaluate(
        "({page: document.documentElement.scrollWidth, view: innerWidth})"
    )
    assert root["page"] <= root["view"]
    chart = card(page, 0).locator(".history-chart")
    assert chart.evaluate("each => each.firstChild.clientWidth <= each.clientWidth")


def test_on_a_phone_each_case_of_the_table_is_a_card(open_history: OpenHistory) -> None:
    page = open_history(viewport=NARROW)
    box = page.locator(".layers-scroll:has(.history-cases)")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
    cell = box.locator("tbody td[data-title='last verdict']").first
    shown = cell.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert shown == '"last verdict "'


def test_the_colours_follow_the_theme(open_history: OpenHistory) -> None:
    page = open_history()
    read = "getComputedStyle(document.querySelector('.history-line')).stroke"
    light, drawn = page.evaluate(read), page.locator(f"{CARDS} .history-line").count()
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(read) != light
    assert page.locator(f"{CARDS} .history-line").count() == drawn > 0


def test_a_history_without_cases_has_no_curves(open_history: OpenHistory) -> None:
    page = open_history(make_history())
    assert page.locator("#history").is_hidden()
    assert page.get_by_text("no point has a latency p50").is_visible()


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_is_a_text(open_history: OpenHistory, name: str) -> None:
    case = make_case(machine=name, case=name, engine=name, reasons=(name,))
    page = open_history(make_history(case, make_case(engine=name + "x")))
    card(page, 0).locator(".history-chart").focus()
    page.keyboard.press("ArrowLeft")
    assert card(page, 0).locator(".history-point li").text_content() == name


def test_the_drift_that_is_allowed_is_a_line_above_the_curve(open_page: OpenPage) -> None:
    page = open_page(render_page(history_report(HISTORY, allowed_drift=0.5)))
    card(page, 0).locator(".history-budget").wait_for(state="attached")
    assert "+50.0 % allowed" in (card(page, 0).locator("svg").text_content() or "")
    line, zero = (
        page.locator(CARDS).first.locator(f".history-{name}").bounding_box()
        for name in ("budget", "zero")
    )
    assert line is not None
    assert zero is not None
    assert line["y"] < zero["y"]


def test_curves_are_above_the_prose(open_history: OpenHistory) -> None:
    ids = open_history().locator("main > section").evaluate_all("all => all.map(s => s.id)")
    assert ids == ["history", "overview", "facts"]
