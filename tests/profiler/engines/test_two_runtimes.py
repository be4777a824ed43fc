"""Two versions of ONNX Runtime, each in a virtual environment, held against each other for real."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.support.command import run
from tests.support.small_models import ones, parse

# The newest that all supported Pythons can install, and that is surely not the one in use.
OTHER = "1.20.1"
# The versions differ by what they differ, in time and in memory.
TOLERANCES = "p50=900 %,p95=900 %,load=900 %,first=900 %,memory=900 %"


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has another ONNX Runtime, and nothing of ours."""
    place = tmp_path_factory.mktemp("other") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    wanted = ["--no-deps", "--disable-pip-version-check", f"onnxruntime=={OTHER}"]
    done = subprocess.run([*install, *wanted], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"onnxruntime {OTHER} cannot be installed: {done.stderr.strip()[-300:]}")
    # Of all that the runtime names, a run needs numpy alone, which is here.
    (packages,) = place.glob("lib/python*/site-packages")
    for folder in Path(np.__file__).parents[1].glob("numpy*"):
        (packages / folder.name).symlink_to(folder)
    return python


@pytest.mark.skipif(onnxruntime.__version__ == OTHER, reason="both would be the same version")
def test_an_upgrade_of_the_runtime_is_judged_as_a_duet(
    other_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "g (float[8,256] x) => (float[8,256] y) { h = MatMul(x, w)  y = Relu(h) }"
    model = parse(text, weights={"w": ones(256, 256)})
    Path("m.onnx").write_bytes(model.SerializeToString())
    pythons = ("--python-a", str(other_python))
    result = run(
        "compare", "m.onnx", "m.onnx", *pythons, "--max-seconds", "4", "--tolerance", TOLERANCES,
        "--json", "-",
    )  # fmt: skip
    assert (result.exit_code, result.err) == (0, "")
    document = json.loads(result.out)
    assert document["engines"] == [
        f"onnxruntime {OTHER}",
        f"onnxruntime {onnxruntime.__version__}",
    ]
    (case,) = document["cases"]
    assert case["failure"] is None
    assert case["rounds"] >= 1
    median = case["metrics"][0]
    assert median["name"] == "latency_p50"
    assert median["ratio"] > 0
    (output,) = case["outputs"]
    assert output["cosine"] == pytest.approx(1.0, abs=1e-5)
    assert any("another engine" in reason for reason in case["reasons"])
