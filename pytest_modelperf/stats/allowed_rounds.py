"""How many rounds of a duet fit into the time of a case, and how much time they need."""

from __future__ import annotations

import math

# The most rounds in the usual time, for which the usual looks are planned.
USUAL_ROUNDS = 35
_USUAL_SECONDS = 10.0
# Ten times as many rounds show a change a third as large.
_MOST_ROUNDS = 10 * USUAL_ROUNDS


def rounds_within(max_seconds: float) -> int:
    """Return the most rounds of a duet, in proportion to the time."""
    allowed = round(USUAL_ROUNDS * max_seconds / _USUAL_SECONDS)
    return min(_MOST_ROUNDS, max(USUAL_ROUNDS, allowed))


def seconds_for(rounds: float) -> float:
    """Return the least time that allows this many rounds, which is infinite if none does."""
    if rounds > _MOST_ROUNDS:
        return math.inf
    return _USUAL_SECONDS * rounds / USUAL_ROUNDS if rounds > USUAL_ROUNDS else 0.0
