"""Two models, or one on two engines, judged by a duet on this machine."""

from __future__ import annotations

import enum
import importlib.metadata
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_modelperf.attribution import explain
from pytest_modelperf.baseline_records import (
    Baseline,
    MachineBaseline,
    ModelBaseline,
    StoredCase,
)
from pytest_modelperf.compare import compare_cases, compare_with_stored
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.gates import Gate, latency_metrics, stored_metrics
from pytest_modelperf.graph.kernels import read_plan
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, open_model
from pytest_modelperf.graph.rebuild import rebuild
from pytest_modelperf.graph.structure import Plan
from pytest_modelperf.graph.twin import read_twin
from pytest_modelperf.hookspecs import Extensions
from pytest_modelperf.measurements import DuetRound, EngineFacts, KernelRun, Measurement
from pytest_modelperf.measuring import measure_case
from pytest_modelperf.profiler.duet import AFTER, BEFORE, SharedDuet, SplitDuet, StartRig
from pytest_modelperf.profiler.measure import (
    Profiled,
    Rig,
    Setup,
    run_kernels_in_turn,
    set_up,
    step_of,
    sum_up,
)
from pytest_modelperf.profiler.outputs import Sent, compare_outputs, read_outputs
from pytest_modelperf.profiler.sampling import (
    DUET_POLICY,
    BlockPair,
    DuetBench,
    SamplingPolicy,
    SamplingProgress,
    sample_duet,
)
from pytest_modelperf.profiler.worker.gateway import is_this_python
from pytest_modelperf.records import Case, CaseProfile, ModelFacts
from pytest_modelperf.rigging import (
    Model,
    Place,
    Watch,
    add_layer_times,
    alone_at,
    check_cores,
    complete,
    make_subject,
    name_nodes,
    start_on,
    telling,
)
from pytest_modelperf.session import ProfileRequest, model_facts
from pytest_modelperf.stats import needed_samples, summarize
from pytest_modelperf.verdicts import CaseComparison, Comparison, Metric, OutputChange, Verdict


