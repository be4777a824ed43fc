"""The cost of moving elements: one MOV for each element that lands in the output.

Views are free: the same elements under another shape, name or grouping. Bookkeeping on sequences
and optionals is free too, and so is a dropout, which passes its input on at inference.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.cost import ADD, CMP, MOV, MUL, Cost, Counter
from pytest_modelperf.profiler.counting.epilogue import bias_ops
from pytest_modelperf.profiler.counting.generators import UNIFORM
from pytest_modelperf.profiler.counting.per_element import (
    elements,
    elementwise,
    free,
    per_input_element,
    per_output_element,
)


def count_split(node: Node) -> Cost:
    """A move for each element of all outputs."""
    return elementwise(elements(node.outputs) * MOV)


def count_scatter(node: Node) -> Cost:
    """Each output element comes from the data or from an update; reducing updates cost one more.

    The reductions are add, mul, min and max, all of weight 1.
    """
    reduced = node.attr_str("reduction", "none") != "none"
    updates = node.input(2).size * ADD if reduced else 0
    return elementwise(node.output().size * MOV + updates)


def count_dropout(node: Node, *, training_mode: int = 2) -> Cost:
    """Nothing at inference; in training a random number, a comparison, and x * mask * scale."""
    return elementwise(_dropout(node, training_mode))


def count_bias_dropout(node: Node) -> Cost:
    """dropout(data + bias) + residual."""
    size = node.input(0).size
    return elementwise(size * ADD + bias_ops(node, 2, size) + _dropout(node, 4))


def _dropout(node: Node, training_mode: int) -> int:
    mode = node.optional_input(training_mode)
    if mode is None or mode.value is None or not mode.value.all():
        return 0
    return node.input(0).size * (UNIFORM + CMP + 2 * MUL)


_MOVED = (
    "CenterCropPad", "Compress", "Concat", "ConcatFromSequence", "Crop", "DepthToSpace",
    "DynamicSlice", "Expand", "Gather", "GatherElements", "GatherND", "MemcpyFromHost",
    "MemcpyToHost", "OneHot", "Pad", "ReverseSequence", "Slice", "SpaceToDepth", "TensorScatter",
    "Tile", "Transpose", "Trilu",
    "com.microsoft::GatherND", "com.microsoft::Pad", "com.microsoft::RemovePadding",
    "com.microsoft::RestorePadding", "com.microsoft::SampleOp", "com.microsoft::TorchEmbedding",
    "com.microsoft::Trilu", "com.microsoft::UnfoldTensor",
    "com.microsoft.nchwc::ReorderInput", "com.microsoft.nchwc::ReorderOutput",
    "com.ms.internal.nhwc::DepthToSpace", "com.ms.internal.nhwc::SpaceToDepth",
)  # fmt: skip

_FREE = (
    "BitCast", "Flatten", "Identity", "Optional", "OptionalGetElement", "OptionalHasElement",
    "Reshape", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase",
    "SequenceInsert", "SequenceLength", "Shape", "Size", "Squeeze", "Unsqueeze",
    "com.microsoft::ExpandDims",
)  # fmt: skip

COUNTERS: Mapping[str, Counter] = {
    **dict.fromkeys(_MOVED, per_output_element(MOV)),
    **dict.fromkeys(_FREE, free),
    "Dropout": count_dropout,
    "Scatter": count_scatter,
    "ScatterElements": count_scatter,
    "ScatterND": count_scatter,
    "Split": count_split,
    "SplitToSequence": per_input_element(MOV),
    "com.microsoft::BiasDropout": count_bias_dropout,
    "com.microsoft::BitmaskBiasDropout": count_bias_dropout,
    "com.microsoft::BitmaskDropout": count_dropout,
}
