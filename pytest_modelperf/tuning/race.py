"""The race: rounds of each set of options and the baseline, until all are decided."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.comparing.gates import block_pairs, side_latencies
from pytest_modelperf.errors import MeasureError, UsageError
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measured_cases import UnknownMemoryError, measure_footprint
from pytest_modelperf.profiler.measurements import DuetRound, EngineFacts
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    Sent,
    adding_notes,
    make_workload,
    read_outputs,
    start_on,
    variant_options,
)
from pytest_modelperf.profiler.prepare import PreparedModel
from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE, SharedDuet, SplitDuet, StartRig
from pytest_modelperf.profiler.sampling.loop import Bench, SamplingProgress
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY
from pytest_modelperf.profiler.sampling.rounds import sample_duet
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, Workload, set_up, step_of
from pytest_modelperf.profiler.worker.client import ProcessWorker
from pytest_modelperf.stats.decisions import Decision
from pytest_modelperf.stats.duet import DuetRule, judge_duet
from pytest_modelperf.stats.estimates import needed_samples
from pytest_modelperf.stats.quantiles import load_quantiles
from pytest_modelperf.stats.race import Standing, standing_of
from pytest_modelperf.tuning.records import OptionSet, SideCosts

# Options that an engine refuses leave the race. The others go on.
_FAILURES = (MeasureError, UsageError)


class Visit(Struct, frozen=True):
    """The next rounds of one set of options, and the seconds they may take.

    `number` counts the passes. In each of them every open set has one visit.
    """

    option_set: OptionSet
    rounds: int
    seconds: float
    number: int


TakeRounds: TypeAlias = Callable[[Visit], Sequence[DuetRound]]


class Lane(Struct):
    """One set of options in a race: its rounds so far, and what they show."""

    option_set: OptionSet
    rounds: list[DuetRound] = field(default_factory=list)
    decision: Decision | None = None
    error: MeasureError | UsageError | None = None

    @property
    def is_waiting(self) -> bool:
        return self.error is None and (self.decision is None or self.decision.is_open)

    @property
    def standing(self) -> Standing | None:
        """The standing so far, or None if no rounds were judged."""
        return None if self.decision is None else standing_of(self.decision)

    def judge(self, rule: DuetRule, *, is_last: bool = False) -> None:
        self.decision = judge_duet(block_pairs(self.rounds), rule, is_last=is_last)


LeftSeconds: TypeAlias = Callable[[Sequence[Lane]], float]


def run_race(
    option_sets: Sequence[OptionSet],
    take: TakeRounds,
    rule: DuetRule,
    left_seconds: LeftSeconds,
    choose: random.Random,
) -> list[Lane]:
    """Return every set of options with its rounds and decision. A set without time has none.

    All open sets get their rounds up to the next look, in random order, and those that are decided
    leave. In the first pass they come in the given order, and each gets its share of the time.
    """
    lanes = [Lane(option_set) for option_set in option_sets]
    waiting = list(lanes)
    for number, look in enumerate(sorted({*rule.looks, *rule.pass_looks})):
        if number:
            choose.shuffle(waiting)
        for place, lane in enumerate(waiting):
            seconds = left_seconds(lanes)
            if seconds <= 0.0:
                break
            wanted = look - len(lane.rounds)
            if wanted > 0:
                _visit(
                    lane,
                    Visit(lane.option_set, wanted, seconds / (len(waiting) - place), number),
                    take,
                )
            if lane.rounds and lane.error is None:
                lane.judge(rule)
        waiting = [lane for lane in waiting if lane.is_waiting]
        if not waiting or left_seconds(lanes) <= 0.0:
            break
    for lane in waiting:
        if lane.rounds:
            lane.judge(rule, is_last=True)
    return lanes


def _visit(lane: Lane, visit: Visit, take: TakeRounds) -> None:
    try:
        lane.rounds += take(visit)
    except _FAILURES as error:
        lane.error = error


# -- the rounds of two sets of options of one model


# The number of fresh processes whose memory is measured.
_FOOTPRINTS = 3
_MEDIAN = 50.0
_PRECISION = "INFERENCE_PRECISION_HINT"

Outputs = Mapping[str, Sent]


class Duets(Struct):
    """The duets of one case, with a worker for each pass of the race and the outputs so far.

    `against` are the options that candidates are compared with, those of the baseline at first.
    `machine` is the one that they ran on, or None if that is this machine.
    """

    model: PreparedModel
    setup: Setup
    place: CasePlace
    against: OptionSet = field(default_factory=lambda: OptionSet({}))
    facts: dict[str, EngineFacts] = field(default_factory=dict)
    outputs: dict[str, Outputs | None] = field(default_factory=dict)
    machine: MachineFacts | None = None
    _pass: int | None = None
    _worker: ProcessWorker | None = None
    _workload: Workload | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """End the worker of the pass, if there is one."""
        self._worker = self._workload = self._pass = None
        self._stack.close()

    def setup_of(self, option_set: OptionSet) -> Setup:
        return replace(self.setup, options={**self.setup.options, **option_set.options})

    def visit(self, visit: Visit) -> Sequence[DuetRound]:
        """Take rounds of a set of options as the first side, against `against`.

        The first visit of a set also reads its outputs.
        """
        own = visit.option_set
        if own.needs_process or self.against.needs_process:
            self.close()
            with closing(self._split(own)) as split:
                rounds = self._take(split, visit.rounds, visit.seconds, own, lambda _: False)
            self._keep_outputs_apart(own)
            return rounds
        try:
            rigs = self._share(visit)
            shared = SharedDuet(*rigs)
            with adding_notes(rigs[0].workload.notes):
                rounds = self._take(shared, visit.rounds, visit.seconds, own, lambda _: False, rigs)
                for option_set, rig in zip((own, self.against), rigs, strict=True):
                    if option_set.name not in self.outputs:
                        self.outputs[option_set.name] = read_outputs(rig)
        except MeasureError:
            # The worker may have ended, or may be in the middle of a request.
            self.close()
            raise
        return rounds

    def confirm(self, winner: OptionSet, rule: DuetRule, seconds: float) -> Sequence[DuetRound]:
        """Take fresh rounds of a winner and the baseline, each in its own processes."""
        self.close()

        def is_decided(rounds: Sequence[DuetRound]) -> bool:
            return not judge_duet(block_pairs(rounds), rule).is_open

        with closing(self._split(winner)) as duet:
            most = rule.looks[-1]
            return self._take(duet, most, seconds, winner, is_decided, fills_time=True)

    def read_again(self) -> Outputs | None:
        """Return the outputs of the baseline, from a new process."""
        self.close()
        with self._started(self.setup_of(self.against), AFTER) as rig:
            return read_outputs(rig)

    def memory_of(self, option_set: OptionSet) -> int | None:
        """Return the median over some processes, or None if the system does not report memory."""
        self.close()
        self.place.tell(f"measuring the memory of {option_set.name or 'the baseline'}")
        setup = self.setup_of(option_set)
        try:
            taken = [measure_footprint(self.model, setup, self.place) for _ in range(_FOOTPRINTS)]
        except UnknownMemoryError:
            return None
        return round(statistics.median(taken))

    # -- workers

    def _share(self, visit: Visit) -> tuple[Rig, Rig]:
        """Return the bench with both sides in the worker of this pass."""
        if self._worker is None or self._workload is None or visit.number != self._pass:
            self.close()
            self._worker = self._stack.enter_context(start_on(self.setup, self.place.case.cores))
            self.machine = self._worker.machine
            self._workload = make_workload(self.model, self._worker)
            self._pass = visit.number
        _require_precision(self._worker, self.setup, visit.option_set)
        own, other = (
            self._rig(self._worker, self._workload, option_set, side)
            for option_set, side in ((visit.option_set, BEFORE), (self.against, AFTER))
        )
        return own, other

    def _rig(
        self, worker: ProcessWorker, workload: Workload, option_set: OptionSet, side: str
    ) -> Rig:
        rig = set_up(worker, self.setup_of(option_set), self.place.case.cores, workload, side)
        self.facts[option_set.name] = rig.facts
        return rig

    @contextmanager
    def _started(self, setup: Setup, side: str) -> Iterator[Rig]:
        with start_on(setup, self.place.case.cores) as worker:
            self.machine = worker.machine
            workload = make_workload(self.model, worker, side)
            with adding_notes(workload.notes):
                yield set_up(worker, setup, self.place.case.cores, workload, side)

    def _split(self, own: OptionSet) -> SplitDuet:
        def starter(option_set: OptionSet, side: str) -> StartRig:
            @contextmanager
            def start() -> Iterator[Rig]:
                with self._started(self.setup_of(option_set), side) as rig:
                    self.facts[option_set.name] = rig.facts
                    yield rig

            return start

        return SplitDuet(starter(own, BEFORE), starter(self.against, AFTER))

    def _keep_outputs_apart(self, own: OptionSet) -> None:
        for option_set, side in ((own, BEFORE), (self.against, AFTER)):
            if option_set.name not in self.outputs:
                with self._started(self.setup_of(option_set), side) as rig:
                    self.outputs[option_set.name] = read_outputs(rig)

    def _take(  # noqa: PLR0913, PLR0917  # a bench, how long, for which options, and when it is enough
        self,
        duet: Bench,
        most: int,
        seconds: float,
        own: OptionSet,
        is_decided: Callable[[Sequence[DuetRound]], bool],
        rigs: Sequence[Rig] = (),
        *,
        fills_time: bool = False,
    ) -> Sequence[DuetRound]:
        load_quantiles()
        policy = replace(
            DUET_POLICY,
            max_seconds=seconds,
            min_warmup_seconds=min(self.setup.policy.min_warmup_seconds, seconds),
            load_share=0.5,
            min_rounds=min(DUET_POLICY.min_rounds, most),
            min_samples=needed_samples(_MEDIAN),
            max_rounds=most,
            # A visit is one of many, so only a confirmation fills its time with longer blocks.
            usual_share=DUET_POLICY.usual_share if fills_time else 1.0,
        )

        def see(progress: SamplingProgress) -> None:
            for rig in rigs:
                rig.step = step_of(progress)
            self.place.tell(f"{own.name}, round {progress.round} ({progress.step})")

        return sample_duet(duet, policy, time.perf_counter_ns, see, is_decided)


def costs_of(rounds: Sequence[DuetRound], side: int, memory_bytes: int | None) -> SideCosts:
    """Return the costs of the first side (0) or the second (1) of these rounds."""
    latency = side_latencies(rounds)[side]
    loads = [(each.before, each.after)[side].load_ns for each in rounds]
    return SideCosts(
        p50_ms=latency.median_ns / 1e6,
        load_ms=statistics.median(loads) / 1e6,
        memory_bytes=memory_bytes,
    )


def _require_precision(worker: ProcessWorker, setup: Setup, option_set: OptionSet) -> None:
    """Raise an error if the device lacks a precision.

    Otherwise it may accept the hint, but compute in another precision.
    """
    wanted = option_set.options.get(_PRECISION)
    if wanted is not None and setup.engine.name == "openvino":
        variant_options(worker, setup, "precision", wanted)
