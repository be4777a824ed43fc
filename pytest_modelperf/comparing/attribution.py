"""Explain the difference between two cases: by layer type, by layer, and by all of its reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import (
    KernelChange,
    LayerChange,
    LayerTypeChange,
    TimeChange,
)
from pytest_modelperf.comparing.differences import Differences, row_times
from pytest_modelperf.comparing.figures import format_change, format_interval, metric_title
from pytest_modelperf.comparing.layer_pairs import is_alike
from pytest_modelperf.comparing.merged_kernels import NO_PLANS, merge_kernels
from pytest_modelperf.comparing.reasons.graphs import (
    edit_reasons,
    form_reasons,
    interface_reasons,
    lower_bounds,
    sharing_reasons,
    size_reasons,
    weight_reasons,
)
from pytest_modelperf.comparing.reasons.plans import (
    MeasuredParts,
    elsewhere_reasons,
    engine_reasons,
    find_parts_of,
    fusion_reasons,
    inserted_kernel_reasons,
    part_reasons,
    precision_reasons,
    provider_reasons,
)
from pytest_modelperf.comparing.reasons.reason import (
    LEAST_SHOWN,
    Reason,
    pairs_by_operator,
    pairs_in_order,
)
from pytest_modelperf.comparing.records import (
    MEDIAN,
    MEMBER,
    TOTAL,
    CaseComparison,
    Metric,
    Verdict,
)
from pytest_modelperf.graph.structure import Graph, PlanGraph
from pytest_modelperf.profiler.fusion import kernels_of_case
from pytest_modelperf.profiler.measurements import LayerTime, RowKind
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.text.escaping import printable

# An unexplained change of at least this share of the difference is itself a reason.
_LEAST_SHARE = 0.05
# Parts that take at least `_LEAST_PART` of the time are compared with the whole. Their factor is
# the same as that of the whole if both differ by no more than `_SAME_FACTOR` of the change.
_LEAST_PART = 0.02
_SAME_FACTOR = 0.5
_LEAST_CHANGE = 0.02


def proportional_reason(found: Differences, changes: Sequence[Reason]) -> Reason | None:
    """Return the reason that all parts changed by the same factor, unless there are `changes`."""
    ratio = found.ratio
    if not found.is_real or ratio is None or abs(ratio - 1) < _LEAST_CHANGE:
        return None
    if changes or _is_other_graph(found):
        return None
    types = _timed_parts(found.of_layer_types())
    rows = found.of_layers()
    layers = _timed_parts([c for c in rows if c.before is not None and c.before.static is not None])
    whole = sum(ns for _, ns in types)
    factors, what = _common_factors(types, whole, ratio, least=2), "layer type"
    if not factors:
        factors, what = _common_factors(layers, whole, ratio, least=3), "layer"
    if not factors:
        return None
    word = "slower" if ratio > 1 else "faster"
    return Reason(
        f"every {what} is {word} by about the same factor"
        f" ({min(factors):.2f}x to {max(factors):.2f}x): look at the runtime or the machine",
        is_of_whole=True,
    )


def _timed_parts(
    changes: Sequence[LayerTypeChange] | Sequence[LayerChange],
) -> list[tuple[TimeChange, float]]:
    """Return the changes that have a time on both sides, each with its time before."""
    return [
        (change.time, change.before.ns)
        for change in changes
        if change.before is not None and change.before.ns and change.time is not None
    ]


def _is_other_graph(found: Differences) -> bool:
    before, after = found.before.layers, found.after.layers
    if not len(before) == len(after) == len(found.pairs):
        return True
    return any(not is_alike(before[old], after[new]) for old, new in found.pairs.items())


def _common_factors(
    parts: Sequence[tuple[TimeChange, float]], whole: float, ratio: float, least: int
) -> list[float]:
    """Return by which factor each part got longer, or nothing if they disagree with the whole."""
    large = [(time, ns) for time, ns in parts if ns >= _LEAST_PART * whole]
    bounds = sorted((1 + (ratio - 1) * (1 - _SAME_FACTOR), 1 + (ratio - 1) * (1 + _SAME_FACTOR)))
    factors = [1 + time.ns / ns for time, ns in large]
    # Compare the factors, not their intervals: a wide interval would overlap any bounds.
    is_common = all(bounds[0] <= factor <= bounds[1] for factor in factors)
    return factors if is_common and len(large) >= least else []


def slower_reasons(found: Differences, changes: Sequence[Reason]) -> tuple[Reason, ...]:
    """Return the layers and kernels whose time changed without a reason in `changes`."""
    explained = {pair for reason in changes for pair in reason.pairs}
    left = [pair for pair in pairs_in_order(found) if pair not in explained]
    reasons = [
        _slower_layers(found, op, [old for old, _ in pairs], [new for _, new in pairs])
        for op, pairs in pairs_by_operator(found, left).items()
    ]
    explained_kernels = {reason.kernel for reason in changes}
    reasons += [
        _slower_kernels(found, *kernel)
        for kernel in {**found.before.others, **found.after.others}
        if kernel not in explained_kernels
    ]
    return tuple(reason for reason in reasons if reason is not None)


def _slower_layers(
    found: Differences, op: str, before: Sequence[int], after: Sequence[int]
) -> Reason | None:
    what = "layer takes" if len(before) == 1 else f"{len(before)} layers take"
    times = found.before.times_at(before), found.after.times_at(after)
    return _slower(found, f"{printable(op)}: the same {what}", *times)


def _slower_kernels(found: Differences, kind: RowKind, op: str) -> Reason | None:
    old, new = found.before.others.get((kind, op)), found.after.others.get((kind, op))
    text = f"{printable(op)} kernels put in by the engine, the same number as before, take"
    if kind is RowKind.OVERHEAD:
        text = "the runtime itself, around the kernels, takes"
    return _slower(found, text, row_times(old), row_times(new))


def _slower(
    found: Differences, text: str, before: Sequence[LayerTime], after: Sequence[LayerTime]
) -> Reason | None:
    time = found.time(before, after)
    if time is None or not time.explains(_LEAST_SHARE):
        return None
    old, new = sum(t.ns for t in before), sum(t.ns for t in after)
    return Reason(f"{text} {f'{new / old:.2f}x as long' if old else 'time now'}", time)


class Graphs(Struct, frozen=True):
    """The graphs of both models, and the engine's plans of them, if known."""

    models: tuple[Graph, Graph] | None = None
    plans: tuple[PlanGraph | None, PlanGraph | None] = (None, None)


