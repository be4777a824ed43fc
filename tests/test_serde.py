"""Records as JSON: valid, the same each time, null for what is unknown, and safe to print."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inline_snapshot import snapshot

from pytest_modelperf.compare import compare_profiles
from pytest_modelperf.records import CaseProfile, MachineFacts, Profile
from pytest_modelperf.serde import (
    comparison_to_json,
    dump_comparison,
    dump_profile,
    profile_to_json,
)
from pytest_modelperf.session import ProfileRequest, on_this_machine, profile_model
from tests.light_models import light_model
from tests.small_models import ones, parse

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
    # What differs from machine to machine, and with the version of protobuf.
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
    assert dump_profile(linear) == snapshot("""\
{
  "schema": 1,
  "model": {
    "name": "m.onnx",
    "path": "m.onnx",
    "sha256": "abababababababababababababababababababababababababababababababab",
    "bytes": 300,
    "opsets": {
      "ai.onnx": 21
    },
    "producer": ""
  },
  "machine": {
    "key": "linux-x86_64-unknown-2c",
    "cpu": null,
    "microarchitecture": null,
    "instruction_sets": null,
    "physical_cores": null,
    "logical_cores": null,
    "usable_cores": 2,
    "quota_cores": null,
    "caches": {},
    "memory_bytes": null,
    "memory_limit_bytes": null,
    "governor": null,
    "turbo": null,
    "virtualization": null,
    "system": "Linux",
    "kernel": null,
    "distribution": null,
    "architecture": "x86_64",
    "python": null,
    "packages": {
      "onnx": "1.23.2"
    }
  },
  "cases": [
    {
      "id": "b1-c1",
      "batch_size": 1,
      "cores": 1,
      "dims": {},
      "engine": {
        "name": null,
        "version": null,
        "options": null
      },
      "static": {
        "macs": 8,
        "elementwise_ops": 0,
        "flops": 16,
        "backward_macs": 8,
        "effective_macs": null,
        "params": 8,
        "weight_bytes": 32,
        "activation_bytes": 8,
        "peak_activation_bytes": 8,
        "uncounted_ops": {},
        "coverage": 1.0,
        "notes": []
      },
      "latency": {
        "p50_ms": null,
        "p90_ms": null,
        "p95_ms": null,
        "p97_ms": null,
        "p99_ms": null,
        "p99.9_ms": null,
        "min_ms": null,
        "max_ms": null,
        "mean_ms": null,
        "samples": null,
        "rounds": null,
        "items_per_second": null
      },
      "load_ms": null,
      "first_inference_ms": null,
      "peak_rss_bytes": null,
      "layer_types": [
        {
          "op_type": "MatMul",
          "domain": "",
          "count": 1,
          "ms": null,
          "share": null,
          "macs": 8,
          "elementwise_ops": 0,
          "backward_macs": 8,
          "params": 8,
          "weight_bytes": 32,
          "output_bytes": 8
        }
      ],
      "layers": [
        {
          "id": "y",
          "name": "linear",
          "op_type": "MatMul",
          "domain": "",
          "weight": "w",
          "provider": null,
          "precision": "float32",
          "ms": null,
          "macs": 8,
          "elementwise_ops": 0,
          "backward_macs": 8,
          "effective_macs": null,
          "params": 8,
          "weight_bytes": 32,
          "output_bytes": 8,
          "input_shape": [
            1,
            4
          ],
          "output_shape": [
            1,
            2
          ],
          "repeats": 1,
          "sparsity": null,
          "fused": []
        }
      ]
    }
  ]
}
""")


def test_a_comparison_as_json(linear: Profile) -> None:
    document = json.loads(dump_comparison(compare_profiles(linear, linear)))
    (case,) = document["cases"]
    # Both sides of a layer type are written as in a profile.
    (kind,) = case.pop("layer_types")
    assert kind.keys() == {"op_type", "domain", "before", "after"}
    assert kind["before"] == kind["after"] == loaded(linear)["cases"][0]["layer_types"][0]
    assert document.pop("before") == document.pop("after") == loaded(linear)["model"]
    case["metrics"] = case["metrics"][:1]
    assert document == snapshot(
        {
            "schema": 1,
            "verdict": "passed",
            "seconds": None,
            "rounds": None,
            "confidence": None,
            "tolerance": None,
            "cases": [
                {
                    "id": "b1-c1",
                    "verdict": "passed",
                    "metrics": [
                        {
                            "name": "macs",
                            "before": 8,
                            "after": 8,
                            "ratio": 1.0,
                            "interval": None,
                            "detectable": None,
                            "gated": True,
                            "verdict": "passed",
                        }
                    ],
                    "layers": [],
                    "reasons": [],
                }
            ],
        }
    )


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


def test_what_is_not_known_is_null_and_not_zero(profile: Profile) -> None:
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
    """NaN is no JSON; a weight of NaN must not make one."""
    weights = {"w": np.full((4, 2), np.nan, np.float32)}
    model = parse(MODEL, weights=weights)
    text = dump_profile(profile_model(model, ProfileRequest(sparsity=True)))
    assert "NaN" not in text
    assert json.loads(text)["cases"][0]["layers"][0]["sparsity"]["ratio"] == 0.0


def _keys(value: object) -> set[str]:
    """Every key of a JSON value, but not those of mappings that are data themselves."""
    if isinstance(value, dict):
        own = {key for key in value if isinstance(key, str)}
        named = {"opsets", "packages", "caches", "dims", "uncounted_ops"}
        inner = (_keys(child) for key, child in value.items() if key not in named)
        return own.union(*inner)
    return set[str]().union(*map(_keys, value)) if isinstance(value, list) else set()


def test_the_page_on_json_names_every_key() -> None:
    page = (Path(__file__).parent.parent / "docs" / "json.md").read_text(encoding="utf-8")
    profile = on_this_machine(profile_model(light_model("zfnet512"), ProfileRequest(sparsity=True)))
    comparison = comparison_to_json(compare_profiles(profile, profile))
    keys = _keys(profile_to_json(profile)) | _keys(comparison)
    assert len(keys) > 80
    assert {key for key in keys if f"`{key}`" not in page} == set()
