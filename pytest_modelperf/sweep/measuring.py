"""Measures a sweep: every configuration of one model or two, in turn, round by round.

Each pass runs all configurations once, in random order, so the noise of the machine affects all
alike. Both sides of a configuration run right after one another, because they are compared.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.comparing.by_duet import compare_models
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.errors import (
    ChangedModelError,
    MeasureError,
    TooFewCoresError,
)
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import Block, EngineFacts, Load, Progress, Round
from pytest_modelperf.profiler.measuring import measure_model
from pytest_modelperf.profiler.preparation import (
    CasePlace,
    Model,
    Watch,
    adding_notes,
    alone_at,
    check_cores,
    make_workload,
    start_on,
    unchanged,
)
from pytest_modelperf.profiler.records import Case, ModelFacts, Outcome
from pytest_modelperf.profiler.request import (
    ProfileRequest,
    model_facts,
    request_of_each,
    require_equal_batches,
)
from pytest_modelperf.profiler.rig import Rig, Setup, set_up, step_of
from pytest_modelperf.profiler.sampling import sample_in_turn
from pytest_modelperf.profiler.trials import SamplingProgress
from pytest_modelperf.profiler.worker.gateway import ProcessWorker
from pytest_modelperf.stats.allowed_rounds import rounds_within
from pytest_modelperf.stats.estimates import (
    rate_of_rounds,
    ratio_of_rounds,
    spread_of_round,
    summarize,
)
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
    find_sweet_spot,
)

# The precision of each median. A sweep looks for larger differences.
_PRECISION = 0.02


class SweepSource(Struct, frozen=True):
    """One of the models of a sweep, and how to run it."""

    source: ModelSource
    setup: Setup


def sweep_models(  # noqa: PLR0913, PLR0917  # the whole request
    sources: Sequence[SweepSource],
    request: ProfileRequest,
    streams: Sequence[int] = (1,),
    threshold_ms: float | None = None,
    extensions: Extensions | None = None,
    watch: Watch = lambda _: None,
) -> Sweep:
    """Measures every configuration of one model, or of two: the one before and the one now.

    A configuration that fails gets a reason, and the others go on. At the end the best one is
    measured in detail: the layers of one model, or a comparison of both.
    """
    extensions = extensions or Extensions()
    begun = time.monotonic()
    files = [open_model(each.source) for each in sources]
    requests = request_of_each(request, files)
    sides = [
        _Side.bind(index, file, _coarser(each.setup), own, extensions)
        for index, (file, each, own) in enumerate(zip(files, sources, requests, strict=True))
    ]
    require_equal_batches(
        files, [[model.bound.inputs.batch_size for model in side.models] for side in sides]
    )
    cases = [model.case(cores) for model in sides[-1].models for cores in request.cores]
    configurations = [Configuration(case, count) for case in cases for count in streams]
    found = _measure(sides, configurations, watch)
    swept = _sum_up(found, sides, configurations, threshold_ms)
    try:
        with unchanged(*(side.models[0] for side in sides)):
            swept = _look_closer(swept, sources, request, extensions, watch)
    except ChangedModelError as error:
        # The results so far are still true.
        swept = replace(
            swept, notes=(*swept.notes, f"the best was not measured in detail: {error}")
        )
    return replace(swept, seconds=time.monotonic() - begun)


class _Side(Struct, frozen=True):
    """One model, at every set of dimensions."""

    index: int
    file: ModelFile
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
    ) -> _Side:
        facts = model_facts(file, reads_all=True)
        models = tuple(Model.bind(file, b, request, extensions) for b in request.bindings())
        return cls(index, file, facts, setup, models)

    def model_at(self, case: Case) -> Model:
        return next(
            model
            for model in self.models
            if (model.bound.inputs.batch_size, model.dims) == (case.batch_size, case.dims)
        )


def _coarser(setup: Setup) -> Setup:
    policy = setup.policy
    return replace(setup, policy=replace(policy, precision=max(_PRECISION, policy.precision)))


# -- measuring


class _Key(Struct, frozen=True):
    """One configuration of one side."""

    side: int
    configuration: Configuration


class _Found(Struct, frozen=True):
    """The result of the passes: the rounds of each configuration, or why there are none."""

    rounds: Mapping[_Key, tuple[Round, ...]]
    refused: Mapping[_Key, MeasureError]
    engines: Mapping[int, EngineFacts]
    machine: MachineFacts


def _measure(
    sides: Sequence[_Side], configurations: Sequence[Configuration], watch: Watch
) -> _Found:
    keys = [_Key(side.index, each) for each in configurations for side in sides]
    refused: dict[_Key, MeasureError] = {}
    for key in keys:
        error = _too_few_cores(key.configuration.case, sides[key.side].setup)
        if error is not None:
            refused[key] = error
    numbers = {key: number for number, key in enumerate(keys, 1)}

    def tell(key: _Key, at: SamplingProgress) -> None:
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
        benches = {key: _Bench(workers, key) for key in keys if key not in refused}
        rounds, failed = sample_in_turn(
            benches,
            sides[-1].setup.policy,
            time.perf_counter_ns,
            tell,
            random.Random(0),  # noqa: S311  # an order
            lambda key: key.configuration,
        )
        machine = workers.machine or describe_machine()
        return _Found(rounds, {**refused, **failed}, workers.engines, machine)


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

    sides: Sequence[_Side]
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

    def rig(self, key: _Key) -> Rig:
        """The model of a side at one case, in its worker."""
        case = key.configuration.case
        known = self._rigs.get((key.side, case))
        if known is None:
            side = self.sides[key.side]
            worker = self._worker(key)
            model = self.model(key)
            name = f"{'ab'[key.side]}{side.models.index(model)}"
            workload = make_workload(model, worker, name)
            with adding_notes(workload.notes):
                known = set_up(worker, side.setup, case.cores, workload, name)
            self._rigs[key.side, case] = known
            self.engines[key.side] = known.facts
            self.machine = self.machine or worker.machine
        return replace(known, streams=key.configuration.streams)

    def model(self, key: _Key) -> Model:
        return self.sides[key.side].model_at(key.configuration.case)

    def _worker(self, key: _Key) -> ProcessWorker:
        place = self._place(key)
        if place not in self._workers:
            stack = ExitStack()
            started = start_on(self.sides[place[0]].setup, place[1])
            self._workers[place] = stack.enter_context(started), stack
        return self._workers[place][0]

    def end(self, key: _Key) -> None:
        """Ends the worker in which this configuration failed."""
        place = self._place(key)
        _, stack = self._workers.pop(place, (None, ExitStack()))
        stack.close()
        for side, case in list(self._rigs):
            if self._place(_Key(side, Configuration(case))) == place:
                del self._rigs[side, case]

    def _place(self, key: _Key) -> tuple[int, int]:
        """Sides with the same setup share a worker."""
        setup = self.sides[key.side].setup
        first = next(side.index for side in self.sides if side.setup == setup)
        return first, key.configuration.case.cores


class _Bench(Struct):
    """One configuration as a bench to sample; its worker starts with its first round."""

    workers: _Workers
    key: _Key
    step: str = ""
    _rig: Rig | None = None

    def open(self) -> Load:
        try:
            with unchanged(self.workers.model(self.key)):
                self._rig = self.workers.rig(self.key)
                return self._rig.open()
        except MeasureError:
            self.workers.end(self.key)
            raise

    def block(self, count: int, max_ns: int) -> Block:
        assert self._rig is not None, "a round opens its session first"  # noqa: S101  # for mypy
        self._rig.step = self.step
        try:
            return self._rig.blocks((self._rig.side,), count, max_ns)[0]
        except MeasureError:
            self.workers.end(self.key)
            raise

    def close(self) -> None:
        if self._rig is not None:
            self._rig.close()


# -- the results


def _sum_up(
    found: _Found,
    sides: Sequence[_Side],
    configurations: Sequence[Configuration],
    threshold_ms: float | None,
) -> Sweep:
    confidence = sides[-1].setup.policy.confidence
    swept = []
    for side in sides:
        points = tuple(_point(side, each, found) for each in configurations)
        swept.append(
            SweepSide(
                model=side.facts,
                engine=found.engines.get(side.index),
                points=points,
                spot=find_sweet_spot(points, threshold_ms),
                scaling=tuple(_scaling(side.index, configurations, found, confidence)),
            )
        )
    changes = tuple(_changes(configurations, found, confidence)) if len(sides) > 1 else ()
    return Sweep(
        sides=tuple(swept),
        changes=changes,
        threshold_ms=threshold_ms,
        confidence=confidence,
        passes=max(map(len, found.rounds.values()), default=0),
        machine=found.machine,
        notes=_notes(sides),
    )


def _notes(sides: Sequence[_Side]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for side in sides for m in side.models for n in m.static.notes))


def _point(side: _Side, configuration: Configuration, found: _Found) -> SweepPoint:
    key = _Key(side.index, configuration)
    rounds = found.rounds.get(key, ())
    if not rounds:
        error = found.refused[key]
        is_skipped = isinstance(error, TooFewCoresError)
        outcome = Outcome.SKIPPED if is_skipped else Outcome.FAILED
        reason = error.worded(side.setup.wording)
        return SweepPoint(configuration=configuration, outcome=outcome, reason=reason)
    size, confidence = configuration.case.batch_size, side.setup.policy.confidence
    return SweepPoint(
        configuration=configuration,
        latency=summarize([made.times_ns for made in rounds], size, confidence),
        throughput=rate_of_rounds(_rates(key, rounds), confidence),
        rounds=tuple(spread_of_round(made.times_ns) for made in rounds),
    )


def _rates(key: _Key, rounds: Sequence[Round]) -> list[float]:
    """Items a second, round by round."""
    return [key.configuration.case.batch_size * made.block.per_second for made in rounds]


def _changes(
    configurations: Sequence[Configuration], found: _Found, confidence: float
) -> Iterator[PointChange]:
    for each in configurations:
        before, after = _Key(0, each), _Key(1, each)
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
    side: int, configurations: Sequence[Configuration], found: _Found, confidence: float
) -> Iterator[Scaling]:
    """Compares each configuration with the one that has least of one thing and is else the same."""
    for of in (BATCH, CORES, STREAMS):
        bases: dict[object, Configuration] = {}
        for each in sorted(configurations, key=lambda c: _amount(c, of)):
            key = _Key(side, each)
            if key not in found.rounds:
                continue
            base = bases.setdefault(_all_but(each, of), each)
            if base is each:
                continue
            old, new = found.rounds[_Key(side, base)], found.rounds[key]
            count = min(len(old), len(new))
            yield Scaling(
                of=of,
                base=base.id,
                id=each.id,
                factor=_amount(each, of) / _amount(base, of),
                gain=ratio_of_rounds(
                    _rates(_Key(side, base), old[:count]), _rates(key, new[:count]), confidence
                ),
            )


def _amount(configuration: Configuration, of: str) -> int:
    case = configuration.case
    return {BATCH: case.batch_size, CORES: case.cores, STREAMS: configuration.streams}[of]


def _all_but(configuration: Configuration, of: str) -> object:
    case = configuration.case
    rest = {BATCH: case.batch_size, CORES: case.cores, STREAMS: configuration.streams}
    del rest[of]
    return case.dims, tuple(rest.items())


# -- the best in detail


def _look_closer(
    swept: Sweep,
    sources: Sequence[SweepSource],
    request: ProfileRequest,
    extensions: Extensions,
    watch: Watch,
) -> Sweep:
    """Adds the layers at the sweet spot of the last side, or without one at its quickest point."""
    measured = [point for point in swept.sides[-1].points if point.latency is not None]
    if not measured:
        return swept
    best = swept.sides[-1].spot.best
    point = next(
        (each for each in measured if each.id == best),
        min(measured, key=lambda each: each.p50_ms or float("inf")),
    )
    case = point.configuration.case
    alone = replace(
        request,
        batch_sizes=(case.batch_size,),
        cores=(case.cores,),
        # A dimension that does not vary may still be listed once for each case.
        dims={
            **{name: sizes[:1] for name, sizes in request.dims.items()},
            **{name: (size,) for name, size in case.dims},
        },
        named=tuple(name for name, _ in case.dims),
    )
    now = sources[-1]
    if len(sources) == 1:
        profile = measure_model(now.source, alone, now.setup, extensions, watch)
        return replace(swept, profile=profile)
    gate = Gate(rounds=rounds_within(now.setup.policy.max_seconds))
    before = Side(sources[0].source, sources[0].setup)
    after = Side(now.source, now.setup)
    comparison = compare_models(before, after, alone, gate, extensions, watch)
    return replace(swept, comparison=comparison)
