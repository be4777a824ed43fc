"""The looks at a running comparison, or at the halves of a bisect, and the error level of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from msgspec import Struct

from pytest_modelperf.stats.allowed_rounds import USUAL_ROUNDS
from pytest_modelperf.stats.estimates import Floats
from pytest_modelperf.stats.quantiles import normal_chance, normal_quantile

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
    """Return the looks at the `planned` rounds that have `units`, and perhaps one last look.

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
    """Whether this number of units is too small to show anything at this level.

    Sessions can come in two equally frequent kinds, a faster and a slower one. With the chance
    4^-units, all units have the slower kind on the same side, and agree perfectly.
    """
    return 4.0**-units > level


def _nominal_level(before: Look | None, units: int, budget: float) -> float:
    """Return the level of a look that errs with the chance `budget` if the previous look did not.

    The statistics of two looks are correlated by the root of the share of their common units. Using
    only the previous look, and not all earlier ones, errs on the safe side.
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
        """The comparisons if each is decided: both ends, the halvings, and the found pair."""
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
