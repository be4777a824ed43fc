"""The parts of a model that changed, as a comparison reports them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec.structs import asdict, replace

from pytest_modelperf.comparing.attribution import Explanation, Graphs, explain
from pytest_modelperf.comparing.changes import KernelCounts, PartChange, TimeChange
from pytest_modelperf.comparing.differences import Doubt
from pytest_modelperf.comparing.judged_case import JudgedRounds
from pytest_modelperf.comparing.merged_kernels import KnownPlans
from pytest_modelperf.comparing.reasons.plans import MeasuredParts
from pytest_modelperf.comparing.records import CaseComparison, How
from pytest_modelperf.comparing.settled import describe_same_plan
from pytest_modelperf.comparing.since_recorded import describe_slowdown
from pytest_modelperf.profiler.pairs.plans import ChangedPlans, SideTimes, share_out
from pytest_modelperf.profiler.pairs.run import PairRun, PlanFinding
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.text.units import signed_percent


def part_changes(plans: PlanFinding | None, judged: JudgedRounds) -> tuple[PartChange, ...]:
    """Return each part with its difference, in the order of the plan."""
    if plans is None or judged.parts is None or not judged.parts.figures:
        return ()
    return tuple(
        PartChange(
            kernels=KernelCounts(before=len(part.before.changed), after=len(part.after.changed)),
            before_ns=figure.before_ns,
            after_ns=figure.after_ns,
            time=TimeChange(ns=figure.shift_ns, low_ns=figure.low_ns, high_ns=figure.high_ns),
            reasons=(part.text,),
        )
        for part, figure in zip(plans.parts, judged.parts.figures, strict=True)
    )


def find_elsewhere(judged: JudgedRounds) -> TimeChange | None:
    """Return the difference of the whole model beyond its parts, or None without parts."""
    beyond = None if judged.parts is None else judged.parts.beyond
    return None if beyond is None else TimeChange(**asdict(beyond))


def explain_by_parts(
    ran: PairRun,
    changed: ChangedPlans,
    parts: Sequence[PartChange],
    comparison: CaseComparison,
    before_ns: float,
) -> Explanation:
    """Explain the judged difference by the parts and the rest. `before_ns` is undisturbed."""
    p50 = next(metric for metric in comparison.metrics if metric.name == "latency_p50")
    total_ns = before_ns * ((p50.ratio or 1.0) - 1.0)
    doubts = [_doubt_of(part.time) for part in parts]
    shifts = [part.time.ns for part in parts]
    beyond = total_ns - math.fsum(shifts)
    elsewhere = comparison.elsewhere
    if comparison.how is How.PARTS or elsewhere is None:
        # The centre of a distribution of sums is not exactly the sum of the centres.
        widths = [doubt.below_ns + doubt.above_ns for doubt in doubts]
        whole = math.fsum(widths) or 1.0
        shifts = [
            shift + beyond * width / whole for shift, width in zip(shifts, widths, strict=True)
        ]
        beyond = 0.0
    else:
        doubts.append(_doubt_of(elsewhere))
    times = share_out(changed, ran.before.model, ran.after.model, before_ns, shifts, beyond)
    before, after = (
        _with_times(side.profile, own)
        for side, own in zip((ran.before, ran.after), (times.before, times.after), strict=True)
    )
    texts = tuple("; ".join(part.reasons) for part in parts)
    outputs = tuple(
        frozenset((*part.before.outputs, *part.after.outputs)) for part in changed.parts
    )
    plans = _known_plans(changed, parts)
    measured = MeasuredParts(texts, outputs, tuple(shifts), tuple(doubts), plans)
    models = ran.before.model.bound.graph, ran.after.model.bound.graph
    graphs = Graphs(models, (changed.before.steps, changed.after.steps))
    return explain(before, after, graphs, p50.interval, measured)


def _known_plans(changed: ChangedPlans, parts: Sequence[PartChange]) -> KnownPlans:
    places = {number: place for place, number in enumerate(in_order(parts))}
    before, after = (
        {kernel: places[number] for number, side in enumerate(sides) for kernel in side.changed}
        for sides in ([p.before for p in changed.parts], [p.after for p in changed.parts])
    )
    return KnownPlans(changed.partners, (before, after))


def in_order(parts: Sequence[PartChange]) -> Sequence[int]:
    """Return the indexes of the parts, from the largest change to the smallest."""
    return sorted(range(len(parts)), key=lambda number: -abs(parts[number].time.ns))


def _doubt_of(time: TimeChange) -> Doubt:
    return Doubt(
        below_ns=0.0 if time.low_ns is None else time.ns - time.low_ns,
        above_ns=0.0 if time.high_ns is None else time.high_ns - time.ns,
    )


def _with_times(profile: CaseProfile, times: SideTimes) -> CaseProfile:
    if profile.measured is None:
        return profile
    measured = replace(profile.measured, layer_times=times.layers, kernels=times.kernels)
    return replace(profile, measured=measured)


def describe_plans(plans: PlanFinding | None, judged: JudgedRounds) -> Iterator[str]:
    """Yield a sentence about the plans of both sides of the case."""
    if plans is None:
        return
    contradiction = None if judged.parts is None else judged.parts.median.contradiction
    if plans.is_same:
        if plans.slowdown is not None:
            took = describe_slowdown(plans.slowdown)
            yield f"the plan is the same, but the model took {took} before: compared as a duet"
        yield describe_same_plan(plans.kernels)
    elif plans.reason is not None:
        yield f"judged by the whole model: {plans.reason}"
    elif contradiction is not None:
        yield (
            f"judged by the whole model, which changed by {signed_percent(contradiction - 1)}: "
            "the parts that differ show another result"
        )
