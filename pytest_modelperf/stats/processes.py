"""Decides figures that hardly vary between processes, such as the peak of memory.

Two processes a side pass a model that takes as much as before. An alarm takes more of them: two
kinds of processes, such as those that got a large page and those that did not, must not make one
by chance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_modelperf.stats.decisions import Decision
from pytest_modelperf.stats.duet import (
    DuetRule,
    Schedule,
    describe_sequence,
    differences_of_logs,
    judge_sequence,
)
from pytest_modelperf.stats.looks import Look, spend_level

FEWEST_PAIRS, MOST_PAIRS = 2, 12
# The pairs of processes after which a figure may pass, or an alarm may be raised.
PASS_LOOKS = (FEWEST_PAIRS, 4, 6, MOST_PAIRS)
ALARM_LOOKS = (6, 9, MOST_PAIRS)


def plan_processes(rule: DuetRule, pairs: int = MOST_PAIRS) -> Schedule:
    """The looks that are due after so many pairs; each look at a pass has an equal part."""
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
    """What pairs of processes, one a side, show so far; at least `FEWEST_PAIRS` of them."""
    schedule = plan_processes(rule, len(pairs))
    ended = judge_sequence(differences_of_logs(pairs)[np.newaxis], schedule, rule.margin)
    return describe_sequence(ended, schedule, rule)
