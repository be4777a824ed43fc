"""Two versions of ONNX Runtime, each in a virtual environment, held against each other for real."""

from __future__ import annotations

import json
from pathlib import Path

import onnxruntime
import pytest

from tests.support.command import run
from tests.support.releases import RELEASES, release
from tests.support.small_models import ones, parse

pytestmark = pytest.mark.slow

# Surely not the one in use.
OTHER = RELEASES[1]
# The versions differ by what they differ, in time and in memory.
TOLERANCES = "p50=900 %,p95=900 %,load=900 %,first=900 %,memory=900 %"


@pytest.mark.skipif(onnxruntime.__version__ == OTHER, reason="both would be the same version")
def test_an_upgrade_of_the_runtime_is_judged_as_a_duet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "g (float[8,256] x) => (float[8,256] y) { h = MatMul(x, w)  y = Relu(h) }"
    model = parse(text, weights={"w": ones(256, 256)})
    Path("m.onnx").write_bytes(model.SerializeToString())
    pythons = ("--python-a", str(release(OTHER).python))
    result = run(
        "compare", "m.onnx", "m.onnx", *pythons, "--max-seconds", "4", "--tolerance", TOLERANCES,
        "--json", "-",
    )  # fmt: skip
    assert (result.exit_code, result.err) == (0, "")
    document = json.loads(result.out)
    assert document["engines"] == [f"onnxruntime {OTHER}", f"onnxruntime {onnxruntime.__version__}"]
    (case,) = document["cases"]
    assert case["failure"] is None
    assert case["rounds"] >= 1
    median = case["metrics"][0]
    assert median["name"] == "latency_p50"
    assert median["ratio"] > 0
    (output,) = case["outputs"]
    assert output["cosine"] == pytest.approx(1.0, abs=1e-5)
    assert any("another engine" in reason for reason in case["reasons"])
