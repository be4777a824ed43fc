"""The duet test: whether the second side is slower than the first by more than is allowed.

Its data are differences of logs: one for each round, or for a tail, one for each group of rounds.
`judge_sequence` makes all decisions, for any number of comparisons at once, so the simulation in
the tests checks the code that runs. docs/statistics.md describes the rule.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.stats.decisions import (
    LOOKS,
    SOONER,
    Decision,
    Look,
    RatioAnswer,
    plan_early_looks,
    spend_level,
)
from pytest_modelperf.stats.estimates import (
    MEDIAN,
    Floats,
    PairedTurns,
    bounded_exp,
    difference_of_medians,
    duet_ratio,
    log_of_tick,
    logs,
    needed_samples,
    paired_difference,
    quantile_of,
    reported_change,
    resolution,
    shift_to_detect,
)
from pytest_modelperf.stats.quantiles import standard_error, t_critical

# A detectable slowdown is found with this chance.
POWER = 0.9
# The fewest rounds in which to look for modes, and the chance to find some wrongly.
_FEWEST_FOR_MODES = 4
_MODES_LEVEL = 0.05
_MOST_ROUNDS = 10_000


class DuetRule(Struct, frozen=True, kw_only=True):
    """The tolerance, the error levels of both answers, and the rounds after which to look.

    `level` bounds the chance that a ratio of at most 1 + `tolerance` is called worse at any look.
    `pass_level` bounds the chance that a ratio of at least 1 + `tolerance` is called not worse.
    `has_early_looks`: the looks for "not worse" begin after fewer rounds than those for an alarm.
    """

    tolerance: float = 0.03
    level: float = 0.01
    pass_level: float = 0.05
    looks: tuple[int, ...] = LOOKS
    has_early_looks: bool = True

    @property
    def margin(self) -> float:
        return math.log1p(self.tolerance)

    @property
    def confidence(self) -> float:
        """The confidence of the interval of an alarm. It can fail on either side."""
        return 1.0 - 2.0 * self.level

    @property
    def pass_confidence(self) -> float:
        return 1.0 - 2.0 * self.pass_level

    @property
    def pass_looks(self) -> tuple[int, ...]:
        return plan_early_looks(self.looks[-1]) if self.has_early_looks else self.looks


class Schedule(Struct, frozen=True):
    """The looks for both questions: worse, and not worse.

    A ratio that looks improved does not pass before `patience` rounds, so that the improvement can
    still be shown. After the last round it does not wait.
    """

    alarms: tuple[Look, ...]
    passes: tuple[Look, ...]
    patience: int = 0

    def in_order(self) -> Sequence[tuple[Look, bool]]:
        """Return all looks in order, and whether each is for alarms.

        Looks for alarms come first after a round. After the last round, the planned looks come
        before the last ones, because their answers are final.
        """
        looks = [(look, True) for look in self.alarms] + [(look, False) for look in self.passes]
        return sorted(looks, key=lambda each: (each[0].rounds, each[0].is_last))


class Bounds(Struct, frozen=True):
    """The centres of differences, and the bounds of each at its error level."""

    centre: Floats
    low: Floats
    high: Floats


class EndedSequences(Struct, frozen=True):
    """The results of comparisons: the answers, and their looks with bounds.

    `answer` is 1 for worse, -1 for not worse, -2 for better, and 0 for open. `rounds`, `units` and
    `level` belong to the look that decided, or to the last look for alarms of an open comparison.
    """

    answer: npt.NDArray[np.int_]
    rounds: npt.NDArray[np.int_]
    units: npt.NDArray[np.int_]
    level: Floats
    bounds: Bounds


_WORSE, _NOT_WORSE, _BETTER = 1, -1, -2
_ANSWERS = {
    _WORSE: RatioAnswer.WORSE,
    0: RatioAnswer.OPEN,
    _NOT_WORSE: RatioAnswer.NOT_WORSE,
    _BETTER: RatioAnswer.BETTER,
}


def judge_duet(
    pairs: Sequence[PairedTurns], rule: DuetRule, percent: float = MEDIAN, *, is_last: bool = False
) -> Decision:
    """Judge this percentile by the rounds so far.

    The answer of an earlier look is final. `is_last` means that there are no further rounds, so
    the rest of both error levels is spent.
    """
    differences = _differences(pairs, percent, rule.tolerance)

    def units_after(rounds: int) -> int:
        return _count_units(pairs, differences, percent, rounds)

    schedule = _schedule(len(pairs), units_after, rule, is_last=is_last)
    if schedule.in_order():
        return judge_differences(differences.values, schedule, rule, resolution(pairs))
    found = _undecided(differences.values, len(pairs), rule)
    return found if percent == MEDIAN else _with_needs(found, pairs, percent)


def judge_once_a_round(
    pairs: Sequence[tuple[float, float]],
    rule: DuetRule,
    rounds: int,
    *,
    is_last: bool = False,
    tick_ns: float = 1.0,
) -> Decision:
    """Judge a time that each side has once a round, by the rounds so far.

    `pairs` may lack the first of the `rounds`. The answer of an earlier look is final, as for a
    percentile. The times are multiples of `tick_ns`.
    """
    values = differences_of_logs(pairs)

    def units_after(count: int) -> int:
        return max(count - (rounds - len(pairs)), 0)

    schedule = _schedule(rounds, units_after, rule, is_last=is_last)
    if not schedule.in_order():
        return _undecided(values, rounds, rule)
    least = log_of_tick(tick_ns, min(map(min, pairs), default=0.0))
    return judge_differences(values, schedule, rule, least)


def once_a_round_looks_worse(pairs: Sequence[tuple[float, float]], rule: DuetRule) -> bool:
    """Whether a time measured once a round would be worse at the error level of passes."""
    if len(pairs) < 2:
        return False
    return bool(find_bounds(differences_of_logs(pairs), rule.pass_level).low > rule.margin)


def differences_of_logs(pairs: Sequence[tuple[float, float]]) -> Floats:
    """Return the log ratio of each pair, the second over the first."""
    before, after = (logs([pair[side] for pair in pairs]) for side in (0, 1))
    return after - before


def looks_worse(pairs: Sequence[PairedTurns], rule: DuetRule, percent: float) -> bool:
    """Whether a percentile would be worse at the error level of passes."""
    differences = _differences(pairs, percent, rule.tolerance)
    if _count_units(pairs, differences, percent, len(pairs)) < 2:
        return False
    return bool(find_bounds(differences.values, rule.pass_level).low > rule.margin)


def judge_sequence(
    differences: Floats, schedule: Schedule, margin: float, least: float = 0.0
) -> EndedSequences:
    """Return the first answer for each row of differences, and its look.

    Every bound is at least `least` away from its centre.
    """
    count = len(differences)
    ended = EndedSequences(
        answer=np.zeros(count, dtype=np.int_),
        rounds=np.zeros(count, dtype=np.int_),
        units=np.zeros(count, dtype=np.int_),
        level=np.zeros(count),
        bounds=Bounds(np.zeros(count), np.full(count, -np.inf), np.full(count, np.inf)),
    )
    for look, is_alarm in schedule.in_order():
        rows = np.flatnonzero(ended.answer == 0)
        if not rows.size:
            break
        found = find_bounds(differences[rows, : look.units], look.level)
        low = np.minimum(found.low, found.centre - least)
        high = np.maximum(found.high, found.centre + least)
        if is_alarm:
            answer = np.select([low > margin, high < -margin], [_WORSE, _BETTER], 0)
        else:
            is_early = look.rounds < schedule.patience and not look.is_last
            waits = (found.centre < -margin) & is_early
            answer = np.where((high < margin) & ~waits, _NOT_WORSE, 0)
        # An open comparison is described by its last look for alarms, if there was one.
        kept = (answer != 0) | is_alarm | (not schedule.alarms)
        rows = rows[kept]
        ended.answer[rows] = answer[kept]
        ended.rounds[rows], ended.units[rows], ended.level[rows] = (
            look.rounds,
            look.units,
            look.level,
        )
        ended.bounds.centre[rows] = found.centre[kept]
        ended.bounds.low[rows], ended.bounds.high[rows] = low[kept], high[kept]
    return ended


def find_bounds(differences: Floats, level: float) -> Bounds:
    """Return the centre of each row, and bounds. Each is wrong with the chance `level`.

    A single row gives single numbers. The bounds are those of Wilcoxon's signed rank test, which is
    robust against a few disturbed rounds, or of the t test if there are too few rounds for ranks.
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
    """Return the outermost bounds that the signed rank test does not reject.

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
    """Return the smallest sum of positive ranks that is reached with at most this chance.

    Each rank is positive with the chance 1/2. `scipy.stats.wilcoxon` computes the same, but takes a
    second to import.
    """
    chances = np.ones(1)
    for rank in range(1, count + 1):
        without = np.pad(chances, (0, rank))
        chances = (without + np.roll(without, rank)) / 2.0
    reached = np.cumsum(chances[::-1])[::-1]
    return int(np.count_nonzero(reached > level))


class _Differences(Struct, frozen=True):
    """The differences of logs, and the number of rounds after which each was known."""

    values: Floats
    ends: Sequence[int]


def has_modes(pairs: Sequence[PairedTurns], tolerance: float) -> bool:
    """Whether the difference of the sides' medians differs from that of the typical pair.

    This happens if inferences come in two kinds, and one side has the slow kind more often: the
    typical pair has one of each kind, in either order. The difference must be shown and exceed the
    tolerance, because it often occurs by chance. The kinds of a workload are its members, each of
    which is paired on its own.
    """
    if len(pairs) < _FEWEST_FOR_MODES or pairs[0][0].mix is not None:
        return False
    found = np.array([difference_of_medians(pair) - paired_difference(pair) for pair in pairs])
    centre = abs(float(found.mean()))
    half = float(t_critical(_MODES_LEVEL, len(pairs) - 1) * standard_error(found))
    return centre > max(half, math.log1p(tolerance))


def typical_ratio_of_modes(
    pairs: Sequence[PairedTurns], tolerance: float, confidence: float
) -> float | None:
    """Return the ratio of the typical pair if modes decide the median, or else None."""
    return duet_ratio(pairs, confidence).value if has_modes(pairs, tolerance) else None


def median_differences(pairs: Sequence[PairedTurns], tolerance: float) -> Floats:
    """Return the difference of each round for the median: that of the typical pair, without drift.

    For a model with modes, it is the difference of the medians.
    """
    figure = difference_of_medians if has_modes(pairs, tolerance) else paired_difference
    return np.array([figure(pair) for pair in pairs], dtype=np.float64)


def _differences(pairs: Sequence[PairedTurns], percent: float, tolerance: float) -> _Differences:
    """Return the differences of a percentile. The median has one for each round.

    For a tail, neighbouring rounds are grouped until each side has enough samples to expect one
    beyond the percentile. The remaining rounds wait for further ones.
    """
    if percent == MEDIAN:
        return _Differences(median_differences(pairs, tolerance), range(1, len(pairs) + 1))
    share = percent / 100.0
    # The slack is needed because 1 / (1 - 0.95) is a little more than 20.
    least = math.ceil(1.0 / (1.0 - share) - 1e-6)
    differences: list[float] = []
    ends: list[int] = []
    group: list[PairedTurns] = []
    for number, pair in enumerate(pairs, 1):
        group.append(pair)
        if _fewest_samples(group) >= least:
            before, after = (
                quantile_of(np.concatenate([logs(pair[side].times_ns) for pair in group]), share)
                for side in (0, 1)
            )
            differences.append(after - before)
            ends.append(number)
            group = []
    return _Differences(np.array(differences, dtype=np.float64), ends)


def plan_schedule(rule: DuetRule) -> Schedule:
    """Return the looks of a comparison with all its rounds, and one difference for each round."""
    alarms = spend_level(rule.looks, rule.looks, rule.level)
    passes = spend_level(rule.pass_looks, rule.pass_looks, rule.pass_level, power=SOONER)
    return Schedule(alarms, passes, patience=alarms[0].rounds if alarms else 0)


def _schedule(
    taken: int, units_after: Callable[[int], int], rule: DuetRule, *, is_last: bool
) -> Schedule:
    """Return the looks that are due after the `taken` rounds.

    `units_after` returns the number of differences after a number of rounds.
    """

    def spend(planned: tuple[int, ...], level: float, **power: float) -> tuple[Look, ...]:
        units = tuple(units_after(rounds) for rounds in planned if rounds <= taken)
        if not is_last:
            return spend_level(planned, units, level, **power)
        return spend_level(planned, (*units, units_after(taken)), level, taken, **power)

    return Schedule(
        spend(rule.looks, rule.level),
        spend(rule.pass_looks, rule.pass_level, power=SOONER),
        patience=plan_schedule(rule).patience,
    )


def _count_units(
    pairs: Sequence[PairedTurns], differences: _Differences, percent: float, rounds: int
) -> int:
    """Count the differences of these rounds, or return 0 if the samples do not support the tail."""
    if percent != MEDIAN and _fewest_samples(pairs[:rounds]) < needed_samples(percent):
        return 0
    return bisect.bisect_right(differences.ends, rounds)


def _fewest_samples(pairs: Sequence[PairedTurns]) -> int:
    return min(sum(len(pair[side].times_ns) for pair in pairs) for side in (0, 1))


def _undecided(values: Floats, rounds: int, rule: DuetRule) -> Decision:
    """Return the decision before the first look."""
    return Decision(
        confidence=rule.confidence,
        rounds=rounds,
        ratio=bounded_exp(float(values.mean())) if values.size else None,
        rounds_needed=next((look for look in rule.pass_looks if look > rounds), None),
    )


def _with_needs(found: Decision, pairs: Sequence[PairedTurns], percent: float) -> Decision:
    """Return the decision before the first look at a tail, with the number of samples needed."""
    samples, needed = _fewest_samples(pairs), needed_samples(percent)
    if samples >= needed:
        return found
    rounds_needed = math.ceil(len(pairs) * needed / samples) if samples else None
    return replace(found, ratio=None, rounds_needed=rounds_needed, samples_needed=needed)


def judge_differences(
    differences: Floats, schedule: Schedule, rule: DuetRule, least: float = 0.0
) -> Decision:
    """Return the decision of one comparison, with its interval and the detectable slowdown."""
    ended = judge_sequence(differences[np.newaxis], schedule, rule.margin, least)
    answer = _ANSWERS[int(ended.answer[0])]
    rounds, units, level = int(ended.rounds[0]), int(ended.units[0]), float(ended.level[0])
    centre, low, high = (
        float(values[0]) for values in (ended.bounds.centre, ended.bounds.low, ended.bounds.high)
    )
    # The standard deviation at which a t interval would be this wide. If the interval is by ranks,
    # it ignores disturbed rounds.
    seen_by = find_bounds(differences[:units], level)
    critical = float(t_critical(level, units - 1))
    spread = float(seen_by.high - seen_by.low) / 2.0 / critical * math.sqrt(units)
    has_passed = answer is RatioAnswer.NOT_WORSE
    # With too few rounds for an alarm, no slowdown can be shown, and an interval at the level of
    # passes does not explain why there was no alarm.
    has_interval = answer is not RatioAnswer.OPEN or bool(schedule.alarms)
    alarm_level = rule.level if has_passed or not has_interval else level
    seen = _shift(spread, alarm_level, units)
    needed, distance = None, abs(centre - rule.margin)
    # If the clock cannot distinguish a ratio from the allowed one, more rounds do not help.
    if answer is RatioAnswer.OPEN and distance > least:
        is_low = centre < rule.margin and schedule.passes
        nearest = schedule.passes[-1].level if is_low else alarm_level
        found = _units_to_decide(spread, units, nearest, distance)
        needed = None if found is None else math.ceil(found * rounds / units)
    return Decision(
        answer=answer,
        confidence=rule.pass_confidence if has_passed else rule.confidence,
        rounds=rounds,
        ratio=bounded_exp(centre),
        low=bounded_exp(low) if has_interval else None,
        high=bounded_exp(high) if has_interval else None,
        detectable=reported_change(bounded_exp(rule.margin + max(seen, least)) - 1.0)
        if has_interval
        else None,
        rounds_needed=needed,
    )


def _units_to_decide(spread: float, units: int, level: float, distance: float) -> int | None:
    """Return how many differences would decide a ratio at this distance from the allowed one."""
    counts = range(units + 1, _MOST_ROUNDS)
    fewest = bisect.bisect_left(
        counts, 1, key=lambda count: _shift(spread, level, count) <= distance
    )
    return counts[fewest] if fewest < len(counts) else None


def _shift(spread: float, level: float, count: int) -> float:
    """Return the distance from the allowed ratio that a t test of this size finds with `POWER`."""
    return shift_to_detect(level, POWER, count) * spread
