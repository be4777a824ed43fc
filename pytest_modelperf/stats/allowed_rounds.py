"""How many rounds of a duet a case may take in its time, and the time that allows so many."""

from __future__ import annotations

import math

# The most rounds in the usual time. What looks at them is planned for these.
USUAL_ROUNDS = 35
_USUAL_SECONDS = 10.0
# Ten times as many rounds tell a third of the change.
_MOST_ROUNDS = 10 * USUAL_ROUNDS


def rounds_within(max_seconds: float) -> int:
    """The most rounds of a duet: as many more as there is more time than usual."""
    allowed = round(USUAL_ROUNDS * max_seconds / _USUAL_SECONDS)
    return min(_MOST_ROUNDS, max(USUAL_ROUNDS, allowed))


def seconds_for(rounds: float) -> float:
    """The least time that allows so many rounds; infinite where none does."""
    if rounds > _MOST_ROUNDS:
        return math.inf
    return _USUAL_SECONDS * rounds / USUAL_ROUNDS if rounds > USUAL_ROUNDS else 0.0
