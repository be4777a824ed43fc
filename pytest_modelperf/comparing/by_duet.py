"""Two models, or one on two engines, judged by a duet on this machine."""

from __future__ import annotations

import enum
import importlib.metadata
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.recorded_twin import require_recorded_twin
from pytest_modelperf.baselines.records import (
    Baseline,
    MachineBaseline,
    ModelBaseline,
    StoredCase,
    StoredStatic,
)
from pytest_modelperf.comparing.attribution import explain
from pytest_modelperf.comparing.by_counts import compare_cases, compare_with_stored
from pytest_modelperf.comparing.gates import Gate, describe_modes, latency_metrics, stored_metrics
from pytest_modelperf.comparing.output_changes import compare_outputs
from pytest_modelperf.comparing.records import (
    CaseComparison,
    Comparison,
    Metric,
    OutputChange,
    Verdict,
)
from pytest_modelperf.errors import MeasureError, UsageError
from pytest_modelperf.graph.model_file import ModelSource, open_model
from pytest_modelperf.graph.rebuild import rebuild
from pytest_modelperf.graph.twin import read_twin, write_twin_bytes
from pytest_modelperf.profiler.conditions import find_noise
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import DuetRound, EngineFacts, Measurement, SideRun
from pytest_modelperf.profiler.measuring import measure_case
from pytest_modelperf.profiler.pair_run import Pair, RanSide, run_pair
from pytest_modelperf.profiler.preparation import (
    Model,
    Place,
    Watch,
    alone_at,
    check_cores,
    read_facts,
)
from pytest_modelperf.profiler.records import Case, CaseProfile, ModelFacts
from pytest_modelperf.profiler.request import (
    ProfileRequest,
    request_of_each,
    require_equal_batches,
)
from pytest_modelperf.profiler.rig import Setup
from pytest_modelperf.profiler.sampling_policy import coarsened
from pytest_modelperf.profiler.worker.gateway import is_this_python
from pytest_modelperf.profiler.working_folder import working_folder
from pytest_modelperf.stats.estimates import spread_of_round, summarize
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_shape


class Details(enum.Enum):
    """When layers and outputs are compared as well: they take as long as the verdict."""

    ALWAYS = "always"
    WHEN_WORSE = "when worse"

    def are_wanted(self, metrics: Sequence[Metric]) -> bool:
        if self is Details.ALWAYS:
            return True
        return any((m.gated and m.verdict is Verdict.REGRESSED) or _looks_worse(m) for m in metrics)


def _looks_worse(metric: Metric) -> bool:
    """Whether a figure leaves its case open, and its estimate is beyond the tolerance."""
    if not (metric.decides and metric.is_open) or metric.ratio is None:
        return False
    return metric.ratio > 1.0 + (metric.allowed or 0.0)


class Side(Struct, frozen=True):
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
def baseline_side(
    baseline: Baseline,
    machine_key: str,
    now: Side,
    request: ProfileRequest,
    extensions: Extensions,
) -> Iterator[Side]:
    """A stored baseline as the side before `now`; its files go with the context.

    BaselineError where the twin is not that of the model that was recorded.
    """
    machine = baseline.machine(machine_key)
    with working_folder("twin") as folder:
        source = now.source
        if baseline.twin is not None:
            stored = folder / "stored.onnx"
            write_twin_bytes(baseline.twin, stored)
            twin = read_twin(stored)
            files = open_model(stored), open_model(now.source)
            own, _ = request_of_each(request, files)
            models = [Model.bind(files[0], each, own, extensions) for each in own.bindings()]
            require_recorded_twin(baseline, twin, models)
            source = rebuild(twin, folder / "twin.onnx")
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
    files = open_model(before.source), open_model(after.source)
    models = [
        [Model.bind(file, binding, own, extensions) for binding in own.bindings()]
        for file, own in zip(files, request_of_each(request, files), strict=True)
    ]
    require_equal_batches(files, [[m.bound.inputs.batch_size for m in side] for side in models])
    pairs = [Pair(old, new, before.setup, after.setup) for old, new in zip(*models, strict=True)]
    total = len(pairs) * len(request.cores)
    old_facts = before.facts or read_facts(pairs[0].before, total, watch)
    new_facts = read_facts(pairs[0].after, total, watch)
    gate = gate.divided(total)
    cases = [
        (pair, Case(pair.after.bound.inputs.batch_size, cores, pair.after.dims))
        for pair in pairs
        for cores in request.cores
    ]
    for pair, case in cases:
        # Before the first of them runs: all of it would be lost.
        idle = cannot_run_apart(before, pair.after, after.setup, case)
        if idle is not None:
            raise UsageError(
                f"{idle}. Give the older model itself as A, record the baseline again, or leave "
                "out --python-a and --python-b."
            )
    found = [
        compare_case(pair, before, gate, Place(case, number, total, watch), details)
        for number, (pair, case) in enumerate(cases, 1)
    ]
    return Comparison(
        old_facts,
        new_facts,
        tuple(each.comparison for each in found),
        tolerance=gate.tolerance,
        confidence=gate.confidence,
        engines=tuple(dict.fromkeys(engine for each in found for engine in each.engines)),
    )


