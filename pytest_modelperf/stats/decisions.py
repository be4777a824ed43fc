"""The looks at a running comparison or bisect, their error levels, and their answers."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from functools import cache
from statistics import fmean

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.stats.estimates import Floats
from pytest_modelperf.stats.quantiles import normal_chance, normal_quantile
from pytest_modelperf.stats.records import USUAL_ROUNDS

LOOKS = (6, 9, 13, 18, 25, USUAL_ROUNDS)
# An unchanged model may pass at these looks, before an alarm is possible.
EARLY_LOOKS = (4, 5)
# The spent share of the level is the share of the rounds to this power.
IN_PROPORTION, SOONER = 1.0, 0.5
# Each look has about this many times the rounds of the previous one.
_STEP = 1.4
# The chance beyond `_FAR` from a bound is negligible. `_NODES` nodes resolve even two looks that
# differ in one round of two hundred.
_FAR = 9.0
_NODES = 200


class Look(Struct, frozen=True):
    """One test of the first `units` differences, after `rounds`, at its own error level.

    `is_last` is set for the look after the last round, which spends the rest of the level.
    """

    rounds: int
    units: int
    level: float
    is_last: bool = False


def plan_looks(max_rounds: int) -> tuple[int, ...]:
    """Return the rounds after which to look: the usual ones, and later ones if they are allowed."""
    looks = [look for look in LOOKS if look < max_rounds]
    while len(looks) >= len(LOOKS) and looks[-1] * _STEP**1.5 < max_rounds:
        looks.append(round(looks[-1] * _STEP))
    return (*looks, max_rounds)


def plan_early_looks(max_rounds: int) -> tuple[int, ...]:
    """Return the looks at which a model may pass: some early ones, and the usual ones."""
    return (*(look for look in EARLY_LOOKS if look < max_rounds), *plan_looks(max_rounds))


def share_level(parts: int, run_level: float = 0.01) -> float:
    """Return the level of each of this many parts, so that a run errs with at most `run_level`."""
    return run_level / max(parts, 1)


@cache
def spend_level(
    planned: Sequence[int],
    units: Sequence[int],
    level: float,
    last_rounds: int | None = None,
    power: float = IN_PROPORTION,
) -> tuple[Look, ...]:
    """Return the looks at the `planned` rounds that have `units`, and one last look at the end.

    `units` may be shorter than `planned`, because a running comparison has not reached all looks.
    If it ended after `last_rounds`, the rest of the level is spent on one last look, with the last
    number in `units`. The spent share of the level is the share of the rounds raised to `power`.
    """
    stages = [
        (rounds, count, (rounds / planned[-1]) ** power, False)
        for rounds, count in zip(planned, units, strict=False)
        if last_rounds is None or rounds <= last_rounds
    ]
    if last_rounds is not None:
        stages.append((last_rounds, units[-1], 1.0, True))
    looks: list[Look] = []
    spent = 0.0
    for rounds, count, share, is_last in stages:
        budget = min(share, 1.0) * level - spent
        if count < 2 or budget <= 0.0:
            continue
        nominal = _nominal_level(looks[-1] if looks else None, count, budget)
        if _is_too_strict(count, nominal):
            continue
        looks.append(Look(rounds, count, nominal, is_last))
        spent += budget
    return tuple(looks)


def _is_too_strict(units: int, level: float) -> bool:
    """Whether these units are too few to show anything at this level.

    Sessions can come in two equally frequent kinds, a faster and a slower one. With the chance
    4^-units, all units have the slower kind on the same side, and agree perfectly.
    """
    return 4.0**-units > level


def _nominal_level(before: Look | None, units: int, budget: float) -> float:
    """Return the level at which a look errs with the chance `budget` if the previous one did not.

    The statistics of two looks are correlated by the root of the share of their common units. Using
    only the previous look instead of all earlier ones is conservative.
    """
    if before is None:
        return budget
    if units <= before.units:
        return before.level + budget

    shared = math.sqrt(before.units / units)
    own = math.sqrt(1.0 - shared**2)
    bound = normal_quantile(1.0 - before.level)

    def density(score: Floats) -> Floats:
        """Return the density of this score if the previous look was below its bound."""
        kept: Floats = normal_chance((bound - shared * score) / own)
        return kept * np.exp(-(score**2) / 2.0) / math.sqrt(2.0 * math.pi)

    places, weights = _nodes()
    low, high = 0.0, -normal_quantile(budget / 1000.0)
    while low < (critical := (low + high) / 2.0) < high:
        if weights @ density(critical + places) > budget:
            low = critical
        else:
            high = critical
    return float(normal_chance(-high))


@cache
def _nodes() -> tuple[Floats, Floats]:
    """Return the places from 0 to `_FAR` at which to evaluate a density, and their weights."""
    places, weights = np.polynomial.legendre.leggauss(_NODES)
    return (places + 1.0) * _FAR / 2.0, weights * _FAR / 2.0


# -- the error levels of the comparisons of a bisect


# The part of the level for comparisons beyond the planned ones.
_RESERVE = 0.1


class SearchLevels(Struct, frozen=True):
    """The error levels of the comparisons of one search among a number of versions."""

    versions: int
    level: float

    @property
    def planned(self) -> int:
        """The number of comparisons if each decides: both ends, halvings, and the found pair."""
        return 2 + math.ceil(math.log2(max(self.versions - 1, 1)))

    def of(self, number: int) -> float:
        """Return the level of the comparison with this number, from 1."""
        beyond = number - self.planned
        if beyond <= 0:
            return share_level(self.planned, (1.0 - _RESERVE) * self.level)
        return _RESERVE * self.level * series_share(beyond)


def series_share(number: int) -> float:
    """Return the term with this number, from 1, of a series whose sum is 1."""
    # Euler's sum of the inverse squares, divided by its value.
    return 6.0 / (math.pi * number) ** 2


def middle_change(ratio: float) -> float:
    """Return the relative change halfway to this ratio on a logarithmic scale."""
    return math.sqrt(ratio) - 1.0


class RatioAnswer(enum.Enum):
    """Whether a ratio is above the allowed one.

    `BETTER` is stronger than `NOT_WORSE`: the ratio is below the inverse of the allowed one, so
    that exchanging the two sides exchanges `BETTER` and `WORSE`. `OPEN` means that none of these is
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


# -- combine decisions on several percentiles of the same times


def imply(
    own: BudgetDecision, lower: Sequence[BudgetDecision], higher: Sequence[BudgetDecision]
) -> BudgetDecision:
    """Return the decision on a percentile, combined with those on other percentiles.

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
    # Keep rounding from putting one of two equal figures below the other.
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
