"""A case compared with what a baseline stored: by its plan, which may settle it, or by samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.recorded import (
    has_claimed_work,
    has_lost_its_twin,
    has_recorded_structure,
    other_counts,
    require_recorded_counts,
    require_recorded_structure,
)
from pytest_modelperf.baselines.records import StoredCase, StoredLatency
from pytest_modelperf.comparing.by_counts import (
    SideCounts,
    compare_cases,
    compare_with_stored,
    with_size,
)
from pytest_modelperf.comparing.gates import (
    Gate,
    stored_metrics,
    stored_start_metrics,
    unjudged_metrics,
)
from pytest_modelperf.comparing.judged_case import JudgedCase, PairedCase, left_open, side_run
from pytest_modelperf.comparing.records import CaseComparison, How, Metric, Verdict
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.comparing.since_recorded import (
    DriftPlace,
    Slowdowns,
    Suspicion,
    installed_builds,
    look_at,
)
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.graph.data_dependence import find_data_dependence
from pytest_modelperf.profiler.measured_cases import MeasuredCase, measure_case
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    StartRig,
    see_shapes_if_told,
    started_rig,
)
from pytest_modelperf.profiler.pairs.plans import measure_shortly, save_plan
from pytest_modelperf.profiler.prepare import Model, Pair, PairOf, PreparedModel, prepare
from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.profiler.request import size_on_disk
from pytest_modelperf.profiler.sampling.policy import coarsened
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.shown.facts import find_noise
from pytest_modelperf.profiler.worker.gateway import is_this_python
from pytest_modelperf.stats.records import Percentile
from pytest_modelperf.stats.slowdowns import MachineDrift, ShortLook, weigh
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of

_RECORDED_START = "load and first inference are those of the baseline"
_NOTHING_CHANGED = "the same model on the same engine with the same options: nothing to judge"


def settle(
    before: Side, after: Model, setup: Setup, gate: Gate, place: CasePlace
) -> JudgedCase | None:
    """Return the verdict if the baseline and the current model are enough, or None.

    Rebuilding a twin takes most of the time, so this works without it. Raise a
    BaselineError if the digest matches the model, but the structure or the counts of the model or
    of the twin do not.
    """
    if before.baseline is None:
        return None
    stored = before.baseline.case(place.case.id)
    missing = find_missing(place.case, stored, after)
    if stored is None or missing is not None:
        return missing
    require_recorded_structure(before.baseline.model.name, stored, after.file, place.tell)
    is_same = before.setup == setup and stored.inputs == after.given_inputs
    if not (is_same and has_recorded_engine(stored, setup)):
        return None
    # The digest comes last, because it may have to read gigabytes.
    if stored.model_sha256 != after.file.sha256(place.tell):
        return None
    require_recorded_counts(before.baseline.model.name, stored, after.static.from_graph)
    if has_lost_its_twin(before.baseline, before.twin, stored):
        # A digest alone could be wrong, because a single file contains it.
        return None
    known = SideCounts(stored.static, stored.observed)
    static = compare_with_stored(place.case, known, after.static, gate.tolerances, is_same=True)
    sizes = before.baseline.size_of(stored.id), size_on_disk(after.file)
    static = with_size(static, *sizes, gate.tolerances)
    return JudgedCase(as_unchanged(static), observed=stored.observed)


def settle_equal(pair: PairOf[Model], gate: Gate, place: CasePlace) -> JudgedCase | None:
    """Return the case as unchanged if both sides are the same model with the same weights."""
    old, new = pair.before, pair.after
    if not pair.shares_a_worker or old.file.sha256(place.tell) != new.file.sha256(place.tell):
        return None
    before, after = (CaseProfile(place.case, each.static) for each in (old, new))
    counted = as_unchanged(compare_cases(before, after, gate.tolerances))
    if gate.judges_starts:
        sizes = size_on_disk(old.file), size_on_disk(new.file)
        counted = with_size(counted, *sizes, gate.tolerances)
    return JudgedCase(counted)


def find_missing(case: Case, stored: StoredCase | None, model: Model) -> JudgedCase | None:
    """Return a new case with the reason why no stored case fits, or None if one fits."""
    reason = _missing(case.id, stored, model)
    if not reason:
        return None
    return JudgedCase(CaseComparison(case, (), (), (reason,), outcome=Verdict.NEW))


def cannot_run_apart(before: Side, now: Model, setup: Setup, case: Case) -> str | None:
    """Return why a baseline cannot run in a Python of its own, or None if it can."""
    if before.baseline is None or before.setup == setup:
        return None
    if _missing(case.id, before.baseline.case(case.id), now):
        return None
    refusal = before.baseline.twin_refusal(case.id)
    if refusal is None:
        return None
    return f"the baseline of {printable(case.id)} cannot run in a Python of its own: {refusal}"


def _missing(case_id: str, stored: StoredCase | None, model: Model) -> str:
    if stored is None:
        return f"there is no baseline of {case_id}"
    other = stored.other_dims(model.binding.own_dims) or stored.other_inputs(model.given_inputs)
    return other or _other_generation(stored, model)


def _other_generation(stored: StoredCase, model: Model) -> str:
    """Return why a prefill cannot be compared with the recorded one, or an empty string if it can.

    The id of a prefill does not show how much is generated, which decides the size of a static
    cache.
    """
    known, phase = stored.generation, model.bound.phase
    if known is None or phase is None:
        return ""
    recorded = replace(phase, phase=replace(phase.phase, generate=known.generate))
    if recorded.inputs_at(0).shapes != phase.inputs_at(0).shapes:
        return (
            f"the baseline of {stored.id} was recorded with a cache for {known.generate} generated "
            f"tokens. Now: {phase.phase.generate}. Give the same or record it again"
        )
    return ""


def has_recorded_engine(stored: StoredCase, setup: Setup) -> bool:
    """Whether a case runs on the engine that it was recorded on: same version, same options.

    If several builds of an engine are installed, it is unknown which of them is imported.
    """
    engine = setup.engine.name
    return (
        stored.engine == engine
        and list(installed_builds(engine).values()) == [stored.engine_version]
        and is_this_python(setup.spec)
        # Options that were not given have their defaults, which depend on the version.
        and stored.options == dict(setup.options)
    )


def compare_counts(asked: PairedCase) -> CaseComparison:
    """Compare the counts of both sides, as far as they are known. A baseline has them stored."""
    stored, case, now = asked.stored, asked.place.case, asked.pair.after
    tolerances = asked.gate.tolerances
    if stored is not None:
        # Other input values may lead to other shapes.
        observed = stored.observed if stored.inputs == now.given else None
        known = SideCounts(stored.static, observed)
        return compare_with_stored(case, known, now.static, tolerances)
    then = CaseProfile(case, asked.pair.before.static)
    return compare_cases(then, CaseProfile(case, now.static), tolerances)


def as_unchanged(counted: CaseComparison) -> CaseComparison:
    """Return the comparison of a case that does not need to run."""
    # Counts that only a run completes are the same too.
    metrics = tuple(
        replace(metric, verdict=Verdict.PASSED, reason=None) if metric.is_open else metric
        for metric in counted.metrics
    )
    return replace(counted, metrics=metrics, outcome=Verdict.UNCHANGED, notes=(_NOTHING_CHANGED,))


# -- a case whose plan did not change


_NS_PER_MS = 1e6


def settle_by_plan(  # noqa: PLR0913, PLR0917  # both sides, how to run and judge, who is informed, and the other cases
    before: Side,
    after: Model,
    setup: Setup,
    gate: Gate,
    place: CasePlace,
    slowdowns: Slowdowns,
    start: StartRig = started_rig,
) -> JudgedCase | Suspicion | None:
    """Return the case as passed if the engine still makes the recorded plan of the model.

    Return a suspicion if the model takes longer than the `slowdowns` of the other models explain.
    Return None if the engine makes another plan, or if a plan does not settle the case. The twin is
    not rebuilt for this, but the plan is trusted only if the twin has the structure and the counts
    that belong to it.
    """
    if before.baseline is None or not gate.trusts_plans or before.setup != setup:
        return None
    stored, machine = before.baseline.case(place.case.id), before.machine
    if stored is None or stored.plan is None or machine is None:
        return None
    is_recorded_alike = stored.plan.machine == machine.key and has_recorded_engine(stored, setup)
    if not (is_recorded_alike and _is_built_alike(stored, after)):
        return None
    trusts_twin = partial(has_claimed_work, before.baseline, before.twin, stored, after)
    begun = time.monotonic()
    # Models in two folders may have the same name.
    model = before.baseline.model.sha256 or before.baseline.model.name
    drift_place = machine.key, place.case.cores
    others = slowdowns.of_others(drift_place, model)
    expected = _Expected(before.recorded(stored.id), drift_place, model, others, trusts_twin)
    try:
        found = _measure_plan(stored, expected, prepare(after), setup, place, start)
        suspicion = None
        if found is not None:
            suspicion = _find_suspicion(found, expected, setup, place, slowdowns, start)
    except MeasureError:
        # The duet meets the same error, and reports it.
        return None
    if found is None or suspicion is not None:
        return suspicion
    pair = Pair(found.model, found.model, setup, setup)
    counted = compare_counts(PairedCase(pair, before, gate, place))
    sizes = before.baseline.size_of(stored.id), found.model.size_bytes
    counted = with_size(counted, *sizes, gate.tolerances)
    seconds = time.monotonic() - begun
    return judge_same_plan(counted, found.profile, stored.plan.kernels, gate, seconds)


class _Expected(Struct, frozen=True):
    """The recorded latency of a case, and the slowdowns of other models in the same place.

    `trusts_twin` tells whether the twin has the work that the baseline claims for the case.
    """

    recorded: StoredLatency | None
    place: DriftPlace
    model: str
    others: tuple[float, ...]
    trusts_twin: Callable[[], bool]

    @property
    def drift(self) -> MachineDrift:
        return MachineDrift.of(self.others)

    def look_at(self, measured: Measurement) -> ShortLook | None:
        return None if self.recorded is None else look_at(self.recorded, measured)

    def explains(self, measured: Measurement) -> bool:
        look = self.look_at(measured)
        return look is None or self.drift.explains(look)


def _measure_plan(  # noqa: PLR0913, PLR0917  # the same
    stored: StoredCase,
    expected: _Expected,
    model: PreparedModel,
    setup: Setup,
    place: CasePlace,
    start: StartRig,
) -> MeasuredCase | None:
    """Run the model briefly, and return None unless this shows that it does the recorded work.

    The engine has to make the recorded plan of it. If a run completes the counts, these have to be
    the recorded ones: they show sizes and, if data decides which bodies run, which ones did. The
    session that makes the plan is also the one that runs, if the load time comes from the baseline.
    """
    graph, plan, recorded = model.bound.graph, stored.plan, expected.recorded
    if plan is None or find_data_dependence(graph, after_run=True) is not None:
        return None
    with start(model, setup, place) as rig:
        has_start = recorded is not None and recorded.is_of(rig.facts)
        trusted: list[bool] = []
        saved = save_plan(
            rig,
            model.static.weight_bytes,
            keeps_session=has_start,
            # This process reads the twin while the worker loads the model.
            meanwhile=lambda: trusted.append(expected.trusts_twin()),
        )
        if saved is None or saved.plan.digest.value != plan.digest or trusted != [True]:
            return None
        if saved.plan.find_data(after_run=True) is not None:
            return None
        known = see_shapes_if_told(model, rig)
        needs_run = find_data_dependence(graph) is not None or saved.plan.find_data() is not None
        if not _ran_alike(stored, known, needs_run=needs_run):
            return None
        measured = measure_shortly(rig, place, expected.explains)
        if recorded is not None and has_start:
            measured = _with_recorded_start(measured, recorded)
        return MeasuredCase(CaseProfile(place.case, known.static, measured), known)


def _with_recorded_start(measured: Measurement, recorded: StoredLatency) -> Measurement:
    load_ns = round(median(process.load_ns[0] for process in recorded.processes))
    first_ns = round(median(process.first_ns[0] for process in recorded.processes))
    rounds = tuple(
        replace(made, load_ns=load_ns, first_ns=first_ns, starts=None) for made in measured.rounds
    )
    return replace(measured, rounds=rounds, notes=(*measured.notes, _RECORDED_START))


def _find_suspicion(  # noqa: PLR0913, PLR0917  # the same
    found: MeasuredCase,
    expected: _Expected,
    setup: Setup,
    place: CasePlace,
    slowdowns: Slowdowns,
    start: StartRig,
) -> Suspicion | None:
    measured = found.profile.measured
    first = None if measured is None else expected.look_at(measured)
    if first is None:
        return None

    def looks() -> Iterator[ShortLook]:
        yield first
        with start(found.model, setup, place) as rig:
            second = expected.look_at(measure_shortly(rig, place))
        yield from () if second is None else (second,)

    weighed = weigh(looks(), expected.drift)
    if weighed.is_explained:
        slowdowns.add(expected.place, expected.model, weighed.slowdown)
        return None
    return Suspicion(
        place=expected.place,
        model=expected.model,
        slowdown=weighed.slowdown,
        others=expected.others,
    )


def _is_built_alike(stored: StoredCase, now: Model) -> bool:
    """Whether the graph has the counts and the structure of the recorded one.

    Otherwise only the twin can show whether the engine makes the same plan of both, because the
    file may contain the digest of another model's plan.
    """
    has_counts = other_counts(stored.static, now.static.from_graph) is None
    return has_counts and has_recorded_structure(stored, now.file)


def _ran_alike(stored: StoredCase, now: PreparedModel, *, needs_run: bool) -> bool:
    """Whether a run completed the counts in the same way as the recorded run.

    Without a run on both sides this is unknown, which is enough unless `needs_run`.
    """
    recorded, observed = stored.observed, now.static.observed
    if recorded is None or observed is None:
        return not needs_run
    return other_counts(recorded, observed) is None


def judge_same_plan(
    counted: CaseComparison, profile: CaseProfile, kernels: int, gate: Gate, seconds: float
) -> JudgedCase:
    """Return the case as passed. `profile` has the latency of a short run, which was not judged."""
    measured = profile.measured
    if measured is None:
        raise MeasureError(profile.reason)
    comparison = replace(
        with_times(counted, measured, gate),
        how=How.PLAN,
        notes=(describe_same_plan(kernels), *profile.static.notes, *measured.notes),
        seconds=seconds,
    )
    return JudgedCase(comparison, profile)


def with_times(comparison: CaseComparison, measured: Measurement, gate: Gate) -> CaseComparison:
    """Return a case that passed by its plan, with the times of a run of the model alone."""
    times = [_metric(percentile, gate) for percentile in measured.latency.percentiles]
    names = {metric.name for metric in times}
    others = (metric for metric in comparison.metrics if metric.name not in names)
    return replace(
        comparison,
        after=side_run(measured),
        metrics=(*times, *others),
        rounds=len(measured.rounds),
        seconds=measured.seconds,
    )


def _metric(percentile: Percentile, gate: Gate) -> Metric:
    """Return a percentile that is the same on both sides, because both run the same."""
    percent, ns = percentile.percent, percentile.value_ns
    return Metric(
        f"latency_{percentile.name}",
        None,
        None if ns is None else ns / _NS_PER_MS,
        Verdict.PASSED,
        gated=percent in gate.percents,
        awaited=percent in gate.tolerances.awaited,
        allowed=gate.tolerances.of(percent),
        measured_ratio=1.0,
    )


def describe_same_plan(kernels: int) -> str:
    """Return the reason why no duet ran."""
    runs = count_of(kernels, "kernel")
    return f"same plan: the engine runs the same {runs} on the same shapes"


# -- a case compared with the recorded processes


def compare_with_samples(asked: PairedCase, refusal: str) -> JudgedCase:
    """Compare the model with the recorded processes. `refusal` is why there is no duet."""
    begun = time.monotonic()
    found = _measure(asked)
    pair, gate, now = replace(asked.pair, after=found.model), asked.gate, found.profile
    if now.measured is None:
        raise MeasureError(now.reason)
    counted = compare_counts(replace(asked, pair=pair))
    stored = asked.recorded
    note = f"not run as a duet: {refusal}"
    doubt = _why_not_judged(stored, now.measured)
    is_judged = stored is not None and doubt is None
    if stored is None or doubt is not None:
        metrics = unjudged_metrics(now.measured.latency, gate)
    else:
        metrics = stored_metrics(stored, now.measured.latency, gate)
        if gate.judges_starts:
            metrics += stored_start_metrics(stored, now.measured.rounds, gate)
        doubt = _why_doubtful(metrics, now.measured, asked.place.case.cores)
        if doubt is not None:
            metrics = left_open(metrics, Verdict.REGRESSED)
    comparison = replace(
        counted,
        metrics=(*metrics, *counted.metrics),
        notes=(*counted.notes, note if doubt is None else f"{note}; {doubt}"),
        rounds=len(now.measured.rounds),
        how=How.STORED if is_judged else None,
        after=side_run(now.measured),
        seconds=time.monotonic() - begun,
    )
    return JudgedCase(comparison, now, pair=pair)


def _measure(asked: PairedCase) -> MeasuredCase:
    pair, gate = asked.pair, asked.gate
    # Recorded processes vary by more than the precision that one of them can reach.
    policy = coarsened(pair.after_setup.policy, gate.tolerance)
    policy = replace(policy, tail_samples=gate.samples_needed)
    setup = replace(pair.after_setup, policy=policy)
    return measure_case(pair.after, setup, asked.place, takes_layers=False)


def _why_not_judged(stored: StoredLatency | None, now: Measurement) -> str | None:
    if stored is None:
        return (
            "no times of the recorded model are stored for this kind of machine, so the latency is "
            "not judged"
        )
    if not stored.is_of(now.engine):
        return "it was recorded on another engine, so the latency is not judged"
    if now.mixture is not None:
        # The median of several kinds of inferences can move from one kind to another by chance.
        return "stored times do not apply to a workload, so the latency is not judged"
    return None


def _why_doubtful(metrics: tuple[Metric, ...], now: Measurement, cores: int) -> str | None:
    """Return why a regression may be noise, which affects both sides alike only in a duet."""
    noise = find_noise([made.block.noise for made in now.rounds], cores)
    if not noise or all(metric.verdict is not Verdict.REGRESSED for metric in metrics):
        return None
    return f"{', '.join(noise)}, so slower times may not come from the model"