class Details(enum.Enum):
    """When layers and outputs are compared as well: they take as long as the verdict."""

    ALWAYS = "always"
    WHEN_WORSE = "when worse"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared: a model, on an engine, in an interpreter.

    Of a baseline, `source` is its twin, rebuilt, or the model now where it has none; `machine` is
    what was recorded on machines of this kind.
    """

    source: ModelSource
    setup: Setup
    baseline: ModelBaseline | None = None
    machine: MachineBaseline | None = None

    @property
    def facts(self) -> ModelFacts | None:
        return None if self.baseline is None else self.baseline.model


@contextmanager
def baseline_side(baseline: Baseline, machine_key: str, now: Side) -> Iterator[Side]:
    """A stored baseline as the side before `now`; its files go with the context."""
    machine = baseline.machine(machine_key)
    with tempfile.TemporaryDirectory(prefix="modelperf-twin-") as folder:
        source = now.source
        if baseline.twin is not None:
            stored = Path(folder) / "stored.onnx"
            stored.write_bytes(baseline.twin)
            source = rebuild(read_twin(stored), Path(folder) / "twin.onnx")
        yield Side(source, now.setup, baseline.model, machine)


def compare_models(  # noqa: PLR0913, PLR0917  # two sides, what of them, by which rule, with what, for whom
    before: Side,
    after: Side,
    request: ProfileRequest,
    gate: Gate,
    extensions: Extensions | None = None,
    watch: Watch = lambda _: None,
    details: Details = Details.ALWAYS,
) -> Comparison:
    """Every case of two models, side by side; one that fails says why, and the next is compared."""
    extensions = extensions or Extensions()
    old_file, new_file = open_model(before.source), open_model(after.source)
    pairs = [
        _Pair(
            Model.bind(old_file, binding, request, extensions),
            Model.bind(new_file, binding, request, extensions),
            before.setup,
            after.setup,
            before,
            is_same=_is_same(old_file, new_file, before, after),
            details=details,
        )
        for binding in request.bindings()
    ]
    total = len(pairs) * len(request.cores)
    gate = gate.divided(total)
    cases: list[CaseComparison] = []
    for pair in pairs:
        for cores in request.cores:
            case = Case(pair.after.bound.inputs.batch_size, cores, pair.after.dims)
            place = Place(case, len(cases) + 1, total, watch)
            cases.append(_compare_case(pair, gate, place))
    return Comparison(
        before.facts or model_facts(old_file, reads_all=True),
        model_facts(new_file, reads_all=True),
        tuple(cases),
        tolerance=gate.tolerance,
        confidence=gate.rule.confidence,
        engines=tuple(dict.fromkeys(engine for pair in pairs for engine in pair.engines)),
    )


@dataclass(slots=True)
class _Pair:
    """Both models at one set of dimensions, and how each is run."""

    before: Model
    after: Model
    before_setup: Setup
    after_setup: Setup
    side: Side
    is_same: bool
    details: Details
    # What ran, as it described itself.
    engines: list[str] = field(default_factory=list)

    def wants_details(self, metrics: Sequence[Metric]) -> bool:
        if self.details is Details.ALWAYS:
            return True
        return any(m.gated and m.verdict is Verdict.REGRESSED for m in metrics)

    @property
    def shares_a_worker(self) -> bool:
        return self.before_setup == self.after_setup

    def stored(self, case: Case) -> StoredCase:
        """What the baseline has of a case that it has."""
        found = None if self.side.baseline is None else self.side.baseline.case(case.id)
        if found is None:
            raise KeyError(case.id)
        return found

    def models(self) -> tuple[tuple[Model, str], tuple[Model, str]]:
        return (self.before, BEFORE), (self.after, AFTER)


def _is_same(old: ModelFile, new: ModelFile, before: Side, after: Side) -> bool:
    """Whether both are the same bytes, run in the same way."""
    is_stored = before.baseline is not None
    return not is_stored and before.setup == after.setup and old.sha256() == new.sha256()


def _is_recorded(stored: StoredCase, pair: _Pair) -> bool:
    """Whether a case was recorded of the very model of today, on the engine of today."""
    engine, setup = pair.after_setup.engine.name, pair.after_setup
    packages = {} if stored.provenance is None else stored.provenance.packages
    latency = None if pair.side.machine is None else pair.side.machine.case(stored.id)
    given = {} if latency is None else latency.engine.options
    return (
        stored.engine == engine
        and stored.model_sha256 == pair.after.file.sha256()
        and packages.get(engine) == _installed(engine) is not None
        and is_this_python(setup.spec)
        and all(given.get(name) == value for name, value in setup.options.items())
    )


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _compare_case(pair: _Pair, gate: Gate, place: Place) -> CaseComparison:
    static = compare_cases(
        CaseProfile(place.case, pair.before.static), CaseProfile(place.case, pair.after.static)
    )
    is_same, refusal = pair.is_same, None
    if pair.side.baseline is not None:
        missing = _missing(pair.side.baseline, pair.after, place.case)
        if missing is not None:
            return CaseComparison(place.case.id, (), (), (missing,), outcome=Verdict.NEW)
        stored = pair.stored(place.case)
        if stored.static is not None:
            static = compare_with_stored(place.case.id, stored.static, pair.after.static)
        is_same = _is_recorded(stored, pair)
        refusal = pair.side.baseline.twin_refusal(place.case.id)
    if is_same:
        return replace(static, outcome=Verdict.UNCHANGED, notes=(_NOTHING_CHANGED,))
    try:
        if refusal is not None:
            return _compare_with_samples(pair, gate, place, static, refusal)
        check_cores(place.case.cores, pair.after_setup)
        with alone_at(place):
            found = _measure_pair(pair, gate, place)
    except MeasureError as error:
        return replace(static, failure=str(error))
    if pair.side.baseline is None:
        return found
    # What was stored of the graph is what was agreed on, whatever the twin is.
    latency = [metric for metric in found.metrics if metric.name.startswith("latency")]
    return replace(found, metrics=(*latency, *static.metrics))


_NOTHING_CHANGED = "the same model on the same engine with the same options: nothing to judge"


def _missing(baseline: ModelBaseline, model: Model, case: Case) -> str | None:
    """Why there is nothing that this case could be compared with; None where there is."""
    stored = baseline.case(case.id)
    if stored is None:
        return f"there is no baseline of {case.id}"
    if dict(stored.dims) != dict(model.binding.dims):
        return f"the baseline of {case.id} was recorded at other dimensions: {dict(stored.dims)}"
    return None


def _compare_with_samples(
    pair: _Pair, gate: Gate, place: Place, static: CaseComparison, refusal: str
) -> CaseComparison:
    """The last resort, where the twin does not do: what was measured before, process by process."""
    begun = time.monotonic()
    now = measure_case(pair.after, pair.after_setup, place, takes_layers=False)
    if now.measured is None:
        raise MeasureError(now.reason)
    stored = None if pair.side.machine is None else pair.side.machine.case(place.case.id)
    note = f"not run as a duet: {refusal}"
    metrics: tuple[Metric, ...] = ()
    if stored is None:
        note += "; nothing was recorded on this kind of machine, so the latency is not judged"
    elif _engine_key(stored.engine) != _engine_key(now.measured.engine):
        note += "; it was recorded on another engine, so the latency is not judged"
    else:
        metrics = stored_metrics(stored, now.measured.latency, gate)
    return replace(
        static,
        metrics=(*metrics, *static.metrics),
        notes=(*static.notes, note),
        rounds=len(now.measured.rounds),
        is_duet=False,
        seconds=time.monotonic() - begun,
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """What one side told of itself."""

    profile: CaseProfile
    plan: Plan | None = None
    outputs: Mapping[str, Sent] | None = None


def _engine_key(engine: EngineFacts) -> tuple[object, ...]:
    """What has to be equal for two latencies to be of one engine."""
    return engine.name, engine.version, dict(engine.options), engine.providers


def _measure_pair(pair: _Pair, gate: Gate, place: Place) -> CaseComparison:
    begun = time.monotonic()
    measure = _measure_shared if pair.shares_a_worker else _measure_split
    duet = measure(pair, gate, place)
    before, after = duet.before, duet.after
    static = compare_cases(before.profile, after.profile)
    notes = [note for side in (before, after) for note in _notes_of(side)]
    notes += _machine_factor(pair, duet.rounds, place)
    pair.engines += [_engine_of(side) for side in (before, after)]
    compared = replace(
        static,
        metrics=(*duet.metrics, *static.metrics),
        # A twin has other weights, and so other outputs.
        outputs=() if pair.side.baseline is not None else _compare_outputs(before, after),
        notes=tuple(dict.fromkeys(notes)),
        rounds=len(duet.rounds),
        seconds=time.monotonic() - begun,
    )
    if before.profile.measured is None or before.profile.measured.layer_times is None:
        return compared
    interval = next(m.interval for m in duet.metrics if m.name == "latency_p50")
    explanation = explain(before.profile, after.profile, before.plan, after.plan, interval)
    return replace(
        compared,
        layer_types=explanation.layer_types,
        layers=explanation.layers,
        reasons=explanation.reasons,
    )


@dataclass(frozen=True, slots=True)
class _Duet:
    """The rounds of a case, what they say, and what each side told beside."""

    rounds: Sequence[DuetRound]
    metrics: Sequence[Metric]
    before: _Told
    after: _Told


def _measure_shared(pair: _Pair, gate: Gate, place: Place) -> _Duet:
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
            policy = _policy(setup, gate)
            rounds = _take_rounds(SharedDuet(old, new), policy, gate.is_decided, place, (old, new))
            metrics = latency_metrics(rounds, gate)
            sides = [(pair.before, old), (pair.after, new)]
            if pair.wants_details(metrics):
                told = _tell(sides, rounds, place)
            else:
                told = [_tell_latency(model, rig, rounds, place) for model, rig in sides]
    return _Duet(rounds, metrics, *told)


def _measure_split(pair: _Pair, gate: Gate, place: Place) -> _Duet:
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
        rounds = _take_rounds(duet, _policy(pair.after_setup, gate), gate.is_decided, place, rigs)
    metrics = latency_metrics(rounds, gate)
    told = []
    for start, (model, _) in zip(starters, pair.models(), strict=True):
        with start() as rig:
            if pair.wants_details(metrics):
                told += _tell([(model, rig)], rounds, place)
            else:
                told.append(_tell_latency(model, rig, rounds, place))
    return _Duet(rounds, metrics, *told)


def run_duet(
    pair: tuple[Model, Model],
    setup: Setup,
    is_decided: Callable[[Sequence[BlockPair]], bool],
    place: Place,
    gate: Gate | None = None,
) -> Sequence[DuetRound]:
    """Rounds of two models in one worker until something is decided, and nothing else."""
    check_cores(place.case.cores, setup)
    with alone_at(place), start_on(setup, place.case.cores) as worker:
        old, new = (
            set_up(worker, setup, place.case.cores, make_subject(model, worker, side), side)
            for model, side in zip(pair, (BEFORE, AFTER), strict=True)
        )
        policy = _policy(setup, gate)
        return _take_rounds(SharedDuet(old, new), policy, is_decided, place, (old, new))


def _policy(setup: Setup, gate: Gate | None = None) -> SamplingPolicy:
    """That of a duet, with the samples that the percentiles of the gate take."""
    samples = 0 if gate is None else needed_samples(max(gate.percents))
    return replace(DUET_POLICY, max_seconds=setup.policy.max_seconds, min_samples=samples)


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
) -> list[_Told]:
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
        told.append(_Told(CaseProfile(place.case, model.static, known), plan, seen))
    return told


def _tell_latency(model: Model, rig: Rig, rounds: Sequence[DuetRound], place: Place) -> _Told:
    return _Told(CaseProfile(place.case, model.static, _sum_up(rig, rounds)))


def _sum_up(rig: Rig, rounds: Sequence[DuetRound]) -> Measurement:
    own = [r.before if rig.side == BEFORE else r.after for r in rounds]
    return sum_up(rig, own, 0.0, is_alone=False)


def _read_outputs(rig: Rig) -> Mapping[str, Sent] | None:
    rig.open()
    try:
        return read_outputs(rig)
    finally:
        rig.close()


def _engine_of(side: _Told) -> str:
    measured = side.profile.measured
    if measured is None:
        return ""
    return " ".join(part for part in (measured.engine.name, measured.engine.version) if part)


def _machine_factor(pair: _Pair, rounds: Sequence[DuetRound], place: Place) -> list[str]:
    """How this machine runs the baseline, against what was recorded on one of its kind."""
    stored = None if pair.side.machine is None else pair.side.machine.case(place.case.id)
    if stored is None:
        return []
    now = summarize([each.before.times_ns for each in rounds], 1).median_ns
    factor = now / stored.percentile_ns(50.0)
    date = max(process.date for process in stored.processes)
    return [
        f"this machine runs the baseline {factor:.2f}x as slow as when it was recorded ({date})"
    ]


def _compare_outputs(before: _Told, after: _Told) -> tuple[OutputChange, ...]:
    if before.outputs is None or after.outputs is None:
        return ()
    return compare_outputs(before.outputs, after.outputs)


def _notes_of(side: _Told) -> tuple[str, ...]:
    measured = side.profile.measured
    return (*side.profile.static.notes, *(() if measured is None else measured.notes))


_NOTHING_CHANGED = "the same model on the same engine with the same options: nothing to judge"
