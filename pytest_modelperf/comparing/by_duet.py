"""Two models, or one on two engines, judged by a duet on this machine."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.attribution import Explanation, explain
from pytest_modelperf.comparing.by_counts import compare_cases
from pytest_modelperf.comparing.changed_parts import (
    describe_plans,
    explain_by_parts,
    find_elsewhere,
    in_order,
    part_changes,
)
from pytest_modelperf.comparing.changes import FirstDifference, OutputChange
from pytest_modelperf.comparing.differences import summing_to
from pytest_modelperf.comparing.duet_notes import describe_duet, find_baseline_factor
from pytest_modelperf.comparing.first_difference import SearchedOutputs, search_difference
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.judged_case import (
    JudgedCase,
    JudgedRounds,
    PairedCase,
    bind_pairs,
    judge_rounds,
    side_run,
    with_failure,
    without_gains,
)
from pytest_modelperf.comparing.limits import DEFAULT_OUTPUTS, MEMORY
from pytest_modelperf.comparing.memory import compare_memory
from pytest_modelperf.comparing.output_changes import compare_outputs, judge_outputs
from pytest_modelperf.comparing.providers import provider_metrics, uncounted_providers
from pytest_modelperf.comparing.reasons.collecting import Graphs, slower_members
from pytest_modelperf.comparing.records import MEMBER, CaseComparison, Comparison, Metric, Verdict
from pytest_modelperf.comparing.settled import (
    cannot_run_apart,
    compare_counts,
    compare_with_samples,
    judge_same_plan,
    settle,
    settle_equal,
)
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.comparing.sizes import with_size
from pytest_modelperf.errors import ChangedModelError, MeasureError, Remedy, UsageError
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measured_cases import UnknownMemoryError
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.model_in_worker import CasePlace, Watch, read_facts
from pytest_modelperf.profiler.pairs.run import PairRun, Wanted, run_pair
from pytest_modelperf.profiler.prepare import Model, Pair, PairOf, prepare_pair
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest


class Details(enum.Enum):
    """When to compare layers and outputs too, which takes as long as the verdict."""

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


def compare_models(  # noqa: PLR0913, PLR0917  # the sides, what to run, how to judge, and who is informed
    before: Side,
    after: Side,
    request: ProfileRequest,
    gate: Gate,
    extensions: Extensions | None = None,
    watch: Watch = lambda _: None,
    details: Details = Details.ALWAYS,
) -> Comparison:
    """Compare every case of two models. One that fails reports why, and the next one runs."""
    pairs = bind_pairs(before, after, request, extensions or Extensions())
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
        # One preparation, and the shapes seen in one run, are valid for every number of cores.
        prepared: Pair | None = None
        for cores in request.cores:
            place = CasePlace(pair.after.case(cores), len(judged) + 1, total, watch)
            own = gate.of_case(place.case)
            found = _settle(before, prepared or pair, own, place)
            if found is None:
                try:
                    prepared = prepared or prepare_pair(pair)
                except ChangedModelError as error:
                    # The earlier cases were compared while both models were still unchanged.
                    failure = error.worded(pair.after_setup.wording)
                    found = JudgedCase(CaseComparison(place.case, (), (), failure=failure))
                else:
                    found = compare_case(PairedCase(prepared, before, own, place), details)
                    prepared = found.pair or prepared
            judged.append(found)
    compared = tuple(each.comparison for each in judged)
    return Comparison(
        old_facts,
        new_facts,
        compared,
        tolerance=gate.tolerance,
        confidence=gate.confidence,
        engines=tuple(dict.fromkeys(engine for case in compared for engine in case.engines)),
    )


def _settle(before: Side, pair: PairOf[Model], gate: Gate, place: CasePlace) -> JudgedCase | None:
    if before.baseline is None:
        return settle_equal(pair, gate, place)
    return settle(before, pair.after, pair.after_setup, gate, place)


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


class RanCase(Struct, frozen=True):
    """A case whose sides ran, with what its rounds and counts show.

    `judged` is None if no round was needed, because the engine makes the same plan for both sides.
    `memory` is None if it was not measured. `notes` say why, if it was asked for.
    `first_difference` is where the outputs begin to differ, if that was found.
    """

    run: PairRun
    counted: CaseComparison
    seconds: float
    judged: JudgedRounds | None = None
    memory: Metric | None = None
    outputs: tuple[OutputChange, ...] = ()
    first_difference: FirstDifference | None = None
    notes: tuple[str, ...] = ()


def compare_case(asked: PairedCase, details: Details) -> JudgedCase:
    """Run, judge and explain a case, by recorded samples if the twin of a baseline cannot run."""
    gate, pair, baseline = asked.gate, asked.pair, asked.before.baseline
    refusal = None if baseline is None else baseline.twin_refusal(asked.id)
    try:
        if refusal is not None:
            found = compare_with_samples(asked, refusal)
        else:
            ran = _run_case(asked, details)
            found = _explain_case(_judge_case(asked, ran), ran)
    except MeasureError as error:
        failure = error.worded(pair.after_setup.wording)
        found = JudgedCase(with_failure(compare_counts(asked), failure, error.side))
    comparison = found.comparison
    if gate.judges_starts:
        old = pair.before.size_bytes if baseline is None else baseline.size_of(asked.id)
        comparison = with_size(comparison, old, pair.after.size_bytes, gate.tolerances)
    if comparison.failure is not None:
        comparison = without_gains(comparison)
    return replace(found, comparison=comparison)


def _run_case(asked: PairedCase, details: Details) -> RanCase:
    pair, gate, has_twin = asked.pair, asked.gate, asked.before.baseline is not None
    judged: JudgedRounds | None = None

    def wants_details(rounds: Sequence[DuetRound]) -> bool:
        # Judging hundreds of rounds takes a fifth of a second, so it is done only here.
        nonlocal judged
        judged = judge_rounds(rounds, gate)
        return details.are_wanted(judged.metrics)

    wanted = Wanted(
        wants_details,
        outputs=gate.tolerances.outputs is not None and not has_twin,
        # A twin has other weights, and therefore other outputs.
        compares_outputs=not has_twin,
        plans=True,
        trusts_plans=gate.trusts_plans,
    )
    ran = run_pair(pair, gate, asked.place, wanted)
    begun = time.monotonic()
    counted = compare_cases(ran.before.profile, ran.after.profile, gate.tolerances)
    if judged is None:
        return RanCase(ran, counted, ran.seconds)
    memory: Metric | None = None
    notes: tuple[str, ...] = ()
    is_asked = details is Details.ALWAYS or _may_take_other_memory(pair, counted, gate)
    if is_asked and gate.judges_starts:
        of_providers = provider_metrics(ran.before.profile, ran.after.profile)
        figures = (*judged.metrics, *of_providers, *counted.metrics)
        is_worse = any(m.gated and m.verdict is Verdict.REGRESSED for m in figures)
        try:
            memory = compare_memory(asked, goes_on=not is_worse)
        except UnknownMemoryError as error:
            if gate.tolerances.names(MEMORY):
                raise
            notes = (f"memory is not compared: {error}",)
    outputs: tuple[OutputChange, ...] = ()
    if ran.before.outputs is not None and ran.after.outputs is not None:
        outputs = compare_outputs(ran.before.outputs, ran.after.outputs)
    searched = _search_outputs(asked, ran, outputs)
    seconds = ran.seconds + time.monotonic() - begun
    return RanCase(
        ran, counted, seconds, judged, memory, outputs, searched.first, (*notes, *searched.notes)
    )


def _search_outputs(
    asked: PairedCase, ran: PairRun, outputs: Sequence[OutputChange]
) -> SearchedOutputs:
    """Search where outputs begin to differ that should be the same.

    They should be if the gate limits their difference, or if both sides run the same file.
    """
    pair, allowed = asked.pair, asked.gate.tolerances.outputs
    if not outputs:
        return SearchedOutputs()
    if allowed is None:
        if pair.before.file.sha256() != pair.after.file.sha256():
            return SearchedOutputs()
        allowed = DEFAULT_OUTPUTS
    completed = replace(pair, before=ran.before.model, after=ran.after.model)
    return search_difference(completed, asked.place, outputs, allowed)


def _judge_case(asked: PairedCase, ran: RanCase) -> JudgedCase:
    gate, run, judged = asked.gate, ran.run, ran.judged
    old, new = run.before.profile, run.after.profile
    pair = replace(asked.pair, before=run.before.model, after=run.after.model)
    counted = ran.counted
    if asked.before.baseline is not None:
        # The stored counts are the accepted ones, whatever the twin counts.
        stored = compare_counts(replace(asked, pair=pair))
        counted = replace(counted, metrics=stored.metrics)
    if judged is None:
        kernels = 0 if run.plans is None else run.plans.kernels
        return replace(judge_same_plan(counted, new, kernels, gate, ran.seconds), pair=pair)
    metrics = (*judged.metrics, *provider_metrics(old, new))
    if ran.memory is not None:
        metrics = (*metrics, ran.memory)
    if gate.tolerances.outputs is not None and asked.before.baseline is None:
        metrics = (*metrics, judge_outputs(ran.outputs, gate.tolerances.outputs))
    comparison = replace(
        counted,
        before=side_run(old.measured, metrics, is_before=True),
        after=side_run(new.measured, metrics),
        metrics=(*metrics, *counted.metrics),
        outputs=ran.outputs,
        first_difference=ran.first_difference,
        parts=part_changes(run.plans, judged),
        elsewhere=find_elsewhere(judged),
        notes=(
            *describe_plans(run.plans, judged),
            *describe_duet(asked, run, judged),
            *uncounted_providers(old, new),
            *ran.notes,
        ),
        rounds=len(run.rounds),
        how=judged.how,
        baseline_factor=find_baseline_factor(asked, run, judged),
        seconds=ran.seconds,
    )
    return JudgedCase(comparison, new, old.measured, pair=pair)


def _may_take_other_memory(pair: Pair, counted: CaseComparison, gate: Gate) -> bool:
    return (
        gate.tolerances.names(MEMORY)
        or not pair.shares_a_worker
        or any(metric.before != metric.after for metric in counted.metrics)
    )


def _explain_case(found: JudgedCase, ran: RanCase) -> JudgedCase:
    explanation = _find_explanation(found.comparison, ran)
    parts = found.comparison.parts
    # The part that changed most comes first.
    comparison = replace(found.comparison, parts=tuple(parts[at] for at in in_order(parts)))
    if explanation is not None:
        comparison = explanation.of(comparison)
    reasons = (*slower_members(comparison.metrics), *comparison.reasons)
    return replace(found, comparison=replace(comparison, reasons=reasons))


def _find_explanation(comparison: CaseComparison, ran: RanCase) -> Explanation | None:
    run, judged = ran.run, ran.judged
    if judged is None:
        return None
    p50, parts = judged.p50, comparison.parts
    if run.changed is not None and judged.parts is not None and parts and p50.ratio is not None:
        return explain_by_parts(run, run.changed, parts, comparison, judged.parts.calm_ns)
    before, after = run.before.profile, run.after.profile
    if not before.has_layer_times:
        return None
    mixture = run.after.model.request.mixture
    if mixture is not None:
        # Only the layers of this member were timed.
        p50 = comparison.metric(f"{MEMBER}{mixture.largest.name}") or p50
    if p50.before is not None and p50.after is not None:
        before, after = summing_to(before, p50.before * 1e6), summing_to(after, p50.after * 1e6)
    graphs = (run.before.model.bound.graph, run.after.model.bound.graph)
    return explain(before, after, Graphs(graphs, (run.before.plan, run.after.plan)), p50.interval)
