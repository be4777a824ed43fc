"""The answers of tests of measured times, and what one answer implies for other percentiles."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from statistics import fmean

import numpy as np
from msgspec import Struct
from msgspec.structs import replace


class RatioAnswer(enum.Enum):
    """Whether a ratio is above the allowed one.

    `BETTER` is stronger than `NOT_WORSE`: the ratio is below the inverse of the allowed one, so
    that exchanging the two sides exchanges `BETTER` and `WORSE`. `OPEN` means that none of them is
    shown.
    """

    WORSE = "worse"
    NOT_WORSE = "not worse"
    BETTER = "better"
    OPEN = "open"


class Decision(Struct, frozen=True, kw_only=True):
    """The answer for one ratio, after over before, with its evidence. It is open by default.

    `low` and `high` are the interval of the ratio at `confidence`, over all looks together. They
    are None if the spread of the rounds is unknown. `detectable` is the slowdown that nine of ten
    runs would have shown: 0.041 means "this run could see 4.1 % or more". It is None if the rounds
    are too few to show any. `rounds` is the number of rounds at the answer. While it is open,
    `rounds_needed` estimates the rounds that would decide it, or is None if no reasonable number
    would. `samples_needed` is the number of samples that the percentile needs on each side, or None
    if it has them.
    """

    answer: RatioAnswer = RatioAnswer.OPEN
    confidence: float
    rounds: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    detectable: float | None = None
    rounds_needed: int | None = None
    samples_needed: int | None = None

    @property
    def is_open(self) -> bool:
        return self.answer is RatioAnswer.OPEN


class BudgetAnswer(enum.Enum):
    """Whether a figure keeps to its budget."""

    OVER = "over budget"
    WITHIN = "within budget"
    OPEN = "open"


class BudgetDecision(Struct, frozen=True, kw_only=True):
    """The answer for one absolute limit. The figures have the unit of the limit.

    `value` is None if there are too few samples. Then `samples_needed` is the number that suffices.
    """

    answer: BudgetAnswer
    limit: float
    confidence: float
    value: float | None = None
    low: float | None = None
    high: float | None = None
    samples_needed: int | None = None


# -- what decisions on other percentiles of the same times imply for one of them


def imply(
    own: BudgetDecision, lower: Sequence[BudgetDecision], higher: Sequence[BudgetDecision]
) -> BudgetDecision:
    """Return the decision on a percentile, with what those on other percentiles imply.

    All have the same limit. The result errs with at most the sum of their error levels.
    """
    if own.answer is not BudgetAnswer.OPEN:
        return own
    is_over = any(each.answer is BudgetAnswer.OVER for each in lower)
    is_within = any(each.answer is BudgetAnswer.WITHIN for each in higher)
    if not (is_over or is_within):
        return own
    return replace(
        own,
        answer=BudgetAnswer.OVER if is_over else BudgetAnswer.WITHIN,
        low=max(_known(each.low for each in (own, *lower)), default=None),
        high=min(_known(each.high for each in (own, *higher)), default=None),
        samples_needed=None,
    )


def _known(bounds: Iterable[float | None]) -> list[float]:
    return [bound for bound in bounds if bound is not None]


# -- percentiles of two sides that differ by judged ratios and rise on each side


class RatioOfSides(Struct, frozen=True):
    """A percentile of both sides, and the judged ratio of the second side to the first."""

    before_ns: float
    after_ns: float
    ratio: float


def rising_at_ratios(percentiles: Sequence[RatioOfSides]) -> list[RatioOfSides]:
    """Return the figures nearest to these that differ by their ratios and rise on both sides.

    The first percentile is the most certain one, so it does not change. "Nearest" means by the
    squares of logs, which is isotonic regression.
    """
    if not percentiles:
        return []
    before, after, ratios = np.log(
        [(each.before_ns, each.after_ns, each.ratio) for each in percentiles]
    ).T
    # Both sides rise if and only if the middle rises by at least half the change of the log ratio.
    least = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(ratios)) / 2.0)])
    first, *others = ((before + after) / 2.0 - least).tolist()
    middles = np.maximum(first, [first, *_nearest_rising(others)]) + least
    # Prevent rounding from putting one of two equal figures below the other.
    sides = (np.maximum.accumulate(np.exp(middles + half)) for half in (-ratios / 2, ratios / 2))
    return [
        RatioOfSides(float(old), float(new), each.ratio)
        for old, new, each in zip(*sides, percentiles, strict=True)
    ]


def _nearest_rising(values: Sequence[float]) -> list[float]:
    """Return the sequence nearest to these values, by squares, that never falls.

    This is the minimax formula of isotonic regression: Barlow, Bartholomew, Bremner and Brunk,
    "Statistical inference under order restrictions" (1972), 1.4.
    """
    ends = range(1, len(values) + 1)
    return [
        max(min(fmean(values[start:end]) for end in ends[last:]) for start in range(last + 1))
        for last in range(len(values))
    ]