class Compared(Struct, frozen=True):
    """One case: what is said of it, and where it ran, what running the new model told.

    `before` is what the other side of a duet told. `observed` is what an earlier run of this very
    case completed of its counts, where none ran now.
    """

    comparison: CaseComparison
    profile: CaseProfile | None = None
    engines: tuple[str, ...] = ()
    before: Measurement | None = None
    observed: StoredStatic | None = None


def compare_case(
    pair: Pair, before: Side, gate: Gate, place: Place, details: Details = Details.ALWAYS
) -> Compared:
    """A model as it is now against one side of before, at one case.

    Nothing runs where there is nothing to judge: the comparison says so then.
    """
    settled, refusal = settle(before, pair.after, pair.after_setup, place), None
    if settled is not None:
        return settled
    if before.baseline is not None:
        refusal = before.baseline.twin_refusal(place.case.id)
    elif pair.shares_a_worker and _is_one_model(pair, place):
        return Compared(_unchanged(_count(pair, before, gate, place)))
    try:
        if refusal is not None:
            return _compare_with_samples(pair, before, gate, place, refusal)
        check_cores(place.case.cores, pair.after_setup)
        with alone_at(place):
            found = _compare_in_turn(pair, before, gate, place, details)
    except MeasureError as error:
        return Compared(
            replace(
                _count(pair, before, gate, place), failure=error.worded(pair.after_setup.wording)
            )
        )
    if before.baseline is None:
        return found
    # What was stored of the graph is what was agreed on, whatever the twin is.
    latency = [m for m in found.comparison.metrics if m.name.startswith("latency")]
    metrics = (*latency, *_count(pair, before, gate, place).metrics)
    return replace(found, comparison=replace(found.comparison, metrics=metrics))


def cannot_run_apart(before: Side, now: Model, setup: Setup, case: Case) -> str | None:
    """Why a baseline cannot run otherwise than the model now; None where it can, or need not."""
    if before.baseline is None or before.setup == setup:
        return None
    if _missing(case.id, before.baseline.case(case.id), now):
        return None
    refusal = before.baseline.twin_refusal(case.id)
    if refusal is None:
        return None
    return f"the baseline of {printable(case.id)} cannot run in a Python of its own: {refusal}"


def _count(pair: Pair, before: Side, gate: Gate, place: Place) -> CaseComparison:
    """What both sides count, as far as it is known by now; of a baseline, what it stored."""
    stored = None if before.baseline is None else before.baseline.case(place.case.id)
    if stored is not None and stored.is_counted:
        if stored.inputs is not None and not is_same_input(stored, pair.after):
            # Other values may lead to other shapes.
            stored = replace(stored, observed=None)
        return compare_with_stored(place.case, stored, pair.after.static, gate.tolerances)
    then = CaseProfile(place.case, pair.before.static)
    now = CaseProfile(place.case, pair.after.static)
    return compare_cases(then, now, gate.tolerances)


def settle(before: Side, after: Model, setup: Setup, place: Place) -> Compared | None:
    """What a baseline alone says of a model as it is now; None where its twin has to be looked at.

    To rebuild a twin takes longer than all the rest, so `before` need not have one for this.
    """
    if before.baseline is None:
        return None
    stored = before.baseline.case(place.case.id)
    missing = find_missing(place.case, stored, after)
    if stored is None or missing is not None:
        return missing
    is_same = before.setup == setup and _is_recorded(stored, after, setup, place)
    if not is_same or not stored.is_counted:
        return None
    static = compare_with_stored(place.case, stored, after.static, is_same=True)
    return Compared(_unchanged(static), observed=stored.observed)


