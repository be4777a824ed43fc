"""Two models, or one on two engines, judged by running them: by duets, or by outputs alone."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.attribution import Explanation, Graphs, explain, slower_members
from pytest_modelperf.comparing.by_counts import (
    compare_cases,
    doubts_of,
    provider_metrics,
    uncounted_providers,
    with_size,
)
from pytest_modelperf.comparing.changed_parts import (
    describe_plans,
    explain_by_parts,
    find_elsewhere,
    in_order,
    part_changes,
)
from pytest_modelperf.comparing.changes import FirstDifference, OutputChange
from pytest_modelperf.comparing.differences import summing_to
from pytest_modelperf.comparing.gates import Gate, judged_metric
from pytest_modelperf.comparing.judged_case import (
    JudgedCase,
    JudgedRounds,
    PairedCase,
    bind_pairs,
    describe_duet,
    find_baseline_factor,
    judge_rounds,
    side_run,
    with_failure,
    without_gains,
)
from pytest_modelperf.comparing.limits import DEFAULT_OUTPUTS, LEAST_MEMORY_BYTES, MEMORY
from pytest_modelperf.comparing.output_changes import (
    SearchedOutputs,
    compare_outputs,
    judge_outputs,
    search_difference,
)
from pytest_modelperf.comparing.records import MEMBER, CaseComparison, Comparison, Metric, Verdict
from pytest_modelperf.comparing.settled import (
    as_unchanged,
    cannot_run_apart,
    compare_counts,
    compare_with_samples,
    judge_same_plan,
    settle,
    settle_equal,
)
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.errors import ChangedModelError, MeasureError, Remedy, UsageError
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measured_cases import UnknownMemoryError, measure_footprint
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    Watch,
    alone_at,
    read_facts,
    run_for_outputs,
    unchanged,
)
from pytest_modelperf.profiler.pairs.run import PairRun, Wanted, run_pair
from pytest_modelperf.profiler.prepare import Model, Pair, PairOf, prepare_pair
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.stats.decisions import RatioAnswer
from pytest_modelperf.stats.duet import DuetRule, once_a_round_looks_worse
from pytest_modelperf.stats.processes import FEWEST_PAIRS, MOST_PAIRS, PASS_LOOKS, judge_processes

_NAME = "memory_bytes"
# The number of pairs for an open figure, and for a figure that a tolerance names.
_USUAL_PAIRS, _NAMED_PAIRS = PASS_LOOKS[1:3]


def compare_memory(asked: PairedCase, *, goes_on: bool) -> Metric:
    """Measure and judge the memory. Without `goes_on` only the fewest processes run."""
    pair, place = asked.pair, asked.place
    most_seconds = pair.after_setup.policy.max_seconds

    def measure(number: int) -> tuple[float, float]:
        place.tell("measuring memory")
        sides = [(pair.before, pair.before_setup), (pair.after, pair.after_setup)]
        # The order alternates, so that an effect of the first process of a pair affects both sides.
        order = (0, 1) if number % 2 else (1, 0)
        taken = {side: measure_footprint(*sides[side], place) for side in order}
        return float(taken[0]), float(taken[1])

    with unchanged(pair.before, pair.after), alone_at(place):
        begun = time.monotonic()
        return judge_memory(
            measure, asked.gate, lambda: time.monotonic() - begun < most_seconds, goes_on=goes_on
        )


def judge_memory(
    measure: Callable[[int], tuple[float, float]],
    gate: Gate,
    has_time: Callable[[], bool],
    *,
    goes_on: bool,
) -> Metric:
    """Measure pairs of processes until they decide the memory. `measure` takes a pair's number.

    If they leave it open, a growth below the least allowed one passes. If a tolerance names the
    memory, only a decided result passes.
    """
    pairs: list[tuple[float, float]] = []
    is_named = gate.tolerances.names(MEMORY)
    least = _NAMED_PAIRS if is_named else _USUAL_PAIRS
    while True:
        pairs.append(measure(len(pairs) + 1))
        if len(pairs) < FEWEST_PAIRS:
            continue
        rule = _rule(pairs, gate)
        decision = judge_processes(pairs, rule)
        may_go_on = goes_on and has_time() and (is_named or once_a_round_looks_worse(pairs, rule))
        is_last = not goes_on or len(pairs) >= (MOST_PAIRS if may_go_on else least)
        if is_last or not decision.is_open:
            before, after = (median(each[side] for each in pairs) for side in (0, 1))
            # An allocator takes memory in steps, so more processes would not decide such a small
            # growth.
            is_allowed = after - before <= LEAST_MEMORY_BYTES and not is_named
            if decision.is_open and is_allowed:
                decision = replace(decision, answer=RatioAnswer.NOT_WORSE, rounds_needed=None)
            return judged_metric(
                _NAME, (before, after), decision, rule.tolerance, is_awaited=is_named
            )


def _rule(pairs: Sequence[tuple[float, float]], gate: Gate) -> DuetRule:
    """Return the rule for memory. A small model may grow by one step of an allocator."""
    rule = gate.figure_rule(MEMORY)
    before = max(median(old for old, _ in pairs), 1.0)
    return replace(rule, tolerance=max(rule.tolerance, LEAST_MEMORY_BYTES / before))


class ComparedOutputs(Struct, frozen=True):
    """The outputs of both sides compared and judged, and where they begin to differ."""

    outputs: tuple[OutputChange, ...]
    metric: Metric
    searched: SearchedOutputs


def compare_pair_outputs(
    pair: Pair, place: CasePlace, allowed: float, *, searches: bool = True
) -> ComparedOutputs:
    """Compare the outputs of one inference of each side, or raise MeasureError if one fails."""
    place.tell("comparing outputs")
    before = run_for_outputs(pair.before, pair.before_setup, place)
    after = None
    if before is not None:
        after = run_for_outputs(pair.after, pair.after_setup, place)
    if before is None or after is None:
        note = f"the engine {pair.after_setup.engine.name} does not report the outputs of a model"
        return ComparedOutputs((), judge_outputs((), allowed), SearchedOutputs(notes=(note,)))
    outputs = compare_outputs(before, after)
    searched = SearchedOutputs()
    if searches:
        searched = search_difference(pair, place, outputs, allowed)
    return ComparedOutputs(outputs, judge_outputs(outputs, allowed), searched)


def compare_outputs_of(  # noqa: PLR0913, PLR0917  # the sides, what to run, how to judge, and who is informed
    before: Side,
    after: Side,
    request: ProfileRequest,
    allowed: float,
    extensions: Extensions,
    watch: Watch,
    *,
    searches: bool,
) -> Comparison:
    """Compare the outputs of the only case of a request on both sides, without timing anything."""
    (bound,) = bind_pairs(before, after, request, extensions)
    begun = time.monotonic()
    place = CasePlace(bound.after.case(request.cores[0]), 1, 1, watch)
    facts = read_facts(bound.before, 1, watch), read_facts(bound.after, 1, watch)
    case = CaseComparison(place.case, (), ())
    is_same = facts[0].sha256 == facts[1].sha256 is not None
    if bound.shares_a_worker and is_same:
        case = as_unchanged(case)
    else:
        found = compare_pair_outputs(prepare_pair(bound), place, allowed, searches=searches)
        if not found.outputs:
            raise MeasureError(f"outputs cannot be compared: {', '.join(found.searched.notes)}.")
        case = with_outputs(case, found, is_judged=True)
    return Comparison(*facts, (replace(case, seconds=time.monotonic() - begun),), tolerance=allowed)


def with_outputs(
    case: CaseComparison, found: ComparedOutputs, *, is_judged: bool
) -> CaseComparison:
    """Return the case with the result for the outputs, which decides only if it `is_judged`."""
    return replace(
        case,
        metrics=(*case.metrics, *([found.metric] if is_judged else ())),
        outputs=found.outputs,
        first_difference=found.searched.first,
        notes=(*case.notes, *found.searched.notes),
    )


class Details(enum.Enum):
    """When to compare layers and outputs too. This takes as long as the verdict."""

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
    `memory` is None if it was not measured. If the user asked for it, `notes` say why.
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
    is_asked = details is Details.ALWAYS or (
        gate.tolerances.names(MEMORY)
        or not pair.shares_a_worker
        or any(metric.before != metric.after for metric in counted.metrics)
    )
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
    """Search for the first difference between outputs that should be the same.

    This is so if the gate limits their difference, or if both sides run the same file.
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
        # The stored counts are the accepted ones, even if those of the twin differ.
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


def _explain_case(found: JudgedCase, ran: RanCase) -> JudgedCase:
    explanation = _find_explanation(found.comparison, ran)
    parts = found.comparison.parts
    # The part that changed most comes first.
    comparison = replace(found.comparison, parts=tuple(parts[at] for at in in_order(parts)))
    if explanation is not None:
        comparison = explanation.of(comparison)
    metrics = comparison.metrics
    # Without an explanation, the reasons of the counts have the doubts already.
    reasons = dict.fromkeys((*doubts_of(metrics), *slower_members(metrics), *comparison.reasons))
    return replace(found, comparison=replace(comparison, reasons=tuple(reasons)))


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
