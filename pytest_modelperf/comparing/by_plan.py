"""A case whose plan did not change: the engine does the same work, so nothing is compared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Thread

from msgspec.structs import replace

from pytest_modelperf.baselines.recorded_twin import (
    has_claimed_work,
    has_recorded_structure,
    other_counts,
)
from pytest_modelperf.baselines.records import StoredCase, StoredPlan
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.judged_case import JudgedCase, side_run
from pytest_modelperf.comparing.paired_case import PairedCase
from pytest_modelperf.comparing.records import CaseComparison, How, Metric, Verdict
from pytest_modelperf.comparing.short_runs import Slowdowns, Suspicion, look_at
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.comparing.sizes import with_size
from pytest_modelperf.comparing.stored_case import compare_counts, has_recorded_engine
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.graph.data_dependence import find_data_dependence
from pytest_modelperf.profiler.measured_cases import MeasuredCase
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    see_shapes_if_told,
    started_rig,
)
from pytest_modelperf.profiler.pairs.plans import measure_shortly, save_plan
from pytest_modelperf.profiler.prepare import Model, Pair, PreparedModel, prepare
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.quantiles import load_quantiles
from pytest_modelperf.stats.records import Percentile
from pytest_modelperf.stats.slowdowns import MachineDrift, ShortLook, weigh
from pytest_modelperf.text.words import count_of

_NS_PER_MS = 1e6


def settle_by_plan(  # noqa: PLR0913, PLR0917  # two sides, how, by which rule, for whom, after which cases
    before: Side,
    after: Model,
    setup: Setup,
    gate: Gate,
    place: CasePlace,
    slowdowns: Slowdowns,
) -> JudgedCase | Suspicion | None:
    """The case as it passed because the engine still makes the recorded plan of the model.

    A suspicion if the model takes longer than `slowdowns` of the other models explain. None if the
    engine makes another plan, or if a plan does not settle the case. No twin is rebuilt for it, but
    the plan is believed only if the twin has the structure and the counts that go with it.
    """
    if before.baseline is None or not gate.trusts_plans or before.setup != setup:
        return None
    stored, machine = before.baseline.case(place.case.id), before.machine
    if stored is None or stored.plan is None or machine is None:
        return None
    is_recorded_alike = stored.plan.machine == machine.key and has_recorded_engine(stored, setup)
    if not (
        is_recorded_alike
        and _is_built_alike(stored, after)
        and has_claimed_work(before.baseline, before.twin, stored, after)
    ):
        return None
    begun = time.monotonic()
    try:
        found = _measure_plan(stored, stored.plan, prepare(after), setup, place)
        suspicion = None
        if found is not None:
            suspicion = _find_suspicion(found, before, setup, place, slowdowns)
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


def _measure_plan(
    stored: StoredCase, plan: StoredPlan, model: PreparedModel, setup: Setup, place: CasePlace
) -> MeasuredCase | None:
    """A short run of the model; None if it is not shown to do the work of the recorded one.

    The engine has to make the recorded plan of it. If a run completes the counts, these have to be
    the recorded ones: they show sizes and, if data decides which bodies run, which ones did.
    """
    graph = model.bound.graph
    if find_data_dependence(graph, after_run=True) is not None:
        return None
    with started_rig(model, setup, place) as rig:
        # This process only waits for the plan, and nothing is timed meanwhile.
        loading = Thread(target=load_quantiles)
        loading.start()
        saved = save_plan(rig, model.static.weight_bytes)
        loading.join()
        if saved is None or saved.plan.digest.value != plan.digest:
            return None
        if saved.plan.find_data(after_run=True) is not None:
            return None
        known = see_shapes_if_told(model, rig)
        needs_run = find_data_dependence(graph) is not None or saved.plan.find_data() is not None
        if not _ran_alike(stored, known, needs_run=needs_run):
            return None
        profile = CaseProfile(place.case, known.static, measure_shortly(rig, place))
        return MeasuredCase(profile, known)


def _find_suspicion(
    found: MeasuredCase, before: Side, setup: Setup, place: CasePlace, slowdowns: Slowdowns
) -> Suspicion | None:
    """Why the recorded times contradict the plan; otherwise the slowdown of the case is noted."""
    recorded, measured = before.recorded(place.case.id), found.profile.measured
    first = None if recorded is None or measured is None else look_at(recorded, measured)
    if recorded is None or first is None or before.baseline is None or before.machine is None:
        return None

    def looks() -> Iterator[ShortLook]:
        yield first
        with started_rig(found.model, setup, place) as rig:
            second = look_at(recorded, measure_shortly(rig, place))
        yield from () if second is None else (second,)

    # Models of two folders may have one name.
    model = before.baseline.model.sha256 or before.baseline.model.name
    drift_place = before.machine.key, place.case.cores
    others = slowdowns.of_others(drift_place, model)
    weighed = weigh(looks(), MachineDrift.of(others))
    if weighed.is_explained:
        slowdowns.add(drift_place, model, weighed.slowdown)
        return None
    return Suspicion(place=drift_place, model=model, slowdown=weighed.slowdown, others=others)


def _is_built_alike(stored: StoredCase, now: Model) -> bool:
    """Whether the graph has the counts and the structure of the recorded one.

    Otherwise only the twin can tell whether the engine makes the same plan of both: a digest of
    another model's plan may stand in the file.
    """
    has_counts = other_counts(stored.static, now.static.from_graph) is None
    return has_counts and has_recorded_structure(stored, now.file)


def _ran_alike(stored: StoredCase, now: PreparedModel, *, needs_run: bool) -> bool:
    """Whether a run completed the counts as the recorded run did.

    Without a run on both sides, nothing is known, which is enough unless `needs_run`.
    """
    recorded, observed = stored.observed, now.static.observed
    if recorded is None or observed is None:
        return not needs_run
    return other_counts(recorded, observed) is None


def judge_same_plan(
    counted: CaseComparison, profile: CaseProfile, kernels: int, gate: Gate, seconds: float
) -> JudgedCase:
    """The case passed; `profile` has the latency of a short run, which judged nothing."""
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
    """A case that passed by its plan with the times of a run of the model alone."""
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
    """A percentile that is the same on both sides, because all that runs is."""
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
    """The reason why no duet ran."""
    runs = count_of(kernels, "kernel")
    return f"same plan: the engine runs the same {runs} on the same shapes"
