"""The duet test: whether the second side is slower than the first by more than is allowed.

Its data are one difference of logs for each round, or, for the tail, for each group of rounds.
Everything that is decided is decided in `judge_sequence`, which takes any number of comparisons at
once, so that what the simulation proves is what runs. docs/statistics.md has the rule in words.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from pytest_modelperf.decisions import Answer, Decision
from pytest_modelperf.stats.estimates import (
    MEDIAN,
    Floats,
    PairedTimes,
    bounded_exp,
    logs,
    needed_samples,
    paired_difference,
    shift_to_detect,
)
from pytest_modelperf.stats.looks import LOOKS, Look, spend_level
from pytest_modelperf.stats.quantiles import standard_error, t_critical

# What is detectable is what is found so often.
POWER = 0.9
_MOST_ROUNDS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DuetRule:
    """What is allowed, how often the answer may be wrong, and after which rounds to look.

    `level` bounds the chance that a ratio of at most 1 + `tolerance` is called worse at any of the
    looks, and the chance that one of at least that is called not worse.
    """

    tolerance: float = 0.03
    level: float = 0.01
    looks: tuple[int, ...] = LOOKS

    @property
    def margin(self) -> float:
        return math.log1p(self.tolerance)

    @property
    def confidence(self) -> float:
        """That of the interval, which can fail on either side."""
        return 1.0 - 2.0 * self.level


@dataclass(frozen=True, slots=True)
class Bounds:
    """Centres of differences with the bounds that each keeps at its level."""

    centre: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Sequences:
    """How comparisons ended: what was shown, and at which look, by its index.

    `answer` is 1 where it is worse, -1 not worse, -2 better, and 0 open; the bounds are those of
    the look that decided, or else of the last one.
    """

    answer: npt.NDArray[np.int_]
    look: npt.NDArray[np.int_]
    bounds: Bounds


_ANSWERS = {1: Answer.WORSE, 0: Answer.OPEN, -1: Answer.NOT_WORSE, -2: Answer.BETTER}


def judge_duet(
    pairs: Sequence[PairedTimes], rule: DuetRule, percent: float = MEDIAN, *, is_last: bool = False
) -> Decision:
    """What the rounds so far show of this percentile.

    An answer that was given at an earlier look stands. With `is_last` there will be no further
    round, and what is left of the level is spent.
    """
    differences = _differences(pairs, percent)
    looks = _looks(pairs, differences, rule, percent, is_last=is_last)
    if not looks:
        return _undecided(pairs, differences, rule, percent)
    ended = judge_sequence(differences.values[np.newaxis], looks, rule.margin)
    return _describe(ended, looks, rule)


def is_settled(pairs: Sequence[PairedTimes], rules: Mapping[float, DuetRule]) -> bool:
    """Whether every percentile has its answer, so that no further round is needed.

    Each is judged at its own looks, and by its own rule.
    """
    return all(_is_answered(pairs, rule, percent) for percent, rule in rules.items())


def judge_sequence(differences: Floats, looks: Sequence[Look], margin: float) -> Sequences:
    """What is shown of each row of differences, and at which of the looks first."""
    count = len(differences)
    answer = np.zeros(count, dtype=np.int_)
    decided_at = np.full(count, len(looks) - 1)
    centre, low, high = np.zeros(count), np.full(count, -np.inf), np.full(count, np.inf)
    for index, look in enumerate(looks):
        still_open = np.flatnonzero(answer == 0)
        if not still_open.size:
            break
        found = find_bounds(differences[still_open, : look.units], look.level)
        centre[still_open], low[still_open], high[still_open] = found.centre, found.low, found.high
        answer[still_open] = np.select(
            [found.low > margin, found.high < -margin, found.high < margin], [1, -2, -1], 0
        )
        decided_at[still_open] = index
    return Sequences(answer, decided_at, Bounds(centre, low, high))


def find_bounds(differences: Floats, level: float) -> Bounds:
    """For each row its centre and the bounds that it oversteps with a chance of `level` each.

    They are those of Wilcoxon's signed rank test, which a few rounds that were disturbed do not
    move, and of the t test where there are too few rounds for ranks to show anything.
    """
    if 2.0 ** -differences.shape[-1] <= level:
        return _rank_bounds(differences, level)
    return _t_bounds(differences, level)


def _t_bounds(differences: Floats, level: float) -> Bounds:
    count = differences.shape[-1]
    centre = differences.mean(axis=-1)
    half = t_critical(level, count - 1) * standard_error(differences)
    return Bounds(centre, centre - half, centre + half)


def _rank_bounds(differences: Floats, level: float) -> Bounds:
    """The bounds at which the signed rank test would just not reject.

    Its statistic is the number of Walsh averages (the means of two differences, or of one with
    itself) above the bound: Hollander and Wolfe, "Nonparametric statistical methods", 3.3.
    """
    first, second = np.triu_indices(differences.shape[-1])
    walsh = (differences[..., first] + differences[..., second]) / 2.0
    critical = _critical_rank_sum(differences.shape[-1], level)
    above, below = walsh.shape[-1] - critical, critical - 1
    middle = ((walsh.shape[-1] - 1) // 2, walsh.shape[-1] // 2)
    walsh.partition((below, *middle, above), axis=-1)
    centre = walsh[..., middle].mean(axis=-1)
    return Bounds(centre, walsh[..., above], walsh[..., below])


@cache
def _critical_rank_sum(count: int, level: float) -> int:
    """The smallest sum of positive ranks that no more than this chance reaches.

    Each rank is positive as often as not, which `scipy.stats.wilcoxon` counts, too. That takes a
    second to import.
    """
    chances = np.ones(1)
    for rank in range(1, count + 1):
        without = np.pad(chances, (0, rank))
        chances = (without + np.roll(without, rank)) / 2.0
    reached = np.cumsum(chances[::-1])[::-1]
    return int(np.count_nonzero(reached > level))


@dataclass(frozen=True, slots=True)
class _Differences:
    """The differences of logs, and after how many rounds each of them was known."""

    values: Floats
    ends: Sequence[int]


def _differences(pairs: Sequence[PairedTimes], percent: float) -> _Differences:
    """The median has a difference for each round: the median over its turns, where drift cancels.

    Of a tail neighbouring rounds are taken together until each side has as many samples as have
    one beyond the percentile. What is left over waits for further rounds.
    """
    if percent == MEDIAN:
        each = [paired_difference(pair) for pair in pairs]
        return _Differences(np.array(each, dtype=np.float64), range(1, len(pairs) + 1))
    share = percent / 100.0
    # Without the slack 1 / (1 - 0.95) is a little more than 20.
    least = math.ceil(1.0 / (1.0 - share) - 1e-6)
    differences: list[float] = []
    ends: list[int] = []
    group: list[PairedTimes] = []
    for number, pair in enumerate(pairs, 1):
        group.append(pair)
        if _fewest_samples(group) >= least:
            before, after = (
                float(np.quantile(np.concatenate([logs(times[side]) for times in group]), share))
                for side in (0, 1)
            )
            differences.append(after - before)
            ends.append(number)
            group = []
    return _Differences(np.array(differences, dtype=np.float64), ends)


def _looks(
    pairs: Sequence[PairedTimes],
    differences: _Differences,
    rule: DuetRule,
    percent: float,
    *,
    is_last: bool,
) -> tuple[Look, ...]:
    """The looks that these rounds have come to."""
    units = tuple(
        _count_units(pairs, differences, percent, rounds)
        for rounds in rule.looks
        if rounds <= len(pairs)
    )
    if not is_last:
        return spend_level(rule.looks, units, rule.level)
    now = _count_units(pairs, differences, percent, len(pairs))
    return spend_level(rule.looks, (*units, now), rule.level, len(pairs))


def _is_answered(pairs: Sequence[PairedTimes], rule: DuetRule, percent: float) -> bool:
    differences = _differences(pairs, percent)
    looks = _looks(pairs, differences, rule, percent, is_last=False)
    ended = judge_sequence(differences.values[np.newaxis], looks, rule.margin)
    return bool(ended.answer[0] != 0)


def _count_units(
    pairs: Sequence[PairedTimes], differences: _Differences, percent: float, rounds: int
) -> int:
    """How many differences these rounds have; none where the samples do not support the tail."""
    if percent != MEDIAN and _fewest_samples(pairs[:rounds]) < needed_samples(percent):
        return 0
    return bisect.bisect_right(differences.ends, rounds)


def _fewest_samples(pairs: Sequence[PairedTimes]) -> int:
    return min(_samples(pairs, 0), _samples(pairs, 1))


def _samples(pairs: Sequence[PairedTimes], side: int) -> int:
    return sum(len(pair[side]) for pair in pairs)


def _undecided(
    pairs: Sequence[PairedTimes], differences: _Differences, rule: DuetRule, percent: float
) -> Decision:
    """The decision where no look was possible yet."""
    values = differences.values
    needed = rounds_needed = None
    samples = _fewest_samples(pairs)
    if percent != MEDIAN and samples < needed_samples(percent):
        needed = needed_samples(percent)
        rounds_needed = math.ceil(len(pairs) * needed / samples) if samples else None
    else:
        rounds_needed = next((look for look in rule.looks if look > len(pairs)), None)
    return Decision(
        answer=Answer.OPEN,
        confidence=rule.confidence,
        rounds=len(pairs),
        ratio=bounded_exp(float(values.mean())) if values.size and not needed else None,
        rounds_needed=rounds_needed,
        samples_needed=needed,
    )


def _describe(ended: Sequences, looks: Sequence[Look], rule: DuetRule) -> Decision:
    """The decision of the only comparison that there is."""
    look = looks[int(ended.look[0])]
    answer = _ANSWERS[int(ended.answer[0])]
    centre, low, high = (
        float(values[0]) for values in (ended.bounds.centre, ended.bounds.low, ended.bounds.high)
    )
    # What a t test would have needed to see for an interval as wide: for ranks it is a spread in
    # which the disturbed rounds do not count.
    critical = float(t_critical(look.level, look.units - 1))
    spread = (high - low) / 2.0 / critical * math.sqrt(look.units)
    seen = _shift(spread, look.level, look.units)
    needed = None
    if answer is Answer.OPEN:
        units = _units_to_decide(spread, look, abs(centre - rule.margin))
        needed = None if units is None else math.ceil(units * look.rounds / look.units)
    return Decision(
        answer=answer,
        confidence=rule.confidence,
        rounds=look.rounds,
        ratio=bounded_exp(centre),
        low=bounded_exp(low),
        high=bounded_exp(high),
        detectable=bounded_exp(rule.margin + seen) - 1.0,
        rounds_needed=needed,
    )


def _units_to_decide(spread: float, look: Look, distance: float) -> int | None:
    """How many differences would show a ratio at this distance from what is allowed."""
    counts = range(look.units + 1, _MOST_ROUNDS)
    fewest = bisect.bisect_left(
        counts, 1, key=lambda count: _shift(spread, look.level, count) <= distance
    )
    return counts[fewest] if fewest < len(counts) else None


def _shift(spread: float, level: float, count: int) -> float:
    """How far beyond what is allowed a t test of so many differences sees with `POWER`."""
    return float(shift_to_detect(level, POWER, np.array([count]))[0]) * spread
