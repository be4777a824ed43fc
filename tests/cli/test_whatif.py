"""`modelperf whatif` on real engines: what is made runs, and its layers are those of the model."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.command import run
from tests.support.runtimes import NO_CONV_INTEGER, unless_1_23
from tests.support.small_models import parse

pytestmark = pytest.mark.slow

NET = """
    g (float[N,4,16,16] x) => (float[N,10] y) {
        [stem] c = Conv<pads=[1,1,1,1]>(x, stem_weight)
        [stem_relu] r = Relu(c)
        [body] d = Conv<pads=[1,1,1,1]>(r, body_weight)
        [body_relu] s = Relu(d)
        [pool] p = GlobalAveragePool(s)
        [flat] f = Flatten(p)
        [head] y = MatMul(f, head_weight)
    }
"""
LAYERS = {"c", "r", "d", "s", "p", "f", "y"}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> str:
    random = np.random.default_rng(0)
    weights = {
        "stem_weight": random.standard_normal((32, 4, 3, 3)).astype(np.float32) / 6,
        "body_weight": random.standard_normal((32, 32, 3, 3)).astype(np.float32) / 17,
        "head_weight": random.standard_normal((32, 10)).astype(np.float32) / 6,
    }
    path = tmp_path_factory.mktemp("models") / "net.onnx"
    path.write_bytes(parse(NET, opset=17, weights=weights).SerializeToString())
    return str(path)


def ask(net: str, *options: str) -> tuple[int, dict[str, dict[str, Any]], dict[str, Any]]:
    """The exit code, the levels by their ids, and the whole document."""
    done = run("whatif", net, "--max-seconds", "0.3", "--json", "-", *options)
    document = json.loads(done.out)
    (case,) = document["cases"]
    return done.exit_code, {level["id"]: level for level in case["levels"]}, document


@unless_1_23(NO_CONV_INTEGER)
def test_every_variant_runs_on_the_default_engine(
    net: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, levels, document = ask(
        net, "--prune", "0.5", "--estimate", "0.25", "--prune-channels", "0.5",
        "--quantize", "int8",
    )  # fmt: skip
    assert code == 0
    assert list(levels) == [
        "baseline", "pruned-0.25-estimate", "pruned-0.5", "channels-0.5", "int8-dynamic",
        "int8-static",
    ]  # fmt: skip
    assert document["engine"]["name"] == "onnxruntime"
    assert all(level["failure"] is None and level["ms"] > 0 for level in levels.values())
    first, pruned, narrow = (levels[name] for name in ("baseline", "pruned-0.5", "channels-0.5"))
    # 16x16 places, each 9 products for every input and output channel; then 32 for each class.
    assert first["macs"] == 256 * 9 * (4 * 32 + 32 * 32) + 32 * 10
    assert narrow["macs"] == 256 * 9 * (4 * 16 + 16 * 16) + 16 * 10
    assert (first["zeros"], pruned["zeros"]) == (0.0, 0.5)
    assert pruned["params"] == first["params"] == 32 * 36 + 32 * 288 + 320
    for level in levels.values():
        if not level["id"].startswith("int8"):
            assert set(level["layers"]) <= LAYERS
        assert sum(level["layer_types"].values()) == pytest.approx(level["ms"], rel=1e-3)
    # The products of integers count for the layer that they represent.
    integers = set(levels["int8-dynamic"]["layers"])
    assert {"c", "d"} <= integers
    # Layers of the variant alone are listed by themselves.
    assert "x_quantized" in integers - LAYERS
    assert "ConvInteger" in levels["int8-dynamic"]["layer_types"]
    for name in ("int8-dynamic", "int8-static"):
        (output,) = levels[name]["outputs"]
        assert output["name"] == "y"
        assert 0.9 < output["cosine"] < 1.0
    assert pruned["outputs"] == narrow["outputs"] == []
    assert not list(tmp_path.glob("modelperf-*"))


def test_a_precision_that_an_engine_does_not_know_fails_alone(net: str) -> None:
    code, levels, _ = ask(net, "--prune", "0.5", "--precision", "bf16")
    assert code == 3
    assert levels["pruned-0.5"]["failure"] is None
    assert "onnxruntime" in levels["bf16"]["failure"]


def test_openvino_runs_variants_too(net: str) -> None:
    pytest.importorskip("openvino")
    # Without it the baseline computes in what the processor is best at: bfloat16 on many.
    exact = ("--engine-option", "INFERENCE_PRECISION_HINT=f32")
    options = (*exact, "--prune", "0.5", "--precision", "f32")
    code, levels, document = ask(net, "--engine", "openvino", *options)
    assert document["engine"]["name"] == "openvino"
    assert {name: level["failure"] for name, level in levels.items()} == dict.fromkeys(levels)
    assert code == 0
    assert all(level["layers"] and set(level["layers"]) <= LAYERS for level in levels.values())
    (output,) = levels["f32"]["outputs"]
    assert output["cosine"] == pytest.approx(1.0, abs=1e-6)
