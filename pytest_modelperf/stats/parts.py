"""How much longer the changed parts of a model take, as a share of the whole model.

A part runs in each turn of a duet right after the whole model of its side. A difference of a few
microseconds shows in its two sides, while the whole varies by a hundred times that. The shift of a
round is the time that the parts of the second side take longer. It is divided by the undisturbed
time of the whole, so that a busy machine does not make a change look smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.stats.decisions import Decision, RatioAnswer
from pytest_modelperf.stats.duet import (
    DuetRule,
    find_bounds,
    judge_duet,
    judge_once_a_round,
    median_differences,
)
from pytest_modelperf.stats.estimates import Floats, PairedTurns, bounded_exp, quantile_of
from pytest_modelperf.stats.records import PartTurns, Turns

# A part has a median of its undisturbed pairs if they are at least this share, and this many. A
# thread that wakes late shows no switch, and could slow down most of fewer pairs.
_UNDISTURBED_SHARE = 0.5
_FEWEST_PAIRS = 6
# The quantile of the whole's turns that counts as its undisturbed time.
_CALM_SHARE = 0.25
# The same quantile for the raw times on several disturbed processors.
_FAST_SHARE = 0.05
_SHORTEST_NS = 0.5
# The fewest rounds for a contradiction between the whole and its parts, the least difference as a
# share of the model, and the level as a share of the usual one. A change outside of the parts is so
# rare that at the full level most contradictions could be errors of the whole.
_FEWEST_TO_CONTRADICT = 3
_SLACK = 0.01
_RARELY = 0.1


class PartRound(Struct, frozen=True):
    """One round: the turns of both whole models, and of each part before and after."""

    whole: PairedTurns
    before: tuple[PartTurns, ...]
    after: tuple[PartTurns, ...]


class PartFigure(Struct, frozen=True):
    """The typical times of one part, and how much longer it takes, with bounds.

    The bounds include the shifts in place and alone.
    """

    before_ns: float
    after_ns: float
    shift_ns: float
    low_ns: float
    high_ns: float


def paired_shift(before: Turns, after: Turns) -> float:
    """Return how much longer the second of two paired runs typically takes, in nanoseconds."""
    old, new = _own(before), _own(after)
    differences = new - old
    if before.switches is None or after.switches is None:
        return float(np.median(differences))
    old_calm, new_calm = np.equal(before.switches, 0), np.equal(after.switches, 0)
    is_calm = old_calm & new_calm
    if np.sum(is_calm) >= _FEWEST_PAIRS and np.mean(is_calm) >= _UNDISTURBED_SHARE:
        return float(np.median(differences[is_calm]))
    # Neighbouring runs were disturbed differently, so each side has a quantile of its own.
    return _fast_run_ns(new, new_calm) - _fast_run_ns(old, old_calm)


def _fast_run_ns(times_ns: Floats, is_calm: npt.NDArray[np.bool_]) -> float:
    """Return the time of a fast run, the fastest of four or fewer. Prefer undisturbed runs."""
    runs = times_ns[is_calm] if is_calm.any() else times_ns
    # Interpolation would add a share of a run that may be ten times as slow.
    return float(np.quantile(runs, _CALM_SHARE, method="lower"))


class WholeTime(Struct, frozen=True):
    """The bounds of the undisturbed time of a whole model, which are equal on a calm machine."""

    low_ns: float
    high_ns: float

    @classmethod
    def between(cls, low_ns: float, high_ns: float) -> WholeTime:
        return cls(max(low_ns, _SHORTEST_NS), max(high_ns, _SHORTEST_NS))

    @property
    def likely_ns(self) -> float:
        return math.sqrt(self.low_ns * self.high_ns)


def time_whole(rounds: Sequence[PartRound]) -> WholeTime:
    """Return the undisturbed time of the whole model before the change.

    If all turns were disturbed on several processors, only bounds are known. If all threads of a
    turn waited together, the unstalled time is right. If two threads waited as long, but
    independently of each other, both ran for the square of that share of the turn.
    """
    before = [each.whole[0] for each in rounds]
    if not any(turns.unstalled_ns for turns in before):
        calm = undisturbed_ns([_own(turns) for turns in before])
        return WholeTime.between(calm, calm)
    times = np.concatenate([np.asarray(turns.times_ns, dtype=np.float64) for turns in before])
    unstalled = np.concatenate([_own(turns) for turns in before])
    longest = float(np.median(unstalled))
    # Some turns of a fast model are undisturbed, and its unstalled time can be too short, because
    # of waits that began before the turn.
    fast = quantile_of(times, _FAST_SHARE)
    if fast <= longest:
        return WholeTime.between(fast, fast)
    shortest = float(np.median(unstalled**2 / np.maximum(times, _SHORTEST_NS)))
    return WholeTime.between(shortest, longest)


def undisturbed_ns(rounds_ns: Sequence[Sequence[float] | Floats]) -> float:
    """Return the time of the less disturbed runs of a typical round."""
    return float(np.median([quantile_of(np.asarray(each), _CALM_SHARE) for each in rounds_ns]))


def part_share(rounds: Sequence[PartRound]) -> float:
    """Return the larger share of the two sides of the model's time in its parts."""
    shares = []
    for number in (0, 1):
        whole = np.median([np.median(_own(each.whole[number])) for each in rounds])
        parts = [
            sum(float(np.median(_own(part.in_place))) for part in side)
            for side in ((each.before, each.after)[number] for each in rounds)
        ]
        shares.append(float(np.median(parts)) / max(float(whole), _SHORTEST_NS))
    return max(shares)


