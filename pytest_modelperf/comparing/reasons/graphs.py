"""Reasons in layers that both graphs have: computed in another form, or of another size."""

from __future__ import annotations

from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.layer_pairs import is_alike
from pytest_modelperf.comparing.reasons.reason import (
    LayerPair,
    Reason,
    layer_name,
    pairs_by_operator,
    pairs_in_order,
    reason_about_change,
    reason_about_pairs,
)
from pytest_modelperf.comparing.reasons.weights import has_other_weights
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_count, format_shape


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
        old, new = before[pairs[0][0]], after[pairs[0][1]]
        what, change = _what_differs(old, new), _size_change(old, new)
        reasons.append(reason_about_change(found, op, pairs, what, change))
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
