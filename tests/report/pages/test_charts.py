"""The charts of a report page in a real browser: what they show, and what choosing changes."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_modelperf.graph.structure import GenerationPhase, Phase
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.stats.records import Latency, Percentile, Ratio
from pytest_modelperf.sweep.records import Configuration, SweepPoint, SweetSpot, find_sweet_spot
from pytest_modelperf.text.units import (
    format_bytes,
    format_count,
    format_ms,
    format_share,
    table_decimals,
)
from tests.report.pages import sample_data
from tests.report.pages.browser import OpenPage, pick, reload, wait_until_drawn
from tests.report.pages.conftest import OpenData, chart_of, render_data, without_charts
from tests.report.pages.sample_data import HOSTILE_NAMES, Data

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

PAGES = sample_data.every_page()
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 23, 26)"
THRESHOLD = "#chart .threshold input"
# The height of the bar of each element that can be scrolled sideways.
_WIDE = """() => [...document.querySelectorAll("body *")]
    .filter((e) => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX === "auto")
    .map((e) => e.offsetHeight - e.clientHeight - 2 * e.clientTop)
"""
FORMATTED = {
    "percent(0.031)": "+3.1 %",
    "percent(-0.031)": "−3.1 %",
    "percent(0)": "0 %",
    "percent(0.0001)": "<0.1 %",
    "interval([6.7011, 6.7222])": "6.701 … 6.722",
    "interval([0.01, 0.02], modelperf.format.percent)": "+1.0 … +2.0 %",
    "interval([0.01, null])": "–",  # noqa: RUF001  # a dash for what is not known
    "interval(null)": "–",  # noqa: RUF001  # likewise
    "ms(null)": "–",  # noqa: RUF001  # likewise
    "count(null)": "–",  # noqa: RUF001  # likewise
    "percent(null)": "–",  # noqa: RUF001  # likewise
}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_drawn_and_fits_on_a_phone(open_data: OpenData, name: str) -> None:
    page = open_data(PAGES[name], viewport={"width": 360, "height": 740})
    _assert_drawn(page)
    page.wait_for_function("document.documentElement.scrollWidth === 360")


@pytest.mark.parametrize("name", ["comparison", "sweep with layers"])
def test_a_page_is_drawn_in_both_themes(open_data: OpenData, name: str) -> None:
    page = open_data(PAGES[name])
    for background in (LIGHT, DARK):
        assert _background(page) == background
        _assert_drawn(page)
        page.click("#controls .theme")


def _assert_drawn(page: Page) -> None:
    assert page.evaluate("document.documentElement.dataset.state") == "ready"
    assert page.get_by_text("could not be drawn").count() == 0


def test_numbers_read_as_on_the_terminal(open_data: OpenData) -> None:
    page = open_data(PAGES["profile"], draws=False)
    for count in (0, 7, 999, 1000, 1204, 999_949, 999_951, 25_610_000, 4_089_000_000):
        assert page.evaluate("n => modelperf.format.count(n)", count) == format_count(count)
    for ms in (0.0123456, 0.99999, 6.7081, 61.306, 613.06, 1204.4):
        assert page.evaluate("n => modelperf.format.ms(n)", ms) == format_ms(ms * 1e6)
    for size in (0, 512, 1023, 1024, 1_048_570, 102_225_674, 7_300_000_000):
        assert page.evaluate("n => modelperf.figures.bytesText(n)", size) == format_bytes(size)
    for share in (0.0, 0.1234, 0.98765, 1.0):
        shown = page.evaluate("n => modelperf.figures.shareText(n)", share)
        assert shown == (format_share(share, 1.0) if share else "0.0 %")
    for total in (0.00321, 0.4, 9.87, 61.3, 1204.4):
        decimals = page.evaluate("n => modelperf.figures.decimalsFor(n)", total)
        assert decimals == table_decimals(total * 1e6)
        ms = page.evaluate("n => modelperf.figures.msText(n[0], n[1])", [total / 3, decimals])
        assert ms == format_ms(total / 3 * 1e6, decimals)
    for call, text in FORMATTED.items():
        assert page.evaluate(f"modelperf.format.{call}") == text


def test_the_sweet_spot_is_that_of_the_terminal(open_data: OpenData) -> None:
    page = open_data(sample_data.sweep(threshold_ms=1000.0), draws=False)
    for threshold in (None, 2.5, 5.45, 9.7, 15.3, 19.05, 33.3, 62.0, 0.001):
        page.fill(THRESHOLD, "" if threshold is None else str(threshold))
        for side, points in enumerate(_model(PAGES["sweep"])["points"]):
            spot = find_sweet_spot([_record(point) for point in points], threshold)
            best = [point for point in points if point["id"] == spot.best]
            star = _traces(page, "chart", symbol="star")[side]
            assert star["x"] == pytest.approx([point["ms"] for point in best])
            assert star["y"] == pytest.approx([point["per_second"] for point in best])
            sentence = page.locator("#chart .spots p").nth(side).inner_text()
            _check_sentence(sentence, f"{'AB'[side]}: {spot.best} gives", spot)


def test_a_point_without_intervals_is_treated_as_on_the_terminal(open_data: OpenData) -> None:
    data = sample_data.sweep(sides=1)
    points = _model(data)["points"][0]
    for point in points[::2]:
        point.update(interval_ms=None, per_second_interval=None)
    _check_spots(open_data(data, draws=False), points, (None, 9.7, 20.0))


def test_steps_compete_with_steps_alone_as_on_the_terminal(open_data: OpenData) -> None:
    data = sample_data.sweep(sides=1)
    points = _model(data)["points"][0]
    for point in points:
        # The other cores give more.
        point["is_step"] = point["cores"] == 1
        point["id"] = _record(point).id
    _check_spots(open_data(data, draws=False), points, (None, 20.0, 0.001))


def _check_spots(page: Page, points: Sequence[Data], thresholds: Sequence[float | None]) -> None:
    """The page names the sweet spot that the terminal finds, at each threshold."""
    for threshold in thresholds:
        page.fill(THRESHOLD, "" if threshold is None else str(threshold))
        spot = find_sweet_spot([_record(point) for point in points], threshold)
        sentence = page.locator("#chart .spots").inner_text()
        _check_sentence(sentence, f"Sweet spot: {spot.best} gives", spot)


def test_an_invalid_threshold_is_reported_and_changes_nothing(any_sweep: Page) -> None:
    before = _traces(any_sweep, "chart", symbol="star")
    for text in ("fast", "-3", "1,5", "0", "0x10", "Infinity", "5 ms"):
        any_sweep.fill(THRESHOLD, text)
        assert "not a time in milliseconds" in any_sweep.locator("#chart .wrong").inner_text()
        assert any_sweep.get_attribute(THRESHOLD, "aria-invalid") == "true"
        assert _traces(any_sweep, "chart", symbol="star") == before
    any_sweep.fill(THRESHOLD, "9.7")
    assert any_sweep.locator("#chart .wrong").inner_text() == ""
    assert any_sweep.get_attribute(THRESHOLD, "aria-invalid") == "false"
    assert _traces(any_sweep, "chart", symbol="star") != before


def test_an_address_without_a_threshold_has_that_of_the_sweep(open_data: OpenData) -> None:
    page = open_data(sample_data.sweep(threshold_ms=20.0), draws=False, fragment="threshold=fast")
    assert page.input_value(THRESHOLD) == "20"
    assert "within 20 ms" in page.locator("#chart .spots").inner_text()


def test_the_region_beyond_the_threshold_is_shaded(any_sweep: Page) -> None:
    shape = "document.querySelector('#chart .plot').layout.shapes"
    assert any_sweep.evaluate(f"{shape}.map((each) => each.x0)") == [20]
    any_sweep.fill(THRESHOLD, "")
    assert any_sweep.evaluate(shape) == []


def test_b_is_the_sweet_spot_and_a_the_same_configuration(any_sweep: Page) -> None:
    spot = find_sweet_spot([_record(p) for p in _model(PAGES["sweep"])["points"][1]], 20.0)
    assert _ends(any_sweep) == [spot.best, spot.best]


def test_points_with_layers_are_a_and_b_of_all_parts(open_data: OpenData) -> None:
    page = open_data(sample_data.sweep_with_all_layers())
    a, b = page.locator("#chart select").all()
    heading = page.locator("#types > h2")
    b.select_option("b8-c1")
    heading.filter(has_text=" at b8-c1").wait_for()
    a.select_option("b1-c1")
    heading.filter(has_text=re.compile(r"A: b1-c1.*B: b8-c1")).wait_for()
    assert _ends(page) == ["b1-c1", "b8-c1"]
    assert page.locator("#kernels th", has_text="delta").count()

    # A point without layers is in the chart alone.
    page.locator("#chart select").nth(1).select_option("b8-c1-s4")
    assert _ends(page) == ["b1-c1", "b8-c1-s4"]
    assert "B: b8-c1" in heading.inner_text()
    assert "s4" not in heading.inner_text()


def test_a_click_takes_a_point_as_that_of_its_side(drawn_sweep: Page) -> None:
    (_, b) = _ends(drawn_sweep)
    _click_point(drawn_sweep, side=0, point_id="b1-c2-s4")
    assert _ends(drawn_sweep) == ["b1-c2-s4", b]
    _click_point(drawn_sweep, side=1, point_id="b8-c1-s4")
    assert _ends(drawn_sweep) == ["b1-c2-s4", "b8-c1-s4"]
    figures = drawn_sweep.locator("#chart .pair").inner_text()
    for side, point_id in enumerate(("b1-c2-s4", "b8-c1-s4")):
        point = _point(PAGES["sweep"], side, point_id)
        assert format_ms(point["ms"] * 1e6) in figures
        assert format_ms(point["p95_ms"] * 1e6) in figures


def test_clicks_on_one_side_choose_b_and_a_in_turn(open_data: OpenData) -> None:
    page = open_data(PAGES["sweep of one"])
    _click_point(page, side=0, point_id="b8-c1-s2")
    _click_point(page, side=0, point_id="b4-c1-s2")
    assert _ends(page) == ["b4-c1-s2", "b8-c1-s2"]


def test_the_ratio_of_a_pair_is_that_which_was_measured(any_sweep: Page) -> None:
    both = _ends(any_sweep)[0]
    rows = any_sweep.locator("#chart .pair tbody tr")
    for place, figure in enumerate(("latency", "p95")):
        value, low, high = _model(PAGES["sweep"])["changes"][both][figure]
        row = rows.nth(place).inner_text()
        assert f"{value:.4f}" in row
        assert f"{low:.4f} … {high:.4f}" in row
    assert any_sweep.get_by_text("measured in turn").count() == 1


@pytest.mark.parametrize("sides", [1, 2])
def test_on_a_phone_all_figures_of_a_and_b_are_in_sight(open_data: OpenData, sides: int) -> None:
    viewport = {"width": 390, "height": 800}
    page = open_data(sample_data.sweep(sides), draws=False, viewport=viewport)
    cells = page.locator("#chart .pair td.number:not(:empty)")
    assert cells.count() >= 3 * 4
    rights = cells.evaluate_all("all => all.map((cell) => cell.getBoundingClientRect().right)")
    assert max(rights) <= 390
    titles = cells.evaluate_all("all => all.map((cell) => cell.dataset.title ?? '')")
    assert [title[:1] for title in titles if title][:3] == ["A", "B", "B"]


def test_points_that_are_not_a_pair_have_the_ratio_of_their_figures(any_sweep: Page) -> None:
    any_sweep.locator("#chart select").first.select_option("b1-c1")
    any_sweep.locator("#chart select").last.select_option("b2-c1")
    a, b = (_point(PAGES["sweep"], side, point) for side, point in enumerate(("b1-c1", "b2-c1")))
    row = any_sweep.locator("#chart .pair tbody tr").first.inner_text()
    assert f"{b['ms'] / a['ms']:.3f}" in row
    assert any_sweep.get_by_text("were not measured as a pair").count() == 1


def test_a_picker_that_is_used_by_keyboard_keeps_the_focus(any_sweep: Page) -> None:
    any_sweep.focus("#chart select")
    any_sweep.keyboard.press("b")
    any_sweep.keyboard.press("ArrowUp")
    chosen = _ends(any_sweep)
    any_sweep.keyboard.press("ArrowUp")
    assert _ends(any_sweep) != chosen
    assert any_sweep.evaluate("document.activeElement.tagName") == "SELECT"


def test_the_table_has_every_point(any_sweep: Page) -> None:
    any_sweep.get_by_text("All points as a table").click()
    rows = any_sweep.locator("#chart details tbody th")
    points = [p["id"] for side in _model(PAGES["sweep"])["points"] for p in side]
    assert rows.all_inner_texts() == points


def test_a_configuration_that_is_taken_away_is_neither_drawn_nor_compared(
    any_sweep: Page,
) -> None:
    (_, b) = _ends(any_sweep)
    any_sweep.get_by_text("Configurations in the chart").click()
    any_sweep.get_by_label(b, exact=True).uncheck()
    assert b not in _ends(any_sweep)
    for trace in _traces(any_sweep, "chart"):
        assert b not in [each for _, each in trace.get("customdata", ())]
    reload(any_sweep)
    assert b not in _ends(any_sweep)
    any_sweep.get_by_text("Configurations in the chart").click()
    any_sweep.get_by_label(b, exact=True).check()
    assert _ends(any_sweep) == [b, b]


def test_a_tooltip_has_all_of_a_point(drawn_sweep: Page) -> None:
    trace = next(t for t in _traces(drawn_sweep, "chart") if t.get("name") == "B: resnet50-int8")
    point = _point(PAGES["sweep"], 1, "b4-c2-s2")
    text = next(text for text in trace["text"] if "b4-c2-s2" in text)
    assert "batch 4, cores 2, streams 2" in text
    for value in (point["ms"], *point["interval_ms"], point["p95_ms"], point["per_second"]):
        assert format_ms(value * 1e6) in text


def test_error_bars_end_where_the_intervals_do(any_sweep: Page) -> None:
    trace = next(t for t in _traces(any_sweep, "chart") if t.get("name") == "A: resnet50")
    for i, (_, point_id) in enumerate(trace["customdata"]):
        point = _point(PAGES["sweep"], 0, point_id)
        for axis, value, interval in (("x", "ms", "interval_ms"),
                                      ("y", "per_second", "per_second_interval")):  # fmt: skip
            bars = trace[f"error_{axis}"]
            ends = [point[value] - bars["arrayminus"][i], point[value] + bars["array"][i]]
            assert ends == pytest.approx(point[interval])


def test_the_scales_can_be_logarithmic(drawn_sweep: Page) -> None:
    axis = "document.querySelector('#chart .plot')._fullLayout.xaxis.type"
    assert drawn_sweep.evaluate(axis) == "linear"
    drawn_sweep.get_by_label("Logarithmic scales").check()
    assert drawn_sweep.evaluate(axis) == "log"
    _click_point(drawn_sweep, side=0, point_id="b1-c1")
    assert _ends(drawn_sweep)[0] == "b1-c1"


def test_choices_survive_a_reload(any_sweep: Page) -> None:
    any_sweep.fill(THRESHOLD, "9.7")
    any_sweep.locator("#chart select").first.select_option("b1-c1")
    star = _traces(any_sweep, "chart", symbol="star")
    reload(any_sweep)
    assert any_sweep.input_value(THRESHOLD) == "9.7"
    assert _ends(any_sweep)[0] == "b1-c1"
    assert _traces(any_sweep, "chart", symbol="star") == star


def test_the_times_and_rounds_of_a_sweep_are_those_of_its_points(any_sweep: Page) -> None:
    any_sweep.locator("#chart select").first.select_option("b2-c1")
    point = _point(PAGES["sweep"], 0, "b2-c1")
    assert _traces(any_sweep, "time")[0]["y"] == pytest.approx([point["per_second"]])
    any_sweep.get_by_role("button", name="Latency").click()
    assert _traces(any_sweep, "time")[0]["y"] == pytest.approx([point["ms"], point["p95_ms"]])
    assert _traces(any_sweep, "rounds")[0]["median"] == pytest.approx(
        [each[3] for each in point["rounds"]]
    )


def test_the_layers_at_the_best_of_a_sweep_leave_its_times_those_of_its_points(
    open_data: OpenData,
) -> None:
    page = open_data(PAGES["sweep with layers"], draws=False)
    page.locator("#chart select").last.select_option("b1-c1")
    point = _point(PAGES["sweep with layers"], 1, "b1-c1")
    assert _traces(page, "time")[1]["y"] == pytest.approx([point["per_second"]])


def test_the_parts_about_layers_name_their_configuration_whatever_the_charts_show(
    open_data: OpenData,
) -> None:
    page = open_data(PAGES["sweep with layers"], draws=False)
    sides = ", ".join(
        f"{side['label']}: {side['name']}" for side in _model(PAGES["sweep with layers"])["sides"]
    )
    page.locator("#chart select").last.select_option("b1-c1")
    for part in ("types", "icicle", "depth"):
        assert page.locator(f"#{part} > h2 small").inner_text() == f" at b4-c2-s4, {sides}"
    assert page.locator("#chart > h2 small").count() == 0


def test_without_a_sweet_spot_the_charts_begin_at_the_configuration_of_the_layers(
    open_data: OpenData,
) -> None:
    page = open_data(PAGES["sweep with layers"], draws=False, fragment="threshold=0.001")
    assert _ends(page) == ["b4-c2-s4", "b4-c2-s4"]


def test_one_point_alone_does_not_make_a_chart(open_data: OpenData) -> None:
    data = copy.deepcopy(PAGES["profile"])
    _model(data)["points"][0] = [_model(PAGES["sweep"])["points"][0][0] | {"id": "b1-c2"}]
    page = open_data(data, draws=False)
    assert not page.locator("#chart").is_visible()
    assert page.locator("#time").is_visible()


def test_a_percentile_that_is_not_known_has_no_bar_and_is_named(open_data: OpenData) -> None:
    page = open_data(PAGES["comparison"], draws=False)
    page.get_by_role("button", name="Latency").click()
    case = _model(PAGES["comparison"])["cases"][0]
    for trace, latency in zip(_traces(page, "time"), case["latency"], strict=True):
        known = [p["ms"] for p in latency["percentiles"] if p["ms"] is not None]
        assert trace["y"] == pytest.approx(known)
    ticks = chart_of(page, "time")["layout"]["xaxis"]["ticktext"]
    assert ticks == ["p50", "p90", "p95", "p97", "p99"]
    note = page.locator("#time .hint").inner_text()
    assert "A: resnet50: p99, p99.9 need more than the 240 samples" in note
    assert "B: resnet50-int8: p99.9 needs more than the 480 samples" in note


def test_throughput_has_a_bar_for_each_case_and_side(open_data: OpenData) -> None:
    page = open_data(PAGES["comparison"], draws=False)
    cases = _model(PAGES["comparison"])["cases"]
    for side, trace in enumerate(_traces(page, "time")):
        assert trace["y"] == pytest.approx([c["latency"][side]["items_per_second"] for c in cases])
        median = cases[0]["latency"][side]["percentiles"][0]
        low = trace["y"][0] - trace["error_y"]["arrayminus"][0]
        assert low == pytest.approx(trace["y"][0] * median["ms"] / median["high"])


@pytest.mark.parametrize(
    ("name", "words"), [("comparison", "by the median latency"), ("sweep", "requests in a block")]
)
def test_the_page_says_what_the_throughput_is(open_data: OpenData, name: str, words: str) -> None:
    page = open_data(PAGES[name], draws=False)
    assert words in page.locator("#time .hint").inner_text()


def test_another_case_has_other_times(open_data: OpenData) -> None:
    page = open_data(PAGES["comparison"], draws=False)
    page.get_by_role("button", name="Latency").click()
    pick(page, "Case", "b8-c2")
    case = _model(PAGES["comparison"])["cases"][1]
    assert _traces(page, "time")[0]["y"][0] == case["latency"][0]["percentiles"][0]["ms"]
    assert _traces(page, "rounds")[1]["q1"] == [each[2] for each in case["rounds"][1]]
    reload(page)
    assert page.get_by_label("Case").input_value() == "b8-c2"


def test_a_choice_during_drawing_is_drawn_in_the_end(open_data: OpenData) -> None:
    page = open_data(PAGES["comparison"], draws=False)
    page.get_by_label("Case").evaluate("""(cases) => {
          for (const id of ["b8-c2", "b1-c1", "b8-c2"]) {
            cases.value = id;
            cases.dispatchEvent(new Event("change"));
          }
        }""")
    wait_until_drawn(page)
    rounds = _model(PAGES["comparison"])["cases"][1]["rounds"]
    assert _traces(page, "rounds")[1]["q1"] == [each[2] for each in rounds[1]]


def test_a_case_that_cannot_be_unpacked_is_reported_as_cut_short(tab: Page, folder: Path) -> None:
    whole = without_charts(render_data(PAGES["comparison"]))
    path = folder / "cut.html"
    path.write_text(re.sub(r'(id="data-0-1">).*?<', r"\1H4sIAAAA<", whole), encoding="utf-8")
    tab.goto(path.as_uri())
    wait_until_drawn(tab)
    assert tab.locator("#status").inner_text() == ""
    pick(tab, "Case", "b8-c2")
    assert tab.locator("html").get_attribute("data-state") == "failed"
    assert "cut short" in tab.locator("#status").inner_text()


@pytest.fixture
def scrolled_tab(tab: Page, folder: Path) -> Page:
    """A page in a low window, with the charts in sight alone."""
    path = folder / "scrolled.html"
    path.write_text(without_charts(render_data(PAGES["comparison"])), encoding="utf-8")
    tab.set_viewport_size({"width": 1200, "height": 400})
    tab.goto(path.as_uri())
    tab.wait_for_function("document.documentElement.dataset.state")
    return tab


def test_a_chart_is_drawn_when_it_is_scrolled_to(scrolled_tab: Page) -> None:
    chart = scrolled_tab.locator("#depth .plot")
    assert chart.evaluate("chart => chart.layout === undefined")
    # It has its room already, so the parts below it do not move when it is drawn.
    assert chart.bounding_box()["height"] == 340  # type: ignore[index]  # it is there
    chart.scroll_into_view_if_needed()
    scrolled_tab.wait_for_function("document.querySelector('#depth .plot').layout")


def test_printed_pages_have_the_charts_that_were_never_in_view(scrolled_tab: Page) -> None:
    scrolled_tab.evaluate("modelperf.charts.load()")
    scrolled_tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    drawn = "[...document.querySelectorAll('.plot')].map(chart => Boolean(chart.layout))"
    assert set(scrolled_tab.evaluate(drawn)) == {True}
    scrolled_tab.evaluate("dispatchEvent(new Event('afterprint'))")


def test_charts_that_cannot_be_unpacked_are_reported_as_cut_short(tab: Page, folder: Path) -> None:
    whole = without_charts(render_data(PAGES["comparison"]))
    path = folder / "cut.html"
    path.write_text(re.sub(r'(id="plotly">).*?<', r"\1H4sIAAAA<", whole), encoding="utf-8")
    tab.goto(path.as_uri())
    tab.wait_for_function("document.documentElement.dataset.state === 'failed'")
    assert "cut short" in tab.locator("#status").inner_text()
    assert tab.locator("#kernels tbody tr").count() > 0
    pick(tab, "Case", "b8-c2")
    tab.locator("#depth .plot").scroll_into_view_if_needed()
    tab.get_by_text("This chart could not be drawn.").first.wait_for()


def test_a_few_of_many_cases_are_named_below_the_bars(open_data: OpenData) -> None:
    data = copy.deepcopy(PAGES["comparison"])
    model = _model(data)
    first = model["cases"][0]
    model["cases"] = [first | {"id": f"b{n}", "name": f"b{n}"} for n in range(100)]
    page = open_data(data, draws=False)
    axis = chart_of(page, "time")["layout"]["xaxis"]
    assert axis["ticktext"] == [f"b{n}" for n in range(0, 100, 5)]
    assert len(_traces(page, "time")[0]["y"]) == 100


def test_a_page_opens_on_the_case_that_its_data_names(open_data: OpenData) -> None:
    data = copy.deepcopy(PAGES["run"])
    data["start"], data["models"][0]["start"] = 0, "b1-c2"
    page = open_data(data, draws=False)
    assert page.get_by_label("Case").input_value() == "b1-c2"
    pick(page, "Case", "b1-c1")
    reload(page)
    assert page.get_by_label("Case").input_value() == "b1-c1"
    data["start"] = 1
    page = open_data(data, draws=False)
    assert page.get_by_label("Model").locator("option:checked").inner_text() == "decoder"


@pytest.mark.parametrize("name", ["comparison", "run", "sweep with layers", "profile"])
def test_elements_wider_than_a_narrow_window_have_a_visible_scroll_bar(
    barred_tab: Page, folder: Path, name: str
) -> None:
    """Even if the system shows one only during scrolling, as on a phone."""
    path = folder / "barred.html"
    path.write_text(render_data(PAGES[name]), encoding="utf-8")
    barred_tab.goto(path.as_uri())
    wait_until_drawn(barred_tab)
    assert barred_tab.evaluate("document.documentElement.scrollWidth") == 700
    wide = barred_tab.evaluate(_WIDE)
    assert any(wide)
    assert all(bar > 0 for bar in wide)


def test_another_model_has_other_cases(open_data: OpenData) -> None:
    page = open_data(PAGES["run"], fragment="case=b1-c2", draws=False)
    assert page.get_by_label("Case").input_value() == "b1-c2"
    pick(page, "Model", "decoder")
    assert page.get_by_label("Case").count() == 0
    assert len(_traces(page, "time")) == 1
    pick(page, "Model", "encoder")
    assert page.get_by_label("Case").input_value() == "b1-c1"


def test_a_box_is_made_of_the_quantiles_of_its_round(open_data: OpenData) -> None:
    page = open_data(PAGES["comparison"], draws=False)
    sides = _model(PAGES["comparison"])["cases"][0]["rounds"]
    boxes = _traces(page, "rounds")[:2]
    for box, rounds in zip(boxes, sides, strict=True):
        columns = ["lowerfence", "q1", "median", "q3", "upperfence"]
        assert [box[name] for name in columns] == [list(c) for c in zip(*rounds, strict=True)][1:6]
    extremes = _traces(page, "rounds")[2]
    assert extremes["y"] == [r[0] for r in sides[0]] + [r[-1] for r in sides[0]]
    low, high = chart_of(page, "rounds")["layout"]["yaxis"]["range"]
    assert 0 < low < min(r[0] for side in sides for r in side)
    assert high > max(r[-1] for side in sides for r in side)
    # A click on a name of the legend hides its trace.
    names = [trace["name"] for trace in _traces(page, "rounds")]
    assert len(set(names)) == 4
    assert not any(trace.get("showlegend") is False for trace in _traces(page, "rounds"))


def test_the_theme_follows_the_system_until_it_is_chosen(open_data: OpenData) -> None:
    page = open_data(PAGES["profile"], color_scheme="dark")
    assert _background(page) == DARK
    page.emulate_media(color_scheme="light")
    assert _background(page) == LIGHT
    ink = _ink(page)
    page.click("#controls .theme")
    assert _background(page) == DARK
    assert _ink(page) != ink
    reload(page)
    assert _background(page) == DARK


def test_paper_is_light_and_shows_all_and_no_chart_is_cut(open_data: OpenData) -> None:
    page = open_data(PAGES["sweep"], color_scheme="dark")
    ink = _ink(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert _background(page) == LIGHT
    assert _ink(page) != ink
    assert page.locator("details:not([open])").count() == 0
    for plot in page.locator(".plot").all():
        assert plot.locator("svg").first.bounding_box()["width"] <= 680  # type: ignore[index]  # drawn
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert _background(page) == DARK
    assert _ink(page) == ink
    assert page.locator("#chart details:not([open])").count() == 2
    assert page.locator("#chart .plot svg").first.bounding_box()["width"] > 680  # type: ignore[index]  # drawn


def test_a_name_that_would_be_markup_is_text(open_data: OpenData) -> None:
    page = open_data(PAGES["hostile"])
    assert page.locator("#chart .legendtext").first.text_content() == f"A: {HOSTILE_NAMES[0]}"
    assert page.get_by_label("Model").locator("option").all_inner_texts() == [*HOSTILE_NAMES[1:3]]
    pick(page, "Model", "1")
    tick = page.locator("#time .xtick").first.text_content() or ""
    assert tick.startswith("</script><script>alert(2)")
    assert page.locator("img, body b:has-text('bold')").count() == 0


def test_a_point_with_a_hostile_name_can_be_chosen_and_read(open_data: OpenData) -> None:
    page = open_data(PAGES["hostile"])
    page.locator("#chart select").first.select_option(HOSTILE_NAMES[2])
    assert HOSTILE_NAMES[2] in page.locator("#chart .pair").inner_text()
    _hover_point(page, side=0, point_id=HOSTILE_NAMES[2])
    shown = page.locator("#chart .hoverlayer").text_content() or ""
    assert HOSTILE_NAMES[2] in shown
    assert f"{HOSTILE_NAMES[0]} = 64" in shown


def test_a_sweep_that_measured_nothing_says_so(open_data: OpenData) -> None:
    data = copy.deepcopy(PAGES["sweep of one"])
    failed = dict.fromkeys(("ms", "interval_ms", "p95_ms", "per_second", "per_second_interval"))
    for point in _model(data)["points"][0]:
        point.update(**failed, rounds=[], reason="no memory")
    page = open_data(data, draws=False)
    said = page.locator("#absent").inner_text()
    assert "Latency and throughput: no configuration could be measured." in said


def test_no_chart_has_a_button_that_sends_it_somewhere(drawn_sweep: Page) -> None:
    titles = drawn_sweep.locator(".modebar-btn").evaluate_all(
        "all => all.map(b => b.dataset.title)"
    )
    assert any("Download" in title for title in titles)
    assert not [title for title in titles if "Share" in title or "Plotly" in title]


def test_tab_stops_at_no_button_of_a_chart(drawn_sweep: Page) -> None:
    stops = drawn_sweep.locator(".modebar-btn").evaluate_all("all => all.map(b => b.tabIndex)")
    assert set(stops) == {-1}


@pytest.mark.parametrize(("times", "most"), [(1.2, 1.2), (50.0, 2.0)])
def test_a_long_error_bar_leaves_half_of_the_axis_to_the_values(
    open_data: OpenData, times: float, most: float
) -> None:
    data = copy.deepcopy(PAGES["profile"])
    percentiles = _model(data)["cases"][0]["latency"][0]["percentiles"]
    longest = max(each["ms"] for each in percentiles if each["ms"])
    percentiles[0]["high"] = times * longest
    page = open_data(data, draws=False)
    page.get_by_role("button", name="Latency").click()
    axis = chart_of(page, "time")["layout"]["yaxis"]["range"]
    assert axis == pytest.approx([0, 1.05 * most * longest])


def test_a_run_without_a_model_has_the_overview_only(open_data: OpenData) -> None:
    page = open_data({"models": []}, draws=False)
    assert page.evaluate("document.documentElement.dataset.state") == "ready"
    assert page.locator(".interactive:visible").count() == 0
    page.click("#controls .theme")
    assert _background(page) == DARK


def test_a_browser_without_decompression_gets_a_message(open_page: OpenPage) -> None:
    html = render_data(PAGES["profile"])
    old = "<script>delete window.DecompressionStream</script></head>"
    page = open_page(html.replace("</head>", old))
    assert "too old" in page.locator("#status").inner_text()
    assert page.locator(".interactive:visible").count() == 0


@pytest.fixture
def drawn_sweep(open_data: OpenData) -> Page:
    return open_data(PAGES["sweep"])


@pytest.fixture
def any_sweep(open_data: OpenData) -> Page:
    return open_data(PAGES["sweep"], draws=False)


def _check_sentence(sentence: str, best: str, spot: SweetSpot) -> None:
    """It names the best if there is one, and those that are as good or may be within."""
    assert (best in sentence) == (spot.best is not None)
    assert ("surely" in sentence) == (spot.best is None)
    for start, ids in (("clearly differ from", spot.equals), ("or beyond:", spot.undecided)):
        assert (start in sentence) == bool(ids)
        assert f"{start} {', '.join(ids)}." in sentence or not ids


def _model(data: Data) -> Data:
    model: Data = data["models"][0]
    return model


def _point(data: Data, side: int, point_id: str) -> Data:
    return next(p for p in _model(data)["points"][side] if p["id"] == point_id)


def _record(point: Data) -> SweepPoint:
    """The point as the sweep has it; what a sweet spot does not depend on is made up."""
    phase = GenerationPhase(Phase.STEP, 8, 4) if point.get("is_step") else None
    configuration = Configuration(
        Case(batch_size=point["batch"], cores=point["cores"], phase=phase), point["streams"]
    )
    if point["reason"] is not None:
        return SweepPoint(configuration=configuration, reason=point["reason"])
    low, high = point["interval_ms"] or (None, None)
    median = Percentile(
        percent=50.0,
        needed=1,
        value_ns=point["ms"] * 1e6,
        low_ns=None if low is None else low * 1e6,
        high_ns=None if high is None else high * 1e6,
    )
    latency = Latency(
        batch_size=point["batch"], confidence=0.95, percentiles=(median,), samples=1, rounds=1,
        min_ns=round(1e6 * min(r[0] for r in point["rounds"])), max_ns=1, mean_ns=1.0,
    )  # fmt: skip
    throughput = Ratio(point["per_second"], *(point["per_second_interval"] or (None, None)))
    return SweepPoint(configuration=configuration, latency=latency, throughput=throughput)


def _traces(page: Page, section: str, symbol: str | None = None) -> Sequence[Data]:
    found: list[Data] = chart_of(page, section)["data"]
    return [t for t in found if symbol is None or t.get("marker", {}).get("symbol") == symbol]


def _ends(page: Page) -> list[str]:
    """The ids of A and B as the pickers have them; the rings of the chart are around the same."""
    chosen: list[str] = page.locator("#chart select").evaluate_all("all => all.map(s => s.value)")
    rings = _traces(page, "chart")[-2:]
    for ring, point_id, side in zip(rings, chosen, (0, -1), strict=True):
        points = [t for t in _traces(page, "chart") if t.get("customdata")][side]
        index = next(i for i, (_, each) in enumerate(points["customdata"]) if each == point_id)
        assert [ring["x"], ring["y"]] == [[points["x"][index]], [points["y"][index]]]
    return chosen


def _click_point(page: Page, side: int, point_id: str) -> None:
    _hover_point(page, side, point_id)
    page.mouse.down()
    page.mouse.up()


def _hover_point(page: Page, side: int, point_id: str) -> None:
    """Moves the mouse to a point, and waits until the chart has seen that.

    A chart looks for the point below the mouse every 50 ms at most, and a click takes the last one.
    """
    page.mouse.move(**_place_of(page, side, point_id))
    source = """([side, id]) => {
          const [found] = document.querySelector("#chart .plot")._hoverdata ?? [];
          return found?.customdata?.[0] === side && found.customdata[1] === id;
        }"""
    page.wait_for_function(source, arg=[side, point_id])


def _place_of(page: Page, side: int, point_id: str) -> dict[str, Any]:
    """Return the place on the screen at which a point is drawn."""
    page.locator("#chart .plot").scroll_into_view_if_needed()
    place: dict[str, Any] = page.evaluate(
        """([side, id]) => {
          const plot = document.querySelector("#chart .plot");
          const trace = plot.data.find((each) => each.customdata?.[0][0] === side);
          const index = trace.customdata.findIndex((each) => each[1] === id);
          const box = plot.getBoundingClientRect();
          const { xaxis, yaxis } = plot._fullLayout;
          return {
            x: box.x + xaxis._offset + xaxis.d2p(trace.x[index]),
            y: box.y + yaxis._offset + yaxis.d2p(trace.y[index]),
          };
        }""",
        [side, point_id],
    )
    return place


def _background(page: Page) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


def _ink(page: Page) -> str:
    """The colour of the texts of a chart."""
    colour: str = chart_of(page, "time")["layout"]["font"]["color"]
    return colour


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("run", "those of model encoder, case b1-c1 · passed."),
        ("comparison", "those of case b1-c1 · improved."),
        ("profile", None),
    ],
)
def test_paper_says_which_model_and_case_its_charts_are_of(
    open_data: OpenData, name: str, says: str | None
) -> None:
    page = open_data(PAGES[name], draws=False)
    line = page.locator("#shown")
    assert not line.is_visible()
    page.emulate_media(media="print")
    assert line.is_visible() == (says is not None)
    if says is not None:
        assert line.inner_text().endswith(says)