def judge_parts(rounds: Sequence[PartRound], rule: DuetRule, *, is_last: bool) -> Decision:
    """Judge the median of the model by its parts in the rounds so far.

    An answer must hold in place and alone, and for both bounds of the time of the whole. The figure
    is between these (see `_shifts`).
    """
    whole = time_whole(rounds)
    tick_ns = max(turns.tick_ns for each in rounds for turns in each.whole)
    in_place, alone, likely = zip(*(_sums_of_shifts(each) for each in rounds), strict=True)

    def judge(shifts: Sequence[float], whole_ns: float) -> Decision:
        return judge_once_a_round(
            [(whole_ns, max(whole_ns + shift, _SHORTEST_NS)) for shift in shifts],
            rule,
            len(rounds),
            is_last=is_last,
            tick_ns=tick_ns * len(rounds[0].before),
        )

    bounds = dict.fromkeys((whole.low_ns, whole.high_ns))
    found = [judge(shifts, whole_ns) for shifts in (in_place, alone) for whole_ns in bounds]
    figure = judge(likely, whole.likely_ns)
    answer = _common_answer({each.answer for each in found})
    low, high = figure.low, figure.high
    if low is not None and high is not None:
        low = min(low, *(each.low for each in found if each.low is not None))
        high = max(high, *(each.high for each in found if each.high is not None))
    return replace(figure, answer=answer, low=low, high=high)


def _common_answer(answers: AbstractSet[RatioAnswer]) -> RatioAnswer:
    """Return the answer that all give. "Better" includes "not worse"."""
    if answers == {RatioAnswer.BETTER, RatioAnswer.NOT_WORSE}:
        return RatioAnswer.NOT_WORSE
    return next(iter(answers)) if len(answers) == 1 else RatioAnswer.OPEN


class MedianAnswer(Struct, frozen=True):
    """The decision on the median of a model, and whether its parts gave it.

    `contradiction` is the ratio of the whole model if it excludes the result of the parts.
    """

    decision: Decision
    is_by_parts: bool
    contradiction: float | None = None


def judge_whole_and_parts(
    rounds: Sequence[PartRound], rule: DuetRule, *, is_last: bool = False
) -> MedianAnswer:
    """Judge by the parts, or by the whole if it contradicts them or only it decides.

    Both can err, so each has half of the levels. Parts have no early looks, because a few more
    rounds can show a small change with a narrow interval.
    """
    half = replace(rule, level=rule.level / 2.0, pass_level=rule.pass_level / 2.0)
    pairs = [each.whole for each in rounds]
    parts = judge_parts(rounds, replace(half, has_early_looks=False), is_last=is_last)
    whole = judge_duet(pairs, half, is_last=is_last)
    contradiction = _find_contradiction(pairs, parts, half)
    if contradiction is not None:
        return MedianAnswer(whole, is_by_parts=False, contradiction=contradiction)
    if is_last and parts.answer is RatioAnswer.OPEN and whole.answer is not RatioAnswer.OPEN:
        return MedianAnswer(whole, is_by_parts=False)
    return MedianAnswer(parts, is_by_parts=True)


