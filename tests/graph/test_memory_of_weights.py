"""Weights that are read or copied do not stay in memory, however large they are together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import pytest_modelperf

COUNT, SIDE = 64, 512
WEIGHTS_KB = COUNT * SIDE * SIDE * 4 // 1024

# Linux counts the highest resident memory of a program in its status file.
PROGRAM = """
import sys
from pathlib import Path
from pytest_modelperf.graph.load import load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.copies import write_shaped_model

def peak_kb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

start = peak_kb()
bound = load_model(open_model(sys.argv[1]))
before = peak_kb()
for name in bound.graph.weights:
    assert bound.read_weight(name).any()
read = peak_kb()
write_shaped_model(bound, Path(sys.argv[2]))
bound.file.sha256()
written = peak_kb()
open_model(sys.argv[3]).sha256()
print(before - start, read - before, written - read, peak_kb() - written)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of one program")
def test_opening_reading_and_writing_a_model_takes_the_memory_of_a_few(tmp_path: Path) -> None:
    path, copy = tmp_path / "wide.onnx", tmp_path / "copy.onnx"
    weight = np.ones((SIDE, SIDE), np.float32)
    names = ["x", *(f"h{index}" for index in range(COUNT))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(COUNT)],
        "wide",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, SIDE])],
        [helper.make_tensor_value_info(names[-1], onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, f"w{i}") for i in range(COUNT)],
    )
    model = helper.make_model(graph)
    onnx.save(model, path)
    beside = tmp_path / "beside.onnx"
    onnx.save(model, beside, save_as_external_data=True, location="weights")
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), str(copy), str(beside)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(pytest_modelperf.__file__).parents[1],
    ).stdout
    # Beside a few weights, the code that each step is the first to run.
    assert all(int(grown) < WEIGHTS_KB / 2 for grown in output.split()), output
    assert copy.stat().st_size >= path.stat().st_size
