"""What recording adds to an inference, beside what ONNX Runtime's own profiling adds.

Three sides take turns in random order, each with a fresh session: no profiling, the runtime's own,
and a recording by `pytest_modelperf.profile`, which has the runtime profile as well. What is timed
is the call of `session.run`, as the program sees it; writing the trace is timed apart from it.
"""

from __future__ import annotations

import gc
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from results import at_most

from pytest_modelperf import trace
from pytest_modelperf.stats.estimates import ratio_of_rounds

# What recording may take on top of the runtime's own profiling: so much of the inference, or no
# more than that profiling takes itself.
MAX_RATIO = 1.01
CONFIDENCE = 0.95
# Of a side and round.
BLOCK_NS = 60_000_000
WARMUP_RUNS = 5
MAX_RUNS = 2000
MIN_ROUNDS = 6

Timed = Callable[[Path, bytes, int], list[int]]


@dataclass(frozen=True, slots=True)
class Found:
    """One model: the median of a plain inference, and how many times as long it takes otherwise.

    `own` is the runtime's own profiling, `ours` a recording; `low` and `high` are of the latter.
    """

    name: str
    plain_ns: float
    own_over_plain: float
    ours_over_own: float
    low: float
    high: float
    finish_ns: float

    @property
    def own_adds_ns(self) -> float:
        return self.plain_ns * (self.own_over_plain - 1.0)

    @property
    def ours_adds_ns(self) -> float:
        return self.plain_ns * self.own_over_plain * (self.ours_over_own - 1.0)

    @property
    def is_within(self) -> bool | None:
        as_much_again = 1.0 + self.own_adds_ns / (self.plain_ns * self.own_over_plain)
        return at_most(max(MAX_RATIO, as_much_again), self.low, self.high)


def measure_overhead(seconds: float, seed: int) -> list[Found]:
    """What recording costs, of three models."""
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    models = {
        "a product of 64x64": _small_model(),
        "squeezenet": (light / "light_squeezenet.onnx").read_bytes(),
        "densenet121": (light / "light_densenet121.onnx").read_bytes(),
    }
    found = []
    for name, model in models.items():
        print(f"... {name}", file=sys.stderr)
        found.append(_compare(name, model, seconds, random.Random(seed)))
    return found


def _compare(name: str, model: bytes, seconds: float, choose: random.Random) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        once_ns = median(_run_plain(Path(folder), model, 10)[WARMUP_RUNS:])
        count = WARMUP_RUNS + max(5, min(MAX_RUNS, int(BLOCK_NS / once_ns)))
        finish_ns: list[float] = []

        def run_recorded(folder: Path, model: bytes, count: int) -> list[int]:
            with trace(file=folder / "trace.json", operator_limit=None):
                times_ns = _times(_open(model), count)
                end_ns = time.perf_counter_ns()
            finish_ns.append((time.perf_counter_ns() - end_ns) / count)
            return times_ns

        sides: list[Timed] = [_run_plain, _run_profiled, run_recorded]
        rounds: list[list[list[int]]] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(rounds) < MIN_ROUNDS:
            order = [0, 1, 2]
            choose.shuffle(order)
            made: list[list[int]] = [[], [], []]
            for side in order:
                made[side] = sides[side](Path(folder), model, count)[WARMUP_RUNS:]
            rounds.append(made)
    plain_ns, own_ns, ours_ns = ([median(made[side]) for made in rounds] for side in range(3))
    own = ratio_of_rounds(plain_ns, own_ns, CONFIDENCE)
    ours = ratio_of_rounds(own_ns, ours_ns, CONFIDENCE)
    if ours.low is None or ours.high is None:
        raise ValueError("too few rounds for an interval")
    return Found(
        name=name,
        plain_ns=median(plain_ns),
        own_over_plain=own.value,
        ours_over_own=ours.value,
        low=ours.low,
        high=ours.high,
        finish_ns=median(finish_ns),
    )


def _run_plain(folder: Path, model: bytes, count: int) -> list[int]:  # noqa: ARG001  # as the others
    return _times(_open(model), count)


def _run_profiled(folder: Path, model: bytes, count: int) -> list[int]:
    session = _open(model, str(folder / "own"))
    times_ns = _times(session, count)
    Path(session.end_profiling()).unlink()
    return times_ns


def _open(model: bytes, prefix: str | None = None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = prefix
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _times(session: Any, count: int) -> list[int]:  # noqa: ANN401  # it has no types
    put = session.get_inputs()[0]
    feed = {put.name: np.ones([int(dim) for dim in put.shape], np.float32)}
    clock = time.perf_counter_ns
    times_ns = []
    gc.disable()
    for _ in range(count):
        start_ns = clock()
        session.run(None, feed)
        times_ns.append(clock() - start_ns)
    gc.enable()
    return times_ns


def _small_model() -> bytes:
    """A model whose inference is little more than the call."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "x"], ["y"])], "small", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    model: bytes = helper.make_model(graph, ir_version=8, opset_imports=opsets).SerializeToString()
    return model
