"""Judge figures of separate processes: figures that hardly vary, and times of earlier days."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from pytest_modelperf.stats.decisions import Decision, Look, RatioAnswer, spend_level
from pytest_modelperf.stats.duet import (
    POWER,
    DuetRule,
    Schedule,
    differences_of_logs,
    judge_differences,
)
from pytest_modelperf.stats.estimates import bounded_exp, logs, reported_change
from pytest_modelperf.stats.quantiles import noncentral_t, t_critical

FEWEST_PAIRS, MOST_PAIRS = 2, 12
# The numbers of pairs after which a figure may pass, or an alarm is possible.
PASS_LOOKS = (FEWEST_PAIRS, 4, 6, MOST_PAIRS)
ALARM_LOOKS = (6, 9, MOST_PAIRS)
# The largest difference between two processes of one model, as a share.
KINDS = 0.1


def plan_processes(rule: DuetRule, pairs: int = MOST_PAIRS) -> Schedule:
    """Return the looks that are due after `pairs`. All looks for a pass have the same level."""
    due = tuple(look for look in ALARM_LOOKS if look <= pairs)
    return Schedule(
        alarms=spend_level(ALARM_LOOKS, due, rule.level),
        passes=tuple(
            Look(look, look, rule.pass_level / len(PASS_LOOKS))
            for look in PASS_LOOKS
            if look <= pairs
        ),
    )


def judge_processes(pairs: Sequence[tuple[float, float]], rule: DuetRule) -> Decision:
    """Judge at least `FEWEST_PAIRS` pairs of processes. Call this after each pair."""
    schedule = plan_processes(rule, len(pairs))
    found = judge_differences(differences_of_logs(pairs), schedule, rule)
    if found.rounds_needed is not None and found.rounds_needed > MOST_PAIRS:
        # A run never takes more pairs.
        found = replace(found, rounds_needed=None)
    return (found.is_open and _large_growth(pairs, rule, found)) or found


def _large_growth(
    pairs: Sequence[tuple[float, float]], rule: DuetRule, found: Decision
) -> Decision | None:
    """Return the decision if the growth is too large for processes of one model, or else None.

    This does not depend on chance, so the interval contains every quotient of two processes.
    """
    before, after = ([pair[side] for pair in pairs] for side in (0, 1))
    kinds = 1.0 + KINDS
    if any(max(side) > kinds * min(side) for side in (before, after)):
        return None
    low, high = min(after) / max(before), max(after) / min(before)
    if low <= (1.0 + rule.tolerance) * kinds:
        return None
    return replace(found, answer=RatioAnswer.WORSE, low=low, high=high, rounds_needed=None)


# -- times of recorded processes, the last resort


FEWEST_PROCESSES = 5
# Processes that were recorded one after the other may agree by chance, or because the machine was
# quiet. The spread over hours was at least this on every machine.
_LEAST_SPREAD = 0.02


def judge_stored(
    recorded_ns: Sequence[float], now_ns: float, tolerance: float, level: float
) -> Decision:
    """Judge today's median by the medians of the recorded processes.

    The bounds are the prediction interval of one further process. With fewer than
    `FEWEST_PROCESSES` the answer is open, and `rounds_needed` is this number.
    """
    count = len(recorded_ns)
    confidence = 1.0 - 2.0 * level
    if count < FEWEST_PROCESSES:
        return Decision(confidence=confidence, rounds=count, rounds_needed=FEWEST_PROCESSES)
    recorded = logs(recorded_ns)
    centre = float(logs([now_ns])[0] - recorded.mean())
    spread = max(float(recorded.std(ddof=1)), _LEAST_SPREAD) * math.sqrt(1.0 + 1.0 / count)
    critical = float(t_critical(level, count - 1))
    margin = math.log1p(tolerance)
    low, high = centre - critical * spread, centre + critical * spread
    answer = RatioAnswer.OPEN
    if low > margin:
        answer = RatioAnswer.WORSE
    elif high < -margin:
        answer = RatioAnswer.BETTER
    elif high < margin:
        answer = RatioAnswer.NOT_WORSE
    seen = noncentral_t(1.0 - POWER, count - 1, critical) * spread
    return Decision(
        answer=answer,
        confidence=confidence,
        rounds=count,
        ratio=bounded_exp(centre),
        low=bounded_exp(low),
        high=bounded_exp(high),
        detectable=reported_change(bounded_exp(margin + seen) - 1.0),
    )
