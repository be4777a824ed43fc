"""Measure the passes of a sweep, sum them up, and measure its best case in detail."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.comparing.by_running import compare_models
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.errors import MeasureError, TooFewCoresError
from pytest_modelperf.graph.model_file import ModelFile
from pytest_modelperf.graph.structure import Generation
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measured_cases import measure_model
from pytest_modelperf.profiler.measurements import Block, EngineFacts, Load, Progress, Round
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    Watch,
    adding_notes,
    alone_at,
    check_cores,
    make_workload,
    start_on,
    unchanged,
)
from pytest_modelperf.profiler.model_request import ModelRun
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.records import Case, ModelFacts, Outcome
from pytest_modelperf.profiler.request import ProfileRequest, model_facts
from pytest_modelperf.profiler.sampling.loop import SamplingProgress
from pytest_modelperf.profiler.sampling.rounds import sample_in_turn
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, set_up, step_of
from pytest_modelperf.profiler.worker.client import ProcessWorker
from pytest_modelperf.stats.estimates import rate_of_rounds, ratio_of_rounds, summarize
from pytest_modelperf.stats.records import Ratio, rounds_within, spread_of_round
from pytest_modelperf.sweep.records import (
    BATCH,
    CORES,
    STREAMS,
    Configuration,
    PointChange,
    Scaling,
    Sweep,
    SweepPoint,
    SweepSide,
    choose_point,
    find_sweet_spot,
)


class BoundSide(Struct, frozen=True):
    """One model, at every set of dimensions."""

    index: int
    facts: ModelFacts
    setup: Setup
    models: tuple[Model, ...]

    @classmethod
    def bind(
        cls,
        index: int,
        file: ModelFile,
        setup: Setup,
        request: ProfileRequest,
        extensions: Extensions,
    ) -> BoundSide:
        facts = model_facts(file, reads_all=True)
        return cls(index, facts, setup, Model.of_request(file, request, extensions))

    def model_at(self, case: Case) -> Model:
        sizes = case.batch_size, case.dims, case.phase
        return next(
            model
            for model in self.models
            if (model.bound.inputs.batch_size, model.dims, model.binding.phase) == sizes
        )


# -- measure every configuration of the sides of a sweep in turn


class SideConfiguration(Struct, frozen=True):
    """One configuration of one side."""

    side: int
    configuration: Configuration


class PassResults(Struct, frozen=True):
    """The result of the passes: the rounds of each configuration, or the reason for none.

    `seconds` is how long they took, without waiting for another measurement.
    """

    rounds: Mapping[SideConfiguration, tuple[Round, ...]]
    refused: Mapping[SideConfiguration, MeasureError]
    engines: Mapping[int, EngineFacts]
    machine: MachineFacts
    seconds: float


def run_passes(
    sides: Sequence[BoundSide], configurations: Sequence[Configuration], watch: Watch
) -> PassResults:
    keys = [SideConfiguration(side.index, each) for each in configurations for side in sides]
    refused: dict[SideConfiguration, MeasureError] = {}
    for key in keys:
        error = _too_few_cores(key.configuration.case, sides[key.side].setup)
        if error is not None:
            refused[key] = error
    numbers = {key: number for number, key in enumerate(keys, 1)}

    def report(key: SideConfiguration, at: SamplingProgress) -> None:
        benches[key].step = step_of(at)
        label = f"{'AB'[key.side]} " if len(sides) > 1 else ""
        watch(
            Progress(
                case_id=f"{label}{key.configuration.id}",
                case_number=numbers[key],
                cases=len(keys),
                step=at.step,
                round=at.round,
                estimate_ns=at.estimate_ns,
                half_width=at.half_width,
                seconds_left=at.seconds_left,
            )
        )

    place = CasePlace(configurations[0].case, 1, len(keys), watch)
    with alone_at(place), _Workers(sides).open() as workers:
        begun = time.perf_counter()
        benches = {key: _Bench(workers, key) for key in keys if key not in refused}
        rounds, failed = sample_in_turn(
            benches,
            sides[-1].setup.policy,
            time.perf_counter_ns,
            report,
            random.Random(0),  # noqa: S311  # only an order
            lambda key: key.configuration,
        )
        machine = workers.machine or describe_machine()
        seconds = time.perf_counter() - begun
        return PassResults(rounds, {**refused, **failed}, workers.engines, machine, seconds)


def _too_few_cores(case: Case, setup: Setup) -> TooFewCoresError | None:
    try:
        check_cores(case.cores, setup)
    except TooFewCoresError as error:
        return error
    return None


class _Workers(Struct):
    """The workers of a sweep: one for each number of cores and each way to run a model.

    An idle worker has no open session. A worker in which something failed is ended; the next
    configuration that needs it starts a new one.
    """

    sides: Sequence[BoundSide]
    engines: dict[int, EngineFacts] = field(default_factory=dict)
    machine: MachineFacts | None = None
    _workers: dict[tuple[int, int], tuple[ProcessWorker, ExitStack]] = field(default_factory=dict)
    _rigs: dict[tuple[int, Case], Rig] = field(default_factory=dict)

    @contextmanager
    def open(self) -> Iterator[_Workers]:
        try:
            yield self
        finally:
            with ExitStack() as stack:
                for _, own in self._workers.values():
                    stack.push(own)

    def rig(self, key: SideConfiguration) -> Rig:
        case = key.configuration.case
        known = self._rigs.get((key.side, case))
        if known is None:
            side = self.sides[key.side]
            worker = self._worker(key)
            model = self.model(key)
            name = f"{'ab'[key.side]}{side.models.index(model)}"
            workload = make_workload(prepare(model), worker, name)
            with adding_notes(workload.notes):
                known = set_up(worker, side.setup, case.cores, workload, name)
            self._rigs[key.side, case] = known
            self.engines[key.side] = known.facts
            self.machine = self.machine or worker.machine
        return replace(known, streams=key.configuration.streams)

    def model(self, key: SideConfiguration) -> Model:
        return self.sides[key.side].model_at(key.configuration.case)

    def _worker(self, key: SideConfiguration) -> ProcessWorker:
        place = self._place(key)
        if place not in self._workers:
            stack = ExitStack()
            started = start_on(self.sides[place[0]].setup, place[1])
            self._workers[place] = stack.enter_context(started), stack
        return self._workers[place][0]

    def end(self, key: SideConfiguration) -> None:
        place = self._place(key)
        _, stack = self._workers.pop(place, (None, ExitStack()))
        stack.close()
        for side, case in list(self._rigs):
            if self._place(SideConfiguration(side, Configuration(case))) == place:
                del self._rigs[side, case]

    def _place(self, key: SideConfiguration) -> tuple[int, int]:
        """Return the key of the worker. Sides with the same setup share one."""
        setup = self.sides[key.side].setup
        first = next(side.index for side in self.sides if side.setup == setup)
        return first, key.configuration.case.cores


class _Bench(Struct):
    """One configuration as a bench to sample. Its worker starts with its first round."""

    workers: _Workers
    key: SideConfiguration
    step: str = ""
    _rig: Rig | None = None

    def open(self) -> tuple[Load]:
        with self._ending_what_fails(), unchanged(self.workers.model(self.key)):
            self._rig = self.workers.rig(self.key)
            return self._rig.open()

    def take(self, count: int, max_ns: int) -> tuple[Block, ...]:
        assert self._rig is not None, "a round opens its session first"  # noqa: S101  # for mypy
        self._rig.step = self.step
        with self._ending_what_fails():
            return self._rig.take(count, max_ns)

    def close(self) -> None:
        if self._rig is not None:
            with self._ending_what_fails():
                self._rig.close()

    @contextmanager
    def _ending_what_fails(self) -> Iterator[None]:
        """End the worker after an error, so that the next configuration gets a new one."""
        try:
            yield
        except MeasureError:
            self.workers.end(self.key)
            raise


def sum_up(
    found: PassResults,
    sides: Sequence[BoundSide],
    configurations: Sequence[Configuration],
    threshold_ms: float | None,
) -> Sweep:
    confidence = sides[-1].setup.policy.confidence
    changes = tuple(_changes(configurations, found, confidence)) if len(sides) > 1 else ()
    measured = [[_point(side, each, found) for each in configurations] for side in sides]
    swept = [
        SweepSide(
            model=side.facts,
            engine=found.engines.get(side.index),
            points=tuple(points),
            spot=find_sweet_spot(points, threshold_ms),
            scaling=tuple(_scaling(side.index, configurations, found, confidence)),
        )
        for side, points in zip(sides, at_changes(measured, changes), strict=True)
    ]
    return Sweep(
        sides=tuple(swept),
        changes=changes,
        threshold_ms=threshold_ms,
        confidence=confidence,
        passes=max(map(len, found.rounds.values()), default=0),
        machine=found.machine,
        notes=_notes(sides),
    )


def _notes(sides: Sequence[BoundSide]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for side in sides for m in side.models for n in m.static.notes))


def _point(side: BoundSide, configuration: Configuration, found: PassResults) -> SweepPoint:
    key = SideConfiguration(side.index, configuration)
    rounds = found.rounds.get(key, ())
    if not rounds:
        error = found.refused[key]
        reason = error.worded(side.setup.wording)
        return SweepPoint(configuration=configuration, outcome=Outcome.of(error), reason=reason)
    size, confidence = configuration.case.batch_size, side.setup.policy.confidence
    return SweepPoint(
        configuration=configuration,
        latency=summarize([made.times_ns for made in rounds], size, confidence),
        throughput=rate_of_rounds(_rates(key, rounds), confidence),
        rounds=tuple(spread_of_round(made.times_ns) for made in rounds),
    )


def at_changes(
    sides: Sequence[Sequence[SweepPoint]], changes: Sequence[PointChange]
) -> list[list[SweepPoint]]:
    """Move the points of both sides so that each pair differs by its change.

    If other processes disturbed one side more, the typical figures of all passes differ from the
    change that the passes show.
    """
    change_of = {change.id: change for change in changes}
    if len(sides) == 1:
        return [list(sides[0])]
    moved: list[list[SweepPoint]] = [[], []]
    for before, after in zip(*sides, strict=True):
        change = change_of.get(before.id)
        pair = (before, after) if change is None else _moved(before, after, change)
        for own, point in zip(moved, pair, strict=True):
            own.append(point)
    return moved


def _moved(
    before: SweepPoint, after: SweepPoint, change: PointChange
) -> tuple[SweepPoint, SweepPoint]:
    factor = _half_step(before.p50_ms, after.p50_ms, change.latency)
    old, new = before.throughput, after.throughput
    rate_factor = 1.0
    if old is not None and new is not None:
        rate_factor = _half_step(old.value, new.value, change.throughput)
    return _scaled(before, 1 / factor, 1 / rate_factor), _scaled(after, factor, rate_factor)


def _half_step(before: float | None, after: float | None, ratio: Ratio) -> float:
    """Return the factor that moves the second figure up and the first down to reach the ratio."""
    return math.sqrt(ratio.value * before / after) if before and after and ratio.value else 1.0


def _scaled(point: SweepPoint, factor: float, rate_factor: float) -> SweepPoint:
    latency, throughput = point.latency, point.throughput
    if latency is not None:
        percentiles = tuple(each.scaled(factor) for each in latency.percentiles)
        latency = replace(latency, percentiles=percentiles)
    if throughput is not None:
        throughput = throughput.scaled(rate_factor)
    return replace(point, latency=latency, throughput=throughput)


def _rates(key: SideConfiguration, rounds: Sequence[Round]) -> list[float]:
    return [key.configuration.case.batch_size * made.block.per_second for made in rounds]


def _changes(
    configurations: Sequence[Configuration], found: PassResults, confidence: float
) -> Iterator[PointChange]:
    for each in configurations:
        before, after = SideConfiguration(0, each), SideConfiguration(1, each)
        old, new = found.rounds.get(before, ()), found.rounds.get(after, ())
        # Rounds count only if both were measured in the same pass.
        count = min(len(old), len(new))
        if count:
            old, new = old[:count], new[:count]
            yield PointChange(
                id=each.id,
                latency=ratio_of_rounds(_medians(old), _medians(new), confidence),
                throughput=ratio_of_rounds(_rates(before, old), _rates(after, new), confidence),
            )


def _medians(rounds: Sequence[Round]) -> list[float]:
    return [statistics.median(made.times_ns) for made in rounds]


def _scaling(
    side: int, configurations: Sequence[Configuration], found: PassResults, confidence: float
) -> Iterator[Scaling]:
    """Compare each configuration with that of the least batch, cores or streams, all else equal."""
    for of in (BATCH, CORES, STREAMS):
        bases: dict[object, Configuration] = {}
        for each in sorted(configurations, key=lambda c: c.amounts[of]):
            key = SideConfiguration(side, each)
            if key not in found.rounds:
                continue
            base = bases.setdefault(each.all_else(of), each)
            if base is each:
                continue
            base_key = SideConfiguration(side, base)
            old, new = found.rounds[base_key], found.rounds[key]
            count = min(len(old), len(new))
            yield Scaling(
                of=of,
                base=base.id,
                id=each.id,
                factor=each.amounts[of] / base.amounts[of],
                gain=ratio_of_rounds(
                    _rates(base_key, old[:count]), _rates(key, new[:count]), confidence
                ),
            )


# -- the best configuration of a sweep in detail, or all of them


# The share of its time for loading a configuration. The rest is for measuring.
LOAD_SHARE = 0.5
# The share of its time for the detail if the passes left none.
_LEAST_SHARE = 0.25


def at_best(swept: Sweep, request: ProfileRequest) -> ProfileRequest | None:
    """Return the request for the sweet spot of the last side, or else for its quickest point."""
    point = choose_point(swept.sides[-1])
    if point is None:
        return None
    case = point.configuration.case
    chosen = case.phase
    state = request.generations[0].state if request.generations else {}
    return replace(
        request,
        # A model whose inputs share no batch cannot be given a batch size.
        batch_sizes=(None if None in request.batch_sizes else case.batch_size,),
        cores=(case.cores,),
        # A dimension that does not vary may still be listed once for each case.
        dims={
            **{name: sizes[:1] for name, sizes in request.dims.items()},
            **{name: (size,) for name, size in case.dims},
        },
        named=tuple(name for name, _ in case.dims),
        generations=() if chosen is None else (Generation(chosen.prompt, chosen.generate, state),),
        phases=request.phases if chosen is None else (chosen.phase,),
    )


def look_closer(  # noqa: PLR0913, PLR0917  # the whole request, and what is left of its time
    swept: Sweep,
    sources: Sequence[ModelRun],
    request: ProfileRequest,
    left_seconds: float,
    extensions: Extensions,
    watch: Watch,
) -> Sweep:
    """Add the layers of the requested cases, or the comparisons of two models.

    A case takes as long as a configuration, or less if less time is left for it.
    """
    share = left_seconds / (len(sources) * sources[-1].setup.policy.max_seconds)
    setups = [_shortened(each.setup, max(min(share, 1.0), _LEAST_SHARE)) for each in sources]
    now = sources[-1]
    if len(sources) == 1:
        # The rounds of a profile take half of it, and its layers take it again.
        profile = measure_model(now.source, request, _shortened(setups[0], 0.5), extensions, watch)
        return replace(swept, profile=profile)
    gate = Gate(rounds=rounds_within(setups[-1].policy.max_seconds))
    before = Side(sources[0].source, setups[0])
    after = Side(now.source, setups[-1])
    comparison = compare_models(before, after, request, gate, extensions, watch)
    return replace(swept, comparison=comparison)


def _shortened(setup: Setup, share: float) -> Setup:
    """Return the setup with this share of its time, including loading as in the passes."""
    policy = setup.policy
    return replace(
        setup, policy=replace(policy, max_seconds=share * policy.max_seconds, load_share=LOAD_SHARE)
    )
