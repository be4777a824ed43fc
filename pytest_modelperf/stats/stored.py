"""The last resort: stored times of earlier processes, compared with a process of today.

Two processes of one model, minutes apart, differ by more than two sessions of one process, and no
number of inferences shows by how much. So the unit is the process, and the question is whether
today's differs more than another process of the old model would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import scipy

from pytest_modelperf.stats.decisions import Decision, RatioAnswer
from pytest_modelperf.stats.duet import POWER
from pytest_modelperf.stats.estimates import bounded_exp, logs, told_change
from pytest_modelperf.stats.quantiles import t_critical

FEWEST_PROCESSES = 5
# Processes that were recorded one after the other may agree by chance, or because nothing disturbed
# them. The spread over hours was at least this on every machine.
_LEAST_SPREAD = 0.02


def judge_stored(
    recorded_ns: Sequence[float], now_ns: float, tolerance: float, level: float
) -> Decision:
    """Decides about today's median against the medians of the recorded processes.

    The bounds are the prediction interval of one further process. With fewer than
    `FEWEST_PROCESSES` nothing is judged, and `rounds_needed` is this number.
    """
    count = len(recorded_ns)
    confidence = 1.0 - 2.0 * level
    if count < FEWEST_PROCESSES:
        return Decision(
            answer=RatioAnswer.OPEN,
            confidence=confidence,
            rounds=count,
            rounds_needed=FEWEST_PROCESSES,
        )
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
    seen = float(scipy.special.nctdtrinc(count - 1, 1.0 - POWER, critical)) * spread
    return Decision(
        answer=answer,
        confidence=confidence,
        rounds=count,
        ratio=bounded_exp(centre),
        low=bounded_exp(low),
        high=bounded_exp(high),
        detectable=told_change(bounded_exp(margin + seen) - 1.0),
    )
