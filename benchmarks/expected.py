"""The expectations of a benchmark, and whether they were met."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scipy.stats import binomtest

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that is expected of a benchmark, and how it came out.

    `is_met` is None if that is not shown, such as by an interval that holds the limit.
    """

    what: str
    expected: str
    found: str
    is_met: bool | None

    @property
    def outcome(self) -> str:
        if self.is_met is None:
            return "not shown"
        return "met" if self.is_met else "missed"


def expect_share(
    what: str, held: Iterable[bool], least: float = 1.0, expected: str | None = None
) -> Expectation:
    """Expect that at least this share holds; not shown without any."""
    held = list(held)
    limit = expected or ("all" if least == 1.0 else f"at least {100 * least:g} %")
    is_met = sum(held) >= least * len(held) if held else None
    return Expectation(what, limit, f"{sum(held)} of {len(held)}", is_met)


def expect_none(what: str, wrong: Iterable[bool], expected: str = "none") -> Expectation:
    """Expect that nothing is wrong; not shown without anything that could be."""
    wrong = list(wrong)
    is_met = not any(wrong) if wrong else None
    return Expectation(what, expected, f"{sum(wrong)} of {len(wrong)}", is_met)


def expect_most(
    what: str, value: float, most: float, unit: str = "s", digits: int = 1
) -> Expectation:
    """Expect that a figure is at most this."""
    found = f"{value:.{digits}f} {unit}"
    return Expectation(what, f"at most {most:g} {unit}", found, value <= most)


def at_most(limit: float, low: float, high: float) -> bool | None:
    """Return whether an interval shows a figure to be within a limit, or above it."""
    if high <= limit:
        return True
    return False if low > limit else None


def highest_rate(hits: int, tries: int) -> float:
    """Return the upper bound of Clopper and Pearson for a rate."""
    if not tries:
        return 1.0
    found = binomtest(hits, tries, alternative="less").proportion_ci(CONFIDENCE, method="exact")
    return float(found.high)


def rate_text(hits: int, tries: int) -> str:
    """The highest rate that this number of hits allows."""
    return f"at most {100 * highest_rate(hits, tries):.2g} % ({100 * CONFIDENCE:g} % confidence)"
