"""The graph as files: a picture, the figures of nodes, a model that carries them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest

from tests.support.command import refusal, run
from tests.support.small_models import parse

# A convolution runs in the blocked layout, so kernels that only move data surround it.
MODEL = """
    g (float[1,8,16,16] x) => (float[1,8,16,16] y) {
        [first] h = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w)
        [relu] r = Relu(h)
        [second] y = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r, w)
    }
"""
CHANGED = MODEL.replace(
    "[relu] r = Relu(h)", "[sine] s = Sin(h) [cosine] t = Cos(s) [relu] r = Relu(t)"
)
QUICK = ("--cores", "1", "--max-seconds", "1")
# Time enough for two rounds wherever the machine stalls.
UNHURRIED = ("--cores", "1", "--max-seconds", "60")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("models")
    weights = {"w": np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)}
    for name, text in (("old", MODEL), ("new", CHANGED)):
        (path / f"{name}.onnx").write_bytes(parse(text, weights=weights).SerializeToString())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        yield path


def texts(path: str) -> list[str]:
    root = ET.fromstring(Path(path).read_text("utf-8"))  # noqa: S314  # our own
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.slow
def test_a_profile_writes_its_kernels_with_those_that_only_move_data() -> None:
    files = ("--svg", "g.svg", "--node-data", "n.json", "--annotated", "a.onnx")
    result = run("profile", "old.onnx", *QUICK, *files)
    assert (result.exit_code, result.err) == (0, "")
    shown = set(texts("g.svg"))
    assert {"first", "second"} <= shown
    # Which of them there are depends on the width of the processor's vectors.
    assert shown & {"ReorderInput", "ReorderOutput"}
    values = json.loads(Path("n.json").read_text("utf-8"))["results"]
    assert set(values) == {"first", "second"}
    notes = [{e.key: e.value for e in n.metadata_props} for n in onnx.load("a.onnx").graph.node]
    assert notes[1]["modelperf.runs_in"] == "first"
    assert float(notes[2]["modelperf.ms"]) == values["second"]["value"]


@pytest.mark.slow
def test_a_comparison_marks_the_kernels_that_are_new() -> None:
    files = ("--svg", "c.svg", "--csv", "figures.csv", "--layers-csv", "layers.csv")
    result = run("compare", "old.onnx", "new.onnx", *UNHURRIED, *files)
    assert result.exit_code in {0, 1}
    rows = csv.DictReader(Path("layers.csv").read_text("utf-8").splitlines())
    layers = {row["name"]: row for row in rows}
    assert (layers["sine"]["id_before"], layers["sine"]["id_now"]) == ("", "s")
    assert layers["first"]["before_macs"] == layers["first"]["now_macs"] == "147456"
    assert float(layers["second"]["before_ms"]) > 0
    assert Path("figures.csv").read_text("utf-8").startswith("case,batch_size,")
    shown = texts("c.svg")
    assert {"sine", "cosine"} <= set(shown)
    assert shown[0] == "old.onnx → new.onnx"
    assert 'class="box worse' in Path("c.svg").read_text("utf-8")


def test_the_layers_of_a_comparison_go_to_a_csv_of_their_own() -> None:
    result = run("compare", "old.onnx", "new.onnx", "--static", "--layers-csv", "-")
    head, *_ = result.out.splitlines()
    assert head.startswith("case,id_before,id_now,name,op_type,before_ms,now_ms,change_ms")


def test_a_sentence_says_what_was_not_timed() -> None:
    result = run("compare", "old.onnx", "old.onnx", "--static", "--svg", "-")
    assert result.exit_code == 0
    assert "The kernels of this case were not timed." in result.out


def test_without_a_run_the_picture_is_that_of_the_layers() -> None:
    result = run("profile", "old.onnx", "--static", "--svg", "s.svg", "--node-data", "-")
    assert result.exit_code == 0
    assert json.loads(result.out)["name"] == "modelperf b1-c1: MACs"
    assert {"first", "relu", "second"} <= set(texts("s.svg"))


def test_the_model_itself_is_not_overwritten() -> None:
    assert "would overwrite old.onnx" in refusal(
        "profile", "old.onnx", "--static", "--annotated", "old.onnx"
    )
