"""Any two cases as A and B: all parts of the page show them, and files may bring more cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.comparing.records import COMPARISON
from pytest_modelperf.profiler.shown.document import dump_profile
from pytest_modelperf.tuning.pasted import dump_tuning
from tests.report.pages import sample_data
from tests.report.pages.browser import OpenPage, pick, wait_until_drawn
from tests.report.pages.conftest import OpenData, chart_of, render_data, without_charts
from tests.support.comparisons import SLOWER, compared
from tests.support.known import known
from tests.support.profiles import measured_cases
from tests.support.rendered import render_profile_page
from tests.support.tunings import make_tuning

if TYPE_CHECKING:
    from playwright.sync_api import FilePayload, Page

UNKNOWN = "\N{EN DASH}"
DROP = """async ([name, text]) => {
  const files = new DataTransfer();
  files.items.add(new File([text], name));
  dispatchEvent(new DragEvent("drop", { dataTransfer: files, cancelable: true }));
  await new Promise((done) => setTimeout(done, 100));
}"""


def _alone(case_id: str, ms: float) -> sample_data.Data:
    data = sample_data.profile()
    case: sample_data.Data = data["models"][0]["cases"][0]
    case.update(id=case_id, name=case_id)
    for row in (*case["layers"], *case["types"]):
        row["ms"] = [None if each is None else each * ms for each in row["ms"]]
    return case


def _profile(*cases: sample_data.Data) -> sample_data.Data:
    data = sample_data.profile()
    data["models"][0]["cases"] = list(cases)
    return data


def _deltas(page: Page) -> list[str]:
    return page.locator("#kernels .change span").all_inner_texts()


def test_two_cases_of_a_profile_are_compared_in_all_parts(open_data: OpenData) -> None:
    page = open_data(_profile(_alone("b1-c2", 1.0), _alone("b1-c1", 3.0)), draws=False)
    assert page.locator("#kernels .change").count() == 0
    pick(page, "Compare with", "b1-c1")
    assert {text[0] for text in _deltas(page) if text != UNKNOWN} == {"\N{MINUS SIGN}"}
    assert page.locator("#types .side").all_inner_texts()[:2] == ["A", "B"]
    assert len(chart_of(page, "depth")["data"]) >= 2
    assert page.evaluate("location.hash") == "#a=b1-c1"
    pick(page, "Compare with", "")
    assert page.locator("#kernels .change").count() == 0


def test_a_page_that_is_dropped_brings_its_cases(open_data: OpenData) -> None:
    page = open_data(_profile(_alone("b1-c2", 1.0)), draws=False)
    other = without_charts(render_data(_profile(_alone("b1-c2", 0.5))))
    page.evaluate(DROP, ["faster.html", other])
    wait_until_drawn(page)
    assert all(not text.startswith("\N{MINUS SIGN}") for text in _deltas(page))
    assert "faster.html" in page.locator(".pickers").inner_text()


def test_a_file_that_is_not_a_page_is_reported(open_data: OpenData) -> None:
    page = open_data(sample_data.profile(), draws=False)
    page.evaluate(DROP, ["notes.txt", "hello"])
    assert "notes.txt is not a page or a result of cases" in page.locator("#status").inner_text()
    page.evaluate(DROP, ["tuned.json", dump_tuning(make_tuning())])
    assert "tuned.json has no case with layers" in page.locator("#status").inner_text()
    page.evaluate(DROP, ["cut.json", '{"cases": [{"layers"'])
    assert "cut.json is not a page or a result" in page.locator("#status").inner_text()


def test_a_result_that_is_dropped_onto_its_own_page_differs_in_nothing(open_page: OpenPage) -> None:
    profile = measured_cases()
    page = open_page(without_charts(render_profile_page(profile)))
    page.evaluate(DROP, ["same.json", dump_profile(profile)])
    wait_until_drawn(page)
    options = page.get_by_label("Compare with").locator("option").all_inner_texts()
    names = [text for text in options if text.startswith("same.json")]
    assert [text.rpartition(", ")[2] for text in names] == [case.case.id for case in profile.cases]
    page.get_by_label("Compare with").select_option(label=names[0])
    wait_until_drawn(page)
    deltas = [text for text in _deltas(page) if text != UNKNOWN]
    assert deltas
    assert {text.strip("0.") for text in deltas} == {""}
    layers = page.evaluate("document.querySelector('#kernels .kernels-table').ariaRowCount")
    assert int(layers) == len(profile.cases[0].layers) + 1
    page.get_by_label("only differences").check()
    assert page.locator("#kernels tbody tr[id]").count() == 0


def test_a_result_that_is_dropped_is_a_in_all_figures(open_page: OpenPage) -> None:
    profile = measured_cases()
    page = open_page(without_charts(render_profile_page(profile)))
    page.evaluate(DROP, ["same.json", dump_profile(profile)])
    wait_until_drawn(page)
    name = f"same.json, {profile.cases[0].case.id}"
    page.get_by_label("Compare with").select_option(label=name)
    wait_until_drawn(page)
    heads = page.locator("#chart .pair thead b").all_text_contents()
    assert heads[:2] == ["A ", name]
    for row in page.locator("#chart .pair tbody tr").all():
        a, _, b, *_ = row.locator("td").all_text_contents()
        assert a == b
    for kind in ("Throughput", "Latency"):
        page.locator("#time").get_by_role("button", name=kind).click()
        a, b = chart_of(page, "time")["data"]
        assert a["name"].startswith("A: same.json")
        assert a["y"][0] == pytest.approx(b["y"][0])


def test_a_comparison_that_is_dropped_has_the_time_before(open_page: OpenPage) -> None:
    page = open_page(without_charts(render_profile_page(measured_cases())))
    page.evaluate(DROP, ["c.json", COMPARISON.dump(compared(SLOWER))])
    wait_until_drawn(page)
    page.get_by_label("Compare with").select_option(label=f"c.json, {SLOWER.id}, before")
    wait_until_drawn(page)
    page.locator("#time").get_by_role("button", name="Latency").click()
    a, _ = chart_of(page, "time")["data"]
    assert a["y"][0] == pytest.approx(known(known(SLOWER.metric("latency_p50")).before))


def test_without_a_graph_of_a_that_of_b_is_drawn(open_data: OpenData) -> None:
    page = open_data(sample_data.comparison(), draws=False)
    page.evaluate(DROP, ["c.json", COMPARISON.dump(compared(SLOWER))])
    wait_until_drawn(page)
    assert "this is the graph of B" in page.locator("#graph .hint").inner_text()
    assert page.locator("#graph .graph-box").count() > 0
    assert page.locator("#graph .state-gone, #graph .state-new").count() == 0


def test_the_file_button_brings_both_sides_of_a_comparison(open_page: OpenPage) -> None:
    page = open_page(without_charts(render_profile_page(measured_cases())))
    text = COMPARISON.dump(compared(SLOWER))
    file: FilePayload = {"name": "c.json", "mimeType": "", "buffer": text.encode()}
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open results").click()
    chooser.value.set_files([file])
    options = page.get_by_label("Compare with").locator("option", has_text="c.json")
    options.first.wait_for(state="attached")
    assert options.all_inner_texts() == [
        f"c.json, {SLOWER.id}, before",
        f"c.json, {SLOWER.id}, after",
    ]


def test_the_address_keeps_the_order_the_filter_and_the_layer(open_data: OpenData) -> None:
    page = open_data(sample_data.profile(), draws=False)
    page.locator("#kernels thead").get_by_role("button", name="type").click()
    page.get_by_label("any field contains").fill("conv")
    page.locator("#kernels tbody tr[id]").nth(1).click()
    texts = page.locator("#kernels .kernels-table tbody").inner_text()
    title = page.locator("#kernels .layer-details h3").inner_text()
    page.reload()
    wait_until_drawn(page)
    assert page.locator("#kernels .kernels-table tbody").inner_text() == texts
    assert page.locator("#kernels .layer-details h3").inner_text() == title


def test_the_address_keeps_the_order_and_the_ticks_of_types(open_data: OpenData) -> None:
    page = open_data(sample_data.profile(), draws=False)
    page.locator("#types thead").get_by_role("button", name="layers").click()
    page.locator("#types tbody input").nth(1).uncheck()
    texts = page.locator("#types tbody").all_inner_texts()
    page.reload()
    wait_until_drawn(page)
    assert page.locator("#types tbody").all_inner_texts() == texts
    ticks = page.locator("#types tbody input")
    assert [ticks.nth(at).is_checked() for at in range(3)] == [True, False, True]


def test_unchanged_layers_are_one_row_that_opens(open_data: OpenData) -> None:
    data = sample_data.comparison()
    layers = data["models"][0]["cases"][0]["layers"]
    for layer in layers[2:]:
        layer.update(ms=[0.25, 0.25], change_ms=0.0, change_interval_ms=[-0.01, 0.01])
        layer.update(states=["ran", "ran"], fused=[[], []])
    page = open_data(data, draws=False)
    rows = page.locator("#kernels tbody tr[id]")
    folded = page.locator("#kernels .folded button")
    shown = rows.count()
    assert folded.inner_text() == f"{len(layers) - shown} unchanged layers"
    folded.click()
    assert rows.count() == len(layers)


def test_a_table_is_saved_as_csv_with_plain_values(open_data: OpenData) -> None:
    page = open_data(sample_data.profile(), draws=False)
    with page.expect_download() as found:
        page.locator("#kernels").get_by_role("button", name="CSV").click()
    lines = found.value.path().read_text("utf-8").splitlines()
    assert lines[0].startswith("#,name,type,ms")
    layers = page.evaluate("document.querySelector('#kernels .kernels-table').ariaRowCount")
    assert len(lines) == int(layers)
    with page.expect_download() as found:
        page.locator("#types").get_by_role("button", name="CSV").click()
    lines = found.value.path().read_text("utf-8").splitlines()
    assert lines[0].startswith("layer type,ms,share")
    assert len(lines) == 1 + page.locator("#types tbody tr").count()
