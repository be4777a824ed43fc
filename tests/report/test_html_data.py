"""A page of HTML: what its scripts are given, what it says without them, and that it is whole."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import pytest_modelperf
from pytest_modelperf.comparing.by_counts import compare_cases
from pytest_modelperf.comparing.changes import CallChange, LayerChange, LayerTypeChange, StageTime
from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.page_data import comparison_data
from pytest_modelperf.comparing.records import CaseComparison, Comparison
from pytest_modelperf.comparing.request import compare_profiles
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.structure import GenerationPhase, Phase
from pytest_modelperf.profiler.counting.records import Sparsity, StaticLayer
from pytest_modelperf.profiler.measurements import LayerTime, RowKind, SideRun
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import profile_model
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.profiler.shown.page_data import profile_data
from pytest_modelperf.profiler.shown.page_latency import (
    RanFigures,
    change_entry,
    latency_entry,
    point_entry,
)
from pytest_modelperf.profiler.shown.report import profile_report
from pytest_modelperf.report.html.render import check_html_extra, dump_data, pack
from pytest_modelperf.report.model import Tone
from pytest_modelperf.stats.records import Ratio, spread_of_round
from pytest_modelperf.sweep.report import sweep_data
from pytest_modelperf.testing.outcomes import RunReport
from pytest_modelperf.testing.report import run_data, run_report
from pytest_modelperf.text.escaping import printable
from tests.support.command import environment
from tests.support.command import run as command
from tests.support.comparisons import (
    BROKEN,
    BUDGET,
    FASTER,
    OPEN,
    SAME,
    SLOWER,
    change,
    compared,
    kind,
    row,
    with_names,
)
from tests.support.facts import make_model
from tests.support.known import known
from tests.support.light_models import light_model
from tests.support.markup import EVIL, Markup, unpacked, unpacked_models
from tests.support.profiles import (
    ENGINE,
    MACHINE,
    SHARES,
    make_latency,
    make_rounds,
    measured_cases,
    measured_classifier,
    measured_function,
    static_classifier,
    with_layer_times,
)
from tests.support.rendered import (
    render_case_page,
    render_comparison_page,
    render_profile_page,
    render_run_page,
    render_sweep_page,
)
from tests.support.run_reports import (
    ALL,
    EVERYWHERE,
    FRESH,
    STATIC,
    everything_named,
    outcome,
    run,
)
from tests.support.sweeps import make_configuration, make_point, make_side, make_sweep

MAX_BYTES = 6_000_000


def one_model(data: dict[str, object]) -> Any:  # noqa: ANN401  # whatever JSON can hold
    """The only model of the data, as a browser reads it."""
    (model,) = json.loads(dump_data(data))["models"]
    return model


def side_run(median_ms: float) -> SideRun:
    rounds = make_rounds(median_ms)
    return SideRun(
        engine=ENGINE,
        latency=make_latency(rounds),
        rounds=tuple(spread_of_round(made.times_ns) for made in rounds),
        load_ms=21.3,
        first_inference_ms=9.4,
    )


def test_a_point_has_the_throughput_of_its_median_and_of_the_ends_of_its_interval() -> None:
    latency = make_latency(make_rounds(4.0), batch_size=8)
    point: Any = point_entry("b8-c2", Case(8, 2, (("seq", 64),)), RanFigures(latency=latency))
    low, high = point["interval_ms"]
    assert point["per_second"] == pytest.approx(8000 / point["ms"])
    assert point["per_second_interval"] == pytest.approx([8000 / high, 8000 / low])
    assert low < point["ms"] < high < point["p95_ms"]
    assert (point["batch"], point["cores"], point["streams"]) == (8, 2, 1)
    assert point["dims"] == {"seq": 64}


def test_a_throughput_that_was_measured_is_not_computed() -> None:
    figures = RanFigures(latency=make_latency(make_rounds(4.0)))
    point = point_entry("x", Case(1, 1), figures, streams=2, throughput=Ratio(430.0, None, None))
    assert (point["per_second"], point["per_second_interval"]) == (430.0, None)


@given(st.floats(0.1, 10), st.floats(0.5, 0.99), st.floats(1.01, 2))
def test_throughput_is_the_inverse_of_latency_with_the_interval_reversed(
    value: float, down: float, up: float
) -> None:
    entry: Any = change_entry(Ratio(value, value * down, value * up))
    assert entry["latency"] == [value, value * down, value * up]
    assert entry["p95"] is None
    assert entry["throughput"] == pytest.approx([1 / value, 1 / (value * up), 1 / (value * down)])
    assert entry["throughput"][1] < entry["throughput"][0] < entry["throughput"][2]


def test_a_percentile_without_enough_samples_is_named_and_has_no_time() -> None:
    entry: Any = latency_entry(RanFigures(latency=make_latency(make_rounds(2.0))))
    assert {p["name"]: p["ms"] is not None for p in entry["percentiles"]} == {
        "p50": True, "p90": True, "p95": True, "p97": True, "p99": False, "p99.9": False,
    }  # fmt: skip
    assert (entry["samples"], entry["rounds"]) == (240, 6)


def test_a_profile_is_one_model_of_one_side_with_a_point_for_each_case_that_was_to_run() -> None:
    model = one_model(profile_data(measured_cases()))
    assert model["sides"] == [
        {"label": "", "name": "classifier.onnx", "engine": "onnxruntime 1.31.1"}
    ]
    ((*points,),) = model["points"]
    reasons = {point["id"]: point["reason"] for point in points}
    assert reasons == {
        "b1-c1": None, "b1-c2": None, "b8-c1": None, "b8-c2": None,
        "b1-c8": "skipped: the machine has 2 processors",
        "b64-c2": "failed: the worker was ended by SIGKILL in round 3",
    }  # fmt: skip
    assert [point["ms"] is None for point in points] == [False] * 4 + [True] * 2
    assert [len(point["rounds"]) for point in points] == [6] * 4 + [0] * 2
    assert [case["word"] for case in model["cases"]] == [""] * 4 + ["skipped", "failed"]


def parameter(layer: dict[str, Any], name: str) -> list[str | None]:
    """The values of a parameter of a layer; empty if no side has it."""
    values = (each["values"] for each in layer["parameters"] if each["name"] == name)
    return next(values, [])


def test_each_layer_of_a_profile_says_where_it_ran_and_all_precisions_add_up() -> None:
    (case,) = one_model(profile_data(measured_classifier()))["cases"]
    layers = {layer["names"][0]: layer for layer in case["layers"]}
    (fused,) = layers["stem_convolution"]["fused"][0]
    assert (fused["name"], fused["type"], fused["weight"]) == ("stem_relu", "Relu", None)
    assert [fused["id"]] == layers["stem_relu"]["ids"]
    assert parameter(layers["stem_convolution"], "pads") == ["1, 1, 1, 1"]
    assert layers["stem_convolution"]["providers"] == ["CPU"]
    assert layers["stem_relu"]["states"] == ["in another kernel"]
    assert layers["stem_relu"]["runs_in"] == ["stem_convolution"]
    assert layers["stem_relu"]["ms"] == [None]
    assert [layer["depth"] for layer in case["layers"]] == list(range(len(case["layers"])))
    assert not layers["ReorderInput"]["is_layer"]
    for entry in case["types"]:
        assert entry["is_layer"] == (entry["counts"] != [None])
        if entry["is_layer"]:
            (counted,) = entry["precisions"]
            assert [sum(counted.values())] == entry["counts"]
    spent = sum(layer["ms"][0] or 0 for layer in case["layers"])
    assert spent == pytest.approx(case["latency"][0]["percentiles"][0]["ms"])
    assert spent == pytest.approx(sum(entry["ms"][0] or 0 for entry in case["types"]))


def test_a_layer_that_no_kernel_ran_for_is_not_there() -> None:
    profile = measured_classifier()
    (case,) = profile.cases
    assert case.measured is not None
    without = with_layer_times(case.measured, [s for s in SHARES if s[1].kernel != "flatten"])
    folded = replace(profile, cases=(replace(case, measured=without),))
    (shown,) = one_model(profile_data(folded))["cases"]
    states = {layer["names"][0]: layer["states"] for layer in shown["layers"]}
    assert (states["flatten"], states["pool"]) == (["not there"], ["ran"])


def test_a_counted_model_has_layers_but_no_point_and_no_time() -> None:
    model = one_model(profile_data(static_classifier((1, 8))))
    assert model["points"] == [[]]
    for case in model["cases"]:
        assert (case["latency"], case["rounds"], case["word"]) == ([None], [[]], "")
        assert {tuple(layer["states"]) for layer in case["layers"]} == {("ran",)}
        assert {tuple(layer["ms"]) for layer in case["layers"]} == {(None,)}
        assert all(entry["precisions"] == [{"float32": 1}] for entry in case["types"])


def test_every_layer_of_a_light_model_is_in_the_data_of_its_profile() -> None:
    result = command("profile", model_path(), "--static", "--html", "-")
    assert result.exit_code == 0
    (model,) = unpacked_models(result.out)
    (case,) = model["cases"]
    counted = profile_model(model_path()).cases[0].static
    assert sum(entry["macs"][0] for entry in case["types"]) == counted.macs
    assert [layer["names"][0] for layer in case["layers"]] == [
        layer.name or layer.id for layer in counted.layers
    ]
    convolutions = [layer for layer in case["layers"] if layer["type"] == "Conv"]
    assert len(convolutions) == 26
    assert all(parameter(layer, "kernel_shape") for layer in convolutions)


def test_data_for_the_chosen_case_alone_is_packed_case_by_case() -> None:
    page = render_profile_page(static_classifier((1, 8)))
    (model,) = json.loads(unpacked(page, "data"))["models"]
    assert all(case.keys().isdisjoint({"layers", "types", "graph"}) for case in model["cases"])
    for place, case in enumerate(unpacked_models(page)[0]["cases"]):
        own = json.loads(unpacked(page, f"data-0-{place}"))
        assert len(own["layers"]) == len(case["layers"]) > 0


@given(st.recursive(st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_a_number_that_json_does_not_have_is_null(value: object) -> None:
    def plain(value: object) -> object:
        if isinstance(value, list):
            return [plain(each) for each in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    assert json.loads(dump_data({"value": value}))["value"] == plain(value)


def test_a_function_has_a_latency_and_no_layers() -> None:
    model = one_model(profile_data(measured_function()))
    assert model["points"][0][0]["ms"] is not None
    assert (model["cases"][0]["layers"], model["cases"][0]["types"]) == ([], [])


def test_a_comparison_has_both_sides_everywhere() -> None:
    median, p95, *others = SLOWER.metrics
    metrics = (median, replace(p95, measured_ratio=1.114), *others)
    duet = replace(SLOWER, metrics=metrics, before=side_run(26.1), after=side_run(29.18))
    model = one_model(comparison_data(compared(duet, SAME)))
    assert [side["label"] for side in model["sides"]] == ["A", "B"]
    assert [[p["ms"] for p in points] for points in model["points"]] == [[26.1], [29.18]]
    changes = model["changes"]
    assert list(changes) == ["b8-c2"]
    assert changes["b8-c2"]["latency"] == pytest.approx([29.18 / 26.1, 1.102, 1.131])
    assert changes["b8-c2"]["throughput"] == pytest.approx([26.1 / 29.18, 1 / 1.131, 1 / 1.102])
    # The table shows this, and not the ratio of the p95 of both sides.
    assert changes["b8-c2"]["p95"] == [1.114, 1.091, 1.144]
    lists = ("counts", "precisions", "ms", "shares", "macs", "flops", "params")
    for case in model["cases"]:
        assert len(case["latency"]) == len(case["rounds"]) == 2
        assert all(len(entry[name]) == 2 for entry in case["types"] for name in lists)
        lists_of_layers = (
            "names", "ids", "states", "ms", "precisions", "providers", "kernels", "macs", "params",
            "inputs", "outputs", "weights", "fused", "runs_in", "why_no_time",
        )  # fmt: skip
        assert all(len(each[name]) == 2 for each in case["layers"] for name in lists_of_layers)


def test_the_calls_of_a_program_are_in_ms_on_both_sides() -> None:
    calls = (
        CallChange(
            place="a.py:read",
            level=0,
            before=StageTime(calls=1, ns=2e6),
            after=StageTime(calls=2, ns=3e6),
        ),
        CallChange(place="a.py:new", level=1, before=None, after=StageTime(calls=4, ns=1e6)),
    )
    (case,) = one_model(comparison_data(compared(replace(SLOWER, calls=calls))))["cases"]
    assert case["calls"] == [
        {"place": "a.py:read", "level": 0, "ms": [2.0, 3.0], "calls": [1, 2]},
        {"place": "a.py:new", "level": 1, "ms": [None, 1.0], "calls": [None, 4]},
    ]


def test_a_change_is_in_ms_and_has_its_share_of_the_difference() -> None:
    (case,) = one_model(comparison_data(compared(SLOWER)))["cases"]
    types = {entry["type"]: entry for entry in case["types"]}
    assert types["Conv"]["change_ms"] == pytest.approx(2.29)
    assert types["Conv"]["change_interval_ms"] == pytest.approx([2.2, 2.38])
    assert types["Conv"]["explains"] == 0.74
    assert types["Transpose"]["counts"] == [None, 4]
    assert (types["layout"]["is_layer"], types["layout"]["counts"]) == (False, [None, None])
    layers = {(layer["names"][1] or layer["names"][0]): layer for layer in case["layers"]}
    assert layers["layer4/Transpose"]["states"] == ["not there", "ran"]
    assert layers["layer4/Identity"]["states"] == ["ran", "not there"]
    assert layers["layer1.0/relu"]["states"] == ["in another kernel", "ran"]


def test_a_case_that_failed_is_a_point_with_the_reason_on_both_sides() -> None:
    model = one_model(comparison_data(compared(BROKEN)))
    for (point,) in model["points"]:
        assert point["ms"] is None
        assert point["reason"] == BROKEN.failure
    assert model["cases"][0]["word"] == "failed"


@pytest.mark.parametrize(("side", "place"), [("before", 0), ("after", 1)])
def test_a_failure_is_the_reason_of_its_side_alone(
    side: Literal["before", "after"], place: int
) -> None:
    model = one_model(comparison_data(compared(replace(BROKEN, failed_side=side))))
    reasons = [point["reason"] for (point,) in model["points"]]
    assert reasons[place] == BROKEN.failure
    assert reasons[1 - place] == f"not measured, because {'AB'[place]} failed"


def at(name: str, index: int) -> LayerRow:
    made = row(name, "Conv", 1.0)
    return replace(made, time=replace(known(made.time), layer=index))


def test_layers_are_in_graph_order_and_removed_ones_in_their_old_place() -> None:
    layers = (
        LayerChange(at("c", 3), at("c", 2)),
        LayerChange(at("gone first", 0), None),
        LayerChange(None, at("new", 1)),
        LayerChange(at("a", 1), at("a", 0)),
        LayerChange(at("gone", 2), None),
        LayerChange(
            None, LayerRow(None, LayerTime(kind=RowKind.OVERHEAD, kernel="", ns=1.0)), change(1.0)
        ),
    )
    (case,) = one_model(comparison_data(compared(replace(SLOWER, layers=layers))))["cases"]
    names = [layer["names"][1] or layer["names"][0] for layer in case["layers"]]
    assert names == ["gone first", "a", "gone", "new", "c", "(no kernel)"]
    assert [layer["depth"] for layer in case["layers"]] == [0, 1, 2, 3, 4, 5]


def test_a_layer_counts_in_the_precision_of_its_kernel_once() -> None:
    """A comparison of real profiles, in which a layer that is fused on both sides has no row."""
    (case,) = measured_classifier().cases
    quantized = [
        (share, replace(time, precision="int8") if time.layer == 0 else time)
        for share, time in SHARES
    ]
    now = replace(case, measured=with_layer_times(known(case.measured), quantized))
    data = comparison_data(compared(compare_cases(case, now)))
    (shown,) = one_model(data)["cases"]
    types = {entry["type"]: entry["precisions"] for entry in shown["types"]}
    assert types["Conv"] == [{"float32": 1}, {"int8": 1}]
    assert types["Relu"] == [{"float32": 1}, {"int8": 1}]
    assert len(shown["layers"]) == len(Differences.between(case, now).of_layers())


def test_graphs_that_were_only_counted_are_compared_by_type() -> None:
    before, after = static_classifier(), static_classifier()
    model = one_model(comparison_data(compare_profiles(before, after)))
    assert (model["points"], model["changes"]) == ([[], []], {})
    (case,) = model["cases"]
    assert case["layers"] == []
    assert {tuple(entry["counts"]) for entry in case["types"]} == {(1, 1)}


def test_a_layer_has_the_same_number_on_the_pages_of_a_profile_and_of_a_comparison() -> None:
    """A comparison has them in another order, and only some of them."""
    profile = measured_classifier()
    (alone,) = one_model(profile_data(profile))["cases"]
    rows = [row for row in profile.cases[0].layers if row.static is not None]
    changes = tuple(LayerChange(before=row, after=row) for row in rows[:0:-1])
    (both,) = one_model(comparison_data(compared(replace(FASTER, layers=changes))))["cases"]
    numbers = {layer["ids"][0]: layer["numbers"][0] for layer in alone["layers"]}
    known = [layer for layer in both["layers"] if layer["states"] == ["ran", "ran"]]
    assert known
    for layer in known:
        assert layer["numbers"] == [numbers[name] for name in layer["ids"]]


def test_the_zeros_of_weights_are_in_a_page_only_if_weights_were_read() -> None:
    (dense,) = one_model(profile_data(measured_classifier()))["cases"]
    assert not any("sparsity" in layer for layer in dense["layers"])
    profile = measured_classifier()
    counted = profile.cases[0].static
    zeros = Sparsity(zeros=1, size=4, pattern="1x4", block_ratio=0.25, n_of_m=(2, 4))
    layers = (replace(counted.layers[0], sparsity=zeros, effective_macs=3), *counted.layers[1:])
    case = replace(profile.cases[0], counted=replace(counted, layers=layers))
    (sparse,) = one_model(profile_data(replace(profile, cases=(case,))))["cases"]
    first = sparse["layers"][0]
    assert (first["sparsity"], first["patterns"]) == ([0.25], ["1x4, 2:4"])
    assert first["effective_macs"] == [3]


def test_a_run_has_a_model_for_each_baseline_and_the_names_of_its_reports() -> None:
    fresh = outcome(
        FRESH,
        "models/decoder.onnx::b2-c2",
        latency=make_latency(make_rounds(3.0)),
        static=replace(STATIC, layer_types={"Conv": kind("Conv", 53, None)}),
    )
    report = run(
        outcome(SLOWER, baseline="encoder"),
        fresh,
        outcome(OPEN, baseline="encoder"),
    )
    models = json.loads(dump_data(run_data(report)))["models"]
    assert [[case["name"] for case in model["cases"]] for model in models] == [
        ["encoder.onnx::b8-c2", "encoder.onnx::b1-c1"],
        ["decoder.onnx::b2-c2"],
    ]
    assert [[side["label"] for side in model["sides"]] for model in models] == [["A", "B"], [""]]
    (new,) = models[1]["cases"]
    assert (new["word"], len(new["latency"])) == ("new", 1)
    assert [(entry["type"], entry["counts"]) for entry in new["types"]] == [("Conv", [53])]
    assert models[1]["points"][0][0]["ms"] == pytest.approx(3.0)


def test_a_run_opens_on_its_worst_case() -> None:
    """Among equally bad ones, it is the one that is over by most, in any order."""
    quiet = outcome(SAME, baseline="quiet")
    mild = replace(SLOWER.metrics[0], after=26.9)
    milder = replace(SLOWER, case=Case(4, 2), metrics=(mild, *SLOWER.metrics[3:]))
    bad = [outcome(case, baseline="bad") for case in (OPEN, milder, SLOWER)]
    data = json.loads(dump_data(run_data(run(quiet, *bad))))
    (first, second) = data["models"]
    assert (data["start"], first["start"]) == (1, SAME.id)
    assert second["start"] == "b8-c2"


def test_models_of_one_name_are_distinguished_by_the_part_of_their_paths_that_differs() -> None:
    paths = ("/p/one/export/model.onnx", "/p/two/export/model.onnx", "/p/encoder.onnx")
    outcomes = [
        outcome(SAME, f"{path}::{SAME.id}", model=make_model(Path(path).name, path, None, 97))
        for path in paths
    ]
    models = json.loads(dump_data(run_data(run(*outcomes))))["models"]
    names = ["one/export/model.onnx", "two/export/model.onnx", "encoder.onnx"]
    assert [model["name"] for model in models] == names
    assert [model["sides"][-1]["name"] for model in models] == names


def test_the_same_case_of_a_model_twice_has_two_ids() -> None:
    report = run(*(outcome(SLOWER, f"test_{n}.py::test[b8-c2]") for n in "abc"))
    (model,) = json.loads(dump_data(run_data(report)))["models"]
    ids = [case["id"] for case in model["cases"]]
    assert len(set(ids)) == 3
    assert set(model["changes"]) == set(ids)


def test_a_run_without_a_case_has_no_model_and_a_page() -> None:
    report = RunReport(outcomes=())
    assert run_data(report) == {"models": [], "start": 0}
    assert "no case" in Markup(render_run_page(report)).text


def sweep_of(*names: str, threshold_ms: float | None = 5.0) -> Any:  # noqa: ANN401  # as below
    configurations = [make_configuration(b, 1, s) for b in (1, 4) for s in (1, 2)]
    sides = [
        make_side(
            name,
            [make_point(c, 2.0 * c.case.batch_size * (1 + n)) for c in configurations],
            threshold_ms,
        )
        for n, name in enumerate(names)
    ]
    return make_sweep(*sides, threshold_ms=threshold_ms)


def test_a_sweep_has_a_point_for_each_configuration_with_what_was_measured() -> None:
    sweep = sweep_of("old.onnx", "new.onnx")
    model = one_model(sweep_data(sweep))
    assert [[p["id"] for p in points] for points in model["points"]] == [
        ["b1-c1", "b1-c1-s2", "b4-c1", "b4-c1-s2"]
    ] * 2
    assert model["threshold_ms"] == 5.0
    assert set(model["changes"]) == {"b1-c1", "b1-c1-s2", "b4-c1", "b4-c1-s2"}
    point = model["points"][0][1]
    measured = sweep.sides[0].points[1].throughput
    assert point["per_second"] == measured.value
    assert point["per_second_interval"] == [measured.low, measured.high]
    assert (point["streams"], len(point["rounds"][0])) == (2, 7)


def test_a_line_of_the_chart_has_one_phase_of_a_generation() -> None:
    phases = [GenerationPhase(phase, 16, 8) for phase in Phase]
    entries = [
        point_entry(phase.id, Case(1, 1, (("seq", 4),), phase=phase), None) for phase in phases
    ]
    assert [entry["dims"] for entry in entries] == [
        {"seq": 4, "phase": "prompt16-prefill"},
        {"seq": 4, "phase": "prompt16-generate8-step"},
    ]


def test_a_sweep_shows_the_layers_that_were_taken_at_its_best() -> None:
    alone = replace(sweep_of("new.onnx"), profile=measured_classifier())
    both = replace(sweep_of("old.onnx", "new.onnx"), comparison=compared(SLOWER))
    assert [len(side) for side in one_model(sweep_data(alone))["points"]] == [4]
    assert one_model(sweep_data(alone))["cases"][0]["id"] == "b1-c1"
    assert one_model(sweep_data(both))["cases"][0]["id"] == "b8-c2"
    assert one_model(sweep_data(sweep_of("new.onnx")))["cases"] == []


def test_a_sweep_with_all_layers_opens_on_its_best() -> None:
    (case,) = measured_classifier().cases
    other = replace(case, case=Case(4, 1))
    profile = replace(measured_classifier(), cases=(other, case))
    sweep = replace(sweep_of("new.onnx"), profile=profile)
    model = one_model(sweep_data(sweep))
    assert [each["id"] for each in model["cases"]] == ["b4-c1", "b1-c1"]
    assert model["start"] == "b1-c1"


def test_the_page_of_a_sweep_says_what_is_best_and_what_failed() -> None:
    sweep = sweep_of("new.onnx")
    failed = replace(sweep.sides[0].points[3], latency=None, throughput=None, reason="it <died>")
    side = replace(sweep.sides[0], points=(*sweep.sides[0].points[:3], failed))
    text = Markup(render_sweep_page(replace(sweep, sides=(side,)))).text
    assert "best b1-c1-s2 1.000 k items/s at 2.000 ms (within 5 ms)" in text
    assert "b4-c1-s2: failed: it <died>" in text


def test_the_page_of_a_comparison_says_all_that_decides() -> None:
    made = dt.datetime(2026, 5, 6, 7, 8, tzinfo=dt.timezone.utc)
    comparison = compared(SLOWER, OPEN, FASTER, SAME, BROKEN, BUDGET)
    text = Markup(render_comparison_page(comparison, machine=MACHINE, made=made)).text
    for sentence in (
        "encoder.onnx → encoder2.onnx",
        "1 of 6 regressed, 1 over budget, 1 failed, 1 inconclusive, 1 improved, 1 unchanged;",
        "b8-c1 over budget p95 14.21 ms",
        "; worst: b8-c2 +11.8 %, reason: 12 Conv+Relu fusions lost",
        "b8-c2 regressed 26.10 ms 29.18 ms +11.8 % +10.2 … +13.1 % 30.26 ms 4.089 G 25.61 M",
        "b8-c2 regressed p50 latency +11.8 % (99 % interval +10.2 … +13.1 %), allowed +3 %",
        "12 Conv+Relu fusions lost (first: layer1.0/conv2)",
        "this run could see p95 latency +4.1 % or more",
        "boxes: differ in shape: 1x100x4 before, 1x300x4 now",
        "the worker was not pinned to its processors",
        "it had 1.9 GiB of 2 GiB",
        "p95 latency 14.21 ms <= 12.00 ms: over budget",
        "AMD EPYC 9R14, 2 cores, 24.00 GiB",
        "tolerance 3 %",
        "confidence 99 %",
        "2026-05-06 07:08 UTC",
        "pytest-modelperf 0.",
    ):
        assert sentence in text


def test_the_page_of_a_run_has_the_worst_first_and_the_command_that_accepts_it() -> None:
    text = Markup(render_run_page(run(*map(outcome, ALL)))).text
    words = ("encoder.onnx::b8-c2 regressed", "b64-c2 failed", "b1-c2 unchanged")
    assert sorted(words, key=text.index) == list(words)
    accept = 'To accept it: pytest --modelperf --modelperf-update-baseline "models/encoder.onnx::'
    assert text.count(accept) == sum(case in (SLOWER, EVERYWHERE) for case in ALL) == 2
    assert text.count("there is no baseline of b2-c2") == 1
    assert "False-alarm bound for this run: 1 %." in text
    assert "opset" not in text


def test_only_the_worst_case_of_a_page_is_open() -> None:
    page = render_run_page(run(*map(outcome, ALL)))
    assert page.count("<details") == len(ALL)
    assert re.findall(r'<details[^>]* id="(\S+)"[^>]* open>', page) == ["case-0-0"]
    assert not re.findall(r"<details[^>]* open>", render_run_page(run(outcome(SAME))))


def test_a_headline_has_counts_once_and_the_worst_of_what_needs_attention() -> None:
    def headline(*cases: CaseComparison) -> str:
        return run_report(run(*map(outcome, cases))).headline

    worst = "; +11.8 %, reason: 12 Conv+Relu fusions lost"
    assert headline(SLOWER) == f"regressed{worst}"
    assert headline(SAME, SAME) == "all 2 unchanged"
    assert headline(SAME, FASTER) == "1 of 2 improved, 1 unchanged"
    over = "worst: encoder.onnx::b8-c1 p95 latency 14.21 ms, limit 12.00 ms"
    assert headline(SAME, BUDGET) == f"1 of 2 over budget, 1 unchanged; {over}"
    assert headline(SAME, BROKEN) == "1 of 2 failed, 1 unchanged; worst: encoder.onnx::b64-c2"


def test_the_figures_of_a_case_come_first_on_the_page_of_a_profile() -> None:
    (first, *others) = profile_report(measured_cases()).tiles
    assert [(tile.name, tile.value) for tile in first.tiles] == [
        ("p50 latency", "0.1234 ms"),
        ("items a second", "8.104 k"),
        ("MACs", "442.5 k"),
        ("params", "618"),
        ("peak memory", "113.0 MiB"),
        ("noise", "quiet"),
    ]
    failed = [tile.name for tile in others[-1].tiles]
    assert failed == ["latency", "MACs", "FLOPs", "params", "peak activations"]
    noisy = profile_report(measured_classifier(half_width=0.1)).tiles[0].tiles[-1]
    assert noisy.tone is Tone.UNSURE


def test_the_page_of_a_profile_has_its_latency_and_the_facts_of_the_graph() -> None:
    text = Markup(render_profile_page(measured_cases())).text
    for sentence in (
        "b1-c1 1 1 0.1234 ± 0.6 %",
        "b64-c2: failed: the worker was ended by SIGKILL in round 3",
        "MACs 442.5 k",
        "graph_optimization_level=extended",
    ):
        assert sentence in text


def test_only_noteworthy_ones_of_many_cases_have_a_section() -> None:
    fine = [outcome(SAME, f"test_{n}.py::test[b1-c2]") for n in range(60)]
    page = render_run_page(run(*fine, outcome(SLOWER)))
    assert page.count("<details") == 1
    assert render_run_page(run(*fine[:9], outcome(SLOWER))).count("<details") == 10


@given(st.text(st.characters()))
def test_any_text_is_the_same_after_packing_and_unpacking(text: str) -> None:
    packed = pack(dump_data({text: [text]}))
    assert re.fullmatch(r"[A-Za-z0-9+/=]*", packed)
    assert json.loads(gzip.decompress(base64.b64decode(packed))) == {text: [text]}


@cache
def tags_of_pages(name: str) -> tuple[Sequence[object], Sequence[object]]:
    """The tags of the page of a comparison and of that of a run with this name everywhere."""
    comparison = render_comparison_page(with_names(name))
    return Markup(comparison).tags, Markup(render_run_page(everything_named(name))).tags


@pytest.mark.slow
@settings(max_examples=15)
@given(st.text(min_size=1, max_size=30))
@example(EVIL)
@example("\x00\r\n\N{NO-BREAK SPACE}")
@example("{% raw %}{{ overview }}{# ")
def test_no_name_becomes_a_part_of_a_page(name: str) -> None:
    assert tags_of_pages(name) == tags_of_pages("a")


def test_a_page_with_a_name_that_is_not_unicode_can_be_written() -> None:
    page = render_comparison_page(with_names("\ud800"))
    assert "\\ud800" in page.encode("utf-8").decode("utf-8")


def test_a_name_is_shown_as_it_is() -> None:
    page = render_comparison_page(with_names(EVIL))
    assert EVIL not in page
    assert Markup(page).text.count(" ".join(printable(EVIL).split())) >= 8
    assert "\x1b" not in page
    assert "\u202e" not in page
    (model,) = unpacked_models(page)
    assert model["cases"][0]["layers"][0]["names"] == [EVIL, EVIL]


def big(layers: int) -> Comparison:
    """Two models of `count` layers, no two of which are alike."""

    def layer(index: int) -> StaticLayer:
        return StaticLayer(
            id=f"/encoder/layer.{index}/attention/output_{index}",
            name=f"/encoder/layer.{index}/attention/MatMul",
            op_type=("Conv", "MatMul", "Relu", "Add")[index % 4], domain="",
            weight=f"encoder.layer.{index}.attention.weight", precision="float32",
            macs=index * 7919 % 100_000_007, elementwise_ops=index, backward_macs=0,
            params=index * 104_729 % 1_000_003, weight_bytes=0, output_bytes=4,
            input_shape=(1, index % 97, 7, index), output_shape=(1, index % 89, 7, index),
            attributes={"kernel_shape": (3, index % 7), "strides": (1, 2), "group": index},
        )  # fmt: skip

    def side(index: int, factor: float) -> LayerRow:
        ns = factor * (1e5 + index * 15_485_863 % 99_991)
        time = LayerTime(kind=RowKind.LAYER, kernel=f"k{index}_nchwc", ns=ns, layer=index)
        return LayerRow(layer(index), time, (layer(index + layers),))

    changes = tuple(
        LayerChange(side(n, 1.0), side(n, 1.1), change(n * 32_452_843 % 101 / 997, 1 / (n + 3)))
        for n in range(layers)
    )
    types = tuple(
        LayerTypeChange(f"Op{n}", kind(f"Op{n}", 9, 1.1), kind(f"Op{n}", 9, 1.2), change(0.1))
        for n in range(60)
    )
    duet = replace(SLOWER, before=side_run(26.1), after=side_run(29.18))
    return compared(replace(duet, layers=changes, layer_types=types))


@pytest.mark.slow
def test_a_page_of_two_models_with_2000_layers_stays_small() -> None:
    page = render_comparison_page(big(2_000))
    assert len(unpacked_models(page)[0]["cases"][0]["layers"]) == 2_000
    assert len(page.encode()) < MAX_BYTES


POLICY = "Content-Security-Policy"


def test_a_page_has_everything_in_it_and_names_nothing_to_load() -> None:
    page = render_case_page({"models": []})
    assert "Plotly" in unpacked(page, "plotly")
    tags = Markup(page).tags
    assert {tag for tag, _ in tags} & {"link", "img", "iframe", "base"} == set()
    # A link loads nothing.
    named = [(name, str(to)) for tag, attributes in tags if tag != "a" for name, to in attributes]
    assert not [to for name, to in named if name == "src" or (name == "href" and to[:1] != "#")]
    (policy,) = (dict(a)["content"] for _, a in tags if ("http-equiv", POLICY) in a)
    assert str(policy).startswith("default-src 'none';")
    assert [dict(a)["id"] for tag, a in tags if tag == "section"] == [
        "chart", "time", "rounds", "calls",
        "types", "icicle", "depth", "graph", "kernels", "transitions",
    ]  # fmt: skip


def test_the_same_data_makes_the_same_page() -> None:
    assert render_profile_page(measured_cases()) == render_profile_page(measured_cases())


_PACKAGE = Path(pytest_modelperf.__file__).parent
_PAGE_FILES = [*_PACKAGE.rglob("*.js"), *_PACKAGE.rglob("*.css")]


@pytest.mark.parametrize("path", _PAGE_FILES, ids=lambda path: path.name)
def test_no_script_and_no_style_ends_before_its_end(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.strip()
    assert re.search(r"</(script|style)|<!--", text, re.IGNORECASE) is None


def model_path() -> str:
    return str(light_model("squeezenet"))


def test_compare_writes_a_page_in_addition_to_its_report(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    result = command("compare", model_path(), model_path(), "--static", "--html", str(target))
    assert (result.exit_code, result.err) == (0, "")
    assert "passed" in result.out
    assert "squeezenet.onnx → " in Markup(target.read_text("utf-8")).text


def test_a_page_on_standard_output_is_alone_there() -> None:
    result = command("compare", model_path(), model_path(), "--static", "--html", "-")
    assert result.out.startswith("<!doctype html>")
    assert result.out.endswith("</html>\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("profile", "m", "--json", "-", "--html", "-"), "only one of --json and --html"),
        (("compare", "m", "m", "--markdown=-", "--html=-"), "only one of --html and --markdown"),
        (("profile", "m", "--html", "no/page.html"), "cannot write no/page.html"),
    ],
)
def test_a_page_that_cannot_be_written_is_reported_at_once(
    arguments: Sequence[str], message: str
) -> None:
    result = command(*arguments)
    assert result.exit_code == 2
    assert message in result.err


@pytest.mark.parametrize("missing", ["plotly", "jinja2"])
@pytest.mark.parametrize("arguments", [("profile", "m"), ("compare", "m", "m"), ("sweep", "m")])
def test_without_the_extra_the_command_says_what_to_install(
    arguments: Sequence[str], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    result = command(*arguments, "--html", "page.html")
    assert result.exit_code == 2
    assert "--html needs plotly and jinja2: pip install 'pytest-modelperf[report]'" in result.err
    with pytest.raises(UsageError, match="--modelperf-html needs plotly"):
        check_html_extra("--modelperf-html")


def test_no_page_needs_neither_of_the_two() -> None:
    """In an interpreter of its own, as others have imported them here."""
    code = (
        "import sys; from pytest_modelperf.cli import main; "
        "main(['profile', sys.argv[1], '--static', '--top', '1'], standalone_mode=False); "
        "assert not {'plotly', 'jinja2'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, model_path()],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
