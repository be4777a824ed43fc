"""All reasons for the difference between two cases, in the order in which they are shown.

Each reason follows from the data of both sides, and its share of the difference is the time of the
layers that it is about. One layer can be part of several reasons, so their shares need not sum
to 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.reasons.edits import edit_reasons
from pytest_modelperf.comparing.reasons.fusions import fusion_reasons
from pytest_modelperf.comparing.reasons.graphs import form_reasons, size_reasons
from pytest_modelperf.comparing.reasons.inserted_kernels import inserted_kernel_reasons
from pytest_modelperf.comparing.reasons.interfaces import interface_reasons, sharing_reasons
from pytest_modelperf.comparing.reasons.parts import (
    MeasuredParts,
    elsewhere_reasons,
    find_parts_of,
    part_reasons,
)
from pytest_modelperf.comparing.reasons.placement import (
    engine_reasons,
    precision_reasons,
    provider_reasons,
)
from pytest_modelperf.comparing.reasons.reason import LEAST_SHOWN, Reason
from pytest_modelperf.comparing.reasons.unexplained import proportional_reason, slower_reasons
from pytest_modelperf.comparing.reasons.weights import weight_reasons
from pytest_modelperf.graph.structure import Graph, PlanGraph


class Graphs(Struct, frozen=True):
    """The graphs of both models, and the plans that the engine made of them, as far as known."""

    models: tuple[Graph, Graph] | None = None
    plans: tuple[PlanGraph | None, PlanGraph | None] = (None, None)


NO_GRAPHS = Graphs()


def reasons_of_graphs(found: Differences) -> tuple[Reason, ...]:
    """The changes between two graphs that did not run; the one that added most MACs comes first."""
    reasons = (
        *edit_reasons(found),
        *form_reasons(found),
        *size_reasons(found),
        *weight_reasons(found, None),
        *sharing_reasons(found),
    )
    return tuple(sorted(reasons, key=lambda reason: -reason.added_macs))


def find_reasons(found: Differences, graphs: Graphs) -> tuple[Reason, ...]:
    """The changes between two cases that ran; the one that explains most comes first."""
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
    """The changes between two cases with measured parts; the one that explains most comes first.

    A change that is in no part changed no kernel, so it is listed without a time. So is a gain in a
    part that takes longer.
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
    """What made a figure larger, by the name of its metric.

    The time is that of the median, which the `reasons` explain: nothing is known of what makes a
    tail or a start slower. Counts follow from the graphs.
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
