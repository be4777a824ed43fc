"""Weights that are read, copied or drawn do not stay in memory, however large they are together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper, numpy_helper

import pytest_modelperf
from tests.graph.twin_models import trained

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux knows the peak of one program"
)

# Linux counts the highest resident memory of a program in its status file.
PEAK = """
import sys
from pathlib import Path
from pytest_modelperf.graph.copies import write_shaped_model
from pytest_modelperf.graph.load import load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.replaced import rebuild
from pytest_modelperf.graph.twin import make_twin, read_twin, twin_bytes, write_twin_bytes

def peak_kb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

start = peak_kb()
"""
OPENING = """
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
REBUILDING = """
write_twin_bytes(twin_bytes(make_twin(open_model(sys.argv[1]))), Path(sys.argv[2]))
made = peak_kb()
rebuild(read_twin(Path(sys.argv[2])), Path(sys.argv[3]))
print(made - start, peak_kb() - made)
"""


def wide(count: int, weight: npt.NDArray[np.float32]) -> onnx.ModelProto:
    """Products one after the other, each with weights of its own."""
    side = len(weight)
    names = ["x", *(f"h{index}" for index in range(count))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(count)],
        "wide",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, side])],
        [helper.make_tensor_value_info(names[-1], onnx.TensorProto.FLOAT, [1, side])],
        [numpy_helper.from_array(weight, f"w{i}") for i in range(count)],
    )
    return helper.make_model(graph)


def require_growth_below(kilobytes: float, program: str, *paths: Path) -> None:
    """Fail if a step of the program makes its peak grow by more."""
    output = subprocess.run(
        [sys.executable, "-c", PEAK + program, *map(str, paths)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(pytest_modelperf.__file__).parents[1],
    ).stdout
    assert all(int(grown) < kilobytes for grown in output.split()), output


def test_opening_reading_and_writing_a_model_takes_the_memory_of_a_few(tmp_path: Path) -> None:
    """With the weights, the code that each step is the first to run takes memory."""
    path, copy, external = (tmp_path / f"{name}.onnx" for name in ("wide", "copy", "external"))
    model = wide(64, np.ones((512, 512), np.float32))
    onnx.save(model, path)
    onnx.save(model, external, save_as_external_data=True, location="weights")
    require_growth_below(64 * 512 * 512 * 4 / 1024 / 2, OPENING, path, copy, external)
    assert copy.stat().st_size >= path.stat().st_size


@pytest.mark.slow
def test_making_and_rebuilding_take_the_memory_of_pieces_not_of_weights(tmp_path: Path) -> None:
    """Each of the three weights is larger than what is allowed."""
    source, rebuilt = tmp_path / "model.onnx", tmp_path / "r"
    weights_kb = 3 * 4096 * 4096 * 4 / 1024
    onnx.save(wide(3, np.resize(trained(997, 101), (4096, 4096))), source)
    require_growth_below(weights_kb / 4, REBUILDING, source, tmp_path / "t", rebuilt)
    assert rebuilt.stat().st_size > weights_kb * 1000
