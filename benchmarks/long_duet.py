"""How much slower a second model is than a first: a plain, long duet of whole models.

It is the truth that parts.py holds the tool against, so it shares no code with the tool. Each round
loads both models anew, in random order, and runs them in turns, in random order as well. The figure
of a round is the median of the logarithms of the ratios of its turns. The result is the mean of the
rounds without the highest and the lowest tenth, with its 99 % interval, as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from scipy import stats

CONFIDENCE = 0.99
# Rounds before the first interval. With fewer, an interval may be narrow by chance.
LEAST_ROUNDS = 10
# The share of rounds that is left out at each end.
TRIMMED = 0.1
# A round times turns for about so long, with at least and at most so many of them.
_ROUND_SECONDS = 0.5
_LEAST_TURNS, _MOST_TURNS = 3, 200
_WARM_UPS = 2

Feed = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The ratio of two times with its interval; `before_ms` is the median time of the first.

    `seconds` are those that the duet took.
    """

    ratio: float
    low: float
    high: float
    rounds: int
    before_ms: float
    seconds: float = 0.0

    @property
    def precision(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class Round:
    """The logarithm of the ratio of both times, and the time of the first model."""

    log_ratio: float
    before_ns: float


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--precision", type=float, default=0.003, help="half of the interval")
    parser.add_argument("--seconds", type=float, default=600.0, help="end after so long anyway")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.cores :])
    begun = time.monotonic()
    rounds: list[Round] = []
    is_over = False
    while not is_over:
        rounds.append(run_round((options.before, options.after), options.cores))
        is_over = time.monotonic() - begun > options.seconds and len(rounds) > 2
        if len(rounds) >= LEAST_ROUNDS:
            is_over |= slowdown_of(rounds).precision <= options.precision
    found = replace(slowdown_of(rounds), seconds=round(time.monotonic() - begun, 1))
    print(json.dumps(asdict(found)))
    return 0


def slowdown_of(rounds: Sequence[Round]) -> Slowdown:
    """The trimmed mean of the rounds and its interval."""
    logs = np.array([each.log_ratio for each in rounds])
    limits = (TRIMMED, TRIMMED)
    low, high = stats.mstats.trimmed_mean_ci(logs, limits=limits, alpha=1 - CONFIDENCE)
    middle = stats.mstats.trimmed_mean(logs, limits=limits)
    ratio, low, high = (round(math.exp(float(each)), 5) for each in (middle, low, high))
    before_ms = median(each.before_ns for each in rounds) / 1e6
    return Slowdown(ratio, low, high, len(rounds), round(before_ms, 3))


def run_round(models: Sequence[Path], cores: int) -> Round:
    """Loads both models and runs them in turns."""
    sessions: dict[int, ort.InferenceSession] = {}
    feeds: dict[int, Feed] = {}
    seconds = 0.0
    for side in random.sample((0, 1), 2):
        sessions[side] = _load(models[side], cores)
        feeds[side] = _draw_inputs(sessions[side])
        for _ in range(_WARM_UPS):
            took = _time_ns(sessions[side], feeds[side])
        seconds += took / 1e9
    turns = min(max(round(_ROUND_SECONDS / seconds), _LEAST_TURNS), _MOST_TURNS)
    logs, before_ns = [], []
    for _ in range(turns):
        times = {side: _time_ns(sessions[side], feeds[side]) for side in random.sample((0, 1), 2)}
        logs.append(math.log(times[1] / times[0]))
        before_ns.append(times[0])
    return Round(median(logs), median(before_ns))


def _load(model: Path, cores: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = cores
    options.log_severity_level = 3
    # The threads of the session whose turn it is not would go on spinning.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def _draw_inputs(session: ort.InferenceSession) -> Feed:
    """The same inputs in every session: drawn numbers, and 1 for tokens and masks."""
    drawn = np.random.default_rng(0)
    feed: dict[str, npt.NDArray[np.generic]] = {}
    for each in session.get_inputs():
        numbers = drawn.standard_normal([s if isinstance(s, int) else 1 for s in each.shape])
        ones = np.ones(numbers.shape, np.int64)
        feed[each.name] = numbers.astype(np.float32) if each.type == "tensor(float)" else ones
    return feed


def _time_ns(session: ort.InferenceSession, feed: Feed) -> int:
    started = time.perf_counter_ns()
    session.run(None, feed)
    return time.perf_counter_ns() - started


if __name__ == "__main__":
    sys.exit(main())