def _is_one_model(pair: Pair, place: Place) -> bool:
    """Whether both sides are the same bytes, weights included."""
    return pair.before.file.sha256(place.tell) == pair.after.file.sha256(place.tell)


_NOTHING_CHANGED = "the same model on the same engine with the same options: nothing to judge"


def _unchanged(static: CaseComparison) -> CaseComparison:
    return replace(static, outcome=Verdict.UNCHANGED, notes=(_NOTHING_CHANGED,))


def _is_recorded(stored: StoredCase, model: Model, setup: Setup, place: Place) -> bool:
    """Whether a case was recorded of the very model of today, run as it would be today."""
    engine = setup.engine.name
    packages = {} if stored.provenance is None else stored.provenance.packages
    return (
        stored.engine == engine
        and packages.get(engine) == _installed(engine) is not None
        and is_this_python(setup.spec)
        # The version and what was given make all options: the others are the engine's defaults.
        and stored.options == dict(setup.options)
        and is_same_input(stored, model)
        # Last, for it may have to read gigabytes.
        and stored.model_sha256 == model.file.sha256(place.tell)
    )


def is_same_input(stored: StoredCase, model: Model) -> bool:
    """Whether a case was recorded on the very values that are given today."""
    return stored.inputs is not None and stored.inputs == model.given_inputs()


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def find_missing(case: Case, stored: StoredCase | None, model: Model) -> Compared | None:
    """A new case, and why nothing stored can be compared with it; None where something can."""
    reason = _missing(case.id, stored, model)
    if not reason:
        return None
    return Compared(CaseComparison(case, (), (), (reason,), outcome=Verdict.NEW))


def _missing(case_id: str, stored: StoredCase | None, model: Model) -> str:
    if stored is None:
        return f"there is no baseline of {case_id}"
    if dict(stored.dims) != dict(model.binding.dims):
        return f"the baseline of {case_id} was recorded at other dimensions: {dict(stored.dims)}"
    return stored.other_inputs(model.given_inputs()) or ""


def _compare_with_samples(
    pair: Pair, before: Side, gate: Gate, place: Place, refusal: str
) -> Compared:
    """The last resort, where the twin does not do: what was measured before, process by process."""
    begun = time.monotonic()
    # The processes that were recorded differ by more than one of them is known to.
    policy = coarsened(pair.after_setup.policy, gate.tolerance)
    policy = replace(policy, min_samples=max(gate.samples_needed, policy.min_samples))
    setup = replace(pair.after_setup, policy=policy)
    now = measure_case(pair.after, setup, place, takes_layers=False)
    if now.measured is None:
        raise MeasureError(now.reason)
    static = _count(pair, before, gate, place)
    stored = None if before.machine is None else before.machine.case(place.case.id)
    note = f"not run as a duet: {refusal}"
    metrics: tuple[Metric, ...] = ()
    if stored is None:
        note += "; nothing was recorded on this kind of machine, so the latency is not judged"
    elif _engine_key(stored.engine) != _engine_key(now.measured.engine):
        note += "; it was recorded on another engine, so the latency is not judged"
    else:
        metrics = stored_metrics(stored, now.measured.latency, gate)
        noise = find_noise([made.block.noise for made in now.measured.rounds], place.case.cores)
        if noise and any(metric.verdict is Verdict.REGRESSED for metric in metrics):
            # In a duet both sides would have had it.
            metrics = tuple(map(_in_doubt, metrics))
            note += f"; {', '.join(noise)}, so that slower times say nothing of the model"
    found = replace(
        static,
        metrics=(*metrics, *static.metrics),
        notes=(*static.notes, note),
        rounds=len(now.measured.rounds),
        is_duet=False,
        after=side_run(now.measured),
        seconds=time.monotonic() - begun,
    )
    return Compared(found, now, (describe_engine(now),))


def _in_doubt(metric: Metric) -> Metric:
    """A figure that is worse, where something else than the model may have made it so."""
    if metric.verdict is not Verdict.REGRESSED:
        return metric
    return replace(metric, verdict=Verdict.INCONCLUSIVE)


def _engine_key(engine: EngineFacts) -> tuple[object, ...]:
    """What has to be equal for two latencies to be of one engine."""
    return engine.name, engine.version, dict(engine.options), engine.providers


