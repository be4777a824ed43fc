"""MACs of matrix products: dense, fused, quantized, of experts, and Einstein sums.

Counting rule: `MACs = batch x rows x inner x columns`, from the shapes of the operands alone, as
an operator of a vendor's domain often leaves the shape of its result unknown. Batch dimensions
broadcast as numpy's do. Blocks of a compressed weight count as the dense matrix that they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from math import prod

from msgspec import Struct

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import SOFTMAX, activation_ops
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    DIV,
    MOV,
    MUL,
    SQRT,
    Contraction,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.epilogue import (
    DEQUANTIZE_WEIGHT,
    DYNAMIC_QUANTIZE,
    QUANTIZE,
    REQUANTIZE,
    UNPACKED_FORMATS,
    bias_ops,
    has_input,
    rms_norm_ops,
    scale_ops,
    zero_point_ops,
)


class Product(Struct, frozen=True):
    """The extent of a batch of matrix products [rows, inner] x [inner, columns]."""

    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def macs(self) -> int:
        return self.batch * self.rows * self.inner * self.columns

    @property
    def elements(self) -> int:
        """Elements of the result."""
        return self.batch * self.rows * self.columns


def product_of(a: Sequence[int], b: Sequence[int]) -> Product:
    """The product of two shapes by numpy's matmul: a vector is a row left and a column right."""
    left = tuple(a) if len(a) > 1 else (1, *a)
    right = tuple(b) if len(b) > 1 else (*b, 1)
    return Product(
        batch=prod(broadcast(left[:-2], right[:-2])),
        rows=left[-2],
        inner=left[-1],
        columns=right[-1],
    )


def broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape that two shapes are stretched to: aligned at the right, 1 gives way."""
    pairs = zip_longest(reversed(a), reversed(b), fillvalue=1)
    return tuple(y if x == 1 else x for x, y in pairs)[::-1]


def count_matmul(
    node: Node,
    *,
    weight: int = 1,
    zero_points: tuple[int | None, int | None] = (None, None),
    bias: int | None = None,
    per_element: int = 0,
) -> Cost:
    """A product of input 0 and the input at `weight`, and what each element of the result takes.

    Attributes may turn the operands. Integers may have zero points.
    """
    product = product_of(_turned(node, 0, "A"), _turned(node, weight, "B"))
    return Cost(
        (Contraction(product.macs, (0, weight)),),
        zero_point_ops(node, 0, zero_points[0])
        + zero_point_ops(node, weight, zero_points[1])
        + bias_ops(node, bias, product.elements)
        + product.elements * per_element,
    )


def count_gemm(node: Node, *, beta: float = 1.0, per_element: int = 0) -> Cost:
    """activation(alpha * A' * B' + beta * C); C is optional, `beta` its factor by default."""
    per_element += activation_ops(node.attr_str("activation", "")) + scale_ops(node, "alpha")
    if has_input(node, 2) and node.attr_float("beta", beta) != 0:
        per_element += ADD + scale_ops(node, "beta")
    return count_matmul(node, per_element=per_element)


def count_gemm_float8(node: Node) -> Cost:
    """A Gemm whose `beta` is 0 unless given, and whose result is scaled where scales are given."""
    is_scaled = any(has_input(node, index) for index in (3, 4, 5))
    return count_gemm(node, beta=0.0, per_element=MUL if is_scaled else 0)


def count_dynamic_quantize_matmul(node: Node) -> Cost:
    """A float operand, quantized by its own range, times a quantized weight."""
    product = count_matmul(node, zero_points=(None, 3), bias=4, per_element=MUL)
    return product.plus(node.input(0).size * DYNAMIC_QUANTIZE)


def count_qgemm(node: Node) -> Cost:
    """A Gemm of integers, its result rescaled, or turned into floats where no scale is given."""
    rescale = REQUANTIZE if has_input(node, 7) else MUL
    return count_matmul(node, weight=3, zero_points=(2, 5), bias=6, per_element=rescale)


def count_qordered_matmul(node: Node) -> Cost:
    """Y = alpha * A * B + bias + beta * C between 8-bit matrices without zero points."""
    per_element = REQUANTIZE - ADD
    if has_input(node, 5):
        per_element += ADD
    if has_input(node, 6):
        per_element += ADD + MUL
    return count_matmul(node, weight=2, per_element=per_element)


def count_matmul_nbits(node: Node) -> Cost:
    """A product with a compressed weight of `N` columns, which is decoded in every run.

    An empty weight stands for a projection that is left out: the result is the bias alone.
    """
    weight, columns = node.optional_input(1), node.attr_int("N", 0)
    if weight is not None and weight.shape is not None and 0 in weight.shape:
        return Cost((), bias_ops(node, 5, prod(node.input(0).dims[:-1]) * columns))
    return _weight_only(node, columns, bias=5)


def count_matmul_nbits_qlora(node: Node) -> Cost:
    """A product with a compressed weight, and one with the two compressed weights of an adapter.

    Without the second of these there is no adapter; without the first, its half is zeros.
    """
    columns = node.attr_int("N", 0)
    base = _weight_only(node, columns)
    down, up = node.input(3), node.input(5)
    if 0 in up.dims:
        return base
    x, rank = node.input(0), node.input(4).dims[0]
    rows, inner = prod(x.dims[:-1]), x.dims[-1]
    adapter = [Contraction(rows * rank * columns, (None, 5))]
    decoded = rank * columns
    if 0 not in down.dims:
        adapter.insert(0, Contraction(rows * inner * rank, (0, 3)))
        decoded += inner * rank
    return base + Cost(tuple(adapter), decoded * DEQUANTIZE_WEIGHT + rows * columns * ADD)


def count_matmul_packed(node: Node) -> Cost:
    """A product with a weight in a packed format, which may be scaled once and activated."""
    columns = node.attr_int("N", 0)
    cost = _weight_only(node, columns, decode=_decode_packed(node, "packed_type"))
    activation = node.attr_str("activation_type", "none")
    per_result = activation_ops("relu2" if activation == "relu_squared" else activation)
    if has_input(node, 2):
        per_result += MUL
    return cost.plus(prod(node.input(0).dims[:-1]) * columns * per_result)


def count_matmul_bnb4(node: Node) -> Cost:
    """A product with a 4-bit weight [N, K], which is transposed unless `transB` is 0."""
    return _weight_only(node, node.attr_int("N" if node.attr_int("transB", 1) else "K", 0))


def count_matmul_fpq4(node: Node) -> Cost:
    """A product with a packed blob, whose shape [inner, columns] is the value of input 2."""
    shape = node.input(2).value
    columns = node.output().dims[-1] if shape is None else int(shape.reshape(-1)[-1])
    return _weight_only(node, columns)


def count_matmul_block_quantized(node: Node, *, bias: int, input_scale: int | None = None) -> Cost:
    """A product with a float4 or float8 weight [columns, ...]; an input scale quantizes A too."""
    cost = _weight_only(node, node.input(1).dims[0], bias=bias)
    if not has_input(node, input_scale):
        return cost
    return cost.plus(node.input(0).size * (QUANTIZE - ADD + MUL))


def count_matmul_nbits_mlp(node: Node) -> Cost:
    """activation(A' * gate) * (A' * up), A' being A after an optional addition and RMS norm."""
    columns = node.attr_int("N", 0)
    elements = prod(node.input(0).dims[:-1]) * columns
    activated = activation_ops(node.attr_str("activation", "")) + MUL
    return _normed_products(node, (columns, columns)).plus(elements * activated)


