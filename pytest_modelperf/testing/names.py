"""The names of markers and options, and the tests on the command line.

The plugin imports this module in every pytest run, so it defines almost nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

FLAG = "modelperf"
SWITCHED_OFF = "needs --modelperf"

CASE = "perf_case"
BUDGET = "perf_budget"
FIXTURE = "modelperf"
# The argument that parametrizes a test by its cases.
CASE_ARGUMENT = "_modelperf_case"
SUFFIX = ".onnx"
# The suffixes of model files. The second is ONNX Runtime's own format.
SUFFIXES = (SUFFIX, ".ort")
# The name of the test that stands for all cases of a model.
ALL_CASES = "cases"
# As `pytest --markers` shows them.
MARKERS = (
    (
        f"{CASE}(model, batch_size=1, cores=1, dims={{}}, ...): run the test once for each case of "
        "an ONNX model, and compare it with its baseline"
    ),
    (
        f"{BUDGET}(latency_ms=..., p99_ms=..., max_ms=..., macs=..., kernels=..., ...): what the "
        "cases of the test may cost"
    ),
)


def named_tests(config: pytest.Config) -> Iterator[tuple[Path, str]]:
    """Yield the files and folders on the command line, each with the text after its `::`."""
    folder = config.invocation_params.dir
    for arg in config.args:
        path, name = split_argument(arg, folder)
        yield Path(os.path.normpath(folder / path)), name


def split_argument(arg: str, folder: Path) -> tuple[str, str]:
    """Split an argument at its `::`, which may also occur in the path of a model."""
    end = arg.rfind(SUFFIX) + len(SUFFIX)
    while end >= len(SUFFIX):
        if arg[end : end + 2] in {"", "::"} and (folder / arg[:end]).is_file():
            return arg[:end], arg[end + 2 :]
        end = arg.rfind(SUFFIX, 0, end - len(SUFFIX)) + len(SUFFIX)
    path, _, name = arg.partition("::")
    return path, name


def has_markers(node: pytest.Item) -> bool:
    """Whether markers make it a test of a model. Markers of a module do not apply to doctests."""
    is_function = isinstance(node, pytest.Function)
    return is_function and any(node.get_closest_marker(name) for name in (CASE, BUDGET))
