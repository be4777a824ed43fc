"""Explain the difference between two cases: by layer type, by layer, and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import KernelChange, LayerChange, LayerTypeChange
from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.merged_kernels import NO_PLANS, merge_kernels
from pytest_modelperf.comparing.reasons.collecting import (
    NO_GRAPHS,
    Graphs,
    find_causes,
    find_reasons,
    find_reasons_of_parts,
    reasons_of_graphs,
)
from pytest_modelperf.comparing.reasons.graphs import lower_bounds
from pytest_modelperf.comparing.reasons.plans import MeasuredParts
from pytest_modelperf.comparing.records import MEDIAN, TOTAL, CaseComparison, Metric, Verdict
from pytest_modelperf.profiler.fusion import kernels_of_case
from pytest_modelperf.profiler.records import CaseProfile


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
    """Return the metrics, those that regressed with causes. A pass has those of the median."""
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
