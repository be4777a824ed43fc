"""Reasons in how weights are stored: quantized on one side only, or in another type."""

from __future__ import annotations

from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.reasons.reason import (
    LayerPair,
    Reason,
    pairs_in_order,
    reason_about_change,
)
from pytest_modelperf.graph.structure import PlanGraph
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.text.units import format_bytes

# The bytes of a parameter on average, scales and biases included, of which fewer are quantized.
_LEAST_OF_A_FLOAT = 2.0
# A layer whose weights take this much more or less is stored in another type. Scales and zero
# points of equally quantized weights make less of a difference.
_OTHER_TYPE = 1.25


def weight_reasons(found: Differences, after_plan: PlanGraph | None) -> tuple[Reason, ...]:
    """One reason for each operator whose layers multiply the same by weights of another type."""
    before, after = found.before.layers, found.after.layers
    dequantized = _dequantized_weights(after_plan)
    changes: dict[tuple[str, str], list[LayerPair]] = {}
    for old, new in pairs_in_order(found):
        if has_other_weights(before[old], after[new]):
            what = _describe(before[old], after[new])
            if after[new].weight in dequantized:
                what += ", dequantized in each run"
            changes.setdefault((after[new].qualified_op, what), []).append((old, new))
    reasons = []
    for (op, what), pairs in changes.items():
        first_old, first_new = pairs[0]
        sizes = [format_bytes(each.weight_bytes) for each in (before[first_old], after[first_new])]
        reasons.append(reason_about_change(found, op, pairs, what, " -> ".join(sizes)))
    return tuple(reasons)


def has_other_weights(old: StaticLayer, new: StaticLayer) -> bool:
    """Whether two layers of one operator do the same work with weights of another type."""
    if (old.qualified_op, *_work(old)) != (new.qualified_op, *_work(new)):
        return False
    sizes = sorted(map(_bytes_per_param, (old, new)))
    return sizes[1] > _OTHER_TYPE * sizes[0] > 0.0


def _work(layer: StaticLayer) -> tuple[object, ...]:
    return layer.input_shape, layer.output_shape, layer.macs, layer.precision


def _bytes_per_param(layer: StaticLayer) -> float:
    return layer.weight_bytes / layer.params if layer.params else 0.0


def _describe(old: StaticLayer, new: StaticLayer) -> str:
    was_quantized, is_quantized = (
        _bytes_per_param(layer) < _LEAST_OF_A_FLOAT for layer in (old, new)
    )
    if was_quantized == is_quantized:
        return "with weights of another type"
    return "with quantized weights" if is_quantized else "with weights no longer quantized"


def _dequantized_weights(plan: PlanGraph | None) -> frozenset[str]:
    """The stored tensors that a kernel of its own makes floats of."""
    if plan is None:
        return frozenset()
    steps = (step for step in plan.nodes if step.op_type == "DequantizeLinear")
    return plan.constants & {name for step in steps for name in step.inputs[:1]}
