"""Decides figures that hardly vary between processes, such as the peak of memory.

Two processes a side pass a model that takes as much as before. Processes can come in two kinds that
differ by some percent, such as those that got a large page and those that did not. So four of them
a side show a growth that no two kinds explain, and a smaller one takes more: by chance, all of one
side could be of the larger kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytest_modelperf.stats.decisions import Decision, RatioAnswer
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
# The look at large growth, and how far apart two kinds of processes are at most, as a share.
LARGE_LOOK, KINDS = 4, 0.1


def plan_processes(rule: DuetRule, pairs: int = MOST_PAIRS) -> Schedule:
    """The looks that are due after so many pairs; each look at a pass has an equal part.

    Half of the level of alarms is for the look at large growth.
    """
    due = tuple(look for look in ALARM_LOOKS if look <= pairs)
    return Schedule(
        alarms=spend_level(ALARM_LOOKS, due, rule.level / 2),
        passes=tuple(
            Look(look, look, rule.pass_level / len(PASS_LOOKS))
            for look in PASS_LOOKS
            if look <= pairs
        ),
    )


def plan_large(rule: DuetRule) -> Schedule:
    """The look at a growth that exceeds the margin and what two kinds of processes differ by."""
    return Schedule(alarms=(Look(LARGE_LOOK, LARGE_LOOK, rule.level / 2),), passes=())


def large_margin(rule: DuetRule) -> float:
    return rule.margin + math.log1p(KINDS)


def judge_processes(pairs: Sequence[tuple[float, float]], rule: DuetRule) -> Decision:
    """What pairs of processes, one a side, show so far; at least `FEWEST_PAIRS` of them.

    It is asked after each pair until it has an answer.
    """
    differences = differences_of_logs(pairs)[np.newaxis]
    schedule = plan_processes(rule, len(pairs))
    found = describe_sequence(judge_sequence(differences, schedule, rule.margin), schedule, rule)
    if found.is_open and len(pairs) >= LARGE_LOOK:
        schedule = plan_large(rule)
        ended = judge_sequence(differences, schedule, large_margin(rule))
        large = describe_sequence(ended, schedule, rule)
        if large.answer is RatioAnswer.WORSE:
            return large
    return found
