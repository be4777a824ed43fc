"""Write a model with fewer channels, to see how fast it would be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec import Struct

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.model_file import MAX_PROTO_BYTES
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.whatif.narrowing.dimensions import PINNED, Dim
from pytest_modelperf.whatif.narrowing.plan import RemovalPlan
from pytest_modelperf.whatif.narrowing.relating import RelatedGraph, relate
from pytest_modelperf.whatif.narrowing.selection import Selection, select
from pytest_modelperf.whatif.narrowing.strength import strengths
from pytest_modelperf.whatif.narrowing.writing import write_planned

# The most reasons in an error message.
_SHOWN = 3
# The operators that take parts of a tensor.
_CUTTING = frozenset({"Slice", "Split"})


class UnchangedLayer(Struct, frozen=True):
    """A layer that keeps all of its channels, and why."""

    name: str
    reason: str


class Narrowed(Struct, frozen=True):
    """The channels before and after, in the groups that lost some, and the number of layers.

    Channels that can only be removed together count once, such as those of all layers that a
    residual stream adds up. `layers` are nodes with a weight that became smaller. `kept` are the
    layers that keep all of their channels.
    """

    channels_before: int
    channels_after: int
    layers: int
    kept: tuple[UnchangedLayer, ...]


def write_narrowed(
    bound: BoundModel, path: Path, share: float, *, max_file_bytes: int = MAX_PROTO_BYTES
) -> Narrowed:
    """Write the model without that share of its channels; inputs and outputs keep their shapes.

    The channels with the smallest weights are removed. If a multiple of 8 is near, that many stay,
    because kernels work on 8 channels or more at once (see `selection.kept_count`). The model is
    written at its bound dimensions; each tensor keeps its name. If the file would be larger than
    `max_file_bytes`, the weights are in a file beside it.
    """
    choice = select_channels(bound, share)
    plan, groups, kept = choice.plan, choice.selection.groups, choice.kept
    if not groups:
        reasons = "; ".join(f"{printable(each.name)}: {each.reason}" for each in kept[:_SHOWN])
        more = f"; and {len(kept) - _SHOWN} more" if len(kept) > _SHOWN else ""
        why = f"{reasons}{more}" if kept else "no layer with weights has channels"
        raise ModelError(f"{bound.file.name} cannot be narrowed: {why}.")
    write_planned(bound, plan, path, max_file_bytes)
    return Narrowed(
        sum(group.channels_before for group in groups),
        sum(group.channels_after for group in groups),
        _layers(plan),
        kept,
    )


class ChannelChoice(Struct, frozen=True, eq=False):
    """The channels that would be removed, before anything is written."""

    plan: RemovalPlan
    selection: Selection
    kept: tuple[UnchangedLayer, ...]


def select_channels(bound: BoundModel, share: float) -> ChannelChoice:
    """The channels to remove; raises ModelError for an invalid share."""
    if not 0 < share < 1:
        raise ModelError(
            f"the share of channels to remove is {share:g}; it has to lie between 0 and 1."
        )
    related = relate(bound)
    users = (*_weight_axes(related), *_part_axes(related))
    selection = select(related.findings, users, strengths(related, bound), share)
    plan = RemovalPlan(related, selection.removed)
    return ChannelChoice(plan, selection, _kept(related, selection))


def _weight_axes(related: RelatedGraph) -> list[Dim]:
    """The axes of all weights, including weights that nodes make."""
    made = [
        tensor.name
        for each in related.nodes
        if each.node.op_type == "ConstantOfShape"
        for tensor in each.node.outputs
        if tensor is not None
    ]
    names = (*related.stored, *made)
    return [dim for name in names for dim in related.dimensions.axes(name)]


def _part_axes(related: RelatedGraph) -> list[Dim]:
    """The cut axes of the parts of a Split or Slice, each of which has to keep some places."""
    return [
        Dim(part.name, axis)
        for each in related.nodes
        if each.node.op_type in _CUTTING and each.node.input(0).name in related.dimensions.shapes
        for part in each.node.outputs
        if part is not None and part.name in related.dimensions.shapes
        for axis, size in enumerate(part.dims)
        if size < each.node.input(0).dims[axis]
    ]


def _layers(plan: RemovalPlan) -> int:
    """How many nodes have a weight that became smaller."""
    return sum(
        any(t is not None and t.is_constant and plan.changes(t.name) for t in each.node.inputs)
        for each in plan.related.nodes
        if not all(t is None or t.is_constant for t in each.node.outputs)
    )


def _kept(related: RelatedGraph, selection: Selection) -> tuple[UnchangedLayer, ...]:
    """The layers that make channels and lose none, in the order of the graph."""
    dims = related.dimensions
    reasons = dims.reasons()
    kept: dict[str, str] = {}
    narrowed: set[str] = set()
    for made in related.findings.made:
        sets = dims.sets(made.weight)
        if selection.removed[sets].any():
            narrowed.add(made.layer)
        elif (sets == PINNED).any():
            kept.setdefault(made.layer, reasons.get(made.weight, ""))
        elif np.isin(sets, list(selection.uneven)).any():
            kept.setdefault(made.layer, "its groups cannot all lose as many channels")
        else:
            kept.setdefault(
                made.layer, f"too few channels to lose that share: {len(np.unique(sets))}"
            )
    return tuple(UnchangedLayer(name, why) for name, why in kept.items() if name not in narrowed)
