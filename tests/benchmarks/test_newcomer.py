"""The benchmark types the commands that a newcomer sees, and checks which models fail and pass."""

from __future__ import annotations

import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from newcomer import (
    BLOCK,
    LAYER,
    SHIPPED,
    Checked,
    Shipped,
    Way,
    expectations,
    slower_model,
    tables,
    take_from_wheel,
    told_commands,
)
from onnx.reference import ReferenceEvaluator
from real_variants import double_layer
from results import Result

from pytest_modelperf.init.records import Project
from pytest_modelperf.init.report import next_report
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from tests.docs.test_evidence import outcomes, result_of
from tests.support.small_models import ones, parse

BRANCHES = """
g (bool c, float[2, 4] x) => (float[2, 3] y) {
    y = If (c) <
        then_branch = a () => (float[2, 3] p) { p = MatMul (x, w) },
        else_branch = b () => (float[2, 3] q) { h = Neg (x) q = MatMul (h, w) }
    >
}
"""
RED = Checked(LAYER, 1, "regressed", "duet", 1.2, 9.0)
GREEN = Checked("weights drawn anew", 0, "passed", "plan", None, 5.0)


def way(**changes: object) -> Way:
    whole: dict[str, object] = {
        "name": "a",
        "requirement": "a==1",
        "model": "a.onnx",
        "megabytes": 1.0,
        "commands": ("git init", "modelperf init --yes", "record", "add", "commit", "check"),
        "seconds": (0.1, 12.0, 20.0, 0.2, 9.0),
        "slower": RED,
        "retrained": GREEN,
    }
    return Way(**{**whole, **changes})  # type: ignore[arg-type]  # the fields above


def outputs_of(model: onnx.ModelProto, feeds: dict[str, Any]) -> Any:  # noqa: ANN401  # an array
    (found,) = ReferenceEvaluator(model).run(None, feeds)
    return found


def result(*ways: Way) -> Result:
    rows = [asdict(each) for each in ways]
    # JSON has lists in place of tuples.
    return result_of({"ways": [{**row, "seconds": list(row["seconds"])} for row in rows]})


@pytest.mark.parametrize("width", [60, 80, 10_000])
def test_the_shown_commands_are_read_as_a_shell_reads_them(tmp_path: Path, width: int) -> None:
    project = Project(root=tmp_path, reason="", repository=tmp_path)
    files = ["pyproject.toml", "a model with a name of some length.onnx", ".gitattributes"]
    report = next_report(project, files, "baselines", tmp_path)
    commands = told_commands(render_report(report, TextStyle(width)))
    assert commands == {
        "record": "pytest --modelperf --modelperf-update-baseline",
        "commit": "git add pyproject.toml 'a model with a name of some length.onnx' "
        '.gitattributes baselines && git commit -m "Test the performance of models"',
        "check": "pytest --modelperf",
    }


def test_a_layer_is_doubled_in_each_branch() -> None:
    model = parse(BRANCHES, weights={"w": np.eye(4, 3, dtype=np.float32)})
    doubled = double_layer(model)
    assert doubled is not None
    onnx.checker.check_model(doubled)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for c in (np.array(True), np.array(False)):  # noqa: FBT003  # a value of an input
        before, after = (outputs_of(each, {"c": c, "x": x}) for each in (model, doubled))
        assert np.allclose(after, 1.5 * before)
    assert sum(len(a.g.node) for n in model.graph.node for a in n.attribute) == 3


def test_the_layer_with_most_weights_is_doubled() -> None:
    model = parse(
        "g (float[2, 3] x) => (float[2, 5] y) { a = MatMul (x, v) b = MatMul (a, w) y = Relu (b) }",
        weights={"v": ones(3, 4), "w": ones(4, 5)},
    )
    doubled = double_layer(model)
    assert doubled is not None
    assert [node.op_type for node in doubled.graph.node] == [
        "MatMul", "MatMul", "MatMul", "Add", "Relu",
    ]  # fmt: skip
    x = np.ones((2, 3), np.float32)
    before, after = (outputs_of(each, {"x": x}) for each in (model, doubled))
    assert np.allclose(after, 1.5 * before)


def test_a_model_without_layers_is_not_doubled() -> None:
    assert double_layer(parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")) is None


def test_a_block_is_repeated_if_there_is_one(tmp_path: Path) -> None:
    """Ten products of one size: one of them has a tenth of the MACs."""
    nodes = " ".join(f"x{n + 1} = MatMul (x{n}, w{n})" for n in range(10))
    model = parse(
        f"g (float[N, 64] x0) => (float[N, 64] y) {{ {nodes} y = Identity (x10) }}",
        weights={f"w{n}": ones(64, 64) for n in range(10)},
    )
    path = tmp_path / "a.onnx"
    onnx.save(model, path)
    (tmp_path / "pyproject.toml").write_text('[tool.modelperf.models."a.onnx"]\n')
    variant = slower_model(path, tmp_path)
    assert variant is not None
    change, content = variant
    assert change == BLOCK
    kinds = [node.op_type for node in onnx.load_from_string(content).graph.node]
    assert kinds.count("MatMul") == 11


def test_a_model_is_taken_from_a_wheel_that_is_there(tmp_path: Path) -> None:
    place = tmp_path / "a==1"
    place.mkdir()
    with zipfile.ZipFile(place / "a-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("a/b.onnx", b"bytes")
    assert take_from_wheel(Shipped("a", "a==1", "a/b.onnx"), tmp_path) == b"bytes"


def test_each_model_has_a_name_of_its_own_and_eight_wheels_ship_them() -> None:
    assert len({each.name for each in SHIPPED}) == len(SHIPPED)
    assert len({each.requirement for each in SHIPPED}) >= 8


def test_a_row_is_read_as_it_was_stored() -> None:
    ways = [way(), way(slower=None, retrained=None)]
    assert result(*ways).read("ways", Way) == ways


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["met", "met", "met", "met"]),
        ({"commands": ("a",) * 7}, ["missed", "met", "met", "met"]),
        ({"seconds": (181.0,)}, ["met", "missed", "met", "met"]),
        ({"slower": GREEN}, ["met", "met", "missed", "met"]),
        ({"slower": None, "retrained": None}, ["met", "met", "missed", "missed"]),
        ({"retrained": RED}, ["met", "met", "met", "missed"]),
    ],
)
def test_the_expectations_of_a_way(changes: dict[str, object], expected: list[str]) -> None:
    assert outcomes(expectations(result(way(), way(**changes)))) == expected


def test_the_table_shows_each_way_and_the_commands() -> None:
    text = tables(result(way(), way(name="b", seconds=(0.1, 3.0), slower=None, retrained=None)))
    assert text["newcomer"] == (
        "| model | MB | init s | record s | check s | all s | slower | by | trained again |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |\n"
        "| `a` | 1.0 | 12.0 | 20.0 | 9.0 | 41 | regressed, p50 +20.0 % | the heaviest layer twice "
        "| passed |\n"
        "| `b` | 1.0 | 3.0 | - | - | 3 | - | - | - |\n\n"
        "```console\ngit init\nmodelperf init --yes\nrecord\nadd\ncommit\ncheck\n```"
    )
