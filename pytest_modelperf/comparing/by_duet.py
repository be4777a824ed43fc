"""Two models, or one on two engines, judged by a duet on this machine."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence

from msgspec.structs import replace

from pytest_modelperf.comparing.attribution import explain
from pytest_modelperf.comparing.by_counts import compare_cases
from pytest_modelperf.comparing.by_plan import judge_same_plan
from pytest_modelperf.comparing.by_samples import compare_with_samples
from pytest_modelperf.comparing.changed_parts import (
    describe_plans,
    explain_by_parts,
    find_elsewhere,
    part_changes,
)
from pytest_modelperf.comparing.differences import summing_to
from pytest_modelperf.comparing.duet_notes import describe_duet, find_baseline_factor
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.judged_case import JudgedCase, describe_engine, side_run
from pytest_modelperf.comparing.judged_rounds import JudgedRounds, judge_rounds
from pytest_modelperf.comparing.limits import MEMORY
from pytest_modelperf.comparing.memory import compare_memory
from pytest_modelperf.comparing.output_changes import compare_outputs, judge_outputs
from pytest_modelperf.comparing.paired_case import PairedCase
from pytest_modelperf.comparing.providers import provider_metrics, uncounted_providers
from pytest_modelperf.comparing.reasons import Graphs
from pytest_modelperf.comparing.records import (
    CaseComparison,
    Comparison,
    Metric,
    OutputChange,
    PartChange,
    Verdict,
)
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.comparing.sizes import with_size
from pytest_modelperf.comparing.stored_case import (
    cannot_run_apart,
    compare_counts,
    settle,
    settle_equal,
)
from pytest_modelperf.errors import MeasureError, Remedy, UsageError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.model_in_worker import CasePlace, Watch, read_facts
from pytest_modelperf.profiler.pairs.run import PairRun, RanSide, Wanted, run_pair
from pytest_modelperf.profiler.prepare import Model, Pair, PairOf, prepare_pair
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import (
    ProfileRequest,
    request_of_each,
    require_equal_batches,
    require_equal_phases,
)


class Details(enum.Enum):
    """When layers and outputs are compared too, which takes as long as the verdict."""

    ALWAYS = "always"
    WHEN_WORSE = "when worse"
    NEVER = "never"

    def are_wanted(self, metrics: Sequence[Metric]) -> bool:
        if self is not Details.WHEN_WORSE:
            return self is Details.ALWAYS
        return any((m.gated and m.verdict is Verdict.REGRESSED) or _looks_worse(m) for m in metrics)


def _looks_worse(metric: Metric) -> bool:
    """Whether a figure leaves its case open and its estimate is beyond the tolerance."""
    if not (metric.decides and metric.is_open) or metric.ratio is None:
        return False
    return metric.ratio > 1.0 + (metric.allowed or 0.0)


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
    pairs = _bind_pairs(before, after, request, extensions or Extensions())
    total = len(pairs) * len(request.cores)
    old_facts = before.facts or read_facts(pairs[0].before, total, watch)
    new_facts = read_facts(pairs[0].after, total, watch)
    gate = gate.divided(total)
    cases = [(pair, pair.after.case(cores)) for pair in pairs for cores in request.cores]
    # Checked before the first case runs: a later error would lose all results.
    for pair, case in cases:
        _require_can_run_apart(before, pair, case)
    judged: list[JudgedCase] = []
    for pair in pairs:
        # One preparation, and the shapes that one run saw, hold for every number of cores.
        prepared: Pair | None = None
        for cores in request.cores:
            place = CasePlace(pair.after.case(cores), len(judged) + 1, total, watch)
            own = gate.of_case(place.case)
            found = _settle(before, prepared or pair, own, place)
            if found is None:
                prepared = prepared or prepare_pair(pair)
                found = compare_case(PairedCase(prepared, before, own, place), details)
                prepared = found.pair or prepared
            judged.append(found)
    return Comparison(
        old_facts,
        new_facts,
        tuple(each.comparison for each in judged),
        tolerance=gate.tolerance,
        confidence=gate.confidence,
        engines=tuple(dict.fromkeys(engine for each in judged for engine in each.engines)),
    )


def _settle(before: Side, pair: PairOf[Model], gate: Gate, place: CasePlace) -> JudgedCase | None:
    """The case where there is nothing to run; None where its sides have to."""
    if before.baseline is None:
        return settle_equal(pair, gate, place)
    return settle(before, pair.after, pair.after_setup, gate, place)


def _bind_pairs(
    before: Side, after: Side, request: ProfileRequest, extensions: Extensions
) -> list[PairOf[Model]]:
    """Both models at each set of dimensions of the request."""
    files = open_model(before.source), open_model(after.source)
    requests = request_of_each(request, files)
    bindings = [own.bindings_of(file) for file, own in zip(files, requests, strict=True)]
    require_equal_phases(files, bindings)
    models = [
        [Model.bind(file, binding, own, extensions) for binding in each]
        for file, own, each in zip(files, requests, bindings, strict=True)
    ]
    require_equal_batches(files, [[m.bound.inputs.batch_size for m in side] for side in models])
    return [PairOf(old, new, before.setup, after.setup) for old, new in zip(*models, strict=True)]


def _require_can_run_apart(before: Side, pair: PairOf[Model], case: Case) -> None:
    reason = cannot_run_apart(before, pair.after, pair.after_setup, case)
    if reason is not None:
        raise UsageError(
            f"{reason}.",
            Remedy(
                "Give the older model itself, record the baseline again, or leave out "
                "{baseline_python}."
            ),
        )


def compare_case(asked: PairedCase, details: Details = Details.ALWAYS) -> JudgedCase:
    """One case of a model as it is now against the side before; whatever it takes is run."""
    judged = _compare(asked, details)
    gate, stored = asked.gate, asked.before.baseline
    if not gate.judges_starts:
        return judged
    old = asked.pair.before.size_bytes if stored is None else stored.size_of(asked.id)
    sizes = old, asked.pair.after.size_bytes
    return replace(judged, comparison=with_size(judged.comparison, *sizes, gate.tolerances))


def _compare(asked: PairedCase, details: Details) -> JudgedCase:
    """The case judged by what runs, or by what is stored where the twin cannot."""
    baseline, pair = asked.before.baseline, asked.pair
    refusal = None if baseline is None else baseline.twin_refusal(asked.id)
    try:
        if refusal is not None:
            return compare_with_samples(asked, refusal)
        found = _compare_in_turn(asked, details)
    except MeasureError as error:
        failure = error.worded(pair.after_setup.wording)
        return JudgedCase(replace(compare_counts(asked), failure=failure))
    if baseline is None:
        return found
    # The stored counts were agreed on, whatever the twin counts.
    counted = compare_counts(replace(asked, pair=found.pair or pair)).metrics
    names = {metric.name for metric in counted}
    measured = [metric for metric in found.comparison.metrics if metric.name not in names]
    metrics = (*measured, *counted)
    return replace(found, comparison=replace(found.comparison, metrics=metrics))


def _compare_in_turn(asked: PairedCase, details: Details) -> JudgedCase:
    """The case judged by a duet of both sides."""
    pair, gate, has_twin = asked.pair, asked.gate, asked.before.baseline is not None
    judged: JudgedRounds | None = None

    def wants_details(rounds: Sequence[DuetRound]) -> bool:
        # Judging hundreds of rounds takes a fifth of a second, so it is done only here.
        nonlocal judged
        judged = judge_rounds(rounds, gate)
        return details.are_wanted(judged.metrics)

    allowed = gate.tolerances.outputs
    judges_outputs = allowed is not None and not has_twin
    wanted = Wanted(
        wants_details,
        outputs=judges_outputs,
        # A twin has other weights, and so other outputs.
        compares_outputs=not has_twin,
        plans=True,
        trusts_plans=gate.trusts_plans,
    )
    ran = run_pair(pair, gate, asked.place, wanted)
    old, new = ran.before.profile, ran.after.profile
    counted = compare_cases(old, new, gate.tolerances)
    pair = replace(pair, before=ran.before.model, after=ran.after.model)
    if ran.plans is not None and not ran.rounds:
        passed = judge_same_plan(counted, new, ran.plans.kernels, gate, ran.seconds)
        return replace(passed, pair=pair)
    assert judged is not None, "rounds were judged after the last one"  # noqa: S101  # for mypy
    metrics: Sequence[Metric] = (*judged.metrics, *provider_metrics(old, new))
    begun = time.monotonic()
    is_asked = details is Details.ALWAYS or _may_take_other_memory(pair, counted, gate)
    if is_asked and gate.judges_starts:
        is_worse = any(
            m.gated and m.verdict is Verdict.REGRESSED for m in (*metrics, *counted.metrics)
        )
        metrics = (*metrics, compare_memory(asked, goes_on=not is_worse))
    outputs = _compare_outputs(ran.before, ran.after)
    if judges_outputs and allowed is not None:
        metrics = (*metrics, judge_outputs(outputs, allowed))
    parts = part_changes(ran.plans, judged)
    comparison = replace(
        counted,
        before=side_run(old.measured, metrics, is_before=True),
        after=side_run(new.measured, metrics),
        metrics=(*metrics, *counted.metrics),
        outputs=outputs,
        parts=tuple(sorted(parts, key=lambda part: -abs(part.time.ns))),
        elsewhere=find_elsewhere(judged),
        notes=(
            *describe_plans(ran.plans, judged),
            *describe_duet(asked, ran, judged),
            *uncounted_providers(old, new),
        ),
        rounds=len(ran.rounds),
        how=judged.how,
        baseline_factor=find_baseline_factor(asked, judged),
        seconds=ran.seconds + time.monotonic() - begun,
    )
    engines = (describe_engine(old), describe_engine(new))
    explained = _with_explanation(comparison, ran, judged, parts)
    return JudgedCase(explained, new, engines, old.measured, pair=pair)


def _may_take_other_memory(pair: Pair, counted: CaseComparison, gate: Gate) -> bool:
    """Whether memory is worth processes of its own: it is named, or what decides it changed."""
    return (
        gate.tolerances.names(MEMORY)
        or not pair.shares_a_worker
        or any(metric.before != metric.after for metric in counted.metrics)
    )


def _compare_outputs(before: RanSide, after: RanSide) -> tuple[OutputChange, ...]:
    if before.outputs is None or after.outputs is None:
        return ()
    return compare_outputs(before.outputs, after.outputs)


def _with_explanation(
    comparison: CaseComparison, ran: PairRun, judged: JudgedRounds, parts: Sequence[PartChange]
) -> CaseComparison:
    """The comparison with its layers and reasons, where the layers were timed."""
    old, new, p50 = ran.before, ran.after, judged.p50
    if ran.changed is not None and judged.parts is not None and parts and p50.ratio is not None:
        before_ns = judged.parts.calm_ns
        explanation = explain_by_parts(ran, ran.changed, parts, comparison, before_ns)
        return replace(
            comparison,
            layer_types=explanation.layer_types,
            layers=explanation.layers,
            reasons=explanation.reasons,
        )
    if old.profile.measured is None or old.profile.measured.layer_times is None:
        return comparison
    before, after = old.profile, new.profile
    if p50.before is not None and p50.after is not None:
        before, after = summing_to(before, p50.before * 1e6), summing_to(after, p50.after * 1e6)
    graphs = Graphs((old.model.bound.graph, new.model.bound.graph), (old.plan, new.plan))
    explanation = explain(before, after, graphs, p50.interval)
    return replace(
        comparison,
        layer_types=explanation.layer_types,
        layers=explanation.layers,
        reasons=explanation.reasons,
    )