def count_matmul_nbits_qkv(node: Node) -> Cost:
    """Three products with compressed weights after an optional addition and RMS norm of A."""
    key_value = node.attr_int("Nkv", 0)
    return _normed_products(node, (node.attr_int("Nq", 0), key_value, key_value))


def count_moe(  # noqa: PLR0913  # one index for each weight of the two layouts
    node: Node, *, fc1: int, fc2: int, fc3: int, bias_distance: int, decode: int = 0
) -> Cost:
    """A mixture of experts: each token passes through `k` of them.

    The inputs after tokens and router's scores are the weights of fc1, fc2 and optionally fc3, each
    with its bias at a distance. Compressed weights of the experts in use are decoded; how many are
    in use depends on the router: as many as there are, at most `k` a token.
    """
    x = node.input(0)
    hidden = x.dims[-1]
    tokens, experts = prod(x.dims[:-1]), node.input(fc1).dims[0]
    chosen = node.attr_int("k", 1)
    passes = tokens * chosen
    _, rows, columns = node.input(fc1).dims
    # Some models store the weights of experts transposed; ONNX Runtime takes both.
    first = rows if decode or columns == hidden else columns
    activation = node.attr_str("activation_type", "relu").lower()
    gated_by_fc3 = has_input(node, fc3)
    # These take pairs: both halves are in fc1, unless the second has a weight of its own.
    inner = first // 2 if activation in {"swiglu", "geglu"} and not gated_by_fc3 else first
    weights = [(fc1, hidden, first), (fc2, inner, hidden)]
    if gated_by_fc3:
        weights.append((fc3, hidden, first))

    router = tokens * (experts * (SOFTMAX + chosen * CMP) + chosen * (ADD + DIV))
    mixing = passes * hidden * (MUL + ADD)
    gate = MUL if gated_by_fc3 and activation != "swiglu" else 0
    activated = passes * inner * (activation_ops(activation) + gate)
    biases = sum(bias_ops(node, i + bias_distance, passes * width) for i, _, width in weights)
    decoded = min(experts, passes) * sum(rows * width for _, rows, width in weights) * decode
    return Cost(
        tuple(
            Contraction(passes * rows * width, (None if index == fc2 else 0, index))
            for index, rows, width in weights
        ),
        router + mixing + activated + biases + decoded,
    )