NO_GRAPHS = Graphs()


def reasons_of_graphs(found: Differences) -> tuple[Reason, ...]:
    """Return the changes between two graphs that did not run, most added MACs first."""
    reasons = (
        *edit_reasons(found),
        *form_reasons(found),
        *size_reasons(found),
        *weight_reasons(found, None),
        *sharing_reasons(found),
    )
    return tuple(sorted(reasons, key=lambda reason: -reason.added_macs))


def find_reasons(found: Differences, graphs: Graphs) -> tuple[Reason, ...]:
    """Return the changes between two cases that ran, the one that explains most first."""
    changes = [
        change if change.can_explain(change.time) else replace(change, time=None, pairs=frozenset())
        for change in _changes(found, graphs)
    ]
    proportional = proportional_reason(found, changes)
    rest = slower_reasons(found, changes) if proportional is None else (proportional,)
    return tuple(sorted((*changes, *rest, *engine_reasons(found)), key=_order))


def find_reasons_of_parts(
    found: Differences, graphs: Graphs, parts: MeasuredParts
) -> tuple[Reason, ...]:
    """Return the changes between two cases with measured parts, the one that explains most first.

    A change outside all parts changed no kernel, so it is listed without a time. A gain in a part
    that takes longer also has no time.
    """
    facts = [find_parts_of(fact, parts) for fact in _changes(found, graphs)]
    reasons = [*part_reasons(found, facts, parts)]
    if len(parts.doubts) > len(parts.texts):
        reasons += elsewhere_reasons(found)
    idle = [Reason(fact.text, added_macs=fact.added_macs) for fact in facts if not fact.parts]
    return tuple(sorted((*reasons, *idle), key=_order))


def find_causes(
    found: Differences, reasons: Sequence[Reason], graph_reasons: Sequence[Reason]
) -> dict[str, str]:
    """Return what made a figure larger, by the name of its metric.

    The `reasons` explain the median of the time. What makes a tail or a start slower is unknown.
    Counts follow from the graphs.
    """
    causes = {}
    slower = [r for r in reasons if r.time is not None and r.time.explains(LEAST_SHOWN)]
    slower += [reason for reason in reasons if reason.is_of_whole]
    if found.is_real and slower:
        causes["latency_p50"] = slower[0].headline
    macs = max(graph_reasons, key=lambda reason: reason.added_macs, default=None)
    if macs is not None and macs.added_macs > 0:
        causes["macs"] = macs.headline
    params = max(graph_reasons, key=lambda reason: reason.added_params, default=None)
    if params is not None and params.added_params > 0:
        causes["params"] = params.headline
    return causes


