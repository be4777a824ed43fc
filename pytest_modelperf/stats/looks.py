"""The looks at a running comparison, or at the halves of a bisect, and the error level of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import scipy
from msgspec import Struct

from pytest_modelperf.stats.allowed_rounds import USUAL_ROUNDS
from pytest_modelperf.stats.estimates import Floats

LOOKS = (6, 9, 13, 18, 25, USUAL_ROUNDS)
# An unchanged model may pass before an alarm may be raised.
EARLY_LOOKS = (4, 5)
# The power of the share of the rounds that is the spent share of the level.
IN_PROPORTION, SOONER = 1.0, 0.5
# Each look has about this many times the rounds of the one before.
_STEP = 1.4
# The chance beyond this distance from a bound is negligible. This many nodes resolve even two looks
# that differ in one round of two hundred.
_FAR = 9.0
_NODES = 200


class Look(Struct, frozen=True):
    """One test of the first `units` differences, after `rounds`, at its own error level.

    `is_last` is set for the look after the last round, which spends what is left of the level.
    """

    rounds: int
    units: int
    level: float
    is_last: bool = False


def plan_looks(max_rounds: int) -> tuple[int, ...]:
    """The rounds after which to look: the usual ones, and further ones if more are allowed."""
    looks = [look for look in LOOKS if look < max_rounds]
    while len(looks) >= len(LOOKS) and looks[-1] * _STEP**1.5 < max_rounds:
        looks.append(round(looks[-1] * _STEP))
    return (*looks, max_rounds)


def plan_early_looks(max_rounds: int) -> tuple[int, ...]:
    """The looks at which a model may pass: some early ones, and the usual ones."""
    return (*(look for look in EARLY_LOOKS if look < max_rounds), *plan_looks(max_rounds))


def share_level(parts: int, run_level: float = 0.01) -> float:
    """The error level of each of this many parts, so that a run errs with at most `run_level`."""
    return run_level / max(parts, 1)


@cache
def spend_level(
    planned: Sequence[int],
    units: Sequence[int],
    level: float,
    last_rounds: int | None = None,
    power: float = IN_PROPORTION,
) -> tuple[Look, ...]:
    """The looks at the `planned` rounds that have `units`, and one more after the last round.

    `units` may be shorter than `planned`: a running comparison has not come to all looks. With
    `last_rounds` it ended after this many; the rest of the level is then spent on one last look,
    with the number of units at the end of `units`. The spent share of the level is the share of the
    rounds raised to `power`.
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
    """Whether so few units can show nothing at this level.

    Sessions can come in two equally frequent kinds, a faster and a slower one. With this chance all
    units have the slower kind on the same side, and agree perfectly.
    """
    return 4.0**-units > level


def _nominal_level(before: Look | None, units: int, budget: float) -> float:
    """The level of a look that errs with the chance `budget` if the look before did not.

    The statistics of two looks are correlated by the root of the share of their common units. Using
    only the look before, and not all earlier ones, errs on the safe side.
    """
    if before is None:
        return budget
    if units <= before.units:
        return before.level + budget

    shared = math.sqrt(before.units / units)
    own = math.sqrt(1.0 - shared**2)
    bound = float(scipy.special.ndtri(1.0 - before.level))

    def density(score: Floats) -> Floats:
        """The density of this score if the look before was below its bound."""
        kept: Floats = scipy.special.ndtr((bound - shared * score) / own)
        return kept * np.exp(-(score**2) / 2.0) / math.sqrt(2.0 * math.pi)

    places, weights = _nodes()
    low, high = 0.0, -float(scipy.special.ndtri(budget / 1000.0))
    while low < (critical := (low + high) / 2.0) < high:
        if weights @ density(critical + places) > budget:
            low = critical
        else:
            high = critical
    return float(scipy.special.ndtr(-high))


@cache
def _nodes() -> tuple[Floats, Floats]:
    """The places from 0 to `_FAR` at which a density is evaluated, and their weights."""
    places, weights = np.polynomial.legendre.leggauss(_NODES)
    return (places + 1.0) * _FAR / 2.0, weights * _FAR / 2.0


# -- the error levels of the comparisons of a bisect


# The part of the level for comparisons beyond the planned ones.
_RESERVE = 0.1


class SearchLevels(Struct, frozen=True):
    """The error levels of the comparisons of one search among so many versions."""

    versions: int
    level: float

    @property
    def planned(self) -> int:
        """The comparisons if each shows something: both ends, the halvings, and the found pair."""
        return 2 + math.ceil(math.log2(max(self.versions - 1, 1)))

    def of(self, number: int) -> float:
        """The level of the comparison with this number, from 1."""
        beyond = number - self.planned
        if beyond <= 0:
            return share_level(self.planned, (1.0 - _RESERVE) * self.level)
        return _RESERVE * self.level * series_share(beyond)


def series_share(number: int) -> float:
    """The share of the member with this number, from 1, of a series whose sum is 1.

    These are Euler's terms of the inverse squares.
    """
    return 6.0 / (math.pi * number) ** 2


def middle_change(ratio: float) -> float:
    """The relative change halfway to this ratio on a logarithmic scale."""
    return math.sqrt(ratio) - 1.0
