"""Numbers given by a user, checked."""

from __future__ import annotations

import math


def as_float(value: object) -> float | None:
    """The value as a float; None if it is no number. A number too large for a float is infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


# A year. The system can wait at most 292 years, and no measurement takes one.
MOST_SECONDS = 31_536_000.0
SECONDS = "seconds above 0 and within a year, such as 10"


def as_seconds(value: object) -> float | None:
    """The value as a duration that the system can wait; None if it is none."""
    seconds = as_float(value)
    return seconds if seconds is not None and 0 < seconds <= MOST_SECONDS else None
