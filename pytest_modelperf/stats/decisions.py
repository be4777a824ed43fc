"""The answers of tests of measured times, and how large a change they could have seen."""

from __future__ import annotations

import enum

from msgspec import Struct


class RatioAnswer(enum.Enum):
    """Whether a ratio is above the allowed one.

    `BETTER` is stronger than `NOT_WORSE`: the ratio is below the inverse of the allowed one, so
    that exchanging the two sides exchanges `BETTER` and `WORSE`. `OPEN` means that neither is
    shown.
    """

    WORSE = "worse"
    NOT_WORSE = "not worse"
    BETTER = "better"
    OPEN = "open"


class Decision(Struct, frozen=True, kw_only=True):
    """The answer for one ratio, after over before, with its evidence.

    `low` and `high` are the interval of the ratio at `confidence`, after all looks together; None
    if the spread of the rounds is unknown. `detectable` is the slowdown that would have been shown
    in nine of ten runs: 0.041 is "this run could see 4.1 % or more"; None if so few rounds can show
    none. `rounds` is the number of
    rounds at the answer. While it is open, `rounds_needed` estimates the rounds that would decide
    it; None if no reasonable number would. `samples_needed` is the number of samples that the
    percentile needs on each side; None if it has them.
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

    `value` is None if there are too few samples; then `samples_needed` is the number that suffices.
    """

    answer: BudgetAnswer
    limit: float
    confidence: float
    value: float | None = None
    low: float | None = None
    high: float | None = None
    samples_needed: int | None = None
