"""The page of a what-if in a real browser: what it shows of each summary and view.

What is expected is computed here from the records that the page was made of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from msgspec.structs import replace

from pytest_modelperf.profiler.records import Case
from pytest_modelperf.whatif.records import Level, WhatIf
from tests.report.pages.browser import OpenPage, pick, reload, wait_until_drawn
from tests.report.pages.conftest import without_charts
from tests.report.pages.sample_data import HOSTILE_NAMES
from tests.support.known import known
from tests.support.whatifs import (
    FAILURE,
    make_case,
    make_layer,
    make_layers,
    make_whatif,
    render_whatif_page,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenWhatIf: TypeAlias = "Callable[..., Page]"
Read: TypeAlias = "Callable[[str], float | None]"

LAYERS = make_layers()
CASE = make_case(LAYERS)
BASELINE, PRUNED_05, ESTIMATE, PRUNED_09, DYNAMIC, STATIC = CASE.levels
TIMED = (BASELINE, PRUNED_05, ESTIMATE, PRUNED_09, DYNAMIC)
UNKNOWN = "\u2013"
TYPE_ROWS = ".whatif-types tbody tr"
LAYER_ROWS = ".whatif-layers tbody tr:not(.spacer)"
# The charts of the page, in order.
SPEEDUPS, TYPES, ALONG = 0, 1, 2


@pytest.fixture
def open_whatif(open_page: OpenPage) -> OpenWhatIf:
    """Opens the page of a what-if, with the options of `open_page`; its charts are not drawn."""

    def open_built(whatif: WhatIf | None = None, **options: object) -> Page:
        html = render_whatif_page(whatif or make_whatif(CASE))
        return open_page(without_charts(html), **options)

    return open_built


def choose(page: Page, summary: str) -> None:
    page.get_by_label("Summary").select_option(summary)


def chart(page: Page, index: int, what: str = "data") -> Any:  # noqa: ANN401  # of Plotly
    """Return the arguments that Plotly was given."""
    wait_until_drawn(page)
    return page.evaluate(
        "([index, what]) => document.querySelectorAll('main .plot')[index][what]", [index, what]
    )


def heads(page: Page, table: str) -> list[str]:
    return page.locator(f"{table} thead th").all_inner_texts()


def cells(page: Page, rows: str) -> list[list[str]]:
    """The texts of each row; the text below a figure follows it after a blank."""
    return [
        [" ".join(text.split()) for text in row.locator("th, td").all_inner_texts()]
        for row in page.locator(rows).all()
    ]


def by_time(level: Level = BASELINE) -> list[str]:
    """The layer types, those that take most at first."""
    return sorted(level.layer_types, key=lambda op: -level.layer_types[op])


def speedup(before: float | None, after: float | None) -> str:
    return f"x{before / after:.2f}" if before and after else ""


def layer_name(depth: int) -> str:
    return LAYERS[depth].id


def press(page: Page, table: str, column: str) -> str | None:
    """Press the head of a column; its new aria-sort."""
    button = page.locator(f'{table} button[data-column="{column}"]')
    button.click()
    return button.locator("xpath=..").get_attribute("aria-sort")


def shown_depths(page: Page) -> list[int]:
    rows = page.locator(LAYER_ROWS)
    depths: list[int] = rows.evaluate_all("rows => rows.map((row) => Number(row.dataset.depth))")
    return depths


def depths_by(read: Read, *, is_descending: bool) -> list[int]:
    """The layers sorted, what is equal in its old order and what is unknown last."""
    values = {depth: read(layer.id) for depth, layer in enumerate(LAYERS)}
    known = [depth for depth, value in values.items() if value is not None]
    unknown = [depth for depth, value in values.items() if value is None]
    return [*sorted(known, key=lambda d: values[d] or 0.0, reverse=is_descending), *unknown]


def test_every_level_can_be_chosen_and_one_that_failed_says_so(open_whatif: OpenWhatIf) -> None:
    page = open_whatif()
    assert page.get_by_label("Summary").locator("option").all_inner_texts() == [
        "all side by side", "Baseline", "Pruned 0.5", "Pruned 0.7 (estimate)", "Pruned 0.9",
        "INT8 dynamic", "INT8 static · failed",
    ]  # fmt: skip
    assert f"INT8 static failed: {FAILURE}" in page.locator("#whatif").inner_text()
    choose(page, "Pruned 0.9")
    assert FAILURE not in page.locator("#whatif").inner_text()
    choose(page, "INT8 static")
    assert f"INT8 static failed: {FAILURE}" in page.locator("#whatif").inner_text()
    assert {row[3] for row in cells(page, TYPE_ROWS)} == {UNKNOWN}


def test_side_by_side_each_time_is_above_its_speedup(open_whatif: OpenWhatIf) -> None:
    page = open_whatif()
    titles = [f"{level.title} ms" for level in TIMED]
    assert heads(page, ".whatif-types") == ["layer type", "layers", *titles]
    rows = {row[0].removesuffix(" beside the layers"): row[2:] for row in cells(page, TYPE_ROWS)}
    assert list(rows) == by_time()
    for op, (first, *others) in rows.items():
        before = BASELINE.layer_types[op]
        assert first == f"{before:.3f}"
        times = [level.layer_types[op] for level in TIMED[1:]]
        assert others == [f"{ms:.3f} {speedup(before, ms)}" for ms in times]
    (total,) = cells(page, ".whatif-types tfoot tr")
    assert total[2:] == [
        "6.700", "6.722 x1.00", "5.796 x1.21", "4.762 x1.41", "7.217 x0.93",
    ]  # fmt: skip


def test_a_level_is_shown_next_to_the_unchanged_model(open_whatif: OpenWhatIf) -> None:
    page = open_whatif()
    choose(page, "Pruned 0.9")
    columns = ["Baseline ms", "Pruned 0.9 ms", "speedup"]
    assert heads(page, ".whatif-types")[2:] == columns
    assert heads(page, ".whatif-layers") == ["#", "layer", "type", "weight", *columns]
    for op, _, before, after, faster in cells(page, TYPE_ROWS):
        name = op.removesuffix(" beside the layers")
        ms = BASELINE.layer_types[name], PRUNED_09.layer_types[name]
        assert (before, after, faster) == (f"{ms[0]:.3f}", f"{ms[1]:.3f}", speedup(*ms))
    assert [trace["name"] for trace in chart(page, TYPES)] == ["Baseline", "Pruned 0.9"]


def test_a_layer_shows_how_sure_the_time_is_that_is_less_sure(open_whatif: OpenWhatIf) -> None:
    first = LAYERS[0].id
    sure = {"Baseline": 0.01, "Pruned 0.9": 0.03}
    levels = tuple(
        replace(level, half_widths={first: level.layers[first] * sure[level.title]})
        if level.title in sure
        else level
        for level in CASE.levels
    )
    page = open_whatif(make_whatif(replace(CASE, levels=levels)))
    choose(page, "Pruned 0.9")
    assert heads(page, ".whatif-layers")[-1] == "±"
    assert {row[1]: row[-1] for row in cells(page, LAYER_ROWS)}[first] == "3.0 %"
    choose(page, "Baseline")
    assert {row[1]: row[-1] for row in cells(page, LAYER_ROWS)}[first] == "1.0 %"


def test_the_unchanged_model_is_shown_alone(open_whatif: OpenWhatIf) -> None:
    page = open_whatif()
    choose(page, "Baseline")
    assert heads(page, ".whatif-types")[2:] == ["Baseline ms"]
    assert [trace["name"] for trace in chart(page, TYPES)] == ["Baseline"]
    assert page.locator("#whatif .layers-note:visible").count() == 0


def test_choices_survive_a_reload_and_hold_for_every_case(
    open_whatif: OpenWhatIf,
) -> None:
    page = open_whatif(make_whatif(CASE, make_case(case=Case(8, 2), ms=31.0)))
    choose(page, "Pruned 0.9")
    page.get_by_role("button", name="percent").click()
    pick(page, "Case", "b8-c2")
    reload(page)
    assert page.get_by_label("Summary").input_value() == "Pruned 0.9"
    assert page.get_by_label("Case").input_value() == "b8-c2"
    assert heads(page, ".whatif-types")[2:] == ["Baseline %", "Pruned 0.9 %", "speedup"]
    page.get_by_role("button", name="ms", exact=True).click()
    (total,) = cells(page, ".whatif-types tfoot tr")
    assert total[2:] == ["31.000", "22.032", "x1.41"]


def test_percentages_are_of_the_whole_of_each_level(open_whatif: OpenWhatIf) -> None:
    page = open_whatif()
    page.get_by_role("button", name="percent").click()
    rows = cells(page, TYPE_ROWS)
    for index, level in enumerate(TIMED):
        whole = sum(level.layer_types.values())
        for row in rows:
            op = row[0].removesuffix(" beside the layers")
            share = f"{100 * level.layer_types[op] / whole:.1f} %"
            assert re.fullmatch(rf"{re.escape(share)}( x[\d.]+)?", row[2 + index])
        assert sum(chart(page, TYPES)[index]["x"]) == pytest.approx(1.0)
    first, conv = cells(page, LAYER_ROWS)[0], BASELINE.layers[layer_name(4)]
    assert first[4] == f"{100 * conv / 6.7:.1f} %"
    assert chart(page, TYPES, "layout")["xaxis"]["tickformat"] == ".0%"


def test_a_logarithmic_chart_has_the_same_times_and_whole_numbers(open_whatif: OpenWhatIf) -> None:
    page = open_whatif()
    plain, table = [trace["x"] for trace in chart(page, TYPES)], cells(page, TYPE_ROWS)
    page.get_by_role("button", name="log").click()
    axis = chart(page, TYPES, "layout")["xaxis"]
    assert axis["type"] == "log"
    assert axis["tickvals"] == [0.5, 1, 2, 5, 10]
    assert [trace["x"] for trace in chart(page, TYPES)] == plain
    assert cells(page, TYPE_ROWS) == table


def test_a_time_left_by_rounding_has_no_speedup_and_stretches_no_chart(
    open_whatif: OpenWhatIf,
) -> None:
    types = {**BASELINE.layer_types, "Softmax": 1e-16}
    page = open_whatif(
        make_whatif(replace(CASE, levels=(replace(BASELINE, layer_types=types), *CASE.levels[1:])))
    )
    (row,) = [row for row in cells(page, TYPE_ROWS) if row[0] == "Softmax"]
    assert " x" not in " ".join(row)
    page.get_by_role("button", name="log").click()
    assert chart(page, TYPES, "layout")["xaxis"]["tickvals"] == [0.5, 1, 2, 5, 10]


def test_the_types_of_every_level_are_drawn_and_estimates_are_striped(
    open_whatif: OpenWhatIf,
) -> None:
    traces = chart(open_whatif(), TYPES)
    assert [trace["name"] for trace in traces] == [level.title for level in TIMED]
    most = {op: max(level.layer_types[op] for level in TIMED) for op in BASELINE.layer_types}
    order = sorted(most, key=lambda op: -most[op])
    for trace, level in zip(traces, TIMED, strict=True):
        assert trace["y"] == order
        assert trace["x"] == pytest.approx([level.layer_types[op] for op in order])
        assert (trace["marker"]["pattern"]["shape"] == "/") == level.is_estimate
    assert len({trace["marker"]["color"] for trace in traces}) == len(traces)


def test_the_chart_has_the_slowest_of_many_types(open_whatif: OpenWhatIf) -> None:
    case = make_case([make_layer(index, op_type=f"Op{index:02}") for index in range(20)])
    page = open_whatif(make_whatif(case))
    times = case.levels[0].layer_types
    drawn = chart(page, TYPES)[0]["x"]
    # With five levels that is 45 bars.
    assert drawn == pytest.approx(sorted(times.values(), reverse=True)[:9])
    assert "The 9 types that take most" in page.locator("#whatif .hint").inner_text()
    assert page.locator(TYPE_ROWS).count() == 21
    choose(page, "Baseline")
    assert len(chart(page, TYPES)[0]["x"]) == 21


def test_speedups_are_drawn_with_their_intervals_and_estimates_without(
    open_whatif: OpenWhatIf,
) -> None:
    (trace,) = chart(open_whatif(), SPEEDUPS)
    assert trace["y"] == [level.title for level in TIMED[1:]]
    for index, level in enumerate(TIMED[1:]):
        ratio = known(level.speedup)
        assert trace["x"][index] == pytest.approx(ratio.value)
        assert (trace["marker"]["symbol"][index] == "circle-open") == level.is_estimate
        if ratio.low is None or ratio.high is None:
            assert trace["error_x"]["array"][index] is None
            assert "an estimate" in trace["hovertext"][index]
        else:
            assert trace["error_x"]["array"][index] == pytest.approx(ratio.high - ratio.value)
            assert trace["error_x"]["arrayminus"][index] == pytest.approx(ratio.value - ratio.low)


def test_the_layers_are_drawn_along_the_model_at_the_chosen_levels(open_whatif: OpenWhatIf) -> None:
    page = open_whatif()
    assert [trace["name"] for trace in chart(page, ALONG)] == [level.title for level in TIMED]
    choose(page, "Pruned 0.9")
    before, after = chart(page, ALONG)
    for trace, level in ((before, BASELINE), (after, PRUNED_09)):
        timed = [place for place, layer in enumerate(LAYERS) if layer.id in level.layers]
        assert trace["x"] == timed
        assert trace["y"] == pytest.approx([level.layers[LAYERS[place].id] for place in timed])
    page.get_by_role("button", name="log").click()
    assert chart(page, ALONG, "layout")["yaxis"]["type"] == "log"


def test_the_bars_of_a_long_model_are_drawn_as_steps(open_whatif: OpenWhatIf) -> None:
    page = open_whatif(make_whatif(make_case([make_layer(index) for index in range(100)])))
    assert {trace["type"] for trace in chart(page, ALONG)} == {"scatter"}
    choose(page, "Baseline")
    assert {trace["type"] for trace in chart(page, ALONG)} == {"bar"}


def test_a_layer_shows_its_type_weight_and_time_at_each_level(open_whatif: OpenWhatIf) -> None:
    rows = {row[1]: row for row in cells(open_whatif(), LAYER_ROWS)}
    assert set(rows) == {layer.id for layer in LAYERS}
    for depth, layer in enumerate(LAYERS):
        place, _, op_type, weight, *times = rows[layer.id]
        assert (place, op_type, weight) == (str(depth), layer.op_type, layer.weight or UNKNOWN)
        if layer.op_type == "Relu":
            assert times == [f"in {layer_name(depth - 1)}"]
            continue
        before = BASELINE.layers[layer.id]
        assert times == [
            f"{before:.3f}",
            *(
                f"{level.layers[layer.id]:.3f} "
                + (
                    "outside"
                    if layer.id in level.outside
                    else speedup(before, level.layers[layer.id])
                )
                for level in TIMED[1:]
            ),
        ]


def test_a_layer_outside_the_engine_is_marked_and_has_no_speedup(open_whatif: OpenWhatIf) -> None:
    page = open_whatif()
    choose(page, "Pruned 0.9")
    faster = {row[1]: row[-1] for row in cells(page, LAYER_ROWS)}
    assert {name for name, text in faster.items() if text == "outside"} == {*PRUNED_09.outside}
    assert "outside: the layer ran outside" in page.locator("#whatif").inner_text()
    choose(page, "Pruned 0.5")
    assert "outside" not in page.locator("#whatif").inner_text()
    page.get_by_text("numbers: all").click()
    page.get_by_label("Pruned 0.9 speedup at least").fill("0.5")
    assert not {*PRUNED_09.outside} & {row[1] for row in cells(page, LAYER_ROWS)}


def test_layers_are_sorted_by_any_column_both_ways(open_whatif: OpenWhatIf) -> None:
    page = open_whatif()
    places = {layer.id: float(depth) for depth, layer in enumerate(LAYERS)}
    columns: dict[str, Read] = {
        "ms-0": BASELINE.layers.get, "ms-3": PRUNED_09.layers.get, "depth": places.get,
    }  # fmt: skip
    for column, read in columns.items():
        found = {press(page, ".whatif-layers", column): shown_depths(page) for _ in range(2)}
        assert found == {
            "descending": depths_by(read, is_descending=True),
            "ascending": depths_by(read, is_descending=False),
        }


def test_a_column_that_is_gone_sorts_no_more(open_whatif: OpenWhatIf) -> None:
    page = open_whatif()
    choose(page, "Pruned 0.9")
    for table in (".whatif-types", ".whatif-layers"):
        assert press(page, table, "speedup-3") == "descending"
    choose(page, "Baseline")
    assert shown_depths(page) == depths_by(BASELINE.layers.get, is_descending=True)
    assert [row[0].split(" beside")[0] for row in cells(page, TYPE_ROWS)] == by_time()


def test_filters_stay_when_the_summary_is_another(open_whatif: OpenWhatIf) -> None:
    page = open_whatif()
    search = page.get_by_label("any field contains")
    search.fill("stage8/conv.WEIGHT")
    assert [row[1] for row in cells(page, LAYER_ROWS)] == [layer_name(8)]
    search.fill("output")
    page.get_by_text("type: all").click()
    page.locator('.choices input[value="MatMul"]').check()
    choose(page, "Pruned 0.9")
    assert {row[1] for row in cells(page, LAYER_ROWS)} == {layer_name(4), layer_name(10)}
    assert page.locator(".whatif-layers .shown").inner_text() == "2 of 12"
    page.get_by_role("button", name="clear all").click()
    assert page.locator(LAYER_ROWS).count() == len(LAYERS)


def test_a_fused_layer_is_found_with_the_kernel_that_runs_it(open_whatif: OpenWhatIf) -> None:
    page = open_whatif()
    assert LAYERS[1].op_type == "Relu"
    page.get_by_label("any field contains").fill(LAYERS[1].id)
    assert {row[1] for row in cells(page, LAYER_ROWS)} == {LAYERS[0].id, LAYERS[1].id}


def test_only_the_layers_in_view_are_in_the_document(open_whatif: OpenWhatIf) -> None:
    layers = make_layers(2_000)
    page = open_whatif(make_whatif(make_case(layers)))
    press(page, ".whatif-layers", "depth")
    rows, window = page.locator(LAYER_ROWS), page.locator(".whatif-layers .kernels-window")
    assert rows.count() < 80
    window.evaluate("box => { box.scrollTop = box.scrollHeight; }")
    last = page.locator('.whatif-layers tr[aria-rowindex="2001"]')
    last.wait_for(state="visible")
    assert rows.count() < 80
    seen, box = last.bounding_box(), window.bounding_box()
    assert seen is not None
    assert box is not None
    assert box["y"] <= seen["y"]
    assert seen["y"] + seen["height"] <= box["y"] + box["height"] + 1
    window.evaluate("box => { box.scrollTop = box.scrollHeight / 2; }")
    page.locator('.whatif-layers tr[aria-rowindex="1000"]').wait_for(state="visible")
    for row in rows.all()[::10]:
        # The last layer is the first, as it is sorted by place.
        depth = 2_001 - int(row.get_attribute("aria-rowindex") or 0)
        assert row.get_attribute("data-depth") == str(depth)
        assert row.locator("td").nth(1).inner_text() == layers[depth].id


def test_paper_has_the_first_hundred_layers_and_says_of_what(open_whatif: OpenWhatIf) -> None:
    page = open_whatif(make_whatif(make_case(make_layers(300))))
    choose(page, "Pruned 0.9")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(LAYER_ROWS).count() == 100
    assert page.get_by_text("The first 100 of 300 layers.").is_visible()
    assert page.get_by_text("Summary: Pruned 0.9, times as ms.").is_visible()
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(LAYER_ROWS).count() < 80


def test_without_times_of_layers_the_levels_are_all_there_is(open_whatif: OpenWhatIf) -> None:
    levels = tuple(replace(level, layer_types={}, layers={}) for level in CASE.levels)
    page = open_whatif(make_whatif(replace(CASE, levels=levels)))
    text = page.locator("#whatif").inner_text()
    assert "The layer types have no times." in text
    assert "The layers have no times." in text
    assert page.locator("main .plot").count() == 1
    choose(page, "Pruned 0.9")
    assert page.locator("#whatif table").count() == 0


def test_a_level_without_times_of_layers_has_no_column_of_dashes(open_whatif: OpenWhatIf) -> None:
    levels = [*CASE.levels]
    levels[0] = replace(BASELINE, layer_types={}, layers={})
    page = open_whatif(make_whatif(replace(CASE, levels=tuple(levels))))
    assert heads(page, ".whatif-types")[2:] == [f"{level.title} ms" for level in TIMED[1:]]
    choose(page, "Pruned 0.9")
    assert {row[-1] for row in cells(page, TYPE_ROWS)} == {UNKNOWN}


def hostile(names: Sequence[str] = HOSTILE_NAMES) -> WhatIf:
    layers = [
        replace(make_layer(index, op_type=name, name=name), weight=name)
        for index, name in enumerate(names)
    ]
    case = make_case(layers)
    levels = tuple(
        replace(level, failure=level.failure and names[0], notes=(names[1],))
        for level in case.levels
    )
    return make_whatif(replace(case, levels=levels), name=names[3])


def test_names_are_text_everywhere(open_whatif: OpenWhatIf) -> None:
    page = open_whatif(hostile())
    types = page.locator(".whatif-types tbody th bdi").all_text_contents()
    assert {*types} == {*HOSTILE_NAMES, "runtime overhead"}
    weights = page.locator(".whatif-layers tbody td:nth-child(4)").all_text_contents()
    assert {*weights} == {*HOSTILE_NAMES}
    assert f"INT8 static failed: {HOSTILE_NAMES[0]}" in page.locator("#whatif").inner_text()
    assert page.locator("img, main b").count() == 0


def test_the_page_is_drawn_in_both_themes_and_fits_on_a_phone(open_page: OpenPage) -> None:
    page = open_page(render_whatif_page(hostile()))
    light = chart(page, TYPES)[1]["marker"]["color"]
    ticks = page.locator("#whatif .ytick text").all_text_contents()
    # Cut, so that they leave room for the bars.
    assert {f"{name[:17]}…" for name in HOSTILE_NAMES[:4]} <= {*ticks}
    page.click("#controls .theme")
    assert chart(page, TYPES)[1]["marker"]["color"] != light
    page.get_by_role("button", name="log").click()
    assert page.locator("#whatif .plot svg.main-svg").first.is_visible()
    assert page.get_by_text("could not be drawn").count() == 0
    assert page.locator("img, main b").count() == 0
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_function("document.documentElement.scrollWidth === 360")


def test_on_a_phone_the_first_figures_of_types_and_layers_are_in_sight(
    open_whatif: OpenWhatIf,
) -> None:
    page = open_whatif(
        make_whatif(make_case(make_layers())), viewport={"width": 390, "height": 844}
    )
    for cell in (".whatif-types tbody td.number", ".whatif-layers tbody tr[data-depth] td.change"):
        box = known(page.locator(cell).first.bounding_box())
        assert box["x"] + box["width"] <= 390