def _find_contradiction(
    pairs: Sequence[PairedTurns], parts: Decision, rule: DuetRule
) -> float | None:
    if len(pairs) < _FEWEST_TO_CONTRADICT or parts.ratio is None:
        return None
    found = find_bounds(median_differences(pairs, rule.tolerance), _RARELY * rule.level)
    low, high = (bounded_exp(float(each)) for each in (found.low, found.high))
    if low - _SLACK <= parts.ratio <= high + _SLACK:
        return None
    return bounded_exp(float(found.centre))


def part_figures(rounds: Sequence[PartRound], level: float) -> tuple[PartFigure, ...]:
    """Return the figures of each part. Each bound is wrong with the chance `level`."""
    found = []
    for index in range(len(rounds[0].before)):
        pairs = [(each.before[index], each.after[index]) for each in rounds]
        shifts = np.array([_shifts(old, new) for old, new in pairs]).T
        bounds = find_bounds(shifts, level)
        before, after = (
            float(np.median([np.median(_own(pair[side].in_place)) for pair in pairs]))
            for side in (0, 1)
        )
        found.append(
            PartFigure(
                before,
                after,
                float(bounds.centre[-1]),
                float(bounds.low.min()),
                float(bounds.high.max()),
            )
        )
    return tuple(found)


class Beyond(Struct, frozen=True):
    """How much longer the whole takes beyond the shifts of its parts, with bounds."""

    ns: float
    low_ns: float
    high_ns: float


class PartsAnswer(Struct, frozen=True):
    """All results of rounds in which parts ran with the whole.

    `calm_ns` is the likely undisturbed time of the whole before the change. A single round has no
    figures.
    """

    median: MedianAnswer
    calm_ns: float
    figures: tuple[PartFigure, ...] = ()
    beyond: Beyond | None = None


def judge_last(rounds: Sequence[PartRound], rule: DuetRule) -> PartsAnswer:
    """Judge the rounds of a duet after the last one. Each bound has the level of the rule."""
    median = judge_whole_and_parts(rounds, rule, is_last=True)
    before_ns = time_whole(rounds).likely_ns
    if len(rounds) == 1:
        return PartsAnswer(median, before_ns)
    figures = part_figures(rounds, rule.level)
    return PartsAnswer(median, before_ns, figures, _beyond(rounds, figures, before_ns, rule))


def _beyond(
    rounds: Sequence[PartRound], figures: Sequence[PartFigure], before_ns: float, rule: DuetRule
) -> Beyond:
    pairs = [each.whole for each in rounds]
    found = find_bounds(median_differences(pairs, rule.tolerance), rule.level)
    parts = sum(each.shift_ns for each in figures)
    doubt = sum(max(each.high_ns - each.shift_ns, each.shift_ns - each.low_ns) for each in figures)
    whole, low, high = (
        before_ns * (bounded_exp(float(each)) - 1.0)
        for each in (found.centre, found.low, found.high)
    )
    return Beyond(whole - parts, low - parts - doubt, high - parts + doubt)


def _sums_of_shifts(made: PartRound) -> tuple[float, float, float]:
    """Return how much longer all parts took in a round: in place, alone, and the figure."""
    shifts = [_shifts(old, new) for old, new in zip(made.before, made.after, strict=True)]
    in_place, alone, figure = (sum(each) for each in zip(*shifts, strict=True))
    return in_place, alone, figure


def _shifts(old: PartTurns, new: PartTurns) -> tuple[float, float, float]:
    """Return how much longer a part took in a round: in place, alone, and the model's figure.

    In place, all memory of a part was last used one inference ago, like its weights in the model.
    Alone, it was used just before, like the results that its kernels pass on in the model. So the
    figure is the shift alone, plus the share of the difference that has left the caches.
    """
    in_place = paired_shift(old.in_place, new.in_place)
    alone = paired_shift(old.alone, new.alone)
    return in_place, alone, alone + new.cold_share * (in_place - alone)


def _own(turns: Turns) -> Floats:
    """Return the times of turns, without waiting for a processor if that is known."""
    return np.asarray(turns.calm_ns, dtype=np.float64)
