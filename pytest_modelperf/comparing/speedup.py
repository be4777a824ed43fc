"""How many times as fast one side is as the other, as a number that a test can compare."""

from __future__ import annotations

import math

from msgspec import Struct

from pytest_modelperf.stats.records import Ratio

_UNKNOWN = "unknown"


class Speedup(Struct, frozen=True, eq=False):
    """How many times as fast the second side is: the time before divided by the time now.

    A comparison is true if it is true for the whole interval: `speedup > 2` is about its lower end,
    and `speedup < 2` about its upper end. So both are false while the interval contains 2, and all
    are false if a bound is unknown.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of_slowdown(cls, slowdown: Ratio) -> Speedup:
        """Return the speedup for the ratio of the time now to the time before."""
        return cls(_inverse(slowdown.value), _inverse(slowdown.high), _inverse(slowdown.low))

    def __gt__(self, other: float) -> bool:
        return self.low is not None and self.low > other

    def __ge__(self, other: float) -> bool:
        return self.low is not None and self.low >= other

    def __lt__(self, other: float) -> bool:
        return self.high is not None and self.high < other

    def __le__(self, other: float) -> bool:
        return self.high is not None and self.high <= other

    def __float__(self) -> float:
        return math.nan if self.value is None else self.value

    def __repr__(self) -> str:
        """Return `2.31x (2.20 to 2.44)`, for failed assertions."""
        if self.value is None:
            return _UNKNOWN
        if self.low is None or self.high is None:
            return f"{_rounded(self.value)}x (interval {_UNKNOWN})"
        return f"{_rounded(self.value)}x ({_rounded(self.low)} to {_rounded(self.high)})"


def _inverse(ratio: float | None) -> float | None:
    if ratio is None:
        return None
    return 1.0 / ratio if ratio > 0.0 else math.inf


def _rounded(value: float) -> str:
    """Return three digits: `0.931`, `2.31`, `23.1`, `231`."""
    if not math.isfinite(value) or value >= 100:  # three digits
        return f"{value:.0f}"
    return f"{value:.{3 - len(f'{value:.0f}')}f}" if value >= 1 else f"{value:.3f}"
