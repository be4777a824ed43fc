"""Takes rounds of one model, of two that take turns, or of many, from a bench.

A bench is anything that can load and time a model; the clock is a function.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.measurements import Block, DuetRound, Load, Round, RoundStarts
from pytest_modelperf.profiler.sampling.loop import (
    Loop,
    SamplingProgress,
    SamplingTarget,
    Trial,
    WatchSampling,
)
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.worker.clocks import Clock
from pytest_modelperf.stats.records import Percentile

IsEnough: TypeAlias = Callable[[Sequence[Sequence[int]]], bool]
BlockPair: TypeAlias = tuple[Block, Block]

_MEDIAN = 50.0
_NS_PER_S = 1e9
# A part can wait for longer than the whole model takes.
_LEAST_RATIO = 0.01

_Taken = TypeVar("_Taken")
_Key = TypeVar("_Key", bound=Hashable)


class Bench(Protocol):
    """One model that can be loaded and timed."""

    def open(self) -> Load:
        """Load a fresh session; how long that took."""
        ...

    def block(self, count: int, max_ns: int) -> Block:
        """Up to `count` inferences, at least one; none is begun after `max_ns`."""
        ...

    def close(self) -> None:
        """Give the session back, if there is one: opening it may have failed."""
        ...


class DuetBench(Protocol):
    """Two sides in one worker, loaded together and timed in turn."""

    def open(self) -> tuple[Load, Load]:
        """Load a fresh session of each side; how long each took."""
        ...

    def pair_block(self, count: int, max_ns: int) -> BlockPair:
        """Up to `count` turns, at least one, in each of which both sides run, in random order."""
        ...

    def close(self) -> None:
        """Give back the sessions that there are: opening them may have failed."""
        ...


def sample(
    bench: Bench,
    policy: SamplingPolicy,
    clock: Clock,
    watch: WatchSampling,
    is_enough: IsEnough | None = None,
) -> tuple[Round, ...]:
    """Rounds of one model, until the interval of its median is as narrow as `policy` asks.

    `is_enough` replaces that rule: it gets the times of all rounds so far.
    """
    loop = Loop(_target(bench, policy, is_enough), policy, clock, watch)
    return tuple(_round(trial, 0, _itself) for trial in loop.trials())


def sample_in_turn(  # noqa: PLR0913, PLR0917  # as `sample`, and in which order
    benches: Mapping[_Key, Bench],
    policy: SamplingPolicy,
    clock: Clock,
    watch: Callable[[_Key, SamplingProgress], None],
    choose: random.Random,
    group: Callable[[_Key], Hashable],
) -> tuple[dict[_Key, tuple[Round, ...]], dict[_Key, MeasureError]]:
    """Rounds of many models, as many as `sample` takes, and the errors of those that failed.

    They take turns: one round each, in random order, and then the next, so that no model has the
    machine at a better time; models of one `group` come right after one another. Each model's time
    counts its own rounds, and its share of what others take beyond their time: all of them take as
    long as they have together, unless their first rounds take longer. The rounds of a model that
    fails are dropped, and the others go on.
    """
    begun = clock()
    watches = {key: _Stopwatch(clock) for key in benches}
    loops: dict[_Key, Loop[Block]] = {}
    for key, bench in benches.items():

        def see(progress: SamplingProgress, key: _Key = key) -> None:
            watch(key, progress)

        loops[key] = Loop(_target(bench, policy, None), policy, watches[key], see)
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
                rounds[key].append(_round(trial, 0, _itself))
                going_on.append(key)
        waiting = going_on
        # A failure can take long, and costs the others nothing.
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
    """A clock that stands still unless it is `running`."""

    clock: Clock
    _shown_ns: int = 0
    _since_ns: int | None = None

    def __call__(self) -> int:
        if self._since_ns is None:
            return self._shown_ns
        return self._shown_ns + self.clock() - self._since_ns

    def charge(self, duration_ns: int) -> None:
        """Show a time that passed while it stood still."""
        self._shown_ns += duration_ns

    @contextmanager
    def running(self) -> Iterator[None]:
        self._since_ns = self.clock()
        try:
            yield
        finally:
            self._shown_ns, self._since_ns = self(), None


def _target(
    bench: Bench, policy: SamplingPolicy, is_enough: IsEnough | None
) -> SamplingTarget[Block]:
    # Loading scipy takes long, and must not count as measuring time.
    from pytest_modelperf.stats.estimates import estimate_percentile, needed_samples
    from pytest_modelperf.stats.quantiles import load_quantiles

    load_quantiles()

    def estimate(blocks: Sequence[Block]) -> Percentile:
        return estimate_percentile([block.times_ns for block in blocks], _MEDIAN, policy.confidence)

    def is_precise(trials: Sequence[Trial[Block]], median: Percentile | None) -> bool:
        return (
            sum(trial.turns for trial in trials) >= max((policy.min_samples, *policy.tail_samples))
            and median is not None
            and median.half_width is not None
            and median.half_width <= policy.precision
        )

    return SamplingTarget(
        open=lambda: (bench.open(),),
        take=bench.block,
        close=bench.close,
        turns_ns=lambda block: block.times_ns,
        figures=lambda block: [_log(ns) for ns in block.times_ns],
        estimate=estimate,
        is_enough=is_precise
        if is_enough is None
        else lambda trials, _: is_enough([trial.taken.times_ns for trial in trials]),
        median_samples=needed_samples(_MEDIAN),
        sides=1,
    )


def _round(trial: Trial[_Taken], side: int, block_of: Callable[[_Taken], Block]) -> Round:
    """The round of one side of a trial."""
    load, first = trial.loads[side], block_of(trial.first)
    return Round(
        load_ns=load.duration_ns,
        first_ns=first.times_ns[0],
        warmup_runs=trial.warmup.runs,
        is_steady=trial.warmup.is_steady,
        block=block_of(trial.taken),
        starts=_starts(load, first, [block_of(window) for window in trial.warmup.ends]),
    )


def _itself(block: Block) -> Block:
    return block


def _starts(load: Load, first: Block, windows: Sequence[Block]) -> RoundStarts | None:
    if load.begun_ns is None or first.starts_ns is None:
        return None
    known = [window for window in windows if window.starts_ns]
    if not known:
        return RoundStarts(load_ns=load.begun_ns, first_ns=first.starts_ns[0])
    return RoundStarts(
        load_ns=load.begun_ns,
        first_ns=first.starts_ns[0],
        warmup_ns=known[0].start_ns,
        warmup_end_ns=known[-1].end_ns,
    )


def sample_duet(
    bench: DuetBench,
    policy: SamplingPolicy,
    clock: Clock,
    watch: WatchSampling,
    is_decided: Callable[[Sequence[DuetRound]], bool],
) -> tuple[DuetRound, ...]:
    """Rounds of two sides in turn, until `is_decided`, which is first asked after `min_rounds`."""
    from pytest_modelperf.stats.estimates import needed_samples

    target = SamplingTarget(
        open=bench.open,
        take=bench.pair_block,
        close=bench.close,
        turns_ns=lambda pair: [a + b for a, b in _turns(pair)],
        figures=_duet_figures,
        estimate=lambda _: None,
        is_enough=lambda trials, _: is_decided([_duet_round(trial) for trial in trials]),
        median_samples=needed_samples(_MEDIAN),
        sides=2,
    )
    return tuple(_duet_round(trial) for trial in Loop(target, policy, clock, watch).trials())


def _duet_round(trial: Trial[BlockPair]) -> DuetRound:
    return DuetRound(before=_round(trial, 0, itemgetter(0)), after=_round(trial, 1, itemgetter(1)))


def _duet_figures(pair: BlockPair) -> list[float]:
    """The change in each turn, of the parts if there are some; its spread plans the rounds."""
    if not (pair[0].parts and pair[1].parts):
        return [_log(b) - _log(a) for a, b in _own_turns(pair)]
    sums = [
        [sum(turn) for turn in zip(*(part.in_place.calm_ns for part in side.parts), strict=True)]
        for side in pair
    ]
    whole = statistics.median(pair[0].calm_ns)
    return [
        math.log(max(1.0 + (b - a) / max(whole, 1), _LEAST_RATIO))
        for a, b in zip(*sums, strict=True)
    ]


def _turns(pair: BlockPair) -> list[tuple[int, int]]:
    return list(zip(pair[0].times_ns, pair[1].times_ns, strict=True))


def _own_turns(pair: BlockPair) -> list[tuple[int, int]]:
    """The times of turns, without waiting for a processor if both sides know it."""
    before, after = (block.running_ns for block in pair)
    if before is None or after is None:
        return _turns(pair)
    return list(zip(before, after, strict=True))


def _log(time_ns: int) -> float:
    # A coarse clock can measure 0, which has no logarithm.
    return math.log(max(time_ns, 0.5))
