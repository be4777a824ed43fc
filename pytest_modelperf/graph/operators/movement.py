"""Moved elements: one MOV for each element of the output.

Views are free: the same elements under another shape, name or grouping. Bookkeeping on sequences
and optionals is free too, and so is a dropout, which returns its input at inference.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pytest_modelperf.graph.operators.cost import ADD, MOV, Cost
from pytest_modelperf.graph.operators.operator import (
    KEEPS,
    LENGTH,
    NO_LENGTH,
    ZERO,
    Demand,
    Operator,
    along,
    below,
    elements,
    elementwise,
    free,
    move,
    per_input,
    sized,
    whole,
    worded,
)
from pytest_modelperf.graph.shape_rules import (
    Outputs,
    dim,
    dtype_of,
    gather,
    gather_nd,
    int_of,
    ints_of,
    like,
    outputs,
    pad,
    shape_of,
)
from pytest_modelperf.graph.structure import Node


def count_split(node: Node) -> Cost:
    return elementwise(elements(node.outputs) * MOV)


def count_scatter(node: Node) -> Cost:
    """Count a move for each output element, and one more operation for each reducing update."""
    # The reductions are add, mul, min and max, all of weight 1.
    reduced = node.attr_str("reduction", "none") != "none"
    updates = node.input(2).size * ADD if reduced else 0
    return elementwise(node.output().size * MOV + updates)


_OPAQUE = "it is a graph that a vendor's compiler has made opaque"


def shape_reshape(node: Node) -> Outputs:
    """Return the output of Reshape before opset 5: 0 copies a dimension, -1 takes the rest."""
    target, data = node.attr_ints("shape"), shape_of(node, 0)
    if not target or data is None:
        return ()
    shape = [data[i] if size == 0 and i < len(data) else size for i, size in enumerate(target)]
    elements = prod([size for size in data if size is not None])
    others = prod([size for size in shape if size is not None and size != -1])
    is_known = None not in data and None not in shape and others > 0
    rest = elements // others if is_known else None
    return outputs(dtype_of(node, 0), tuple(rest if size == -1 else size for size in shape))


def shape_expand_dims(node: Node) -> Outputs:
    shape, axis = shape_of(node, 0), int_of(node, 1)
    if shape is None:
        return outputs(dtype_of(node, 0), None)
    rank = len(shape) + 1
    if axis is None or not -rank <= axis < rank:
        return outputs(dtype_of(node, 0), (None,) * rank)
    axis %= rank
    return outputs(dtype_of(node, 0), (*shape[:axis], 1, *shape[axis:]))


def shape_pad(node: Node) -> Outputs:
    return outputs(dtype_of(node, 0), pad(shape_of(node, 0), ints_of(node, 1)))


def shape_gather_nd(node: Node) -> Outputs:
    return outputs(dtype_of(node, 0), gather_nd(shape_of(node, 0), shape_of(node, 1)))


def shape_torch_embedding(node: Node) -> Outputs:
    return outputs(dtype_of(node, 0), gather(shape_of(node, 0), shape_of(node, 1), axis=0))


def shape_unfold_tensor(node: Node) -> Outputs:
    """Return windows of `size` along one dimension, with their elements in a new last one."""
    shape, axis = shape_of(node, 0), node.attr_int("dim", -1)
    size, step = node.attr_int("size", 0), node.attr_int("step", 1)
    if shape is None or not -len(shape) <= axis < len(shape) or step < 1:
        return outputs(dtype_of(node, 0), None)
    axis %= len(shape)
    length = shape[axis]
    windows = None if length is None or length < size else (length - size) // step + 1
    return outputs(dtype_of(node, 0), (*shape[:axis], windows, *shape[axis + 1 :], size))


def _gather_nd(node: Node, _: int) -> Demand | None:
    data, indices = shape_of(node, 0), shape_of(node, 1)
    first = node.attr_int("batch_dims", 0)
    depth = dim(indices, -1)
    if data is None or depth is None:
        return below(None)
    sizes = data[first : first + depth]
    return below(None if None in sizes else min((s for s in sizes if s is not None), default=1))


def _one_hot(node: Node, _: int) -> Demand | None:
    depth = node.optional_input(1)
    if depth is None or depth.value is None or depth.value.size != 1:
        return below(None)
    return below(int(depth.value.reshape(-1)[0]))


def _whole_sequence(node: Node, _: int) -> Demand:
    return whole(dim(shape_of(node, 0), node.attr_int("time_axis", 0)))


def _end_of_slice(node: Node, _: int) -> Demand:
    """Ask for the end of the longest dimension, so that a slice keeps all after its start."""
    sizes = [size for size in shape_of(node, 0) or () if size is not None]
    return Demand(value=max(sizes, default=1), decides=worded(node, KEEPS))


def _equal_pieces(node: Node, index: int) -> Demand:
    """Ask for the size of each piece when a dimension is split evenly."""
    size = dim(shape_of(node, 0), node.attr_int("axis", 0)) or 1
    pieces = prod(s or 1 for s in shape_of(node, index) or ())
    return Demand(value=max(size // max(pieces, 1), 1), decides=worded(node, "where {} splits"))


def _cache_position(node: Node, _: int) -> Demand:
    axis = node.attr_int("axis", -2)
    cache, update = dim(shape_of(node, 0), axis), dim(shape_of(node, 1), axis)
    last = 0 if cache is None or update is None else max(0, cache - update)
    return Demand(low=0, high=last)


def _branch(node: Node, _: int) -> Demand:
    decides = worded(node, "which branch of {} runs")
    return Demand(low=0, value=1, decides=decides, is_of_branch=True)


OPERATORS: Mapping[str, Operator] = {
    **dict.fromkeys(
        (
            "BitCast", "Flatten", "Identity", "Optional", "OptionalGetElement",
            "OptionalHasElement", "Scan", "SequenceConstruct", "SequenceEmpty", "SequenceLength",
            "SequenceMap", "Shape", "Size",
        ),
        Operator(free),
    ),
    **dict.fromkeys(
        (
            "Compress", "Concat", "ConcatFromSequence", "DynamicSlice", "MemcpyFromHost",
            "MemcpyToHost", "Transpose",
        ),
        Operator(move),
    ),
    **dict.fromkeys(
        ("SequenceAt", "SequenceErase", "Squeeze", "Unsqueeze"),
        Operator(free, demands={1: ZERO}),
    ),
    "Expand": Operator(move, demands={1: LENGTH}),
    "Gather": Operator(move, demands={1: along("axis")}),
    "GatherElements": Operator(move, demands={1: along("axis")}),
    "GatherND": Operator(move, demands={1: _gather_nd}),
    "If": Operator(free, demands={0: _branch}),
    "Loop": Operator(free, demands={0: sized("how often {} runs"), 1: sized("whether {} runs")}),
    "OneHot": Operator(move, demands={0: _one_hot, 1: LENGTH}),
    "Pad": Operator(move, demands={1: NO_LENGTH, 3: ZERO}),
    "Reshape": Operator(free, shape_reshape, demands={1: LENGTH}),
    "ReverseSequence": Operator(move, demands={1: _whole_sequence}),
    "Scatter": Operator(count_scatter, demands={1: along("axis")}),
    "ScatterElements": Operator(count_scatter, demands={1: along("axis")}),
    "ScatterND": Operator(count_scatter, demands={1: _gather_nd}),
    "SequenceInsert": Operator(free, demands={2: ZERO}),
    "Slice": Operator(
        move, demands={1: sized(KEEPS, 0), 2: _end_of_slice, 3: ZERO, 4: sized(KEEPS)},
    ),
    "Split": Operator(count_split, demands={1: _equal_pieces}),
    "SplitToSequence": Operator(per_input(MOV), demands={1: _equal_pieces}),
    "TensorScatter": Operator(move, demands={2: _cache_position}),
    "Tile": Operator(move, demands={1: LENGTH}),
    "Trilu": Operator(move, demands={1: ZERO}),
    "com.microsoft::EPContext": Operator(uncounted=_OPAQUE),
    "com.microsoft::ExpandDims": Operator(free, shape_expand_dims, demands={1: ZERO}),
    "com.microsoft::GatherND": Operator(move, shape_gather_nd, demands={1: _gather_nd}),
    "com.microsoft::Pad": Operator(move, shape_pad, demands={1: NO_LENGTH}),
    "com.microsoft::SampleOp": Operator(move, like(0)),
    "com.microsoft::Snpe": Operator(uncounted=_OPAQUE),
    "com.microsoft::TorchEmbedding": Operator(move, shape_torch_embedding),
    "com.microsoft::Trilu": Operator(move, like(0)),
    "com.microsoft::UnfoldTensor": Operator(move, shape_unfold_tensor),
}  # fmt: skip
