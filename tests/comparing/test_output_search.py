"""Two models that differ in one attribute, run for real: where their outputs begin to differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.command import run
from tests.support.small_models import ones, parse

QUICK = ("--max-seconds", "0.2")
TEXT = """
g (float[2,16] x) => (float[2,16] y) {
    [first] a = MatMul(x, w)
    [bent] b = Elu <alpha = %s> (a)
    [parallel] c = Sigmoid(x)
    [joined] d = Add(b, c)
    [last] y = Tanh(d)
}
"""


def save(path: Path, alpha: str) -> str:
    model = parse(TEXT % alpha, weights={"w": -0.1 * ones(16, 16)})
    path.write_bytes(model.SerializeToString())
    return str(path)


def test_the_layer_whose_attribute_changed_is_named(tmp_path: Path) -> None:
    models = save(tmp_path / "old.onnx", "1.0"), save(tmp_path / "new.onnx", "0.5")
    report, document = tmp_path / "report.md", tmp_path / "result.json"
    files = ("--json", str(document), "--markdown", str(report))
    result = run("compare", *models, *QUICK, "--tolerance", "outputs=0.001", *files)
    assert result.exit_code == 1
    (case,) = json.loads(document.read_text())["cases"]
    found: dict[str, Any] = case["first_difference"]
    assert (found["output"], found["tensor"]["layer"], found["fused"]) == ("y", "bent", False)
    assert found["tensor"]["share"] > 0.1
    assert [each["name"] for each in found["inputs"]] == ["a"]
    assert found["inputs"][0]["share"] == 0
    for text in (result.out, report.read_text()):
        assert "differs first at bent" in " ".join(text.split())


def test_other_weights_are_not_searched_unless_a_limit_judges_outputs(tmp_path: Path) -> None:
    models = save(tmp_path / "old.onnx", "1.0"), save(tmp_path / "new.onnx", "0.5")
    (case,) = json.loads(run("compare", *models, *QUICK, "--json", "-").out)["cases"]
    assert case["outputs"][0]["max_absolute"] > 0
    assert case["first_difference"] is None