def _compare_in_turn(
    pair: Pair, before: Side, gate: Gate, place: Place, details: Details
) -> Compared:
    begun = time.monotonic()
    metrics: Sequence[Metric] = ()

    def wants_details(rounds: Sequence[DuetRound]) -> bool:
        # Judging hundreds of rounds takes a fifth of a second: it is done here alone.
        nonlocal metrics
        metrics = latency_metrics(rounds, gate)
        return details.are_wanted(metrics)

    ran = run_pair(pair, gate, place, wants_details)
    old, new = ran.before, ran.after
    static = compare_cases(old.profile, new.profile, gate.tolerances)
    notes = [note for side in (old, new) for note in _notes_of(side)]
    notes += [*_other_shapes(pair), *_machine_factor(before, ran.rounds, place)]
    notes += [
        *describe_modes(ran.rounds, gate),
        *_longer_than_usual(ran.rounds, pair.after_setup),
    ]
    compared = replace(
        static,
        before=side_run(old.profile.measured),
        after=side_run(new.profile.measured),
        metrics=(*metrics, *static.metrics),
        # A twin has other weights, and so other outputs.
        outputs=() if before.baseline is not None else _compare_outputs(old, new),
        notes=tuple(dict.fromkeys(notes)),
        rounds=len(ran.rounds),
        seconds=time.monotonic() - begun,
    )
    if old.profile.measured is not None and old.profile.measured.layer_times is not None:
        interval = next(m.interval for m in metrics if m.name == "latency_p50")
        explanation = explain(old.profile, new.profile, old.plan, new.plan, interval)
        compared = replace(
            compared,
            layer_types=explanation.layer_types,
            layers=explanation.layers,
            reasons=explanation.reasons,
        )
    engines = (describe_engine(old.profile), describe_engine(new.profile))
    return Compared(compared, new.profile, engines, old.profile.measured)


def side_run(measured: Measurement | None) -> SideRun | None:
    """What a report shows of a side that ran; None for one that did not."""
    if measured is None:
        return None
    return SideRun(
        engine=measured.engine,
        latency=measured.latency,
        rounds=tuple(spread_of_round(made.times_ns) for made in measured.rounds),
        load_ms=measured.load_ms,
        first_inference_ms=measured.first_inference_ms,
    )


def describe_engine(profile: CaseProfile) -> str:
    """`onnxruntime 1.31.1`; nothing for what did not run."""
    return "" if profile.measured is None else profile.measured.engine.label


def _other_shapes(pair: Pair) -> Iterator[str]:
    """The inputs that both have, at other sizes: the sides do not do the same work."""
    old, new = pair.before.bound.inputs.shapes, pair.after.bound.inputs.shapes
    for name, shape in new.items():
        other = old.get(name)
        if shape is not None and other is not None and shape != other:
            yield (
                f"the input {printable(name)} is {format_shape(other)} before and "
                f"{format_shape(shape)} now"
            )


def _machine_factor(before: Side, rounds: Sequence[DuetRound], place: Place) -> list[str]:
    """How this machine runs the baseline, against what was recorded on one of its kind."""
    stored = None if before.machine is None else before.machine.case(place.case.id)
    if stored is None:
        return []
    now = summarize([each.before.times_ns for each in rounds], 1).median_ns
    factor = now / stored.percentile_ns(50.0)
    date = max(process.date for process in stored.processes)
    speed = f"{factor:.2f}x as slow" if factor >= 1 else f"{1 / factor:.2f}x as fast"
    return [f"this machine runs the baseline {speed} as when it was recorded ({date})"]


def _longer_than_usual(rounds: Sequence[DuetRound], setup: Setup) -> Iterator[str]:
    """How long a slow model was measured, where that is more than a case usually gets."""
    first, last = rounds[0].before.begun_ns, rounds[-1].before.begun_ns
    if setup.stretch_seconds is None or first is None or last is None:
        return
    seconds = (last - first) / 1e9
    if seconds > setup.policy.max_seconds:
        yield (
            f"its rounds are slow, so it was measured for {seconds:.0f} s in place of "
            f"{setup.policy.max_seconds:g} s: nobody gave a time"
        )


def _compare_outputs(before: RanSide, after: RanSide) -> tuple[OutputChange, ...]:
    if before.outputs is None or after.outputs is None:
        return ()
    return compare_outputs(before.outputs, after.outputs)


def _notes_of(side: RanSide) -> tuple[str, ...]:
    measured = side.profile.measured
    return (*side.profile.static.notes, *(() if measured is None else measured.notes))
