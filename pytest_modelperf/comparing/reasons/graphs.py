"""Reasons in the graphs: operators that were added or removed, and layers of another size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from pytest_modelperf.comparing.differences import CaseLayers, Differences
from pytest_modelperf.comparing.layer_pairs import is_alike
from pytest_modelperf.comparing.reasons.counts import describe_count_change, describe_how_many
from pytest_modelperf.comparing.reasons.reason import (
    LayerPair,
    Reason,
    layer_name,
    pairs_by_operator,
    pairs_in_order,
    reason_about_layers,
    reason_about_pairs,
)
from pytest_modelperf.comparing.reasons.weights import has_other_weights
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_count, format_shape


def operator_reasons(found: Differences) -> tuple[Reason, ...]:
    """One reason for each operator with added or removed layers."""
    removed = _unmatched_by_operator(found.before, found.pairs)
    added = _unmatched_by_operator(found.after, set(found.pairs.values()))
    before, after = (
        Counter(layer.qualified_op for layer in side.layers) for side in (found.before, found.after)
    )
    reasons = []
    for op in {**removed, **added}:
        old, new = removed.get(op, []), added.get(op, [])
        text = describe_count_change(op, before[op], after[op])
        if before[op] == after[op]:
            text = f"{printable(op)}: {len(new)} of {after[op]} replaced by others"
        side, shown = (found.after, new) if after[op] >= before[op] else (found.before, old)
        name = layer_name(side.layers[shown[0]]) if shown else ""
        if name:
            text += f" (first: {name})"
        reasons.append(reason_about_layers(found, text, old, new))
    return tuple(reasons)


def _unmatched_by_operator(side: CaseLayers, matched: Container[int]) -> dict[str, list[int]]:
    """The layers of one side that the other side does not have."""
    found: dict[str, list[int]] = {}
    for index, layer in enumerate(side.layers):
        if index not in matched:
            found.setdefault(layer.qualified_op, []).append(index)
    return found


def form_reasons(found: Differences) -> tuple[Reason, ...]:
    """One reason for each operator whose layers compute the same in another form."""
    before, after = found.before.layers, found.after.layers
    forms: dict[tuple[str, str], list[LayerPair]] = {}
    for old, new in pairs_in_order(found):
        ops = before[old].qualified_op, after[new].qualified_op
        if ops[0] != ops[1]:
            forms.setdefault(ops, []).append((old, new))
    return tuple(
        reason_about_pairs(
            found,
            f"{len(pairs)} {printable(old)} became {printable(new)}"
            f" (first: {layer_name(after[pairs[0][1]])})",
            pairs,
        )
        for (old, new), pairs in forms.items()
    )


def size_reasons(found: Differences) -> tuple[Reason, ...]:
    """One reason for each operator whose layers have another shape or size."""
    before, after = found.before.layers, found.after.layers
    changed = [
        (old, new)
        for old, new in pairs_in_order(found)
        if before[old].qualified_op == after[new].qualified_op
        and not is_alike(before[old], after[new])
        and not has_other_weights(before[old], after[new])
    ]
    reasons = []
    for op, pairs in pairs_by_operator(found, changed).items():
        first_old, first_new = pairs[0]
        old, new = before[first_old], after[first_new]
        text = (
            f"{describe_how_many(len(pairs), op, after)} {printable(op)} {_what_differs(old, new)}"
            f" (first: {layer_name(new)}, {_size_change(old, new)})"
        )
        reasons.append(reason_about_pairs(found, text, pairs))
    return tuple(reasons)


def _what_differs(old: StaticLayer, new: StaticLayer) -> str:
    shapes = [(layer.input_shape, layer.output_shape) for layer in (old, new)]
    if shapes[0] != shapes[1]:
        return "of another shape"
    # A quantized weight has scales and zero points of its own.
    return "of another size" if old.macs != new.macs else "with other params"


def _size_change(old: StaticLayer, new: StaticLayer) -> str:
    if old.output_shape != new.output_shape:
        return f"output {format_shape(old.output_shape)} -> {format_shape(new.output_shape)}"
    if old.input_shape != new.input_shape:
        return f"input {format_shape(old.input_shape)} -> {format_shape(new.input_shape)}"
    if old.params != new.params:
        return f"{format_count(old.params)} -> {format_count(new.params)} params"
    return f"{format_count(old.macs)} -> {format_count(new.macs)} MACs"
