"""What the harness adds to the time of an inference, against a bare loop on the same session.

Blocks of both take turns in random order in one process, so that the machine is the same for
both. The harness is the very function that a worker times its blocks with. Expected: its median
is at most 1 % or 0.3 µs above that of the bare loop, for a model of 10 µs as for one of 50 ms.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from bare_sessions import start_session
from draft import Draft
from expected import CONFIDENCE, Expectation, at_most
from known_counts import light_model
from measuring import Program
from results import Result, Rows
from shown import format_ns, table

from pytest_modelperf.profiler.engines import onnxruntime as engine
from pytest_modelperf.profiler.worker.timing import time_one
from pytest_modelperf.stats.estimates import ratio_of_rounds

MAX_RATIO = 1.01
MAX_DIFFERENCE_NS = 300
# Blocks of so long, so that drift is slower than they take turns.
BLOCK_NS = 20_000_000


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


def measure(options: argparse.Namespace) -> Rows:
    draft = Draft()
    # Its inference is little more than the call.
    small = draft.model(draft.add("MatMul", "x", "x"), [64, 64]).SerializeToString()
    models = {"a product of 64x64": small}
    models |= {name: light_model(name).read_bytes() for name in ("squeezenet", "densenet121")}
    return {"models": [compare(name, model, options.seconds) for name, model in models.items()]}


def tables(result: Result) -> dict[str, str]:
    columns = {
        "model": lambda each: each.name,
        "bare loop": lambda each: format_ns(each.median_ns),
        "harness / bare": lambda each: f"{each.ratio:.4f}",
        "95 % interval": lambda each: f"{each.low:.4f} to {each.high:.4f}",
        "added": lambda each: format_ns(each.added_ns, "+"),
    }
    return {"overhead": table(result.read("models", Found), columns)}


def expectations(result: Result) -> tuple[Expectation, ...]:
    return tuple(
        Expectation(
            f"added to {each.name}",
            f"at most {100 * (MAX_RATIO - 1):.0f} % or {MAX_DIFFERENCE_NS} ns",
            f"{100 * (each.ratio - 1):+.2f} % ({100 * (each.low - 1):+.2f} to "
            f"{100 * (each.high - 1):+.2f}), {format_ns(each.added_ns, '+')}",
            each.is_within,
        )
        for each in result.read("models", Found)
    )


def compare(name: str, model: bytes, seconds: float) -> Found:
    session = start_session(model)
    put = session.get_inputs()[0]
    feed = {put.name: np.ones([int(dim) for dim in put.shape], np.float32)}
    # The engine's own way to call a session: what a worker times.
    wrapped = engine._Session(session)  # noqa: SLF001  # the very code that is measured
    infer = wrapped.prepare(feed, {put.name: "float32"})
    for _ in range(10):
        infer()
    start = time.perf_counter_ns()
    infer()
    count = max(1, BLOCK_NS // (time.perf_counter_ns() - start))

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
    program = Program("overhead", __doc__, tables, expectations)
    program.number("--seconds", 4.0, "for each model")
    sys.exit(program.run(measure))
