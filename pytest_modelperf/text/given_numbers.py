"""Numbers that a user gave, as numbers that can be used."""

from __future__ import annotations

import math


def as_float(value: object) -> float | None:
    """A number that is not a bool; None of anything else. One too large for a float is infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


# A year: the waiting of the system ends at 292 of them, and no measurement takes one.
MOST_SECONDS = 31_536_000.0
SECONDS = "seconds above 0 and within a year, such as 10"


def as_seconds(value: object) -> float | None:
    """A time that can be waited for; None of anything else."""
    seconds = as_float(value)
    return seconds if seconds is not None and 0 < seconds <= MOST_SECONDS else None
