"""The loop that samples rounds: fresh sessions, warm-ups and timed blocks, until enough is known.

It sees neither engine nor process: what is measured is a `Bench`, and time is a function. All
rules that it follows are the fields of `SamplingPolicy`; docs/measuring.md explains them.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Generic, Protocol, TypeAlias, TypeVar

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.measurements import (
    Block,
    DuetRound,
    Load,
    Percentile,
    Round,
    RoundStarts,
)

Clock: TypeAlias = Callable[[], int]
IsEnough: TypeAlias = Callable[[Sequence[Sequence[int]]], bool]
BlockPair: TypeAlias = tuple[Block, Block]

_NS_PER_S = 1_000_000_000
_MEDIAN = 50.0
# So many rounds have to differ before it is said by how much.
_ROUNDS_TO_COMPARE = 3
# A block is never told to end before it began.
_SHORTEST_BLOCK_NS = 1_000_000

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPolicy:
    """How long to measure, and what for.

    Sampling stops when the interval of the median is within `precision` after `min_rounds` and
    `min_samples`, after `max_rounds`, or `max_seconds` after the first session was loaded. A
    warm-up ends when the median of a window is no more than `steadiness` below that of the window
    before; it is given up after `max_windows`, after `max_warmup_seconds` and two windows, or
    where one inference takes a quarter of the time left.
    """

    max_seconds: float = 10.0
    precision: float = 0.01
    confidence: float = 0.95
    # The t quantile of fewer rounds makes any interval useless.
    min_rounds: int = 5
    # What so many rounds do not tell is in the machine, and not in their number.
    max_rounds: int = 100
    # What it takes to tell the 95th percentile, which is judged beside the median.
    min_samples: int = 130
    min_block: int = 12
    max_block: int = 400
    # The time of a block, for each side, before it is known how rounds differ.
    block_seconds: float = 0.03
    # A window is so long that a fast model has many inferences in it, and one of a slow model
    # ends after its first inference beyond the quarter of `max_warmup_seconds`.
    window_seconds: float = 0.005
    min_window: int = 5
    max_windows: int = 10
    max_warmup_seconds: float = 0.5
    steadiness: float = 0.02


# More short rounds decide a duet sooner than few long ones, and it says itself what is enough.
DUET_POLICY = SamplingPolicy(min_rounds=6, max_rounds=35, min_samples=0)


def coarsened(policy: SamplingPolicy, precision: float) -> SamplingPolicy:
    """The policy for a figure of which nobody asks more than `precision`.

    Where that is not reached, it takes no more rounds than a duet, which decides something.
    """
    return replace(
        policy,
        precision=max(precision, policy.precision),
        max_rounds=min(DUET_POLICY.max_rounds, policy.max_rounds),
    )


@dataclass(frozen=True, slots=True)
class SamplingProgress:
    """What is about to happen, what is known so far, and how much longer it may take.

    `step` is `load`, `warm up` or `measure`; `half_width` is relative to the estimate.
    """

    step: str
    round: int
    estimate_ns: float | None
    half_width: float | None
    seconds_left: float


Watch: TypeAlias = Callable[[SamplingProgress], None]


def sample(
    bench: Bench,
    policy: SamplingPolicy,
    clock: Clock,
    watch: Watch,
    is_enough: IsEnough | None = None,
) -> tuple[Round, ...]:
    """Rounds of one model, until the interval of its median is as narrow as `policy` asks.

    Where something else is to be known, `is_enough` tells whether these times of rounds tell it.
    """
    loop = _Loop(_subject(bench, policy, is_enough), policy, clock, watch)
    return tuple(_round(trial, 0, _itself) for trial in loop.trials())


def sample_in_turn(  # noqa: PLR0913, PLR0917  # as `sample`, and in which order
    benches: Mapping[_Key, Bench],
    policy: SamplingPolicy,
    clock: Clock,
    watch: Callable[[_Key, SamplingProgress], None],
    choose: random.Random,
    group: Callable[[_Key], Hashable],
) -> tuple[dict[_Key, tuple[Round, ...]], dict[_Key, MeasureError]]:
    """Rounds of many models, of each so many as `sample` would take, and why some have none.

    They take turns: one round each, in random order, and then the next, so that none has the
    machine at a better time; those of one `group` come right after one another. The time of each
    is that of its own rounds. One that fails has its rounds taken from it, and the others go on.
    """
    watches = {key: _Stopwatch(clock) for key in benches}
    loops: dict[_Key, Iterator[_Trial[Block]]] = {}
    for key, bench in benches.items():

        def see(progress: SamplingProgress, key: _Key = key) -> None:
            watch(key, progress)

        loops[key] = _Loop(_subject(bench, policy, None), policy, watches[key], see).trials()
    rounds: dict[_Key, list[Round]] = {key: [] for key in benches}
    failed: dict[_Key, MeasureError] = {}
    waiting = list(benches)
    while waiting:
        waiting = _shuffled(waiting, choose, group)
        going_on = []
        for key in waiting:
            try:
                with watches[key].running():
                    trial = next(loops[key], None)
            except MeasureError as error:
                failed[key] = error
                del rounds[key]
                continue
            if trial is not None:
                rounds[key].append(_round(trial, 0, _itself))
                going_on.append(key)
        waiting = going_on
    return {key: tuple(taken) for key, taken in rounds.items()}, failed


def _shuffled(
    keys: Sequence[_Key], choose: random.Random, group: Callable[[_Key], Hashable]
) -> list[_Key]:
    groups: dict[Hashable, list[_Key]] = {}
    for key in choose.sample(keys, len(keys)):
        groups.setdefault(group(key), []).append(key)
    return [key for members in groups.values() for key in members]


@dataclass(slots=True)
class _Stopwatch:
    """A clock that stands still unless it is `running`."""

    clock: Clock
    _shown_ns: int = 0
    _since_ns: int | None = None

    def __call__(self) -> int:
        if self._since_ns is None:
            return self._shown_ns
        return self._shown_ns + self.clock() - self._since_ns

    @contextmanager
    def running(self) -> Iterator[None]:
        self._since_ns = self.clock()
        try:
            yield
        finally:
            self._shown_ns, self._since_ns = self(), None


def _subject(bench: Bench, policy: SamplingPolicy, is_enough: IsEnough | None) -> _Subject[Block]:
    # scipy takes its time to load, which is nobody's measuring time.
    from pytest_modelperf import stats

    def estimate(blocks: Sequence[Block]) -> Percentile:
        return stats.estimate_percentile(
            [block.times_ns for block in blocks], _MEDIAN, policy.confidence
        )

    def is_precise(blocks: Sequence[Block], median: Percentile | None) -> bool:
        return (
            sum(len(block.times_ns) for block in blocks) >= policy.min_samples
            and median is not None
            and median.half_width is not None
            and median.half_width <= policy.precision
        )

    return _Subject(
        open=lambda: (bench.open(),),
        take=bench.block,
        close=bench.close,
        turns_ns=lambda block: block.times_ns,
        figures=lambda block: [_log(ns) for ns in block.times_ns],
        estimate=estimate,
        is_enough=is_precise
        if is_enough is None
        else lambda blocks, _: is_enough([block.times_ns for block in blocks]),
        median_samples=stats.needed_samples(_MEDIAN),
        sides=1,
    )


def _round(trial: _Trial[_Taken], side: int, block_of: Callable[[_Taken], Block]) -> Round:
    """What a trial was for one of its sides."""
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
    watch: Watch,
    is_decided: Callable[[Sequence[BlockPair]], bool],
) -> tuple[DuetRound, ...]:
    """Rounds of two sides in turn, until `is_decided`, which is first asked after `min_rounds`."""
    from pytest_modelperf import stats

    subject = _Subject(
        open=bench.open,
        take=bench.pair_block,
        close=bench.close,
        turns_ns=lambda pair: [a + b for a, b in _turns(pair)],
        figures=lambda pair: [_log(b) - _log(a) for a, b in _turns(pair)],
        estimate=lambda _: None,
        is_enough=lambda pairs, _: is_decided(pairs),
        median_samples=stats.needed_samples(_MEDIAN),
        sides=2,
    )
    return tuple(
        DuetRound(before=_round(trial, 0, itemgetter(0)), after=_round(trial, 1, itemgetter(1)))
        for trial in _Loop(subject, policy, clock, watch).trials()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject(Generic[_Taken]):
    """What is sampled. `turns_ns` is what a block cost, `figures` what it is measured for.

    `median_samples` are those without which there is no median.
    """

    open: Callable[[], tuple[Load, ...]]
    take: Callable[[int, int], _Taken]
    close: Callable[[], None]
    turns_ns: Callable[[_Taken], Sequence[int]]
    figures: Callable[[_Taken], Sequence[float]]
    estimate: Callable[[Sequence[_Taken]], Percentile | None]
    is_enough: Callable[[Sequence[_Taken], Percentile | None], bool]
    median_samples: int
    sides: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial(Generic[_Taken]):
    """A round that was taken, and what the next ones are planned by.

    `prepare_ns` is all of it but the block; `centre` and `spread` are those of its figures.
    """

    loads: tuple[Load, ...]
    first: _Taken
    warmup: _Warmup[_Taken]
    taken: _Taken
    turns: int
    turn_ns: float
    prepare_ns: int
    block_ns: int
    centre: float
    spread: float


@dataclass(frozen=True, slots=True)
class _Warmup(Generic[_Taken]):
    """How a warm-up went; `turn_ns` is the median of its last window.

    `ends` are its first window and its last, which can be the same.
    """

    runs: int
    is_steady: bool
    turn_ns: float
    ends: tuple[_Taken, ...]


class _Loop(Generic[_Taken]):
    """Takes one trial after the other, and plans the next by those that were taken."""

    def __init__(
        self, subject: _Subject[_Taken], policy: SamplingPolicy, clock: Clock, watch: Watch
    ) -> None:
        self._subject = subject
        self._policy = policy
        self._clock = clock
        self._watch = watch
        self._trials: list[_Trial[_Taken]] = []
        self._estimate: Percentile | None = None
        self._end_ns: int | None = None

    def trials(self) -> Iterator[_Trial[_Taken]]:
        """One after the other, until they are enough."""
        while True:
            self._trials.append(self._take_round())
            taken = [trial.taken for trial in self._trials]
            self._estimate = self._subject.estimate(taken)
            is_last = self._is_over() or (
                len(taken) >= self._policy.min_rounds
                and self._subject.is_enough(taken, self._estimate)
            )
            yield self._trials[-1]
            if is_last:
                return

    def _is_over(self) -> bool:
        """Whether another round is not allowed, or would not end in time.

        It has to have time for what a typical one needs before its block, and for half of the
        shortest block so far: the rest of the block can be cut off.
        """
        if len(self._trials) >= self._policy.max_rounds:
            return True
        prepare_ns = statistics.median(trial.prepare_ns for trial in self._trials)
        block_ns = min(trial.block_ns for trial in self._trials) / 2
        return self._left_ns() < prepare_ns + block_ns

    # -- a round

    def _take_round(self) -> _Trial[_Taken]:
        """One round. An error of the bench is raised as it is, its session closed.

        After an interrupt it is not: a worker that was left in the middle of something would not
        answer, and whoever interrupts does not want to wait for it.
        """
        start = self._clock()
        try:
            trial = self._take_open_round(start)
        except Exception:
            with suppress(Exception):
                self._subject.close()
            raise
        self._subject.close()
        return trial

    def _take_open_round(self, start: int) -> _Trial[_Taken]:
        self._tell("load")
        loads = self._subject.open()
        if self._end_ns is None:
            # The first load cannot be avoided, and what takes a minute to load is to be
            # measured, too.
            self._end_ns = self._clock() + round(self._policy.max_seconds * _NS_PER_S)
        self._tell("warm up")
        first = self._subject.take(1, _SHORTEST_BLOCK_NS)
        warmup = self._warm_up(self._subject.turns_ns(first)[0])
        self._tell("measure")
        begun = self._clock()
        count, max_ns = self._plan_block(warmup.turn_ns, begun - start)
        taken = self._subject.take(count, max_ns)
        block_ns = self._clock() - begun
        turns_ns = self._subject.turns_ns(taken)
        figures = self._subject.figures(taken)
        return _Trial(
            loads=loads,
            first=first,
            warmup=warmup,
            taken=taken,
            turns=len(turns_ns),
            turn_ns=statistics.median(turns_ns),
            prepare_ns=begun - start,
            block_ns=block_ns,
            centre=statistics.median(figures),
            spread=_spread(figures),
        )

    def _warm_up(self, first_ns: int) -> _Warmup[_Taken]:
        """Windows of inferences, until one is hardly faster than the one before.

        The first inference is the first window.
        """
        policy, subject = self._policy, self._subject
        warmup_ns = policy.max_warmup_seconds * _NS_PER_S
        begun = self._clock()
        turn_ns: float = max(first_ns, 1)
        runs = 0
        ends: tuple[_Taken, ...] = ()
        for window in range(policy.max_windows):
            spent_ns = self._clock() - begun
            if (spent_ns > warmup_ns and window >= 2) or turn_ns > self._left_ns() / 4:
                break
            count = round(policy.window_seconds * _NS_PER_S * subject.sides / turn_ns)
            taken = subject.take(
                min(max(count, policy.min_window), policy.max_block),
                max(min(round(warmup_ns / 4), self._left_ns() // 4), _SHORTEST_BLOCK_NS),
            )
            times_ns = subject.turns_ns(taken)
            runs += len(times_ns)
            ends = (*ends[:1], taken)
            before_ns, turn_ns = turn_ns, max(statistics.median(times_ns), 1)
            if turn_ns >= before_ns * (1.0 - policy.steadiness):
                return _Warmup(runs, is_steady=True, turn_ns=turn_ns, ends=ends)
        return _Warmup(runs, is_steady=False, turn_ns=turn_ns, ends=ends)

    # -- the plan

    def _plan_block(self, turn_ns: float, prepare_ns: int) -> tuple[int, int]:
        """How many inferences the next block may have, and how long they may take."""
        policy = self._policy
        rounds = max(policy.min_rounds - len(self._trials), 1)
        wanted = max(
            self._best_block(turn_ns, prepare_ns),
            policy.min_block,
            # Longer blocks are the cheaper way to the samples that are wanted in any case.
            math.ceil((policy.min_samples - self._samples()) / rounds),
        )
        wanted = min(wanted, policy.max_block)
        left_ns = self._left_ns()
        if not self._trials and left_ns < prepare_ns + 1.5 * wanted * turn_ns:
            # There will be no second round, so there is nothing to save time for.
            wanted = policy.max_block
        rounds = self._rounds_to_come(turn_ns, prepare_ns, left_ns)
        share_ns = (left_ns - (rounds - 1) * prepare_ns) / rounds
        return (
            max(min(wanted, int(share_ns // turn_ns)), 1),
            max(round(share_ns), _SHORTEST_BLOCK_NS),
        )

    def _best_block(self, turn_ns: float, prepare_ns: int) -> int:
        """The number of inferences a round that tells the most for the time.

        Kalibera and Jones, "Rigorous benchmarking in reasonable time" (ISMM 2013): the root of
        (cost of a session / cost of an iteration) x (variance of an iteration / variance between
        sessions). Where sessions do not differ visibly their medians still do, by chance; so the
        variance between is never found to be zero, and the block grows to cost what preparing it
        does, but not beyond. Before there are rounds to compare, both are taken as equal.
        """
        cost = prepare_ns / turn_ns
        if len(self._trials) < _ROUNDS_TO_COMPARE:
            usual = self._policy.block_seconds * _NS_PER_S * self._subject.sides / turn_ns
            return round(max(usual, math.sqrt(cost)))
        within = statistics.median(trial.spread for trial in self._trials)
        between = statistics.stdev(trial.centre for trial in self._trials)
        if between == 0.0:
            return round(cost)
        # Bounded before it is rounded: the quotient of two spreads can be anything.
        return math.ceil(min(math.sqrt(cost) * within / between, self._policy.max_block))

    def _rounds_to_come(self, turn_ns: float, prepare_ns: int, left_ns: int) -> int:
        """How many rounds to divide the time by, this one included.

        As many as are missing, or as still leave room for the samples that a median needs: a slow
        model is better measured in fewer rounds than not at all.
        """
        missing = self._subject.median_samples - self._samples()
        for rounds in range(self._policy.min_rounds - len(self._trials), 1, -1):
            samples = max(math.ceil(missing / rounds), 1) * rounds
            if (rounds - 1) * prepare_ns + samples * turn_ns <= left_ns:
                return rounds
        return 1

    def _samples(self) -> int:
        return sum(trial.turns for trial in self._trials)

    def _left_ns(self) -> int:
        if self._end_ns is None:
            return round(self._policy.max_seconds * _NS_PER_S)
        return self._end_ns - self._clock()

    def _tell(self, step: str) -> None:
        estimate = self._estimate
        self._watch(
            SamplingProgress(
                step,
                len(self._trials) + 1,
                None if estimate is None else estimate.value_ns,
                None if estimate is None else estimate.half_width,
                max(self._left_ns(), 0) / _NS_PER_S,
            )
        )


def _turns(pair: BlockPair) -> list[tuple[int, int]]:
    return list(zip(pair[0].times_ns, pair[1].times_ns, strict=True))


def _log(time_ns: int) -> float:
    # A coarse clock can see no time pass, and nothing has no logarithm.
    return math.log(max(time_ns, 0.5))


def _spread(figures: Sequence[float]) -> float:
    """The standard deviation, by the quartiles: one slow inference in ten does not change it."""
    if len(figures) < 2:
        return 0.0
    lower, _, upper = statistics.quantiles(figures, n=4, method="inclusive")
    return (upper - lower) / (2 * statistics.NormalDist().inv_cdf(0.75))
