"""What the harness adds to the time of an inference, against a bare loop on the same session.

    python benchmarks/overhead.py [--seconds 4]

Blocks of both take turns in random order in one process, so that the machine is the same for
both. The harness is the very function that a worker times its blocks with. Expected: its median
is at most 1 % or 0.3 µs above that of the bare loop, for a model of 10 µs as for one of 50 ms.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import results
from onnx import TensorProto, helper
from results import Expectation, Result, Start, at_most, conclude, format_ns, markdown

from pytest_modelperf.profiler.engines import onnxruntime as engine
from pytest_modelperf.profiler.worker.timing import time_one
from pytest_modelperf.stats.estimates import ratio_of_rounds

MAX_RATIO = 1.01
MAX_DIFFERENCE_NS = 300
CONFIDENCE = 0.95
# Blocks of so long, so that drift is slower than they take turns.
BLOCK_NS = 20_000_000
MIN_BLOCK = 1


@dataclass(frozen=True, slots=True)
class Found:
    """One model: the median of a bare inference, and what the harness adds to it."""

    name: str
    median_ns: float
    ratio: float
    low: float
    high: float
    blocks: int

    @property
    def added_ns(self) -> float:
        return self.median_ns * (self.ratio - 1.0)

    @property
    def is_within(self) -> bool | None:
        most = max(MAX_RATIO, 1.0 + MAX_DIFFERENCE_NS / self.median_ns)
        return at_most(most, self.low, self.high)


def main() -> int:
    parser = results.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each model")
    arguments = parser.parse_args()
    start = Start.now("overhead")
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    found = [
        compare("a product of 64x64", small_model(), arguments.seconds),
        compare("squeezenet", (light / "light_squeezenet.onnx").read_bytes(), arguments.seconds),
        compare("densenet121", (light / "light_densenet121.onnx").read_bytes(), arguments.seconds),
    ]
    result = start.finish({"models": [asdict(each) for each in found]})
    return conclude(result, tables, expectations, arguments.json)


def found_in(result: Result) -> list[Found]:
    return [Found(**row) for row in result.rows["models"]]


def tables(result: Result) -> dict[str, str]:
    rows = [
        (
            each.name,
            format_ns(each.median_ns),
            f"{each.ratio:.4f}",
            f"{each.low:.4f} to {each.high:.4f}",
            format_ns(each.added_ns, "+"),
        )
        for each in found_in(result)
    ]
    header = (
        "model", "bare loop", "harness / bare", f"{100 * CONFIDENCE:g} % interval", "added",
    )  # fmt: skip
    return {"overhead": markdown(header, rows)}


def expectations(result: Result) -> tuple[Expectation, ...]:
    return tuple(
        Expectation(
            f"added to {each.name}",
            f"at most {100 * (MAX_RATIO - 1):.0f} % or {MAX_DIFFERENCE_NS} ns",
            f"{100 * (each.ratio - 1):+.2f} % ({100 * (each.low - 1):+.2f} to "
            f"{100 * (each.high - 1):+.2f}), {format_ns(each.added_ns, '+')}",
            each.is_within,
        )
        for each in found_in(result)
    )


def small_model() -> bytes:
    """A model whose inference is little more than the call."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "x"], ["y"])], "small", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, ir_version=8, opset_imports=opsets)
    return model.SerializeToString()


def compare(name: str, model: bytes, seconds: float) -> Found:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    put = session.get_inputs()[0]
    feed = {put.name: np.ones([int(dim) for dim in put.shape], np.float32)}
    # The engine's own way to call a session: what a worker times.
    wrapped = engine._Session(session)  # noqa: SLF001  # the very code that is measured
    infer = wrapped.prepare(feed, {put.name: "float32"})
    for _ in range(10):
        infer()
    start = time.perf_counter_ns()
    infer()
    count = max(MIN_BLOCK, BLOCK_NS // (time.perf_counter_ns() - start))

    sides: list[Callable[[], list[int]]] = [
        lambda: bare_loop(session, feed, count),
        lambda: time_one(infer, count, sys.maxsize // 2, time.perf_counter_ns).tolist(),
    ]
    choose = random.Random(0)
    blocks: list[tuple[list[int], list[int]]] = []
    end = time.monotonic() + seconds
    gc.disable()
    while time.monotonic() < end or len(blocks) < 6:
        order = [0, 1]
        choose.shuffle(order)
        pair: list[list[int]] = [[], []]
        for side in order:
            pair[side] = sides[side]()
        # Sorted, for the n-th of one block has nothing to do with the n-th of the other.
        blocks.append((sorted(pair[0]), sorted(pair[1])))
    gc.enable()
    bare = np.concatenate([np.asarray(before) for before, _ in blocks])
    before, after = ([float(np.median(pair[side])) for pair in blocks] for side in (0, 1))
    ratio = ratio_of_rounds(before, after, CONFIDENCE)
    if ratio.low is None or ratio.high is None:
        raise ValueError("too few blocks for an interval")
    return Found(name, float(np.median(bare)), ratio.value, ratio.low, ratio.high, len(blocks))


def bare_loop(session: Any, feed: dict[str, Any], count: int) -> list[int]:  # noqa: ANN401  # it has no types
    """What anyone would write."""
    clock = time.perf_counter_ns
    times = []
    for _ in range(count):
        start = clock()
        session.run(None, feed)
        times.append(clock() - start)
    return times


if __name__ == "__main__":
    sys.exit(main())
