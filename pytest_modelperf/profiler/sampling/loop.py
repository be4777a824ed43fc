"""The loop of sampling: fresh sessions, warm-ups and timed blocks, until the goal is met.

It knows neither the engine nor the process: it measures a `Bench`, and the clock is a function.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.profiler.measurements import Block, Load
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.worker.timing import Clock
from pytest_modelperf.stats.records import Percentile

_NS_PER_S = 1_000_000_000
# The fewest rounds whose spread is estimated.
_ROUNDS_TO_COMPARE = 3
# The shortest time limit of a block.
_SHORTEST_BLOCK_NS = 1_000_000
# A first inference of this many seconds or more may only be slow at the beginning: the next ones
# then take less than this share of it.
_SLOW_SECONDS = 0.25
_SLOW_BEGINNING = 0.5

# A block of each side.
Blocks: TypeAlias = tuple[Block, ...]


class SamplingProgress(Struct, frozen=True):
    """The step that begins, the estimate so far, and the time that is left.

    `step` is `load`, `warm up` or `measure`; `half_width` is relative to the estimate.
    `least_seconds` is the time of the fewest rounds. It is given once, if a slow model gets more
    than the usual time.
    """

    step: str
    round: int
    estimate_ns: float | None
    half_width: float | None
    seconds_left: float
    least_seconds: float | None = None


WatchSampling: TypeAlias = Callable[[SamplingProgress], None]


class Bench(Protocol):
    """One model, or two sides that take turns, that can be loaded and timed."""

    def open(self) -> tuple[Load, ...]:
        """Load a fresh session of each side, and return how long each took."""

    def take(self, count: int, max_ns: int) -> Blocks:
        """Return up to `count` turns, at least one. None is begun after `max_ns`.

        Both sides run in each turn, in random order.
        """

    def close(self) -> None:
        """Close the sessions that are open. Opening them may have failed."""


class SamplingGoal(Struct, frozen=True, kw_only=True):
    """The goal of sampling: what is estimated from the rounds, and when there are enough.

    `figures` are the values whose spread plans the next blocks.
    """

    figures: Callable[[Blocks], Sequence[float]]
    estimate: Callable[[Sequence[Blocks]], Percentile | None]
    is_enough: Callable[[Sequence[Trial], Percentile | None], bool]


class Trial(Struct, frozen=True, kw_only=True):
    """A finished round, and the figures that the next ones are planned by.

    `prepare_ns` is its time without the block; `centre` and `spread` describe its figures.
    """

    loads: tuple[Load, ...]
    first: Blocks
    warmup: Warmup
    taken: Blocks
    turns: int
    turn_ns: float
    prepare_ns: int
    block_ns: int
    centre: float
    spread: float


class Warmup(Struct, frozen=True):
    """The result of a warm-up. `turn_ns` is the median of its last window.

    `ends` are its first window and its last, which can be the same; it is empty without a window.
    """

    runs: int
    is_steady: bool
    turn_ns: float
    ends: tuple[Blocks, ...]


class Loop:
    """A loop that takes one trial after the other, and plans each by those before it."""

    def __init__(
        self,
        bench: Bench,
        goal: SamplingGoal,
        policy: SamplingPolicy,
        clock: Clock,
        watch: WatchSampling,
    ) -> None:
        # Imported here: loading scipy takes long, and must not count as measuring time.
        from pytest_modelperf.stats.estimates import MEDIAN, needed_samples

        self._median_samples = needed_samples(MEDIAN)
        self._bench = bench
        self._goal = goal
        self._sides = 1
        self._policy = policy
        self._clock = clock
        self._watch = watch
        self._trials: list[Trial] = []
        self._estimate: Percentile | None = None
        # When the first session was loaded.
        self._begun_ns = 0
        self._end_ns: int | None = None

    def trials(self) -> Iterator[Trial]:
        while True:
            self._trials.append(self._take_round())
            self._estimate = self._goal.estimate([trial.taken for trial in self._trials])
            is_last = self._is_over() or (
                self._clock() - self._begun_ns >= self._policy.min_seconds * _NS_PER_S
                and self._is_enough()
            )
            yield self._trials[-1]
            if is_last:
                return

    def _is_enough(self) -> bool:
        if len(self._trials) >= self._policy.max_rounds:
            return True
        first = self._trials[0]
        fewest = self._fewest_rounds(first.turn_ns, first.prepare_ns)
        return len(self._trials) >= fewest and self._goal.is_enough(self._trials, self._estimate)

    def _fewest_rounds(self, turn_ns: float, prepare_ns: int) -> int:
        """Return the number of rounds after which to check whether there are enough."""
        policy = self._policy
        is_slow = policy.min_slow_rounds < policy.min_rounds and self._is_slow(turn_ns, prepare_ns)
        return policy.min_slow_rounds if is_slow else policy.min_rounds

    def _is_slow(self, turn_ns: float, prepare_ns: int) -> bool:
        """Whether the shortest of the usual rounds take longer than the usual time."""
        fewest = self._policy.fewest_in_block(self._seconds_a_side(turn_ns))
        round_ns = prepare_ns + fewest * turn_ns
        return self._policy.min_rounds * round_ns > self._policy.max_seconds * _NS_PER_S

    def _is_over(self) -> bool:
        """Whether the preparation and half a block of another round would not end in time."""
        prepare_ns = statistics.median(trial.prepare_ns for trial in self._trials)
        block_ns = min(trial.block_ns for trial in self._trials) / 2
        return self.left_ns() < prepare_ns + block_ns

    def _take_round(self) -> Trial:
        """Take one round. An error of the bench closes its session and is raised as it is.

        An interrupt does not close the session: a worker that is busy would not answer, and the
        user does not want to wait for it.
        """
        start = self._clock()
        try:
            trial = self._take_open_round(start)
        except Exception:
            with suppress(Exception):
                self._bench.close()
            raise
        self._bench.close()
        return trial

    def _take_open_round(self, start: int) -> Trial:
        unstretched_ns = self._end_ns
        self._tell("load")
        loads = self._bench.open()
        self._sides = len(loads)
        if self._end_ns is None:
            # A share of the time is left after the first load, so that a model that takes a minute
            # to load is also measured.
            self._begun_ns = self._clock()
            whole_ns = round(self._policy.max_seconds * _NS_PER_S)
            load_ns = min(self._begun_ns - start, round(self._policy.load_share * whole_ns))
            self._end_ns = unstretched_ns = self._begun_ns + whole_ns - load_ns
        if all(load.is_only for load in loads):
            start = self._clock()
        self._tell("warm up")
        first = self._bench.take(1, _SHORTEST_BLOCK_NS)
        first_ns = _turns_ns(first)[0]
        warm_since = self._clock()
        expected_ns = self._expected_turn_ns(first_ns)
        warmup = self._warm_up(expected_ns)
        warmup = self._warm_longer(warmup, warm_since)
        prepare_ns, taken = self._take_block(start, warmup)
        is_planned_by_first = expected_ns == first_ns and not warmup.ends
        if is_planned_by_first and self._is_slow_to_begin(first_ns, _typical_ns(taken)):
            # The first inference was not typical, so the block was far too short.
            self._end_ns = unstretched_ns
            warmup = self._warm_up(_typical_ns(taken), taken)
            prepare_ns, taken = self._take_block(start, warmup)
        block_ns = self._clock() - start - prepare_ns
        if (least_seconds := self._least_seconds(prepare_ns, _typical_ns(taken))) is not None:
            self._tell("measure", least_seconds)
        figures = self._goal.figures(taken)
        return Trial(
            loads=loads,
            first=first,
            warmup=warmup,
            taken=taken,
            turns=len(_turns_ns(taken)),
            turn_ns=_typical_ns(taken),
            prepare_ns=prepare_ns,
            block_ns=block_ns,
            centre=statistics.median(figures),
            spread=_spread(figures),
        )

    def _take_block(self, start: int, warmup: Warmup) -> tuple[int, Blocks]:
        prepare_ns = self._clock() - start
        self._stretch(prepare_ns, warmup.turn_ns)
        self._tell("measure")
        return prepare_ns, self._bench.take(*self._plan_block(warmup.turn_ns, prepare_ns))

    def _least_seconds(self, prepare_ns: int, turn_ns: float) -> float | None:
        """Return the time of the fewest rounds, if a slow model's time was stretched for them.

        It is reported once, after the first block, which shows whether a model is slow or only
        begins slowly.
        """
        usual_ns = round(self._policy.max_seconds * _NS_PER_S)
        if self._trials or self._end_ns is None or self._end_ns - self._begun_ns <= usual_ns:
            return None
        fewest = self._policy.fewest_in_block(self._seconds_a_side(turn_ns))
        least_ns = self._fewest_rounds(turn_ns, prepare_ns) * (prepare_ns + fewest * turn_ns)
        return min(least_ns, self._end_ns - self._begun_ns) / _NS_PER_S

    def _stretch(self, prepare_ns: int, turn_ns: float) -> None:
        """Give a slow model the time of some rounds like those so far."""
        policy = self._policy
        if policy.stretch_seconds is None or self._end_ns is None:
            return
        if policy.max_rounds == 1:
            # The only load was over when the time began.
            prepare_ns = self._clock() - self._begun_ns
        fewest = policy.fewest_in_block(self._seconds_a_side(turn_ns), self._spread())
        turns_ns = statistics.median([turn_ns, *(trial.turn_ns for trial in self._trials)])
        prepared_ns = statistics.median([prepare_ns, *(t.prepare_ns for t in self._trials)])
        wanted_ns = policy.stretch_rounds * (prepared_ns + fewest * turns_ns)
        stretched_ns = min(wanted_ns, policy.stretch_seconds * _NS_PER_S)
        # Never reduced again: if a model varies much, its blocks become longer.
        self._end_ns = max(self._end_ns, self._begun_ns + round(stretched_ns))

    def _spread(self) -> float:
        return statistics.median(t.spread for t in self._trials) if self._trials else 0.0

    def _expected_turn_ns(self, first_ns: int) -> float:
        """Estimate the time of an inference from the first one of the session and other rounds."""
        if self._trials:
            usual_ns = statistics.median(trial.turn_ns for trial in self._trials)
            if self._is_slow_to_begin(first_ns, usual_ns):
                return usual_ns
        return first_ns

    def _is_slow_to_begin(self, first_ns: int, usual_ns: float) -> bool:
        """Whether an engine prepares itself in the first inference of a session.

        A provider for a device chooses its algorithms then, which can take a thousand times as long
        as an inference.
        """
        is_slow = self._seconds_a_side(first_ns) >= _SLOW_SECONDS
        return is_slow and usual_ns < first_ns * _SLOW_BEGINNING

    def _warm_up(self, turn_ns: float, window: Blocks | None = None) -> Warmup:
        """Run windows of inferences, until one is hardly faster than the one before.

        An inference takes about `turn_ns`, estimated from the first one or from a `window` that was
        taken already. The first inference of a very slow model in a duet is the whole warm-up.
        """
        policy = self._policy
        warmup_ns = policy.max_warmup_seconds * _NS_PER_S
        begun = self._clock()
        turn_ns = max(turn_ns, 1)
        ends = () if window is None else (window,)
        runs = sum(len(_turns_ns(taken)) for taken in ends)
        if self._seconds_a_side(turn_ns) >= policy.warm_after_seconds:
            return Warmup(runs, is_steady=True, turn_ns=turn_ns, ends=ends)
        for number in range(policy.max_windows):
            spent_ns = self._clock() - begun
            if (spent_ns > warmup_ns and number >= 2) or turn_ns > self.left_ns() / 4:
                break
            count = round(policy.window_seconds * _NS_PER_S * self._sides / turn_ns)
            fewest = policy.fewest_in_window(self._seconds_a_side(turn_ns))
            taken = self._bench.take(
                min(policy.whole_passes(max(count, fewest)), policy.max_block),
                max(min(round(warmup_ns / 4), self.left_ns() // 4), _SHORTEST_BLOCK_NS),
            )
            times_ns = _turns_ns(taken)
            runs += len(times_ns)
            ends = (*ends[:1], taken)
            before_ns, turn_ns = turn_ns, _typical_ns(taken)
            # A single inference is not enough to compare windows.
            if fewest == 1 or turn_ns >= before_ns * (1.0 - policy.steadiness):
                return Warmup(runs, is_steady=True, turn_ns=turn_ns, ends=ends)
        return Warmup(runs, is_steady=False, turn_ns=turn_ns, ends=ends)

    def _warm_longer(self, warmup: Warmup, since_ns: int) -> Warmup:
        """Continue the warm-up until it is as long as the policy requires."""
        # Half of the remaining time is kept for the block.
        wanted_ns = since_ns + round(self._policy.min_warmup_seconds * _NS_PER_S)
        end_ns = min(wanted_ns, self._clock() + self.left_ns() // 2)
        while (missing_ns := end_ns - self._clock()) > 0:
            taken = self._bench.take(self._policy.max_block, max(missing_ns, _SHORTEST_BLOCK_NS))
            runs, ends = warmup.runs + len(_turns_ns(taken)), (*warmup.ends[:1], taken)
            warmup = replace(warmup, runs=runs, turn_ns=_typical_ns(taken), ends=ends)
        return warmup

    def _plan_block(self, turn_ns: float, prepare_ns: int) -> tuple[int, int]:
        """Return how many inferences the next block may have, and how long they may take."""
        policy = self._policy
        rounds = max(policy.min_rounds - len(self._trials), 1)
        wanted = max(
            self._best_block(turn_ns, prepare_ns),
            policy.fewest_in_block(self._seconds_a_side(turn_ns), self._spread()),
            # Longer blocks are the cheapest way to the minimum number of samples.
            math.ceil((self._wanted_samples(turn_ns, prepare_ns) - self._samples()) / rounds),
        )
        wanted = max(min(wanted, policy.max_block), self._filling_block(turn_ns, prepare_ns))
        left_ns = self.left_ns()
        is_early = len(self._trials) < policy.min_rounds
        if is_early and self._fewest_rounds(turn_ns, prepare_ns) < policy.min_rounds:
            fewest = policy.fewest_in_block(self._seconds_a_side(turn_ns))
            missing = self._wanted_samples(turn_ns, prepare_ns) - self._samples()
            wanted = min(max(wanted, missing), max(fewest, round(prepare_ns / turn_ns)))
        elif not self._trials and left_ns < prepare_ns + 1.5 * wanted * turn_ns:
            # There will be no second round, so no time has to be saved.
            wanted = policy.max_block
        rounds = self._rounds_to_come(turn_ns, prepare_ns, left_ns)
        share_ns = (left_ns - (rounds - 1) * prepare_ns) / rounds
        return (
            max(min(policy.whole_passes(wanted), int(share_ns // turn_ns)), 1),
            max(round(share_ns), _SHORTEST_BLOCK_NS),
        )

    def _wanted_samples(self, turn_ns: float, prepare_ns: int) -> int:
        """Return the largest number of samples that the policy asks for and the time left allows.

        Long blocks for a tail that would still lack samples would only leave fewer rounds to the
        other percentiles.
        """
        policy, left_ns = self._policy, self.left_ns()
        wanted = policy.min_samples
        for samples in policy.tail_samples:
            missing = samples - self._samples()
            least = max(policy.min_rounds - len(self._trials), 1)
            rounds = max(math.ceil(missing / policy.max_block), least)
            if (rounds - 1) * prepare_ns + missing * turn_ns <= left_ns:
                wanted = max(wanted, samples)
        return wanted

    def _best_block(self, turn_ns: float, prepare_ns: int) -> int:
        """Return the number of inferences in a round that gives the most information for its time.

        Kalibera and Jones, "Rigorous benchmarking in reasonable time" (ISMM 2013): the root of
        (cost of a session / cost of an iteration) x (variance of an iteration / variance between
        sessions). Even if sessions do not differ, their medians do by chance. So the variance
        between sessions is never 0, and the block grows until it takes as long as its preparation,
        but no longer. Before there are rounds to compare, both variances are taken as equal.
        """
        cost = prepare_ns / turn_ns
        if len(self._trials) < _ROUNDS_TO_COMPARE:
            usual = self._policy.block_seconds * _NS_PER_S * self._sides / turn_ns
            return round(max(usual, math.sqrt(cost)))
        within = statistics.median(trial.spread for trial in self._trials)
        between = statistics.stdev(trial.centre for trial in self._trials)
        if between == 0.0:
            return round(cost)
        # Bounded before it is rounded: the quotient of two spreads can be anything.
        return math.ceil(min(math.sqrt(cost) * within / between, self._policy.max_block))

    def _filling_block(self, turn_ns: float, prepare_ns: int) -> int:
        """Return the inferences in a round with which the last rounds fill the time that is left.

        Otherwise a case that is hard to decide would have had all its rounds before the time ends.
        The time of one more round is kept, because some rounds take longer than planned.
        """
        policy, taken = self._policy, len(self._trials)
        if not policy.usual_share * policy.max_rounds <= taken < policy.max_rounds:
            return 0
        prepared_ns = statistics.median([prepare_ns, *(t.prepare_ns for t in self._trials)])
        round_ns = self.left_ns() / (policy.max_rounds - taken + 1)
        return min(int((round_ns - prepared_ns) / turn_ns), policy.max_filling_block)

    def _rounds_to_come(self, turn_ns: float, prepare_ns: int, left_ns: int) -> int:
        """Return how many rounds to divide the time by, including this one.

        These are the missing rounds. There are fewer if the samples of a median would not fit into
        the time otherwise: a slow model is better measured in fewer rounds than not at all.
        """
        missing = self._median_samples - self._samples()
        for rounds in range(self._policy.min_rounds - len(self._trials), 1, -1):
            samples = max(math.ceil(missing / rounds), 1) * rounds
            if (rounds - 1) * prepare_ns + samples * turn_ns <= left_ns:
                return rounds
        return 1

    def _seconds_a_side(self, turn_ns: float) -> float:
        return turn_ns / _NS_PER_S / self._sides

    def _samples(self) -> int:
        return sum(trial.turns for trial in self._trials)

    def left_ns(self) -> int:
        """Return the time until the loop must end. Below 0 if it is over."""
        if self._end_ns is None:
            return round(self._policy.max_seconds * _NS_PER_S)
        return self._end_ns - self._clock()

    def _tell(self, step: str, least_seconds: float | None = None) -> None:
        number, left_s = len(self._trials) + 1, max(self.left_ns(), 0) / _NS_PER_S
        at = SamplingProgress(step, number, None, None, left_s, least_seconds)
        if self._estimate is not None:
            value_ns, half_width = self._estimate.value_ns, self._estimate.half_width
            at = replace(at, estimate_ns=value_ns, half_width=half_width)
        self._watch(at)


def _turns_ns(blocks: Blocks) -> list[int]:
    """Return the time of each turn, in which every side runs once."""
    return [sum(turn) for turn in zip(*(block.times_ns for block in blocks), strict=True)]


def _typical_ns(blocks: Blocks) -> float:
    """Return the time of a typical turn, or the mean for a workload, which has no typical turn."""
    find = statistics.median if blocks[0].mix is None else statistics.fmean
    return max(find(_turns_ns(blocks)), 1)


def _spread(figures: Sequence[float]) -> float:
    """Estimate the standard deviation from the quartiles, which ignores a few slow inferences."""
    if len(figures) < 2:
        return 0.0
    lower, _, upper = statistics.quantiles(figures, n=4, method="inclusive")
    return (upper - lower) / (2 * statistics.NormalDist().inv_cdf(0.75))