def count_moe_packed(node: Node) -> Cost:
    """A mixture of experts with weights in packed formats; those of the experts in use are decoded.

    Inputs: tokens, router's scores, weights of gate, of up where a pair is gated, and of down, and
    the values to mix by, which otherwise are a softmax of the scores.
    """
    x, hidden = node.input(0), node.input(0).dims[-1]
    experts, inner, _ = node.input(2).dims
    tokens, chosen = prod(x.dims[:-1]), node.attr_int("k", 1)
    passes, gated = tokens * chosen, has_input(node, 3)
    layers = [(2, "gate_type"), *([(3, "up_type")] if gated else []), (4, "down_type")]

    router = tokens * experts * ((0 if has_input(node, 5) else SOFTMAX) + chosen * CMP)
    if node.attr_int("normalize_routing_weights", 1):
        router += passes * (ADD + DIV)
    router += passes * scale_ops(node, "routed_scaling_factor")
    activation = activation_ops("silu") + MUL if gated else activation_ops("relu2")
    decoded = sum(_decode_packed(node, kind) for _, kind in layers)
    return Cost(
        tuple(
            Contraction(passes * hidden * inner, (None if index == 4 else 0, index))
            for index, _ in layers
        ),
        router
        + passes * hidden * (MUL + ADD)
        + passes * inner * activation
        + min(experts, passes) * hidden * inner * decoded,
    )


def count_cdist(node: Node) -> Cost:
    """Distances between the rows of two matrices by |a|^2 - 2ab + |b|^2."""
    (rows, width), columns = node.input(0).dims, node.input(1).dims[0]
    per_pair = MUL + 2 * ADD + CMP
    if node.attr_str("metric", "sqeuclidean") == "euclidean":
        per_pair += SQRT
    norms = (rows + columns) * width * (MUL + ADD)
    return Cost((Contraction(rows * columns * width, (0, 1)),), norms + rows * columns * per_pair)


