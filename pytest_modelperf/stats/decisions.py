"""What a test of measured times answers, and how much it could have seen."""

from __future__ import annotations

import enum

from msgspec import Struct


class RatioAnswer(enum.Enum):
    """Whether a ratio is above what is allowed.

    `BETTER` is `NOT_WORSE` and more: the ratio is below the inverse of what is allowed, so that
    exchanging the two sides exchanges `BETTER` and `WORSE`. `OPEN` is not shown either way.
    """

    WORSE = "worse"
    NOT_WORSE = "not worse"
    BETTER = "better"
    OPEN = "open"


class Decision(Struct, frozen=True, kw_only=True):
    """The answer for one ratio, after over before, and what it rests on.

    `low` and `high` hold the ratio with `confidence`, however often it was looked at; None where
    nothing tells how rounds differ. `detectable` is the slowdown that would have been shown worse
    nine times out of ten: 0.041 is "this run could see 4.1 % or more". `rounds` are those that the
    answer was given after. While it is open, `rounds_needed` is an estimate of how many would
    decide it, None where no reasonable number does, and `samples_needed` is how many a side the
    percentile needs, None where it has them.
    """

    answer: RatioAnswer
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
    """The answer for one absolute limit; the figures have the unit of the limit.

    `value` is None where the samples do not support it: then `samples_needed` says how many would.
    """

    answer: BudgetAnswer
    limit: float
    confidence: float
    value: float | None = None
    low: float | None = None
    high: float | None = None
    samples_needed: int | None = None
