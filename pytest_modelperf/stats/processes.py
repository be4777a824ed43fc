"""Decides figures that hardly vary between processes, such as the peak of memory.

Two processes a side pass a model that takes as much as before. Processes can come in kinds that
differ by some percent, such as those that got a large page and those that did not. A growth that is
larger than any two processes of one model differ is shown by two processes a side; a smaller one
takes more: by chance, all of one side could be of the larger kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pytest_modelperf.stats.decisions import Decision, RatioAnswer
from pytest_modelperf.stats.duet import (
    DuetRule,
    Schedule,
    differences_of_logs,
    judge_differences,
)
from pytest_modelperf.stats.looks import Look, spend_level

FEWEST_PAIRS, MOST_PAIRS = 2, 12
# The pairs of processes after which a figure may pass, or an alarm may be raised.
PASS_LOOKS = (FEWEST_PAIRS, 4, 6, MOST_PAIRS)
ALARM_LOOKS = (6, 9, MOST_PAIRS)
# How far apart two processes of one model are at most, as a share.
KINDS = 0.1


def plan_processes(rule: DuetRule, pairs: int = MOST_PAIRS) -> Schedule:
    """The looks that are due after so many pairs; all looks at a pass have the same level."""
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
    """Decides from pairs of processes, one a side; there are at least `FEWEST_PAIRS` of them.

    It is asked after each pair until it has an answer.
    """
    schedule = plan_processes(rule, len(pairs))
    found = judge_differences(differences_of_logs(pairs), schedule, rule)
    if found.rounds_needed is not None and found.rounds_needed > MOST_PAIRS:
        # However long a run is, it takes no more pairs.
        found = replace(found, rounds_needed=None)
    return (found.is_open and _large_growth(pairs, rule, found)) or found


def _large_growth(
    pairs: Sequence[tuple[float, float]], rule: DuetRule, found: Decision
) -> Decision | None:
    """The decision if no two processes of one model could differ so much; None if they could.

    There is nothing left to chance, so the interval holds every quotient of two processes.
    """
    before, after = ([pair[side] for pair in pairs] for side in (0, 1))
    kinds = 1.0 + KINDS
    if any(max(side) > kinds * min(side) for side in (before, after)):
        return None
    low, high = min(after) / max(before), max(after) / min(before)
    if low <= (1.0 + rule.tolerance) * kinds:
        return None
    return replace(found, answer=RatioAnswer.WORSE, low=low, high=high, rounds_needed=None)
