"""Output shapes of the operators that rearrange, select, sample or generate.

A dimension that depends on values stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, isfinite

from pytest_modelperf.graph.model_file import dtype_name
from pytest_modelperf.graph.shape_arithmetic import (
    Dim,
    dim,
    gather,
    gather_nd,
    pad,
    product,
    quotient,
    total,
    with_last,
)
from pytest_modelperf.graph.shape_rule import (
    OutputType,
    ShapeRule,
    dtype_of,
    has_input,
    int_of,
    ints_of,
    like,
    numbers_of,
    one,
    shape_of,
    stated_size,
)
from pytest_modelperf.graph.structure import Node, Shape


def _gather_block_quantized(node: Node) -> tuple[OutputType]:
    """Gather, where bytes hold several values of the last dimension each."""
    data, bits = shape_of(node, 0), node.attr_int("bits", 4)
    if dtype_of(node, 0) is None:
        data = with_last(data, None)
    elif dtype_of(node, 0) == "uint8" and data:
        data = with_last(data, product(data[-1], quotient(8, bits)))
    shape = gather(data, shape_of(node, 1), node.attr_int("gather_axis", 0))
    return one(dtype_of(node, 2), shape)


def _gather_packed(node: Node) -> tuple[OutputType]:
    """Rows of a packed table, each of K numbers."""
    indices = shape_of(node, 1)
    shape = None if indices is None else (*indices, stated_size(node, "K"))
    return one(dtype_name(node.attr_int("output_dtype", 16)), shape)


def _real_fft(node: Node) -> tuple[OutputType]:
    """Half a spectrum of complex numbers, over the last dimension: the other half mirrors it."""
    shape = shape_of(node, 0)
    size = dim(shape, -1)
    return one(dtype_of(node, 0), with_last(shape, None if size is None else size // 2 + 1, 2))


def _inverse_real_fft(node: Node) -> tuple[OutputType]:
    shape = shape_of(node, 0)
    size = product(2, total(dim(shape, -2), -1))
    return one(dtype_of(node, 0), None if not shape else with_last(shape[:-1], size))


def _expand_dims(node: Node) -> tuple[OutputType]:
    shape, axis = shape_of(node, 0), int_of(node, 1)
    if shape is None:
        return one(dtype_of(node, 0), None)
    rank = len(shape) + 1
    if axis is None or not -rank <= axis < rank:
        return one(dtype_of(node, 0), (None,) * rank)
    axis %= rank
    return one(dtype_of(node, 0), (*shape[:axis], 1, *shape[axis:]))


def _range(node: Node) -> tuple[OutputType]:
    """ceil((limit - start) / delta) numbers, at least none."""
    start, limit = numbers_of(node, 0), numbers_of(node, 1)
    delta = numbers_of(node, 2) if has_input(node, 2) else (1,)
    length: Dim = None
    if start and limit and delta and delta[0]:
        steps = (limit[0] - start[0]) / delta[0]
        length = max(0, ceil(steps)) if isfinite(steps) else None
    return one(dtype_of(node, 0), (length,))


def _pad(node: Node) -> tuple[OutputType]:
    return one(dtype_of(node, 0), pad(shape_of(node, 0), ints_of(node, 1)))


def _unique(node: Node) -> tuple[OutputType, ...]:
    size = dim(shape_of(node, 0), 0)
    counts = OutputType("int64", (None,))
    return OutputType(dtype_of(node, 0), (None,)), OutputType("int64", (size,)), counts


def _gather_nd(node: Node) -> tuple[OutputType]:
    return one(dtype_of(node, 0), gather_nd(shape_of(node, 0), shape_of(node, 1)))


def _torch_embedding(node: Node) -> tuple[OutputType]:
    return one(dtype_of(node, 0), gather(shape_of(node, 0), shape_of(node, 1), axis=0))


def _unfold_tensor(node: Node) -> tuple[OutputType]:
    """Windows of `size` along one dimension, their elements in a new last one."""
    shape, axis = shape_of(node, 0), node.attr_int("dim", -1)
    size, step = node.attr_int("size", 0), node.attr_int("step", 1)
    if shape is None or not -len(shape) <= axis < len(shape) or step < 1:
        return one(dtype_of(node, 0), None)
    axis %= len(shape)
    length = shape[axis]
    windows = None if length is None or length < size else (length - size) // step + 1
    return one(dtype_of(node, 0), (*shape[:axis], windows, *shape[axis + 1 :], size))


def _grid_sample(node: Node) -> tuple[OutputType]:
    image, grid = shape_of(node, 0), shape_of(node, 1)
    shape = (dim(image, 0), dim(image, 1), dim(grid, 1), dim(grid, 2))
    return one(dtype_of(node, 0), shape)


def _cdist(node: Node) -> tuple[OutputType]:
    return one(dtype_of(node, 0), (dim(shape_of(node, 0), 0), dim(shape_of(node, 1), 0)))


def _crop_and_resize(node: Node) -> tuple[OutputType]:
    size = ints_of(node, 3)
    sides: Shape = size if size is not None and len(size) == 2 else (None, None)
    shape = (dim(shape_of(node, 1), 0), dim(shape_of(node, 0), 1), *sides)
    return one(dtype_of(node, 0), shape)


def _tokenizer(node: Node) -> tuple[OutputType]:
    """As many tokens for each string as the longest one has."""
    shape = shape_of(node, 0)
    return one("string", None if shape is None else (*shape, None))


def _bifurcation_detector(node: Node) -> tuple[OutputType, ...]:
    merged: Shape | None = (None,) if has_input(node, 3) else shape_of(node, 1)
    return OutputType("int64", merged), OutputType("int64", shape_of(node, 2))


def _ngram_order(node: Node) -> Dim:
    return total(stated_size(node, "max_ngram_size"), -1)


def _ngram_hash(node: Node) -> tuple[OutputType, ...]:
    ids, order, dtype = shape_of(node, 0), _ngram_order(node), dtype_of(node, 0)
    heads = product(order, stated_size(node, "n_head_per_ngram"))
    batch, length = dim(ids, 0), dim(ids, 1)
    return OutputType(dtype, (batch, length, heads)), OutputType(dtype, (batch, order))


def _varlen_ngram_hash(node: Node) -> tuple[OutputType, ...]:
    order, dtype = _ngram_order(node), dtype_of(node, 0)
    heads = product(order, stated_size(node, "n_head_per_ngram"))
    batch = total(dim(shape_of(node, 3), 0), -1)
    return (
        OutputType(dtype, (dim(shape_of(node, 0), 0), heads)),
        OutputType(dtype, (batch, order)),
        OutputType("int32", (batch, order)),
        OutputType(dtype, (batch, node.attr_int("state_update_capacity", 0), order)),
    )


def _hyper_connection_pre_mix(node: Node) -> tuple[OutputType]:
    """The branches, a dimension of their own or parts of the last one, become one."""
    streams, branches = shape_of(node, 0), node.attr_int("num_branches", 0)
    if not branches:
        grouped = None if streams is None or len(streams) < 2 else (*streams[:-2], streams[-1])
        return one(dtype_of(node, 0), grouped)
    return one(dtype_of(node, 0), with_last(streams, quotient(dim(streams, -1), branches)))


def _hyper_connection_low_rank_mix(node: Node) -> tuple[OutputType, ...]:
    """One branch of the width that all have, a gate for each of them, and all branches."""
    streams, branches = shape_of(node, 0), stated_size(node, "num_branches")
    dtype = dtype_of(node, 0)
    return (
        OutputType(dtype, with_last(streams, quotient(dim(streams, -1), branches))),
        OutputType(dtype, with_last(streams, branches)),
        OutputType(dtype, streams),
    )


def _moe_group_router(node: Node) -> tuple[OutputType, ...]:
    """A score of each expert for each token, whatever leading dimensions the tokens have."""
    logits = shape_of(node, 0)
    rows = None if not logits else product(*logits[:-1])
    shape = (rows, dim(shape_of(node, 1), 0))
    scores = OutputType("float32", shape)
    return OutputType(dtype_of(node, 0), shape), scores, scores


def _speculative_prefix_commit(node: Node) -> tuple[OutputType, ...]:
    """A length for each request; a vector of predictions is one request."""
    predicted = shape_of(node, 0)
    batch = 1 if predicted is not None and len(predicted) == 1 else dim(predicted, 0)
    return (OutputType("int32", (batch,)), *like(3, 4)(node))


def _search(node: Node) -> tuple[OutputType, ...]:
    """Generated tokens, padded to the maximal length, and the last filtered logits."""
    batch = dim(shape_of(node, 0), 0)
    vocabulary = node.attr_int("vocab_size", -1)
    logits = (batch, vocabulary if vocabulary > 0 else None)
    return OutputType("int32", (batch, int_of(node, 1))), OutputType("float32", logits)


def _beam_search(node: Node) -> tuple[OutputType, ...]:
    """Generated tokens, the score of each sequence, and the scores of the vocabulary at each step.

    Whisper's variant also returns the attention to the audio and the probability of no speech;
    their shapes depend on its decoder.
    """
    prompt, longest, returned = shape_of(node, 0), int_of(node, 1), int_of(node, 4)
    batch, vocabulary = dim(prompt, 0), node.attr_int("vocab_size", -1)
    steps = None
    if longest is not None and dim(prompt, 1) is not None:
        steps = total(longest, product(-1, dim(prompt, 1)))
    scores = (steps, batch, int_of(node, 3), vocabulary if vocabulary > 0 else None)
    penalty = next((index for index in (5, 6) if has_input(node, index)), None)
    dtype = "float32" if penalty is None else dtype_of(node, penalty)
    return (
        OutputType("int32", (batch, returned, longest)),
        OutputType(dtype, (batch, returned)),
        OutputType(dtype, scores),
        OutputType("float32", None),
        OutputType("float32", (batch,)),
    )


def _time_warping(_node: Node) -> tuple[OutputType]:
    """A path of pairs, whose length depends on the values in the matrix."""
    return one("int32", (2, None))


TENSOR_RULES: Mapping[str, ShapeRule] = {
    "BeamSearch": _beam_search,
    "BifurcationDetector": _bifurcation_detector,
    "CDist": _cdist,
    "CropAndResize": _crop_and_resize,
    "DynamicTimeWarping": _time_warping,
    "ExpandDims": _expand_dims,
    "GatherBlockQuantized": _gather_block_quantized,
    "GatherND": _gather_nd,
    "GatherPacked": _gather_packed,
    "GreedySearch": _search,
    "GridSample": _grid_sample,
    "HyperConnectionLowRankMix": _hyper_connection_low_rank_mix,
    "HyperConnectionPreMix": _hyper_connection_pre_mix,
    "Irfft": _inverse_real_fft,
    "MoEGroupRouter": _moe_group_router,
    "NGramHashMapping": _ngram_hash,
    "Pad": _pad,
    "Range": _range,
    "Rfft": _real_fft,
    "Sampling": _search,
    "SpeculativePrefixCommit": _speculative_prefix_commit,
    "Tokenizer": _tokenizer,
    "TorchEmbedding": _torch_embedding,
    "UnfoldTensor": _unfold_tensor,
    "Unique": _unique,
    "VarlenNGramHashMapping": _varlen_ngram_hash,
    "WhisperBeamSearch": _beam_search,
}