def count_einsum(node: Node) -> Cost:
    """Products of operands taken pairwise from left to right, as the equation names them.

    Rule for one pair: the product of the sizes of all distinct indexes of both, whether an index
    is in one operand, in both or in the result, as in the loops that define an Einstein sum.
    After each pair the indexes that neither the result nor a later operand names are summed away.
    A pair that sums nothing is no contraction but a MUL an element; a single operand takes an ADD
    an element where it sums, a MOV an element of the result where it only picks or turns.
    """
    equation = node.attr_str("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    shapes = [node.input(index).dims for index in range(len(left.split(",")))]
    terms = [_labels(term, len(dims)) for term, dims in zip(left.split(","), shapes, strict=True)]
    sizes: dict[str, int] = {}
    for term, dims in zip(terms, shapes, strict=True):
        for label, size in zip(term, dims, strict=True):
            sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
    kept = set(_labels(right, None, sizes) if arrow else _implicit_output(terms))

    def volume(labels: set[str]) -> int:
        return prod(sizes[label] for label in labels)

    if len(terms) == 1:
        labels = set(terms[0])
        return Cost((), volume(labels) * ADD if labels - kept else volume(kept) * MOV)
    contractions: list[Contraction] = []
    elementwise_ops = 0
    accumulated = set(terms[0])
    for index, term in enumerate(terms[1:], start=1):
        pair = accumulated | set(term)
        accumulated = pair & kept.union(*terms[index + 1 :])
        if accumulated == pair:
            elementwise_ops += volume(pair) * MUL
        else:
            operands = (0 if index == 1 else None, index)
            contractions.append(Contraction(volume(pair), operands))
    return Cost(tuple(contractions), elementwise_ops)


def _labels(term: str, rank: int | None, known: Mapping[str, int] | None = None) -> tuple[str, ...]:
    """The indexes of a term; those of an ellipsis are numbered from the right, as they align.

    The rank of the result is not given: its ellipsis stands for all indexes of those of operands.
    """
    before, dots, after = term.partition("...")
    if not dots:
        return tuple(term)
    if rank is None:
        hidden = tuple(label for label in known or () if label.startswith("."))
    else:
        hidden = tuple(f".{i}" for i in range(rank - len(before) - len(after), 0, -1))
    return (*before, *hidden, *after)


def _implicit_output(terms: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Without an arrow: the ellipsis, and every index that appears exactly once."""
    labels = [label for term in terms for label in term]
    return tuple(x for x in dict.fromkeys(labels) if x.startswith(".") or labels.count(x) == 1)


def _turned(node: Node, index: int, side: str) -> tuple[int, ...]:
    """The shape of operand A or B as it is multiplied.

    `transBatch` puts the first dimension behind those of the batch, `trans` then turns the
    matrix; a vector is never turned.
    """
    dims = node.input(index).dims
    if node.attr_int(f"transBatch{side}", 0) and len(dims) > 2:
        dims = (*dims[1:-1], dims[0], dims[-1])
    if node.attr_int(f"trans{side}", 0) and len(dims) > 1:
        dims = (*dims[:-2], dims[-1], dims[-2])
    return dims


def _decode_packed(node: Node, kind: str) -> int:
    """Operations to decode one weight of the packed format that an attribute names."""
    return 0 if node.attr_int(kind, -1) in UNPACKED_FORMATS else DEQUANTIZE_WEIGHT


def _weight_only(
    node: Node, columns: int, *, bias: int | None = None, decode: int = DEQUANTIZE_WEIGHT
) -> Cost:
    a = node.input(0)
    rows, inner = prod(a.dims[:-1]), a.dims[-1]
    return Cost(
        (Contraction(rows * inner * columns, (0, 1)),),
        inner * columns * decode + bias_ops(node, bias, rows * columns),
    )


def _normed_products(node: Node, widths: Sequence[int]) -> Cost:
    """Products of compressed weights, with a scale and a bias each, and an input that is normed."""
    a = node.input(0)
    rows, inner = prod(a.dims[:-1]), a.dims[-1]
    weights = tuple(zip(range(3, 12, 3), widths, strict=False))
    norm = rms_norm_ops(rows, inner) if has_input(node, 2) else 0
    return Cost(
        tuple(Contraction(a.size * width, (0, index)) for index, width in weights),
        norm
        + bias_ops(node, 1, rows * inner)
        + inner * sum(widths) * DEQUANTIZE_WEIGHT
        + sum(bias_ops(node, index + 2, rows * width) for index, width in weights),
    )


COUNTERS: Mapping[str, Counter] = {
    "Einsum": count_einsum,
    "Gemm": count_gemm,
    "MatMul": count_matmul,
    "MatMulInteger": partial(count_matmul, zero_points=(2, 3)),
    "QLinearMatMul": partial(count_matmul, weight=3, zero_points=(2, 5), per_element=REQUANTIZE),
    "com.microsoft::CDist": count_cdist,
    "com.microsoft::DynamicQuantizeMatMul": count_dynamic_quantize_matmul,
    "com.microsoft::FusedGemm": count_gemm,
    "com.microsoft::FusedMatMul": count_gemm,
    "com.microsoft::FusedMatMulActivation": count_gemm,
    "com.microsoft::GemmFastGelu": partial(
        count_matmul, bias=2, per_element=activation_ops("FastGelu")
    ),
    "com.microsoft::GemmFloat8": count_gemm_float8,
    "com.microsoft::MatMulBlockQuantizedFp4Weight": partial(count_matmul_block_quantized, bias=5),
    "com.microsoft::MatMulBlockQuantizedFp8Weight": partial(
        count_matmul_block_quantized, bias=4, input_scale=3
    ),
    "com.microsoft::MatMulBnb4": count_matmul_bnb4,
    "com.microsoft::MatMulFpQ4": count_matmul_fpq4,
    "com.microsoft::MatMulInteger16": count_matmul,
    # Both scales are multiplied at once.
    "com.microsoft::MatMulIntegerToFloat": partial(
        count_matmul, zero_points=(4, 5), bias=6, per_element=MUL
    ),
    "com.microsoft::MatMulNBits": count_matmul_nbits,
    "com.microsoft::MatMulNBitsMlp": count_matmul_nbits_mlp,
    "com.microsoft::MatMulNBitsQkv": count_matmul_nbits_qkv,
    "com.microsoft::MatMulNBitsQLoRA": count_matmul_nbits_qlora,
    "com.microsoft::MatMulPacked": count_matmul_packed,
    "com.microsoft::MoE": partial(count_moe, fc1=2, fc2=4, fc3=6, bias_distance=1),
    "com.microsoft::MoEPacked": count_moe_packed,
    "com.microsoft::QGemm": count_qgemm,
    "com.microsoft::QMoE": partial(
        count_moe, fc1=2, fc2=5, fc3=8, bias_distance=2, decode=DEQUANTIZE_WEIGHT
    ),
    "com.microsoft::QOrderedMatMul": count_qordered_matmul,
    "com.microsoft::SparseToDenseMatMul": count_gemm,
    "com.microsoft::TransposeMatMul": count_gemm,
}
