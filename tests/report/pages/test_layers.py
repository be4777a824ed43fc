"""The sections about layers do what they say: sort, filter, tick, show details, count precisions.

What is expected is computed here from the data that the page was made of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from tests.report.pages import sample_data
from tests.report.pages.browser import pick, reload
from tests.report.pages.conftest import OpenData, chart_of
from tests.report.pages.sample_data import HOSTILE_NAMES, Data, fused_layer
from tests.support.known import known

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

Read: TypeAlias = "Callable[[Data], str | float | None]"

SECTIONS = ("types", "depth", "kernels", "transitions")
UNKNOWN = "\u2013"
MINUS = "\u2212"

# Unfolds the unchanged layers, whose row is the last.
UNFOLD = """
() => {
  const box = document.querySelector(".kernels-window");
  box.scrollTop = box.scrollHeight;
  box.dispatchEvent(new Event("scroll"));
  box.querySelector(".folded button")?.click();
}
"""

# Reads every row of the table, as it is scrolled past.
READ_ROWS = """
() => {
  const box = document.querySelector(".kernels-window");
  const found = new Map();
  for (let top = 0; top === 0 || top < box.scrollHeight; top += 200) {
    box.scrollTop = top;
    box.dispatchEvent(new Event("scroll"));
    for (const row of box.querySelectorAll("tbody tr[id]")) {
      found.set(Number(row.getAttribute("aria-rowindex")), Number(row.id.split("-")[1]));
    }
  }
  box.scrollTop = 0;
  box.dispatchEvent(new Event("scroll"));
  return [...found].sort((one, other) => one[0] - other[0]).map(([, depth]) => depth);
}
"""


def mixed() -> Data:
    """A comparison with what is hard to sort and to filter.

    Names that differ, rows that are alike, unknown values, and a row that is not a layer.
    """
    data = sample_data.comparison()
    layers: list[Data] = data["models"][0]["cases"][0]["layers"]
    for depth, name in ((0, "conv10"), (2, "conv9"), (7, "Conv9")):
        layers[depth]["names"] = [name, f"quantized_{name}"]
    for depth in (1, 8, 15):
        layers[depth]["ms"] = [0.25, 0.25]
        layers[depth].update(change_ms=0.0, change_interval_ms=[-0.01, 0.01])
    layers[3].update(states=["ran", "not there"], ms=[0.5, None], change_ms=-0.5)
    layers[3]["names"][1] = None
    layers[6].update(ms=[None, None], change_ms=None, change_interval_ms=None)
    layers[10].update(states=["ran", "in another kernel"], ms=[0.5, None], change_ms=-0.5)
    layers[10]["runs_in"] = [None, layers[9]["names"][1]]
    layers[11].update(change_ms=None, change_interval_ms=None)
    layers.append(
        layers[1] | {
            "type": "runtime overhead", "is_layer": False, "depth": len(layers),
            "names": ["(no kernel)", "(no kernel)"], "ms": [0.4, 0.6], "precisions": [None, None],
            "change_ms": 0.2, "change_interval_ms": None,
        }
    )  # fmt: skip
    return data


def layers_of(data: Data) -> list[Data]:
    layers: list[Data] = data["models"][0]["cases"][0]["layers"]
    return layers


def types_of(data: Data) -> list[Data]:
    types: list[Data] = data["models"][0]["cases"][0]["types"]
    return types


def in_order(rows: Iterable[Data], read: Read, *, is_descending: bool) -> list[Data]:
    """The rows sorted, what is equal in its old order and what is unknown last."""

    def key(row: Data) -> str | float:
        value = read(row)
        assert value is not None
        if isinstance(value, str):
            return re.sub(r"\d+", lambda match: match[0].zfill(12), value.lower())
        return value

    rows = list(rows)
    having = [row for row in rows if read(row) is not None]
    lacking = [row for row in rows if read(row) is None]
    return [*sorted(having, key=key, reverse=is_descending), *lacking]


def first_name(layer: Data) -> str:
    return shown_names(layer)[0]


def shown_names(layer: Data) -> list[str]:
    """Each name of a layer once, that of A first."""
    return list(dict.fromkeys(name for name in layer["names"] if name is not None))


def own(name: str, side: int) -> Read:
    """A value of one side, if the layer ran there itself."""
    return lambda layer: layer[name][side] if layer["states"][side] == "ran" else None


def delta(layer: Data) -> float | None:
    before, after = layer["ms"]
    if layer["change_ms"] is not None or before is None or after is None:
        known: float | None = layer["change_ms"]
        return known
    return float(after - before)


def ratio(layer: Data) -> float | None:
    before, after = layer["ms"]
    return after / before if before and after is not None else None


def place(layer: Data, side: int) -> str:
    state: str = layer["states"][side]
    if state == "ran":
        return layer["precisions"][side] or "unknown"
    return "not executed" if state == "not there" else state


def largest(name: str) -> Read:
    return lambda row: max((value for value in row[name] if value is not None), default=None)


def sort_by(page: Page, section: str, column: str) -> str | None:
    """Press the head of a column; its new aria-sort."""
    button = page.locator(f'#{section} button[data-column="{column}"]')
    button.click()
    return button.locator("xpath=..").get_attribute("aria-sort")


def shown_depths(page: Page) -> list[int]:
    page.evaluate(UNFOLD)
    depths: list[int] = page.evaluate(READ_ROWS)
    return depths


def shown_types(page: Page) -> list[str | None]:
    return [body.get_attribute("data-type") for body in page.locator("#types tbody").all()]


def chart(page: Page, section: str) -> list[Any]:
    """Return the arguments that Plotly was given."""
    traces: list[Any] = chart_of(page, section)["data"]
    return traces


def depths_where(layers: Iterable[Data], holds: Callable[[Data], bool]) -> set[int]:
    return {layer["depth"] for layer in layers if holds(layer)}


def open_row(page: Page, depth: int) -> Locator:
    """Click the row of a layer that is in view; the details of it."""
    page.locator(f'#kernels tr[id^="layer-{depth}-"]').click()
    return page.locator("#kernels .layer-details")


def texts(rows: Locator, cell: str) -> list[str]:
    return rows.locator(cell).all_inner_texts()


TYPE_COLUMNS: dict[str, Read] = {
    "type": lambda row: row["type"],
    "counts": largest("counts"),
    "ms": largest("ms"),
    "shares": largest("shares"),
    "change": lambda row: row["change_ms"],
    "explains": lambda row: row["explains"],
    "macs": largest("macs"),
    "params": largest("params"),
}


def test_types_are_sorted_by_time_and_by_any_column_both_ways(open_data: OpenData) -> None:
    data = mixed()
    types = types_of(data)
    page = open_data(data, draws=False)
    by_time = in_order(types, TYPE_COLUMNS["ms"], is_descending=True)
    assert shown_types(page) == [row["type"] for row in by_time]
    sort_by(page, "types", "precisions")
    for column, read in TYPE_COLUMNS.items():
        is_text = column == "type"
        for is_descending in (not is_text, is_text):
            said = sort_by(page, "types", column)
            assert said == ("descending" if is_descending else "ascending")
            expected = in_order(types, read, is_descending=is_descending)
            assert shown_types(page) == [row["type"] for row in expected], column
    assert page.locator("#types [aria-sort]").count() == 1


def test_types_show_a_line_for_each_side(open_data: OpenData) -> None:
    page = open_data(mixed(), draws=False)
    conv = page.locator('#types tbody[data-type="Conv"] tr')
    assert conv.count() == 2
    assert conv.nth(0).locator(".side").inner_text() == "A"
    assert "float32" in conv.nth(0).inner_text()
    assert "int8" in conv.nth(1).inner_text()
    overhead = page.locator('#types tbody[data-type="runtime overhead"]')
    assert "beside the layers" in overhead.inner_text()
    assert overhead.locator("td.change").inner_text() == UNKNOWN


def test_on_a_phone_all_figures_of_a_type_are_in_sight(open_data: OpenData) -> None:
    page = open_data(mixed(), draws=False, viewport={"width": 390, "height": 800})
    assert page.locator("#types .layers-scroll").evaluate("e => e.scrollWidth <= e.clientWidth")
    macs = page.locator('#types tbody[data-type="Conv"] [data-title="MACs"]')
    for cell in macs.all():
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390
    assert sort_by(page, "types", "macs") == "descending"


def test_shares_have_a_minus_sign_unless_they_are_zero(open_data: OpenData) -> None:
    data = mixed()
    first, second = types_of(data)[:2]
    first["explains"], second["explains"] = -0.0004, -0.022
    page = open_data(data, draws=False)
    for row, share in ((first, "0.0 %"), (second, f"{MINUS}2.2 %")):
        cells = page.locator(f'#types tbody[data-type="{row["type"]}"] td')
        assert share in cells.all_inner_texts()


def test_ticks_decide_what_the_distribution_is_of(open_data: OpenData) -> None:
    data = mixed()
    types = types_of(data)
    page = open_data(data, draws=False)

    def assert_shares_of(names: Sequence[str]) -> None:
        for side, trace in enumerate(chart(page, "types")):
            times = {row["type"]: row["ms"][side] for row in types if row["type"] in names}
            total = sum(times.values())
            shares = {name: time / total for name, time in times.items()}
            assert dict(zip(trace["y"], trace["x"], strict=True)) == pytest.approx(shares)

    names = [row["type"] for row in types]
    assert_shares_of(names)
    page.get_by_label("Conv in the distribution").uncheck()
    assert_shares_of([name for name in names if name != "Conv"])
    page.locator("#types").get_by_role("button", name="none").click()
    assert page.locator("#types .plot").is_hidden()
    assert page.get_by_text("No type is ticked.").is_visible()
    page.get_by_label("MatMul in the distribution").check()
    assert_shares_of(["MatMul"])
    page.locator("#types").get_by_role("button", name="all").click()
    assert_shares_of(names)


def test_another_theme_keeps_what_is_ticked(open_data: OpenData) -> None:
    page = open_data(mixed(), draws=False)
    page.get_by_label("Conv in the distribution").uncheck()
    before = chart(page, "types")
    page.locator("button.theme").click()
    after = chart(page, "types")
    assert [trace["x"] for trace in after] == [trace["x"] for trace in before]
    assert after[0]["marker"]["color"] != before[0]["marker"]["color"]


KERNEL_COLUMNS: dict[str, Read] = {
    "depth": lambda layer: layer["depth"],
    "name": first_name,
    "type": lambda layer: layer["type"],
    "ms-0": lambda layer: layer["ms"][0],
    "precision-0": own("precisions", 0),
    "ms-1": lambda layer: layer["ms"][1],
    "precision-1": own("precisions", 1),
    "delta": delta,
    "ratio": ratio,
}


def test_kernels_are_sorted_by_any_column_both_ways(open_data: OpenData) -> None:
    data = mixed()
    layers = layers_of(data)
    page = open_data(data, draws=False)
    by_delta = in_order(layers, delta, is_descending=True)
    assert shown_depths(page) == [layer["depth"] for layer in by_delta]
    sort_by(page, "kernels", "ratio")
    for column, read in KERNEL_COLUMNS.items():
        is_text = column in {"name", "type", "precision-0", "precision-1"}
        for is_descending in (not is_text, is_text):
            said = sort_by(page, "kernels", column)
            assert said == ("descending" if is_descending else "ascending")
            expected = in_order(layers, read, is_descending=is_descending)
            assert shown_depths(page) == [layer["depth"] for layer in expected], column


def test_a_name_is_searched_on_both_sides(open_data: OpenData) -> None:
    data = mixed()
    page = open_data(data, draws=False)
    page.get_by_label("any field contains").fill("QUANTIZED_conv9")
    assert set(shown_depths(page)) == {2, 7}
    assert page.locator("#kernels .shown").inner_text() == f"2 of {len(layers_of(data))}"
    page.get_by_label("any field contains").fill("no such name")
    assert shown_depths(page) == []
    assert page.get_by_text("No layer is like that.").is_visible()


@pytest.mark.parametrize("text", ["of.the.stem", "STEM_output_0", "stem.scale"])
def test_a_layer_is_found_where_its_kernel_is(open_data: OpenData, text: str) -> None:
    """On the side that fuses it, it has no row with a time of its own."""
    data = mixed()
    layers_of(data)[4]["fused"] = [None, [fused_layer("bn.of.the.STEM", "Relu")]]
    page = open_data(data, draws=False)
    page.get_by_label("any field contains").fill(text)
    assert shown_depths(page) == [4]


def test_a_layer_is_found_by_its_tensor_its_weight_and_its_kernel(open_data: OpenData) -> None:
    data = mixed()
    layers_of(data)[2] |= {
        "ids": ["tensor.A", None], "weights": [None, "weight.B"], "kernels": ["kernel.A", None]
    }  # fmt: skip
    page = open_data(data, draws=False)
    for text in ("tensor.a", "weight.b", "kernel.a"):
        page.get_by_label("any field contains").fill(text)
        assert shown_depths(page) == [2]


def choose(page: Page, title: str, *values: str) -> None:
    pick = page.locator("#kernels .pick").filter(has=page.locator("summary", has_text=title))
    pick.locator("summary").click()
    for value in values:
        pick.locator(f'input[value="{value}"]').check()
    pick.locator("summary").click()


def test_several_types_are_shown_together(open_data: OpenData) -> None:
    data = mixed()
    page = open_data(data, draws=False)
    choose(page, "type", "Relu", "MatMul")
    expected = depths_where(layers_of(data), lambda layer: layer["type"] in {"Relu", "MatMul"})
    assert set(shown_depths(page)) == expected
    assert page.locator("#kernels summary.active").inner_text().startswith("type: Relu, MatMul")


def test_a_precision_of_either_side_is_enough(open_data: OpenData) -> None:
    data = mixed()
    page = open_data(data, draws=False)
    choose(page, "precision", "int8", "not executed")

    def is_expected(layer: Data) -> bool:
        places = {place(layer, side) for side in range(2)}
        return layer["is_layer"] and bool(places & {"int8", "not executed"})

    assert set(shown_depths(page)) == depths_where(layers_of(data), is_expected)


@pytest.mark.parametrize(
    ("title", "read"),
    [
        ("A ms", KERNEL_COLUMNS["ms-0"]),
        ("B ms", KERNEL_COLUMNS["ms-1"]),
        ("delta, ms", delta),
        ("ratio", ratio),
    ],
)
def test_numbers_have_bounds_which_the_unknown_is_not_within(
    open_data: OpenData, title: str, read: Read
) -> None:
    data = mixed()
    known = sorted(value for value in map(read, layers_of(data)) if isinstance(value, float))
    least, most = known[len(known) // 4], known[3 * len(known) // 4]
    page = open_data(data, draws=False)
    page.locator("#kernels summary", has_text="numbers").click()
    page.get_by_label(f"{title} at least").fill(repr(least))

    def is_within(layer: Data, limit: float) -> bool:
        value = read(layer)
        return isinstance(value, float) and least <= value <= limit

    every = layers_of(data)
    assert set(shown_depths(page)) == depths_where(every, lambda x: is_within(x, known[-1]))
    page.get_by_label(f"{title} at most").fill(repr(most))
    assert set(shown_depths(page)) == depths_where(every, lambda x: is_within(x, most))
    page.get_by_label(f"{title} at least").fill("")
    page.get_by_label(f"{title} at most").fill("")
    assert len(shown_depths(page)) == len(every)


def test_only_differences_leaves_out_what_is_the_same(open_data: OpenData) -> None:
    data = mixed()
    page = open_data(data, draws=False)
    page.get_by_label("only differences").check()

    def is_expected(layer: Data) -> bool:
        low, high = layer["change_interval_ms"] or (0.0, 0.0)
        return (
            len(set(layer["states"])) > 1
            or low > 0
            or high < 0
            or any(
                layer[name][0] != layer[name][1]
                for name in ("precisions", "providers", "inputs", "outputs", "macs", "params")
            )
            or layer["attributes"][0] != layer["attributes"][1]
        )

    expected = depths_where(layers_of(data), is_expected)
    assert set(shown_depths(page)) == expected
    assert {1, 8, 15}.isdisjoint(expected)


def test_filters_hold_together_and_are_cleared_together(open_data: OpenData) -> None:
    data = mixed()
    page = open_data(data, draws=False)
    choose(page, "type", "Conv")
    page.get_by_label("any field contains").fill("block1")

    def is_expected(layer: Data) -> bool:
        fused = [other["name"] for others in layer["fused"] for other in others]
        names = [first_name(layer), *filter(None, layer["kernels"]), *fused]
        return layer["type"] == "Conv" and any("block1" in name for name in names)

    assert set(shown_depths(page)) == depths_where(layers_of(data), is_expected)
    page.get_by_role("button", name="clear all").click()
    assert len(shown_depths(page)) == len(layers_of(data))
    assert page.get_by_label("any field contains").input_value() == ""
    assert page.locator("#kernels summary.active").count() == 0


def test_a_side_without_a_time_says_why(open_data: OpenData) -> None:
    page = open_data(mixed(), draws=False)
    sort_by(page, "kernels", "depth")
    sort_by(page, "kernels", "depth")
    gone = page.locator('#kernels tr[id^="layer-3-"]')
    assert texts(gone, "td.without") == ["not executed"]
    fused = page.locator('#kernels tr[id^="layer-10-"]')
    assert texts(fused, "td.without") == ["in /block1/conv_9"]
    renamed = page.locator('#kernels tr[id^="layer-0-"]')
    assert texts(renamed, "td.name span") == ["conv10", "quantized_conv10"]


def test_one_side_is_not_compared(open_data: OpenData) -> None:
    data = sample_data.profile()
    page = open_data(data, draws=False)
    heads = [text.rstrip(" ▾▴") for text in page.locator("#kernels thead th").all_inner_texts()]
    assert heads == ["#", "name", "type", "ms", "±", "precision", "MACs", "params"]
    first = page.locator('#kernels tr[id^="layer-0-"]')
    assert texts(first, "td.number")[-3] == "2.1 %"
    assert page.get_by_label("only differences").count() == 0
    assert page.locator("#transitions .matrix").count() == 0
    by_time = in_order(layers_of(data), KERNEL_COLUMNS["ms-0"], is_descending=True)
    assert shown_depths(page) == [layer["depth"] for layer in by_time]


def test_a_profile_that_ran_nothing_shows_its_layers(open_data: OpenData) -> None:
    data = sample_data.bare()
    page = open_data(data, draws=False)
    assert len(shown_depths(page)) == len(layers_of(data))
    (flops,) = chart(page, "depth")
    assert flops["y"] == [layer["flops"][0] for layer in layers_of(data)]
    assert chart_of(page, "depth")["layout"]["yaxis"]["title"]["text"] == "FLOPs"
    by_flops = in_order(types_of(data), largest("flops"), is_descending=True)
    assert shown_types(page) == [row["type"] for row in by_flops]
    flops_of = [row["flops"][0] for row in by_flops]
    whole = sum(filter(None, flops_of))
    shares = page.locator("#types td.share").all_inner_texts()
    assert shares == [
        UNKNOWN if part is None else f"{100 * part / whole:.1f} %" for part in flops_of
    ]


def test_a_case_without_layers_has_one_note_and_no_sections(open_data: OpenData) -> None:
    data = sample_data.profile()
    data["models"][0]["cases"][0].update(types=[], layers=[])
    page = open_data(data, draws=False)
    assert page.get_by_text("nothing is known of the layers of this case.").count() == 1
    assert [page.locator(f"#{id_}").is_visible() for id_ in SECTIONS] == [False] * 4
    page = open_data(sample_data.sweep(), draws=False)
    assert not any(page.locator(f"#{id_}").is_visible() for id_ in SECTIONS)


def test_another_case_has_its_own_layers_and_keeps_the_filter(open_data: OpenData) -> None:
    data = sample_data.comparison()
    page = open_data(data, draws=False)
    search = page.get_by_label("any field contains")
    search.fill("block1")
    pick(page, "Case", "b8-c2")
    assert search.input_value() == "block1"
    assert len(shown_depths(page)) < len(data["models"][0]["cases"][1]["layers"])
    search.fill("")
    layers = data["models"][0]["cases"][1]["layers"]
    expected = in_order(layers, delta, is_descending=True)
    assert shown_depths(page) == [layer["depth"] for layer in expected]


def test_details_show_what_differs_and_fold_what_is_the_same(open_data: OpenData) -> None:
    data = mixed()
    layers_of(data)[7].update(macs=[1_000_000_001, 1_000_000_002], kernels=["old", "new"])
    page = open_data(data, draws=False)
    page.get_by_label("any field contains").fill("Conv9")
    details = open_row(page, 7)
    different = details.locator(".parameters").nth(0).locator("tbody tr")
    assert texts(different, "th") == ["strides", "precision", "MACs", "kernel"]
    assert different.nth(0).locator("td").all_inner_texts() == ["1, 1", "2, 2"]
    # Both would read 1.000 G.
    assert different.nth(2).locator("td").all_inner_texts() == ["1,000,000,001", "1,000,000,002"]
    same = details.locator("details.same")
    assert same.get_attribute("open") is None
    same.locator("summary").click()
    expected = ["group", "provider", "inputs", "outputs", "params", "weight"]
    assert texts(same.locator("tbody tr"), "th") == expected


def test_details_list_what_each_side_fuses(open_data: OpenData) -> None:
    data = mixed()
    relu = {"name": "relu_1", "type": "Relu"}
    layers_of(data)[7]["fused"][0] = [relu, {"name": "bn_old", "type": "BatchNormalization"}]
    page = open_data(data, draws=False)
    page.get_by_label("any field contains").fill("Conv9")
    fused = open_row(page, 7).locator(".fused")
    assert texts(fused.nth(0), "li") == ["relu_1 Relu", "bn_old BatchNormalization"]
    assert texts(fused.nth(1), "li") == ["/block1/bn_7 BatchNormalization"]
    # By type, so that another name does not count as a difference.
    assert texts(fused, "li.only") == ["relu_1 Relu"]


def test_details_of_a_fused_layer_lead_to_the_kernel_it_runs_in(open_data: OpenData) -> None:
    data = mixed()
    page = open_data(data, draws=False)
    page.get_by_label("any field contains").fill(first_name(layers_of(data)[10]))
    details = open_row(page, 10)
    details.locator("button.link").click()
    assert details.locator("h3").inner_text() == "/block1/conv_9"
    assert page.locator('#kernels tr.current[id^="layer-9-"]').is_visible()


def test_rows_are_reached_opened_and_closed_by_keys(open_data: OpenData) -> None:
    data = mixed()
    order = in_order(layers_of(data), delta, is_descending=True)
    page = open_data(data, draws=False)
    page.evaluate(UNFOLD)
    table, details = page.locator(".kernels-table"), page.locator("#kernels .layer-details")
    table.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    assert table.get_attribute("aria-activedescendant") == f"layer-{order[1]['depth']}-1"
    assert details.is_hidden()
    page.keyboard.press("Enter")
    assert details.locator("h3").inner_text() == "\n".join(shown_names(order[1]))
    page.keyboard.press("End")
    assert details.locator("h3").inner_text() == "\n".join(shown_names(order[-1]))
    details.get_by_role("button", name="close").focus()
    page.keyboard.press("Escape")
    assert details.is_hidden()
    page.keyboard.press("Home")
    assert table.get_attribute("aria-activedescendant") == f"layer-{order[0]['depth']}-0"


def test_only_rows_in_view_are_in_the_document(open_data: OpenData) -> None:
    data = sample_data.big(600)
    order = in_order(layers_of(data), delta, is_descending=True)
    page = open_data(data, draws=False)
    page.evaluate(UNFOLD)
    rows, window = page.locator("#kernels tbody tr"), page.locator(".kernels-window")
    assert rows.count() < 80
    window.evaluate("box => { box.scrollTop = box.scrollHeight; }")
    last = page.locator(f'#kernels tr[id="layer-{order[-1]["depth"]}-599"]')
    last.wait_for(state="visible")
    assert rows.count() < 80
    seen, box = last.bounding_box(), window.bounding_box()
    assert seen is not None
    assert box is not None
    assert box["y"] <= seen["y"]
    assert seen["y"] + seen["height"] <= box["y"] + box["height"] + 1
    assert shown_depths(page) == [layer["depth"] for layer in order]


def test_a_key_reaches_the_last_of_many_rows_above_the_edge_of_the_window(
    open_data: OpenData,
) -> None:
    page = open_data(sample_data.big(2000), draws=False)
    page.evaluate(UNFOLD)
    page.locator(".kernels-table").focus()
    page.keyboard.press("End")
    current = page.locator("#kernels tr.current")
    assert current.get_attribute("aria-rowindex") == "2001"
    row, window = current.bounding_box(), page.locator(".kernels-window").bounding_box()
    assert row is not None
    assert window is not None
    assert row["y"] + row["height"] <= window["y"] + window["height"] + 1


def test_paper_has_the_first_hundred_rows_and_says_so(open_data: OpenData) -> None:
    data = sample_data.big(300)
    order = in_order(layers_of(data), delta, is_descending=True)
    page = open_data(data, draws=False)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    rows = page.locator("#kernels tbody tr")
    printed = [str(row.get_attribute("id")).split("-")[1] for row in rows.all()]
    assert printed == [str(layer["depth"]) for layer in order[:100]]
    assert page.get_by_text("The first 100 of 300 layers.").is_visible()
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert rows.count() < 80


def test_transitions_add_up_to_the_layers(open_data: OpenData) -> None:
    data = mixed()
    layers = [layer for layer in layers_of(data) if layer["is_layer"]]
    page = open_data(data, draws=False)
    counts = Counter((place(layer, 0), place(layer, 1)) for layer in layers)
    matrix = page.locator("#transitions .matrix")
    heads = texts(matrix, "thead th")
    found = {}
    for line in matrix.locator("tbody tr").all():
        for head, cell in zip(heads, line.locator("td").all(), strict=True):
            button = cell.locator("strong")
            if button.count():
                found[line.locator("th").inner_text(), head] = int(button.inner_text())
    assert found == counts
    assert sum(found.values()) == len(layers)


def test_a_transition_says_what_it_costs(open_data: OpenData) -> None:
    data = mixed()
    cell = open_data(data, draws=False).get_by_role("button", name="float32 to int8", exact=False)
    changes = [
        delta(layer)
        for layer in layers_of(data)
        if layer["is_layer"] and (place(layer, 0), place(layer, 1)) == ("float32", "int8")
    ]
    total = sum(change for change in changes if change is not None)
    assert cell.locator("small").inner_text() == f"{total:+.3f} ms".replace("-", MINUS)


def test_a_cell_of_the_transitions_shows_its_layers(open_data: OpenData) -> None:
    data = mixed()
    page = open_data(data, draws=False)
    page.get_by_label("any field contains").fill("nothing like it")
    page.get_by_role("button", name="float32 to int8", exact=False).click()
    expected = depths_where(
        layers_of(data),
        lambda layer: (place(layer, 0), place(layer, 1)) == ("float32", "int8"),
    )
    assert set(shown_depths(page)) == expected
    page.get_by_role("button", name="float32 → int8").click()
    assert len(shown_depths(page)) == len(layers_of(data))


def test_other_filters_stay_when_that_of_a_transition_goes(open_data: OpenData) -> None:
    data = mixed()
    page = open_data(data, draws=False)
    page.get_by_role("button", name="float32 to int8", exact=False).click()
    page.locator("#kernels summary", has_text="numbers").click()
    page.get_by_label("A ms at least").fill("0.5")
    page.get_by_role("button", name="float32 → int8").click()
    slow = depths_where(layers_of(data), lambda layer: (layer["ms"][0] or 0) >= 0.5)
    assert set(shown_depths(page)) == slow
    assert page.get_by_label("A ms at least").input_value() == "0.5"


def test_layers_are_counted_by_precision(open_data: OpenData) -> None:
    data = mixed()
    layers = [layer for layer in layers_of(data) if layer["is_layer"]]
    page = open_data(data, draws=False)
    for line in page.locator("#transitions .distribution tbody tr").all():
        precision = line.locator("th").inner_text()
        cells = line.locator("td").all_inner_texts()
        counts = [sum(place(x, side) == precision for x in layers) for side in range(2)]
        assert [int(cells[0]), int(cells[3])] == counts


def test_depth_shows_the_time_of_each_layer_of_both_sides(open_data: OpenData) -> None:
    data = mixed()
    layers = [layer for layer in layers_of(data) if layer["is_layer"]]
    traces = chart(open_data(data, draws=False), "depth")
    for side in range(2):
        timed = [(x["depth"], x["ms"][side]) for x in layers if x["ms"][side] is not None]
        assert list(zip(traces[side]["x"], traces[side]["y"], strict=True)) == timed
    hidden = [trace for trace in traces if trace.get("visible") == "legendonly"]
    assert [trace["name"] for trace in hidden] == ["A, in another kernel", "B, in another kernel"]
    inside = depths_where(layers, lambda layer: layer["states"][1] == "in another kernel")
    assert set(hidden[1]["x"]) == inside


def test_depth_can_be_a_share_logarithmic_and_lines(open_data: OpenData) -> None:
    data = mixed()
    total = sum(layer["ms"][1] or 0 for layer in layers_of(data))
    page = open_data(data, draws=False)
    before = chart(page, "depth")[1]
    depth = page.locator("#depth")
    depth.get_by_role("button", name="share", exact=True).click()
    assert chart(page, "depth")[1]["y"] == pytest.approx([ms / total for ms in before["y"]])
    depth.get_by_role("button", name="log").click()
    assert chart_of(page, "depth")["layout"]["yaxis"]["type"] == "log"
    depth.get_by_role("button", name="lines").click()
    assert [trace["type"] for trace in chart(page, "depth")] == ["scatter"] * 4


def test_an_axis_of_shares_writes_percents_as_the_tables_do(open_data: OpenData) -> None:
    page = open_data(mixed())
    depth = page.locator("#depth")
    depth.get_by_role("button", name="share", exact=True).click()
    depth.locator(".ytick text", has_text="%").first.wait_for()
    ticks = depth.locator(".ytick text").all_text_contents()
    assert len(ticks) > 1
    assert [tick for tick in ticks if not re.fullmatch(r"\d+ %", tick)] == []


def hover_bar(page: Page, index: int) -> tuple[float, float]:
    """Moves the mouse over a bar of A in the depth chart; where it is then."""
    bar = page.locator("#depth .trace.bars").nth(0).locator(".point path").nth(index)
    bar.scroll_into_view_if_needed()
    box = known(bar.bounding_box())
    point = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*point)
    page.locator("#depth .hoverlayer .hovertext").first.wait_for()
    return point


def test_a_bar_opens_the_details_of_its_layer_past_any_filter(open_data: OpenData) -> None:
    data = mixed()
    page = open_data(data)
    page.get_by_label("any field contains").fill("nothing like it")
    page.mouse.click(*hover_bar(page, 0))
    heading = page.locator("#kernels .layer-details h3")
    heading.wait_for(state="visible")
    assert heading.inner_text().startswith("conv10")
    assert len(shown_depths(page)) == len(layers_of(data))


def test_names_are_text_everywhere(open_data: OpenData) -> None:
    page = open_data(sample_data.hostile())
    sort_by(page, "kernels", "depth")
    sort_by(page, "kernels", "depth")
    for depth, name in enumerate(HOSTILE_NAMES[:4]):
        row = page.locator(f'#kernels tr[id^="layer-{depth}-"]')
        assert row.locator(".name").text_content() == name
        row.click()
        details = page.locator("#kernels .layer-details")
        assert details.locator("h3").text_content() == name
        assert details.locator(".parameters tbody th").first.text_content() == name
    sections = page.locator(", ".join(f"#{id_}" for id_ in SECTIONS))
    assert sections.locator("script, img, b").count() == 0
    assert page.locator("#types tbody th bdi", has_text=HOSTILE_NAMES[0]).is_visible()
    # Plotly reads some tags in its texts: in the chart, too, they show as what they are.
    labels = page.locator("#types .plot .ytick text").all_text_contents()
    assert any(label.startswith("<script>") for label in labels)


def test_a_name_in_the_tooltip_of_a_bar_is_text(open_data: OpenData) -> None:
    page = open_data(sample_data.hostile())
    point = hover_bar(page, 0)
    assert HOSTILE_NAMES[0] in "".join(page.locator("#depth .hovertext").all_text_contents())
    page.mouse.click(*point)
    assert page.locator("#kernels .layer-details h3").text_content() == HOSTILE_NAMES[0]


def pick_columns(page: Page, *titles: str) -> None:
    page.locator("#kernels .columns summary").click()
    for title in titles:
        page.locator("#kernels .columns").get_by_label(title, exact=True).click()
    page.keyboard.press("Escape")


def heads(page: Page) -> list[str]:
    return [text.strip() for text in page.locator("#kernels thead th").all_inner_texts()]


def cells(page: Page, depth: int) -> dict[str, str]:
    """The text of each column in the row of a layer that has times of its own."""
    row = page.locator(f'#kernels tr[id^="layer-{depth}-"] td')
    return dict(zip(heads(page), row.all_inner_texts(), strict=True))


def test_picked_columns_are_shown_and_stay_after_areload(open_data: OpenData) -> None:
    data = sample_data.profile()
    layer = layers_of(data)[0]
    page = open_data(data, draws=False)
    assert "weight" not in heads(page)
    pick_columns(page, "share", "GMAC/s", "ID", "weight", "shape", "type")
    for _ in range(2):
        shown = cells(page, 0)
        assert {"type"} & set(shown) == set()
        assert shown["ID"] == layer["ids"][0]
        assert shown["weight"] == layer["weights"][0]
        assert shown["shape"] == layer["outputs"][0]
        assert shown["GMAC/s"] == f"{layer['gmacs'][0]:.2f}"
        total = sum(each["ms"][0] or 0.0 for each in layers_of(data))
        assert shown["share"].strip() == f"{100 * layer['ms'][0] / total:.1f} %"
        reload(page)


def test_a_column_that_nothing_is_known_of_is_not_offered(open_data: OpenData) -> None:
    data = sample_data.profile()
    for layer in layers_of(data):
        layer.update(sparsity=[None], patterns=[None], effective_macs=[None])
    offered = open_data(data, draws=False).locator("#kernels .columns label").all_text_contents()
    assert "weight" in offered
    assert not {"sparsity", "pattern", "effective MACs"} & set(offered)


def test_sparsity_is_shown_if_weights_were_read(open_data: OpenData) -> None:
    page = open_data(sample_data.profile(), draws=False)
    pick_columns(page, "sparsity", "pattern")
    shown = cells(page, 0)
    assert (shown["sparsity"], shown["pattern"]) == ("50.0 %", "1x4, 2:4")


def test_a_hidden_column_leaves_the_reason_of_a_layer_without_time_in_its_place(
    open_data: OpenData,
) -> None:
    page = open_data(sample_data.profile(), draws=False)
    pick_columns(page, "precision", "±")
    sort_by(page, "kernels", "depth")
    row = page.locator('#kernels tr[id^="layer-4-"]')
    spans = row.locator("td").evaluate_all("all => all.map((cell) => cell.colSpan)")
    assert row.locator(".without").count() == 1
    assert sum(spans) == len(heads(page))


def test_the_column_that_sorts_can_be_hidden(open_data: OpenData) -> None:
    data = mixed()
    page = open_data(data, draws=False)
    pick_columns(page, "delta, ms")
    assert "delta, ms" not in heads(page)
    by_time = in_order(layers_of(data), lambda row: row["ms"][0], is_descending=True)
    assert shown_depths(page) == [row["depth"] for row in by_time]


def test_the_longest_time_has_the_longest_bar(open_data: OpenData) -> None:
    data = sample_data.profile()
    page = open_data(data, draws=False)
    bars = page.locator("#kernels .bar").evaluate_all(
        "all => all.map((cell) => Number(cell.style.getPropertyValue('--bar')))"
    )
    times = sorted((each["ms"][0] for each in layers_of(data) if each["ms"][0]), reverse=True)
    assert bars == pytest.approx([time / times[0] for time in times][: len(bars)])


@pytest.mark.parametrize("text", ["softmax", "float32", "1x64x56x56", "batchnormalization"])
def test_a_search_looks_into_every_field(open_data: OpenData, text: str) -> None:
    data = sample_data.profile()
    page = open_data(data, draws=False)
    page.get_by_label("any field contains").fill(text)

    def holds(layer: Data) -> bool:
        fields = [layer["type"], *layer["precisions"], *layer["inputs"], *layer["outputs"]]
        fields += [each["type"] for each in layer["fused"][0]]
        return any(text in (field or "").lower() for field in [*fields, *layer["names"]])

    found = depths_where(layers_of(data), holds)
    assert found
    assert set(shown_depths(page)) == found


def test_the_number_of_a_layer_is_that_of_its_own_graph(open_data: OpenData) -> None:
    data = sample_data.comparison()
    layers_of(data)[0]["numbers"] = [7, 12]
    page = open_data(data, draws=False)
    sort_by(page, "kernels", "depth")
    cell = page.locator('#kernels tr[id^="layer-0-"] td').first
    assert (cell.inner_text(), cell.get_attribute("title")) == ("12", "7 before, 12 now")
    assert "#12" in open_row(page, 0).inner_text()


def test_a_line_between_two_layers_is_a_step(open_data: OpenData) -> None:
    page = open_data(sample_data.comparison(), draws=False)
    page.locator("#depth").get_by_role("button", name="lines").click()
    assert {trace["line"]["shape"] for trace in chart(page, "depth")[:2]} == {"hvh"}


@pytest.mark.parametrize("factor", [1e-4, 1.0, 1e4])
def test_no_figure_of_the_table_of_kernels_is_cut(open_data: OpenData, factor: float) -> None:
    """Fast models need more decimals, and slow ones more digits before the point."""
    data = mixed()
    for layer in layers_of(data):
        layer["ms"] = [None if ms is None else factor * ms for ms in layer["ms"]]
        if layer["change_ms"] is not None:
            layer["change_ms"] *= factor
        if layer["change_interval_ms"] is not None:
            layer["change_interval_ms"] = [factor * end for end in layer["change_interval_ms"]]
    assert cut_figures(open_data(data, draws=False)) == []
    data = sample_data.profile()
    for layer in layers_of(data):
        layer["ms"] = [None if ms is None else factor * ms for ms in layer["ms"]]
        layer["half_widths"] = [None if share is None else 60.0 for share in layer["half_widths"]]
    assert cut_figures(open_data(data, draws=False)) == []


def cut_figures(page: Page) -> list[str]:
    cells = page.locator("#kernels tbody td.number")
    assert cells.count() > 20
    found: list[str] = cells.evaluate_all(
        "all => all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)"
    )
    return found


def test_on_a_phone_the_name_of_a_layer_leaves_room_for_its_figures(open_data: OpenData) -> None:
    page = open_data(mixed(), draws=False, viewport={"width": 390, "height": 800})
    window = page.locator(".kernels-window")
    window.evaluate("(box) => { box.scrollLeft = box.scrollWidth; }")
    box = window.bounding_box()
    name = page.locator("#kernels tbody td.name").first.bounding_box()
    assert box is not None
    assert name is not None
    assert name["x"] == pytest.approx(box["x"], abs=2)
    assert name["width"] < box["width"] / 2


def test_on_a_phone_the_row_of_the_details_stays_above_them(open_data: OpenData) -> None:
    page = open_data(mixed(), draws=False, viewport={"width": 390, "height": 800})
    page.locator("#kernels").evaluate("(part) => part.scrollIntoView()")
    rows = page.locator("#kernels tbody tr[id]")
    rows.nth(4).click()
    details = page.locator("#kernels .layer-details").bounding_box()
    row = page.locator("#kernels tr.current").bounding_box()
    assert details is not None
    assert row is not None
    assert row["y"] + row["height"] <= details["y"]


@pytest.mark.parametrize("column", ["ms-0", "delta"])
def test_on_a_phone_a_layer_has_its_name_and_its_time_in_sight(
    open_data: OpenData, column: str
) -> None:
    data = mixed() if column == "delta" else sample_data.profile()
    page = open_data(data, draws=False, viewport={"width": 390, "height": 800})
    for each in ("name", column):
        head = page.locator(f"#kernels [data-column='{each}']").bounding_box()
        assert head is not None
        assert head["x"] >= 0
        assert head["x"] + head["width"] <= 390


def test_the_table_of_types_is_whole_next_to_its_chart(open_data: OpenData) -> None:
    page = open_data(mixed(), draws=False, viewport={"width": 1400, "height": 900})
    table = page.locator("#types .layers-scroll")
    assert table.evaluate("(box) => box.scrollWidth <= box.clientWidth")


def test_on_a_phone_the_layers_by_precision_are_cards(open_data: OpenData) -> None:
    page = open_data(mixed(), draws=False, viewport={"width": 390, "height": 800})
    box = page.locator("#transitions .layers-scroll").first
    assert box.evaluate("(box) => box.scrollWidth <= box.clientWidth")
