"""Compare the memory of a model on both sides, by fresh processes in turn until they decide."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from msgspec.structs import replace

from pytest_modelperf.comparing.gates import Gate, judged_metric
from pytest_modelperf.comparing.judged_case import PairedCase
from pytest_modelperf.comparing.limits import LEAST_MEMORY_BYTES, MEMORY
from pytest_modelperf.comparing.records import Metric
from pytest_modelperf.profiler.measured_cases import measure_footprint
from pytest_modelperf.profiler.model_in_worker import alone_at, unchanged
from pytest_modelperf.stats.decisions import RatioAnswer
from pytest_modelperf.stats.duet import DuetRule, once_a_round_looks_worse
from pytest_modelperf.stats.processes import FEWEST_PAIRS, MOST_PAIRS, PASS_LOOKS, judge_processes

_NAME = "memory_bytes"
# The number of pairs for an open figure, and for one that is named.
_USUAL_PAIRS, _NAMED_PAIRS = PASS_LOOKS[1:3]


def compare_memory(asked: PairedCase, *, goes_on: bool) -> Metric:
    """Measure and judge the memory. Without `goes_on` only the fewest processes run."""
    pair, place = asked.pair, asked.place
    most_seconds = pair.after_setup.policy.max_seconds

    def measure(number: int) -> tuple[float, float]:
        place.tell("measuring memory")
        sides = [(pair.before, pair.before_setup), (pair.after, pair.after_setup)]
        # The order alternates, so that an effect of the first process of a pair affects both sides.
        order = (0, 1) if number % 2 else (1, 0)
        taken = {side: measure_footprint(*sides[side], place) for side in order}
        return float(taken[0]), float(taken[1])

    with unchanged(pair.before, pair.after), alone_at(place):
        begun = time.monotonic()
        return judge_memory(
            measure, asked.gate, lambda: time.monotonic() - begun < most_seconds, goes_on=goes_on
        )


def judge_memory(
    measure: Callable[[int], tuple[float, float]],
    gate: Gate,
    has_time: Callable[[], bool],
    *,
    goes_on: bool,
) -> Metric:
    """Measure pairs of processes until they decide the memory. `measure` takes a pair's number.

    If they leave it open, a growth below the least allowed one passes, unless a tolerance names the
    memory. In that case only a shown result passes.
    """
    pairs: list[tuple[float, float]] = []
    is_named = gate.tolerances.names(MEMORY)
    least = _NAMED_PAIRS if is_named else _USUAL_PAIRS
    while True:
        pairs.append(measure(len(pairs) + 1))
        if len(pairs) < FEWEST_PAIRS:
            continue
        rule = _rule(pairs, gate)
        decision = judge_processes(pairs, rule)
        may_go_on = goes_on and has_time() and (is_named or once_a_round_looks_worse(pairs, rule))
        is_last = not goes_on or len(pairs) >= (MOST_PAIRS if may_go_on else least)
        if is_last or not decision.is_open:
            before, after = (median(each[side] for each in pairs) for side in (0, 1))
            # An allocator takes memory in steps, so more processes would not decide such a small
            # growth.
            is_allowed = after - before <= LEAST_MEMORY_BYTES and not is_named
            if decision.is_open and is_allowed:
                decision = replace(decision, answer=RatioAnswer.NOT_WORSE, rounds_needed=None)
            return judged_metric(
                _NAME, (before, after), decision, rule.tolerance, is_awaited=is_named
            )


def _rule(pairs: Sequence[tuple[float, float]], gate: Gate) -> DuetRule:
    """Return the rule for memory. A small model may grow by what an allocator takes at once."""
    rule = gate.figure_rule(MEMORY)
    before = max(median(old for old, _ in pairs), 1.0)
    return replace(rule, tolerance=max(rule.tolerance, LEAST_MEMORY_BYTES / before))
