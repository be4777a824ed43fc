"""When a running comparison is looked at, and the level of each look.

Whoever tests after every few rounds and stops at the first success is wrong more often than the
level of one test says. So the level is spent over the looks (Lan and DeMets, "Discrete sequential
boundaries for clinical trials", Biometrika 70 (1983)). The level of alarms is spent in proportion
to the rounds: after a third of them a third is spent. The level of passes is spent sooner, by the
root of that share. docs/statistics.md compares this with other ways.
"""

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
# How the share of the level that is spent follows from the share of the rounds.
IN_PROPORTION, SOONER = 1.0, 0.5
# Each look has about so many times the rounds of the one before.
_STEP = 1.4
# Beyond a bound by so much lies no chance that counts; so many nodes resolve even two looks that
# differ in one round of two hundred.
_FAR = 9.0
_NODES = 200


class Look(Struct, frozen=True):
    """One test on the first `units` differences, known after `rounds`, at its own level."""

    rounds: int
    units: int
    level: float


def plan_looks(max_rounds: int) -> tuple[int, ...]:
    """After how many rounds to look: the usual looks, or more where more rounds are allowed."""
    looks = [look for look in LOOKS if look < max_rounds]
    while len(looks) >= len(LOOKS) and looks[-1] * _STEP**1.5 < max_rounds:
        looks.append(round(looks[-1] * _STEP))
    return (*looks, max_rounds)


def plan_early_looks(max_rounds: int) -> tuple[int, ...]:
    """The looks at which a model may pass: some before the usual ones, and all of those."""
    return (*(look for look in EARLY_LOOKS if look < max_rounds), *plan_looks(max_rounds))


def share_level(parts: int, run_level: float = 0.01) -> float:
    """The level of each of so many parts, such that all of a run err at most at `run_level`."""
    return run_level / max(parts, 1)


@cache
def spend_level(
    planned: Sequence[int],
    units: Sequence[int],
    level: float,
    last_rounds: int | None = None,
    power: float = IN_PROPORTION,
) -> tuple[Look, ...]:
    """The looks at the `planned` rounds that have `units`, and one more if it was the last.

    `units` may be shorter than `planned`: a comparison that goes on has not come to all looks. With
    `last_rounds` it ended after so many; what is left of the level is then spent on one last
    look, at the number of units that stands at the end of `units`. After a share of the rounds
    that share of the level is spent, raised to `power`.
    """
    stages = [
        (rounds, count, (rounds / planned[-1]) ** power)
        for rounds, count in zip(planned, units, strict=False)
        if last_rounds is None or rounds <= last_rounds
    ]
    if last_rounds is not None:
        stages.append((last_rounds, units[-1], 1.0))
    looks: list[Look] = []
    spent = 0.0
    for rounds, count, share in stages:
        budget = min(share, 1.0) * level - spent
        if count < 2 or budget <= 0.0:
            continue
        nominal = _nominal_level(looks[-1] if looks else None, count, budget)
        if _is_too_strict(count, nominal):
            continue
        looks.append(Look(rounds, count, nominal))
        spent += budget
    return tuple(looks)


def _is_too_strict(units: int, level: float) -> bool:
    """Whether so few units cannot show anything at this level, whatever they look like.

    Sessions can come in two equally frequent kinds, a faster and a slower one. Then all units
    have the slower one on the same side with this chance, and agree perfectly.
    """
    return 4.0**-units > level


def _nominal_level(before: Look | None, units: int, budget: float) -> float:
    """The level of a look whose chance to err where the look before did not is `budget`.

    The statistics of two looks are correlated by the root of the share of units that they have in
    common. To heed only the look before, and not all, errs to the safe side.
    """
    if before is None:
        return budget
    if units <= before.units:
        return before.level + budget

    shared = math.sqrt(before.units / units)
    own = math.sqrt(1.0 - shared**2)
    bound = float(scipy.special.ndtri(1.0 - before.level))

    def density(score: Floats) -> Floats:
        """That of this score where the look before was below its bound."""
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
    """Where to evaluate a density from 0 to `_FAR`, and what to multiply it with there."""
    places, weights = np.polynomial.legendre.leggauss(_NODES)
    return (places + 1.0) * _FAR / 2.0, weights * _FAR / 2.0
