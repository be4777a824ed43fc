"""A duet run: two models side by side in fresh sessions, round by round, until it is decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.graph.kernels import read_plan
from pytest_modelperf.graph.structure import PlanGraph
from pytest_modelperf.profiler.duet import AFTER, BEFORE, SharedDuet, SplitDuet, StartRig
from pytest_modelperf.profiler.measurements import DuetRound, KernelRun, Measurement
from pytest_modelperf.profiler.outputs import Sent, read_outputs
from pytest_modelperf.profiler.preparation import (
    Model,
    Place,
    add_layer_times,
    alone_at,
    check_cores,
    complete,
    complete_if_told,
    make_subject,
    name_nodes,
    start_on,
    telling,
    unchanged,
)
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.rig import (
    Profiled,
    Rig,
    Setup,
    read_kernels,
    run_kernels_in_turn,
    set_up,
    step_of,
    sum_up,
)
from pytest_modelperf.profiler.sampling import BlockPair, DuetBench, sample_duet
from pytest_modelperf.profiler.sampling_policy import DUET_POLICY, SamplingPolicy
from pytest_modelperf.profiler.trials import SamplingProgress
from pytest_modelperf.stats.quantiles import load_quantiles


class StopRule(Protocol):
    """When a duet has enough rounds."""

    @property
    def rounds(self) -> int:
        """The most rounds."""

    @property
    def samples_needed(self) -> int:
        """How many samples a side the awaited percentiles take."""

    def is_decided(self, pairs: Sequence[BlockPair]) -> bool:
        """Whether no further round is needed."""


class Pair(Struct, frozen=True):
    """Both models at one set of dimensions, and how each is run."""

    before: Model
    after: Model
    before_setup: Setup
    after_setup: Setup

    @property
    def shares_a_worker(self) -> bool:
        return self.before_setup == self.after_setup

    def models(self) -> tuple[tuple[Model, str], tuple[Model, str]]:
        return (self.before, BEFORE), (self.after, AFTER)


class RanSide(Struct, frozen=True):
    """What one side told of itself."""

    profile: CaseProfile
    plan: PlanGraph | None = None
    outputs: Mapping[str, Sent] | None = None


class PairRun(Struct, frozen=True):
    """The rounds of a pair, and what each side told beside them."""

    rounds: Sequence[DuetRound]
    before: RanSide
    after: RanSide


def run_pair(
    pair: Pair, rule: StopRule, place: Place, wants_details: Callable[[Sequence[DuetRound]], bool]
) -> PairRun:
    """The duet of a case, with layers and outputs if they are wanted.

    `wants_details` is asked once, after the last round.
    """
    load_quantiles()
    run = _share_a_worker if pair.shares_a_worker else _use_two_workers
    with unchanged(pair.before, pair.after):
        return run(pair, rule, place, wants_details)


def _share_a_worker(
    pair: Pair, rule: StopRule, place: Place, wants_details: Callable[[Sequence[DuetRound]], bool]
) -> PairRun:
    """Both sides in one worker, so that all they differ by is the model."""
    setup, cores = pair.after_setup, place.case.cores
    with start_on(setup, cores) as worker:
        place.tell("loading")
        subjects = [make_subject(model, worker, side) for model, side in pair.models()]
        with telling([note for subject in subjects for note in subject.notes]):
            old, new = (
                set_up(worker, setup, cores, subject, side)
                for subject, side in zip(subjects, (BEFORE, AFTER), strict=True)
            )
            policy = _policy(setup, rule)
            rounds = _take_rounds(SharedDuet(old, new), policy, rule.is_decided, place, (old, new))
            sides = [(pair.before, old), (pair.after, new)]
            if wants_details(rounds):
                told = _tell(sides, rounds, place)
            else:
                told = [_tell_latency(model, rig, rounds, place) for model, rig in sides]
    return PairRun(rounds, *told)


def _use_two_workers(
    pair: Pair, rule: StopRule, place: Place, wants_details: Callable[[Sequence[DuetRound]], bool]
) -> PairRun:
    """Each side in workers of its own, for they need other engines or interpreters."""
    rigs: list[Rig] = []

    def starter(model: Model, setup: Setup, side: str) -> StartRig:
        @contextmanager
        def start() -> Iterator[Rig]:
            with start_on(setup, place.case.cores) as worker:
                subject = make_subject(model, worker, side)
                with telling(subject.notes):
                    rig = set_up(worker, setup, place.case.cores, subject, side)
                    rigs.append(rig)
                    yield rig

        return start

    starters = (
        starter(pair.before, pair.before_setup, BEFORE),
        starter(pair.after, pair.after_setup, AFTER),
    )
    with closing(SplitDuet(*starters)) as duet:
        rounds = _take_rounds(duet, _policy(pair.after_setup, rule), rule.is_decided, place, rigs)
    is_detailed = wants_details(rounds)
    told = []
    for start, (model, _) in zip(starters, pair.models(), strict=True):
        with start() as rig:
            if is_detailed:
                told += _tell([(model, rig)], rounds, place)
            else:
                told.append(_tell_latency(model, rig, rounds, place))
    return PairRun(rounds, *told)


class PlainDuet(Struct, frozen=True):
    """The rounds of two models, and the kernels of both where they were asked for and are told."""

    rounds: Sequence[DuetRound]
    kernels: tuple[KernelRun, KernelRun] | None = None


def run_duet(  # noqa: PLR0913  # two models, how they run, until when, and what of them
    pair: tuple[Model, Model],
    setup: Setup,
    is_decided: Callable[[Sequence[BlockPair]], bool],
    place: Place,
    rule: StopRule | None = None,
    *,
    reads_kernels: bool = False,
) -> PlainDuet:
    """Rounds of two models in one worker until something is decided."""
    check_cores(place.case.cores, setup)
    with unchanged(*pair), alone_at(place), start_on(setup, place.case.cores) as worker:
        old, new = (
            set_up(worker, setup, place.case.cores, make_subject(model, worker, side), side)
            for model, side in zip(pair, (BEFORE, AFTER), strict=True)
        )
        first = read_kernels(old) if reads_kernels else None
        second = read_kernels(new) if first is not None else None
        policy = _policy(setup, rule)
        rounds = _take_rounds(SharedDuet(old, new), policy, is_decided, place, (old, new))
    has_kernels = first is not None and second is not None
    return PlainDuet(rounds, (first, second) if has_kernels else None)  # type: ignore[arg-type]  # both are there


def _policy(setup: Setup, rule: StopRule | None = None) -> SamplingPolicy:
    """The sampling policy of a duet, with as many samples as the rule needs."""
    policy = replace(
        DUET_POLICY,
        max_seconds=setup.policy.max_seconds,
        min_warmup_seconds=setup.policy.min_warmup_seconds,
        stretch_seconds=setup.stretch_seconds,
    )
    if rule is None:
        return policy
    return replace(policy, min_samples=rule.samples_needed, max_rounds=rule.rounds)


def _take_rounds(
    duet: DuetBench,
    policy: SamplingPolicy,
    is_decided: Callable[[Sequence[BlockPair]], bool],
    place: Place,
    rigs: Sequence[Rig],
) -> Sequence[DuetRound]:
    """As many rounds as it takes to decide, or as there is time for."""

    def see(progress: SamplingProgress) -> None:
        for rig in rigs:
            rig.step = step_of(progress)
        place.tell_round(progress)

    return sample_duet(duet, policy, time.perf_counter_ns, see, is_decided)


def _tell(
    sides: Sequence[tuple[Model, Rig]], rounds: Sequence[DuetRound], place: Place
) -> list[RanSide]:
    """What the sides of one worker tell: their latency, their layers, their outputs."""
    outputs = [_read_outputs(rig) for _, rig in sides]
    measured = [_sum_up(rig, rounds) for _, rig in sides]
    place.tell("timing layers")
    runs: Sequence[KernelRun | None] = [None] * len(sides)
    note = ""
    try:
        named = [name_nodes(model, rig) for model, rig in sides]
        for (model, rig), copy in zip(sides, named, strict=True):
            complete(model, rig, copy)
        runs = (
            run_kernels_in_turn(
                [
                    Profiled(rig, copy, len(model.static.layers), model.static.weight_bytes)
                    for (model, rig), copy in zip(sides, named, strict=True)
                ]
            )
            or runs
        )
    except MeasureError as error:
        # What was timed before stays true.
        note = f"no layer times: {error}"
    told = []
    for (model, _), figures, run, seen in zip(sides, measured, runs, outputs, strict=True):
        known = replace(figures, notes=(*figures.notes, note)) if note else figures
        if run is not None:
            known = add_layer_times(model, known, run)
        plan = None if run is None or run.plan is None else read_plan(run.plan)
        told.append(RanSide(CaseProfile(place.case, model.static, known), plan, seen))
    return told


def _tell_latency(model: Model, rig: Rig, rounds: Sequence[DuetRound], place: Place) -> RanSide:
    complete_if_told(model, rig)
    return RanSide(CaseProfile(place.case, model.static, _sum_up(rig, rounds)))


def _sum_up(rig: Rig, rounds: Sequence[DuetRound]) -> Measurement:
    own = [r.before if rig.side == BEFORE else r.after for r in rounds]
    return sum_up(rig, own, 0.0, is_alone=False)


def _read_outputs(rig: Rig) -> Mapping[str, Sent] | None:
    rig.open()
    outputs = read_outputs(rig)
    # Not after an error or an interrupt: a worker that is gone, or busy, would not answer.
    rig.close()
    return outputs
