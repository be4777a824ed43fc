"""Records as JSON: valid, the same each time, null for what is unknown, and safe to print."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from pytest_modelperf.comparing.records import COMPARISON
from pytest_modelperf.comparing.request import compare_profiles
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.records import PROFILE, CaseProfile, Profile
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.profiler.shown.document import dump_node_data, dump_profile, node_notes
from pytest_modelperf.report.document import dump_document
from tests.support.profiles import (
    make_latency,
    make_round,
    measured_cases,
    measured_classifier,
    measured_function,
    static_classifier,
)
from tests.support.small_models import ones, parse

MODEL = """
    g (float[N,4] x) => (float[N,2] y, z) {
        [linear] h = MatMul(x, w)
        [blend] z = my.ops.Blend(h)
        y = Relu(h)
    }
"""
MACHINE = MachineFacts(
    system="Linux", architecture="x86_64", usable_cores=2, packages={"onnx": "1.23.2"}
)


@pytest.fixture(scope="module")
def profile() -> Profile:
    weight = ones(4, 2)
    weight[:2] = 0
    request = ProfileRequest(batch_sizes=(1, 8), sparsity=True)
    made = profile_model(parse(MODEL, weights={"w": weight}), request)
    # Facts that differ from machine to machine, and with the version of protobuf.
    model = replace(made.model, name="m.onnx", path="m.onnx", sha256="ab" * 32, size_bytes=300)
    return replace(made, model=model, machine=MACHINE)


def loaded(profile: Profile) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(dump_profile(profile))
    return document


@pytest.fixture(scope="module")
def linear() -> Profile:
    """The smallest that there is to see."""
    text = "g (float[N,4] x) => (float[N,2] y) { [linear] y = MatMul(x, w) }"
    made = profile_model(parse(text, weights={"w": ones(4, 2)}))
    model = replace(made.model, name="m.onnx", path="m.onnx", sha256="ab" * 32, size_bytes=300)
    return replace(made, model=model, machine=MACHINE)


def test_a_profile_as_json(linear: Profile) -> None:
    document = loaded(linear)
    assert dump_profile(linear) == json.dumps(document, indent=2) + "\n"
    (case,) = document["cases"]
    assert case.pop("layer_types") == [{
        "op_type": "MatMul", "domain": "", "count": 1, "ms": None, "share": None, "macs": 8,
        "elementwise_ops": 0, "backward_macs": 8, "params": 8, "weight_bytes": 32,
        "output_bytes": 8,
    }]  # fmt: skip
    assert case.pop("layers") == [{
        "kind": "layer", "id": "y", "name": "linear", "op_type": "MatMul", "domain": "",
        "weight": "w", "provider": None, "precision": "float32", "ms": None, "interval_ms": None,
        "macs": 8, "elementwise_ops": 0, "backward_macs": 8, "effective_macs": None, "params": 8,
        "weight_bytes": 32, "output_bytes": 8, "input_shape": [1, 4], "output_shape": [1, 2],
        "repeats": 1, "sparsity": None, "kernel": None, "fused": [], "runs_in": None,
    }]  # fmt: skip
    assert document == {
        "schema": 1,
        "model": {
            "name": "m.onnx", "path": "m.onnx", "function_file": None, "sha256": "ab" * 32,
            "bytes": 300, "opsets": {"ai.onnx": 21}, "producer": "", "total_bytes": 131,
        },
        "machine": {
            "key": "linux-x86_64-unknown-2c", "cpu": None, "microarchitecture": None,
            "instruction_sets": None, "physical_cores": None, "logical_cores": None,
            "usable_cores": 2, "quota_cores": None, "caches": {}, "memory_bytes": None,
            "memory_limit_bytes": None, "governor": None, "turbo": None, "virtualization": None,
            "system": "Linux", "kernel": None, "distribution": None, "architecture": "x86_64",
            "python": None, "packages": {"onnx": "1.23.2"},
        },
        "cases": [{
            "id": "b1-c1", "batch_size": 1, "cores": 1, "dims": {}, "given_dims": {}, "phase": None,
            "prompt": None, "generate": None, "generation": None, "workload": None,
            "outcome": "not measured", "reason": "it was profiled without running it",
            "engine": dict.fromkeys(("name", "version", "python", "options", "providers")),
            "processors": None, "seconds": None, "notes": [],
            "static": {
                "macs": 8, "elementwise_ops": 0, "flops": 16, "backward_macs": 8,
                "effective_macs": None, "params": 8, "weight_bytes": 32, "activation_bytes": 8,
                "peak_activation_bytes": 8, "uncounted_ops": {}, "coverage": 1.0, "notes": [],
            },
            "latency": dict.fromkeys((
                "p50_ms", "p90_ms", "p95_ms", "p97_ms", "p99_ms", "p99.9_ms", "min_ms", "max_ms",
                "mean_ms", "samples", "rounds", "items_per_second", "confidence", "intervals_ms",
                "needed",
            )),
            "load_ms": None, "first_load_ms": None, "first_inference_ms": None, "every_ns": None,
            "streams": None, "late": None, "peak_rss_bytes": None, "engine_peak_bytes": None,
            "roofline": None, "raw": None,
        }],
    }  # fmt: skip


def test_a_comparison_as_json(linear: Profile) -> None:
    document = json.loads(COMPARISON.dump(compare_profiles(linear, linear)))
    (case,) = document["cases"]
    # Both sides of a layer type are written as in a profile.
    (kind,) = case.pop("layer_types")
    assert kind.keys() >= {"op_type", "domain", "before", "after"}
    assert kind["before"] == kind["after"] == loaded(linear)["cases"][0]["layer_types"][0]
    assert document.pop("before") == document.pop("after") == loaded(linear)["model"]
    case["metrics"] = case["metrics"][:1]
    assert document == {
        "schema": 1, "verdict": "passed", "seconds": None, "rounds": None, "confidence": None,
        "tolerance": None, "engines": [],
        "cases": [{
            "id": "b1-c1", "phase": None, "prompt": None, "generate": None, "verdict": "passed",
            "failure": None, "failed_side": None, "how": None, "seconds": None, "rounds": None,
            "metrics": [{
                "name": "macs", "before": 8, "after": 8, "ratio": 1.0, "interval": None,
                "confidence": None, "detectable": None, "allowed": 0.0, "limit": None,
                "after_interval": None, "least": None, "detail": None, "reason": None,
                "gated": True, "awaited": True, "verdict": "passed",
            }],
            "parts": [], "elsewhere": None, "stages": [], "calls": [], "layers": [], "reasons": [],
            "outputs": [], "first_difference": None, "notes": [],
        }],
    }  # fmt: skip


def test_json_has_the_figures_of_the_record(profile: Profile) -> None:
    document = loaded(profile)
    for case, made in zip(document["cases"], profile.cases, strict=True):
        check_case(case, made)


def check_case(case: dict[str, Any], made: CaseProfile) -> None:
    assert case["id"] == made.case.id
    static = made.static
    for key in (
        *("macs", "elementwise_ops", "flops", "backward_macs", "effective_macs", "params"),
        *("weight_bytes", "activation_bytes", "peak_activation_bytes", "coverage"),
    ):
        assert case["static"][key] == getattr(static, key)
    assert [kind["op_type"] for kind in case["layer_types"]] == ["MatMul", "Blend", "Relu"]
    for layer, record in zip(case["layers"], static.layers, strict=True):
        for key in ("id", "name", "op_type", "domain", "weight", "precision", "macs", "params"):
            assert layer[key] == getattr(record, key)
        assert layer["input_shape"] == (record.input_shape and list(record.input_shape))


def test_unknown_figures_are_null_and_not_zero(profile: Profile) -> None:
    case = loaded(profile)["cases"][0]
    blend = case["layers"][1]
    assert blend["op_type"] == "Blend"
    unknown = ("macs", "elementwise_ops", "backward_macs", "output_bytes", "output_shape")
    assert {blend[key] for key in unknown} == {None}
    kind = case["layer_types"][1]
    assert {kind[key] for key in ("macs", "elementwise_ops", "ms", "share")} == {None}
    assert case["static"]["peak_activation_bytes"] is None
    assert case["static"]["uncounted_ops"] == {"Blend": 1}


def test_operators_are_listed_once_with_all_of_their_layers() -> None:
    model = parse("g (float[2,3] x) => (y) { i = NonZero(x) a = Cast<to=1>(i) y = Cast<to=7>(a) }")
    static = loaded(profile_model(model))["cases"][0]["static"]
    assert static["uncounted_ops"] == {"Cast": 2}


def test_json_is_the_same_each_time(profile: Profile) -> None:
    assert dump_profile(profile) == dump_profile(profile)
    assert dump_profile(profile).endswith("}\n")


def test_json_is_ascii_so_that_no_name_can_steer_a_terminal() -> None:
    model = parse("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }")
    name = "a\x1b[31m\n\u202e\u2028名\x7f"
    model.graph.node[0].name = name
    text = dump_profile(profile_model(model))
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    assert json.loads(text)["cases"][0]["layers"][0]["name"] == name


def test_json_has_no_number_that_is_none() -> None:
    """JSON has no NaN; a weight of NaN must not make one."""
    weights = {"w": np.full((4, 2), np.nan, np.float32)}
    model = parse(MODEL, weights=weights)
    text = dump_profile(profile_model(model, ProfileRequest(sparsity=True)))
    assert "NaN" not in text
    assert json.loads(text)["cases"][0]["layers"][0]["sparsity"]["ratio"] == 0.0


# -- of a measured profile


def measured_case(profile: Profile | None = None) -> dict[str, Any]:
    (case,) = loaded(profile or measured_classifier())["cases"]
    assert isinstance(case, dict)
    return case


def test_the_percentiles_are_those_of_the_record_and_null_if_samples_do_not_support_them() -> None:
    made = measured_classifier().cases[0].latency
    latency = measured_case()["latency"]
    for percentile in made.percentiles:
        key = f"{percentile.name}_ms"
        assert latency["needed"][key] == percentile.needed
        if made.samples < percentile.needed:
            assert latency[key] is None
            assert latency["intervals_ms"][key] is None
        else:
            assert latency[key] * 1e6 == pytest.approx(percentile.value_ns)
            low, high = latency["intervals_ms"][key]
            assert low < latency[key] < high
    assert latency["p97_ms"] is not None
    assert latency["p99_ms"] is None
    assert (latency["samples"], latency["rounds"]) == (made.samples, made.rounds)
    assert latency["items_per_second"] == pytest.approx(1000 / latency["p50_ms"])


def test_a_single_round_has_percentiles_without_intervals() -> None:
    latency = measured_case(measured_classifier(half_width=None))["latency"]
    assert latency["p50_ms"] is not None
    assert set(latency["intervals_ms"].values()) == {None}


@pytest.mark.parametrize("key", ["layers", "layer_types"])
def test_the_times_of_all_rows_add_up_to_the_median(key: str) -> None:
    case = measured_case()
    total = sum(row["ms"] for row in case[key] if row["ms"] is not None)
    assert total == pytest.approx(case["latency"]["p50_ms"])


def test_the_times_of_a_layer_type_are_those_of_its_layers() -> None:
    case = measured_case()
    for kind in case["layer_types"]:
        of_kind = [row["ms"] for row in case["layers"] if row["op_type"] == kind["op_type"]]
        known = [ms for ms in of_kind if ms is not None]
        assert kind["ms"] == (pytest.approx(sum(known)) if known else None)


def test_layers_that_share_a_kernel_point_to_the_one_that_has_its_time() -> None:
    layers = {row["id"]: row for row in measured_case()["layers"]}
    assert layers["c"]["fused"] == ["r"]
    assert layers["r"]["runs_in"] == "c"
    assert layers["r"]["ms"] is None
    assert layers["c"]["kernel"] == "c_nchwc"
    assert layers["c"]["provider"] == "CPUExecutionProvider"


def test_time_of_no_layer_has_null_for_what_a_layer_has() -> None:
    case = measured_case()
    rows = [row for row in case["layers"] if row["id"] is None]
    assert [(row["kind"], row["op_type"]) for row in rows] == [
        ("layout", "layout"),
        ("runtime overhead", "runtime overhead"),
    ]
    for row in rows:
        assert {row[key] for key in ("name", "macs", "params", "output_shape", "repeats")} == {None}
    kinds = [kind for kind in case["layer_types"] if kind["count"] is None]
    assert [kind["op_type"] for kind in kinds] == ["layout", "runtime overhead"]
    assert {kind[key] for kind in kinds for key in ("macs", "params", "weight_bytes")} == {None}


def test_the_precision_of_the_kernel_comes_before_that_of_the_model() -> None:
    profile = measured_classifier()
    made = profile.cases[0]
    assert made.measured is not None
    assert made.measured.layer_times is not None
    first, *others = made.measured.layer_times
    times = (replace(first, precision="bfloat16"), replace(others[0], precision=None), *others[1:])
    changed = replace(made, measured=replace(made.measured, layer_times=times))
    layers = measured_case(replace(profile, cases=(changed,)))["layers"]
    assert [layers[index]["precision"] for index in (0, 1, 2)] == ["bfloat16", "float32", "float32"]


def test_raw_samples_are_kept_by_round_and_in_order() -> None:
    made = measured_classifier().cases[0].measured
    assert made is not None
    raw = measured_case()["raw"]
    assert [entry["times_ns"] for entry in raw] == [list(r.times_ns) for r in made.rounds]
    assert raw[0]["noise"]["wall_ns"] == sum(made.rounds[0].times_ns)
    assert (raw[0]["load_ms"], raw[0]["first_ms"], raw[0]["warmup_runs"]) == (21.3, 9.4, 8)


def test_the_samples_of_a_round_take_one_line() -> None:
    lines = dump_profile(measured_classifier()).splitlines()
    of_samples = [line.strip() for line in lines if '"times_ns"' in line]
    assert len(of_samples) == 6
    assert all(line.endswith("]") for line in of_samples)


def test_facts_that_the_platform_lacks_are_null() -> None:
    profile = measured_classifier()
    noise = {"others_ns": None, "stolen_ns": None, "throttled_ns": None}
    rounds = (make_round([1_000_000] * 12, noise=noise),)
    made = profile.cases[0]
    assert made.measured is not None
    measured = replace(
        made.measured,
        rounds=rounds,
        latency=make_latency(rounds, half_width=None),
        processors=None,
        engine_peak_bytes=None,
        layer_times=None,
    )
    case = measured_case(replace(profile, cases=(replace(made, measured=measured),)))
    assert case["processors"] is None
    assert case["engine_peak_bytes"] is None
    assert {row["ms"] for row in case["layers"]} == {None}
    assert {kind["ms"] for kind in case["layer_types"]} == {None}
    assert case["raw"][0]["noise"]["stolen_ns"] is None
    assert case["latency"]["min_ms"] == 1.0


def test_each_case_says_what_became_of_it() -> None:
    cases = {case["id"]: case for case in loaded(measured_cases())["cases"]}
    assert {name: case["outcome"] for name, case in cases.items()} == {
        "b1-c1": "measured", "b1-c2": "measured", "b8-c1": "measured", "b8-c2": "measured",
        "b1-c8": "skipped", "b64-c2": "failed",
    }  # fmt: skip
    assert cases["b1-c1"]["reason"] is None
    assert cases["b1-c8"]["reason"] == "the machine has 2 processors"
    skipped = cases["b1-c8"]
    assert skipped["raw"] is skipped["load_ms"] is skipped["latency"]["p50_ms"] is None
    assert skipped["static"]["macs"] == cases["b1-c1"]["static"]["macs"]


def test_a_function_has_a_latency_and_null_for_facts_of_a_graph() -> None:
    case = measured_case(measured_function())
    assert case["latency"]["p50_ms"] == pytest.approx(0.0105, rel=0.01)
    assert case["static"].pop("notes") == []
    assert set(case["static"].values()) == {None}
    assert case["layers"] == case["layer_types"] == []
    assert case["engine"]["name"] == "callable"


def test_a_measured_figure_that_is_not_a_number_is_null() -> None:
    profile = measured_classifier()
    made = profile.cases[0]
    assert made.measured is not None
    latency = replace(made.measured.latency, mean_ns=float("nan"))
    measured = replace(made.measured, latency=latency, seconds=float("inf"))
    case = measured_case(replace(profile, cases=(replace(made, measured=measured),)))
    assert case["latency"]["mean_ms"] is None
    assert case["seconds"] is None


@pytest.mark.parametrize("made", [measured_classifier, measured_cases, measured_function])
def test_the_types_of_a_document_accept_all_that_is_written(made: Callable[[], Profile]) -> None:
    text = dump_profile(made())
    found = msgspec.json.decode(text, type=PROFILE.json_type)
    assert dump_document(found) == text


def test_node_data_has_the_time_of_each_node_that_has_one() -> None:
    profile = measured_classifier()
    data = json.loads(dump_node_data(profile))
    timed = {
        row.static.name or row.static.id: pytest.approx(row.ms, abs=1e-6)
        for row in profile.cases[0].layers
        if row.static is not None and row.ms is not None
    }
    assert {name: each["value"] for name, each in data["results"].items()} == timed
    assert data["name"].endswith(": ms")
    assert [stop["stop"] for stop in data["gradient"]] == [0.0, 0.5, 1.0]


def test_without_a_run_the_values_are_macs() -> None:
    profile = static_classifier()
    data = json.loads(dump_node_data(profile))
    assert data["name"].endswith(": MACs")
    assert sum(each["value"] for each in data["results"].values()) == profile.cases[0].static.macs


def test_notes_say_the_time_the_share_and_in_which_kernel_a_node_runs() -> None:
    profile = measured_classifier()
    notes = node_notes(profile)
    rows = [row for row in profile.cases[0].layers if row.static is not None]
    assert set(notes) == {row.static.id for row in rows if row.static is not None}
    shown = [own["modelperf.share"] for own in notes.values() if "modelperf.share" in own]
    shares = [float(share.removesuffix(" %")) for share in shown]
    assert 0 < sum(shares) <= 100
    for row in rows:
        assert row.static is not None
        own = notes[row.static.id]
        assert ("modelperf.ms" in own) == (row.time is not None)
        assert ("modelperf.runs_in" in own) == (row.runs_in is not None)


def test_a_function_has_no_nodes() -> None:
    with pytest.raises(UsageError, match="has no nodes"):
        dump_node_data(measured_function())