def _changes(found: Differences, graphs: Graphs) -> tuple[Reason, ...]:
    return (
        *edit_reasons(found),
        *(() if graphs.models is None else interface_reasons(*graphs.models)),
        *form_reasons(found),
        *size_reasons(found),
        *weight_reasons(found, graphs.plans[1]),
        *fusion_reasons(found, *graphs.plans),
        *inserted_kernel_reasons(found, *graphs.plans),
        *precision_reasons(found),
        *provider_reasons(found),
        *sharing_reasons(found),
    )


def _order(reason: Reason) -> tuple[int, float]:
    share = 0.0 if reason.time is None else reason.time.share or 0.0
    explains = reason.time is not None and reason.time.explains(LEAST_SHOWN)
    if reason.time is not None and reason.time.is_within_noise:
        return (3, 0.0)
    return (0 if explains else 1 if share > -LEAST_SHOWN else 2, -share)


def slower_members(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """Return `seq=128: +10.2 % (+9.1 … +11.0 %)`, the slowest first."""
    found = [m for m in metrics if m.name.startswith(MEMBER) and m.verdict is Verdict.REGRESSED]
    ranked = sorted(found, key=lambda metric: -(metric.ratio or 0.0))
    return tuple(
        f"{metric_title(each.name)}: {format_change(each)} ({format_interval(each)})"
        for each in ranked
    )


class Explanation(Struct, frozen=True):
    """The changes and reasons, those that explain most first.

    `layers` are the layers that ran, and `kernels` those of both plans as one graph. `causes` maps
    the name of a metric to what made its figure larger.
    """

    layer_types: tuple[LayerTypeChange, ...]
    layers: tuple[LayerChange, ...]
    reasons: tuple[str, ...]
    kernels: tuple[KernelChange, ...] = ()
    causes: Mapping[str, str] = {}

    def of(self, comparison: CaseComparison) -> CaseComparison:
        """Return the case with this explanation, and with the known causes of worse figures."""
        return replace(
            comparison,
            metrics=with_causes(comparison.metrics, self.causes),
            layer_types=self.layer_types,
            layers=self.layers,
            reasons=self.reasons,
            kernels=self.kernels,
        )


def with_causes(metrics: Iterable[Metric], causes: Mapping[str, str]) -> tuple[Metric, ...]:
    """Add causes to regressed metrics. The time of a pass has the causes of the median."""
    return tuple(
        replace(metric, reason=causes.get(MEDIAN if metric.name == TOTAL else metric.name))
        if metric.verdict is Verdict.REGRESSED and metric.limit is None
        else metric
        for metric in metrics
    )


def explain(
    before: CaseProfile,
    after: CaseProfile,
    graphs: Graphs = NO_GRAPHS,
    ratio_interval: tuple[float, float] | None = None,
    parts: MeasuredParts | None = None,
) -> Explanation:
    """Return the differences between two cases, and their reasons.

    `ratio_interval` is the interval of the latency ratio, after over before, from a duet. If it
    contains 1, there is no difference to explain. Without it the intervals of both latencies
    decide. Without layer times on both sides only the graphs are compared. With `parts` the layer
    times follow from the parts.
    """
    doubts = None if parts is None else parts.doubts
    found = Differences.between(before, after, ratio_interval, doubts)
    types = found.of_layer_types()
    known = (side.counted for side in (before, after) if side.counted is not None)
    unclear = lower_bounds(*(static.uncounted_ops for static in known))
    if found.total is None:
        graph_reasons = reasons_of_graphs(found)
        words = tuple(reason.in_words() for reason in graph_reasons)
        causes = find_causes(found, (), graph_reasons)
        return Explanation(types, (), (*unclear, *words), causes=causes)
    if parts is None:
        reasons = find_reasons(found, graphs)
    else:
        reasons = find_reasons_of_parts(found, graphs, parts)
    words = tuple(reason.in_words() for reason in reasons)
    layers = found.of_layers()
    kernels = merge_kernels(
        kernels_of_case(before),
        kernels_of_case(after),
        layers,
        NO_PLANS if parts is None else parts.plans,
    )
    causes = find_causes(found, reasons, reasons_of_graphs(found))
    return Explanation(types, layers, (*words, *unclear), kernels, causes)
