"""Take rounds of one model, of two that take turns, or of many, from a bench."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias, TypeVar

from msgspec import Struct

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.measurements import Block, DuetRound, Load, Round, RoundStarts
from pytest_modelperf.profiler.sampling.loop import (
    Bench,
    Blocks,
    Loop,
    SamplingGoal,
    SamplingProgress,
    Trial,
    WatchSampling,
)
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.worker.timing import Clock
from pytest_modelperf.stats.records import Percentile

IsEnough: TypeAlias = Callable[[Sequence[Round]], bool]
BlockPair: TypeAlias = tuple[Block, Block]

_NS_PER_S = 1e9
# A part can wait for longer than the whole model takes.
_LEAST_RATIO = 0.01

_Key = TypeVar("_Key", bound=Hashable)


def sample(
    bench: Bench,
    policy: SamplingPolicy,
    clock: Clock,
    watch: WatchSampling,
    is_enough: IsEnough | None = None,
) -> tuple[Round, ...]:
    """Return rounds of one model, until its median is precise enough, or `is_enough` if given."""
    loop = Loop(bench, _goal(policy, is_enough), policy, clock, watch)
    return tuple(_round(trial, 0) for trial in loop.trials())


def sample_in_turn(  # noqa: PLR0913, PLR0917  # as `sample`, and in which order
    benches: Mapping[_Key, Bench],
    policy: SamplingPolicy,
    clock: Clock,
    watch: Callable[[_Key, SamplingProgress], None],
    choose: random.Random,
    group: Callable[[_Key], Hashable],
) -> tuple[dict[_Key, tuple[Round, ...]], dict[_Key, MeasureError]]:
    """Return the rounds that `sample` takes of many models, and the errors of those that failed.

    The models take turns: one round each, in random order, and then the next, so that all share the
    same conditions. Models of one `group` come right after one another. A model's time counts its
    own rounds, and its share of what others take beyond their time. So together they keep to the
    sum of their times, unless their first rounds take longer. If a model fails, its rounds are
    dropped, and the others go on.
    """
    watches = {key: _Stopwatch(clock) for key in benches}
    loops = {
        key: Loop(bench, _goal(policy, None), policy, watches[key], partial(watch, key))
        for key, bench in benches.items()
    }
    begun = clock()
    trials = {key: loop.trials() for key, loop in loops.items()}
    rounds: dict[_Key, list[Round]] = {key: [] for key in benches}
    failed: dict[_Key, MeasureError] = {}
    waiting = list(benches)
    while waiting:
        waiting = _shuffled(waiting, choose, group)
        going_on = []
        for key in waiting:
            try:
                with watches[key].running():
                    trial = next(trials[key], None)
            except MeasureError as error:
                failed[key] = error
                del rounds[key]
                continue
            if trial is not None:
                rounds[key].append(_round(trial, 0))
                going_on.append(key)
        waiting = going_on
        # A failure can take long, and its time is not charged to the others.
        spent_ns = clock() - begun - sum(watches[key]() for key in failed)
        whole_ns = round(len(rounds) * policy.max_seconds * _NS_PER_S)
        beyond_ns = sum(loops[key].left_ns() for key in waiting) - (whole_ns - spent_ns)
        for key in waiting:
            watches[key].charge(max(beyond_ns, 0) // len(waiting))
    return {key: tuple(taken) for key, taken in rounds.items()}, failed


def _shuffled(
    keys: Sequence[_Key], choose: random.Random, group: Callable[[_Key], Hashable]
) -> list[_Key]:
    groups: dict[Hashable, list[_Key]] = {}
    for key in choose.sample(keys, len(keys)):
        groups.setdefault(group(key), []).append(key)
    return [key for members in groups.values() for key in members]


class _Stopwatch(Struct):
    """A clock that only advances while it is `running`."""

    clock: Clock
    _shown_ns: int = 0
    _since_ns: int | None = None

    def __call__(self) -> int:
        if self._since_ns is None:
            return self._shown_ns
        return self._shown_ns + self.clock() - self._since_ns

    def charge(self, duration_ns: int) -> None:
        self._shown_ns += duration_ns

    @contextmanager
    def running(self) -> Iterator[None]:
        self._since_ns = self.clock()
        try:
            yield
        finally:
            self._shown_ns, self._since_ns = self(), None


def _goal(policy: SamplingPolicy, is_enough: IsEnough | None) -> SamplingGoal:
    from pytest_modelperf.stats.estimates import MEDIAN, estimate_percentile
    from pytest_modelperf.stats.mixtures import summarize_mixture
    from pytest_modelperf.stats.quantiles import load_quantiles

    # This takes long, and must not count as measuring time. A single round has no interval.
    if policy.max_rounds > 1:
        load_quantiles()

    def estimate(taken: Sequence[Blocks]) -> Percentile:
        mixture = summarize_mixture([block for (block,) in taken], policy.confidence)
        if mixture is not None:
            return mixture.mean
        times_ns = [block.times_ns for (block,) in taken]
        return estimate_percentile(times_ns, MEDIAN, policy.confidence)

    def is_precise(trials: Sequence[Trial], median: Percentile | None) -> bool:
        return (
            sum(trial.turns for trial in trials) >= max((policy.min_samples, *policy.tail_samples))
            and median is not None
            and median.half_width is not None
            and median.half_width <= policy.precision
        )

    return SamplingGoal(
        figures=lambda blocks: _single_figures(blocks[0]),
        estimate=estimate,
        is_enough=is_precise
        if is_enough is None
        else lambda trials, _: is_enough([_round(trial, 0) for trial in trials]),
    )


def _round(trial: Trial, side: int) -> Round:
    load, first = trial.loads[side], trial.first[side]
    return Round(
        load_ns=load.duration_ns,
        first_ns=first.times_ns[0],
        warmup_runs=trial.warmup.runs,
        is_steady=trial.warmup.is_steady,
        block=trial.taken[side],
        starts=_starts(load, first, [window[side] for window in trial.warmup.ends]),
    )


def _starts(load: Load, first: Block, windows: Sequence[Block]) -> RoundStarts | None:
    if load.begun_ns is None or first.starts_ns is None:
        return None
    known = [window for window in windows if window.starts_ns]
    return RoundStarts(
        load_ns=load.begun_ns,
        first_ns=first.starts_ns[0],
        warmup_ns=known[0].start_ns if known else None,
        warmup_end_ns=known[-1].end_ns if known else None,
    )


def sample_duet(
    bench: Bench,
    policy: SamplingPolicy,
    clock: Clock,
    watch: WatchSampling,
    is_decided: Callable[[Sequence[DuetRound]], bool],
) -> tuple[DuetRound, ...]:
    """Return rounds of two sides in turn, until `is_decided`, first called after `min_rounds`."""
    goal = SamplingGoal(
        figures=_duet_figures,
        estimate=lambda _: None,
        is_enough=lambda trials, _: is_decided([_duet_round(trial) for trial in trials]),
    )
    return tuple(_duet_round(trial) for trial in Loop(bench, goal, policy, clock, watch).trials())


def _single_figures(block: Block) -> list[float]:
    """Return the logs of the times, scaled to the mean of all members in a workload."""
    if block.mix is None:
        return [_log(ns) for ns in block.times_ns]
    places = block.mix.turns
    usual = {place: statistics.median(block.of_member(place).times_ns) for place in set(places)}
    mean = _log(statistics.fmean(usual[place] for place in places))
    return [
        mean + _log(ns) - _log(usual[place])
        for ns, place in zip(block.times_ns, places, strict=True)
    ]


def _duet_round(trial: Trial) -> DuetRound:
    return DuetRound(before=_round(trial, 0), after=_round(trial, 1))


def _duet_figures(blocks: Blocks) -> list[float]:
    """Return the change in each turn, or that of the parts. Its spread plans the rounds."""
    before, after = blocks
    if not (before.parts and after.parts):
        # The waits for a processor are left out if both sides know them.
        old, new = before.running_ns, after.running_ns
        if old is None or new is None:
            old, new = before.times_ns, after.times_ns
        return [_log(b) - _log(a) for a, b in zip(old, new, strict=True)]
    sums = [
        [sum(turn) for turn in zip(*(part.in_place.calm_ns for part in side.parts), strict=True)]
        for side in blocks
    ]
    whole = statistics.median(before.calm_ns)
    return [
        math.log(max(1.0 + (b - a) / max(whole, 1), _LEAST_RATIO))
        for a, b in zip(*sums, strict=True)
    ]


def _log(time_ns: float) -> float:
    # A coarse clock can measure 0, which has no logarithm.
    return math.log(max(time_ns, 0.5))
