"""What explains the difference between two cases: by layer type, by layer, and in words."""

from __future__ import annotations

from msgspec import Struct

from pytest_modelperf.comparing.differences import Differences, Doubt
from pytest_modelperf.comparing.reasons import (
    EnginePlan,
    find_reasons,
    find_reasons_of_parts,
    lower_bounds,
    reasons_of_graphs,
)
from pytest_modelperf.comparing.records import LayerChange, LayerTypeChange
from pytest_modelperf.profiler.records import CaseProfile


class Explanation(Struct, frozen=True):
    """The changes and reasons, what explains most first; `layers` are the layers that ran."""

    layer_types: tuple[LayerTypeChange, ...]
    layers: tuple[LayerChange, ...]
    reasons: tuple[str, ...]


def explain(
    before: CaseProfile,
    after: CaseProfile,
    before_plan: EnginePlan | None = None,
    after_plan: EnginePlan | None = None,
    ratio_interval: tuple[float, float] | None = None,
) -> Explanation:
    """The differences between two cases, and their reasons.

    `ratio_interval` is the interval of the ratio of the latencies, after over before, from a duet.
    If it holds 1, there is no difference to explain. Without it the intervals of both latencies
    decide. Without layer times on both sides only the graphs are compared.
    """
    found = Differences.between(before, after, ratio_interval)
    types = found.of_layer_types()
    known = (side.counted for side in (before, after) if side.counted is not None)
    unclear = lower_bounds(*(static.uncounted_ops for static in known))
    if found.total is None:
        words = tuple(reason.in_words() for reason in reasons_of_graphs(found))
        return Explanation(types, (), (*unclear, *words))
    reasons = find_reasons(found, before_plan, after_plan)
    words = tuple(reason.in_words() for reason in reasons)
    return Explanation(types, found.of_layers(), (*words, *unclear))


class MeasuredParts(Struct, frozen=True):
    """The parts that changed, by number: their words, how much longer each takes, and its doubt.

    A doubt more than there are parts is that of what the whole takes beyond them.
    """

    texts: tuple[str, ...]
    shifts_ns: tuple[float, ...]
    doubts: tuple[Doubt, ...]


def explain_parts(
    before: CaseProfile,
    after: CaseProfile,
    plans: tuple[EnginePlan, EnginePlan],
    parts: MeasuredParts,
    ratio_interval: tuple[float, float] | None,
) -> Explanation:
    """The same for two cases whose layer times follow from the parts that changed."""
    found = Differences.between(before, after, ratio_interval, parts.doubts)
    reasons = find_reasons_of_parts(found, plans, parts.texts, parts.shifts_ns)
    known = (side.counted for side in (before, after) if side.counted is not None)
    unclear = lower_bounds(*(static.uncounted_ops for static in known))
    words = tuple(reason.in_words() for reason in reasons)
    return Explanation(found.of_layer_types(), found.of_layers(), (*words, *unclear))
