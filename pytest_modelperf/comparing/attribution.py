"""Explains the difference between two cases: by layer type, by layer, and in words."""

from __future__ import annotations

from msgspec import Struct

from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.merged_kernels import NO_PLANS, merge_kernels
from pytest_modelperf.comparing.reasons import (
    NO_GRAPHS,
    Graphs,
    MeasuredParts,
    find_reasons,
    find_reasons_of_parts,
    lower_bounds,
    reasons_of_graphs,
)
from pytest_modelperf.comparing.records import KernelChange, LayerChange, LayerTypeChange
from pytest_modelperf.profiler.kernel_graph import kernels_of_case
from pytest_modelperf.profiler.records import CaseProfile


class Explanation(Struct, frozen=True):
    """The changes and reasons, what explains most first; `layers` are the layers that ran.

    `kernels` are those of both plans as one graph.
    """

    layer_types: tuple[LayerTypeChange, ...]
    layers: tuple[LayerChange, ...]
    reasons: tuple[str, ...]
    kernels: tuple[KernelChange, ...] = ()


def explain(
    before: CaseProfile,
    after: CaseProfile,
    graphs: Graphs = NO_GRAPHS,
    ratio_interval: tuple[float, float] | None = None,
    parts: MeasuredParts | None = None,
) -> Explanation:
    """The differences between two cases, and their reasons.

    `ratio_interval` is the interval of the ratio of the latencies, after over before, from a duet.
    If it holds 1, there is no difference to explain. Without it the intervals of both latencies
    decide. Without layer times on both sides only the graphs are compared. With `parts` the layer
    times follow from these.
    """
    doubts = None if parts is None else parts.doubts
    found = Differences.between(before, after, ratio_interval, doubts)
    types = found.of_layer_types()
    known = (side.counted for side in (before, after) if side.counted is not None)
    unclear = lower_bounds(*(static.uncounted_ops for static in known))
    if found.total is None:
        words = tuple(reason.in_words() for reason in reasons_of_graphs(found))
        return Explanation(types, (), (*unclear, *words))
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
    return Explanation(types, layers, (*words, *unclear), kernels)
