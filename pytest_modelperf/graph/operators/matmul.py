"""Matrix products: dense, fused, quantized, and Einstein sums.

Counting rule: `MACs = batch x rows x inner x columns`, from the shapes of the operands alone,
because the result of an operator in a vendor's domain often has no known shape. Batch dimensions
broadcast as in numpy. Blocks of a compressed weight count as the dense matrix that they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from math import prod
from typing import TypeVar

from msgspec import Struct

from pytest_modelperf.graph.operators.cost import ADD, CMP, MOV, MUL, SQRT, Contraction, Cost
from pytest_modelperf.graph.operators.elementwise import named_dtype
from pytest_modelperf.graph.operators.operator import (
    DEQUANTIZE_WEIGHT,
    DYNAMIC_QUANTIZE,
    QUANTIZE,
    REQUANTIZE,
    UNPACKED_FORMATS,
    Operator,
    activation_ops,
    bias_ops,
    rms_norm_ops,
    rows_in,
    scale_ops,
    zero_point_ops,
)
from pytest_modelperf.graph.shape_rules import (
    Outputs,
    dim,
    dtype_of,
    gemm,
    has_input,
    ints_of,
    like,
    matmul,
    outputs,
    shape_of,
    stated_size,
    with_last,
)
from pytest_modelperf.graph.structure import Node, Shape

_Dim = TypeVar("_Dim", int, "int | None")


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
        return self.batch * self.rows * self.columns


def product_of(a: Sequence[int], b: Sequence[int]) -> Product:
    """Return numpy's product of two shapes, with a vector as a row left and a column right."""
    left = tuple(a) if len(a) > 1 else (1, *a)
    right = tuple(b) if len(b) > 1 else (*b, 1)
    return Product(
        batch=prod(broadcast(left[:-2], right[:-2])),
        rows=left[-2],
        inner=left[-1],
        columns=right[-1],
    )


def broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that two shapes broadcast to: aligned at the right, 1 is stretched."""
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
    """Count a product of input 0 and the input at `weight`, and operations on its elements."""
    # Attributes may transpose the operands. Integers may have zero points.
    product = product_of(
        _turned(node, node.input(0).dims, "A"), _turned(node, node.input(weight).dims, "B")
    )
    return Cost(
        (Contraction(product.macs, (0, weight)),),
        zero_point_ops(node, 0, zero_points[0])
        + zero_point_ops(node, weight, zero_points[1])
        + bias_ops(node, bias, product.elements)
        + product.elements * per_element,
    )


def count_gemm(node: Node, *, beta: float = 1.0, per_element: int = 0) -> Cost:
    """Count activation(alpha * A' * B' + beta * C), with optional C and a default for `beta`."""
    per_element += activation_ops(node.attr_str("activation", "")) + scale_ops(node, "alpha")
    if has_input(node, 2) and node.attr_float("beta", beta) != 0:
        per_element += ADD + scale_ops(node, "beta")
    return count_matmul(node, per_element=per_element)


def count_gemm_float8(node: Node) -> Cost:
    """Count a Gemm whose `beta` is 0 by default, and whose result is scaled if scales are given."""
    is_scaled = any(has_input(node, index) for index in (3, 4, 5))
    return count_gemm(node, beta=0.0, per_element=MUL if is_scaled else 0)


def count_dynamic_quantize_matmul(node: Node) -> Cost:
    """Count a float operand, quantized by its own range, times a quantized weight."""
    product = count_matmul(node, zero_points=(None, 3), bias=4, per_element=MUL)
    return product.plus(node.input(0).size * DYNAMIC_QUANTIZE)


def count_qgemm(node: Node) -> Cost:
    """Count a Gemm of integers, its result rescaled, or turned into floats if it has no scale."""
    rescale = REQUANTIZE if has_input(node, 7) else MUL
    return count_matmul(node, weight=3, zero_points=(2, 5), bias=6, per_element=rescale)


def count_qordered_matmul(node: Node) -> Cost:
    """Count Y = alpha * A * B + bias + beta * C of 8-bit matrices without zero points."""
    per_element = REQUANTIZE - ADD
    if has_input(node, 5):
        per_element += ADD
    if has_input(node, 6):
        per_element += ADD + MUL
    return count_matmul(node, weight=2, per_element=per_element)


def count_matmul_nbits(node: Node) -> Cost:
    """Count a product with a compressed weight of `N` columns, which is decoded in every run."""
    # An empty weight means that the projection is left out, so that only the bias remains.
    weight, columns = node.optional_input(1), node.attr_int("N", 0)
    if weight is not None and weight.shape is not None and 0 in weight.shape:
        return Cost((), bias_ops(node, 5, rows_in(node.input(0)) * columns))
    return _weight_only(node, columns, bias=5)


def count_matmul_nbits_qlora(node: Node) -> Cost:
    """Count products with a compressed weight, and with the two of an adapter."""
    # If the second of these is empty, there is no adapter. If the first is empty, its product is
    # zero.
    columns = node.attr_int("N", 0)
    base = _weight_only(node, columns)
    down, up = node.input(3), node.input(5)
    if 0 in up.dims:
        return base
    x, rank = node.input(0), node.input(4).dims[0]
    rows, inner = rows_in(x), x.dims[-1]
    adapter = [Contraction(rows * rank * columns, (None, 5))]
    decoded = rank * columns
    if 0 not in down.dims:
        adapter.insert(0, Contraction(rows * inner * rank, (0, 3)))
        decoded += inner * rank
    return base + Cost(tuple(adapter), decoded * DEQUANTIZE_WEIGHT + rows * columns * ADD)


def count_matmul_packed(node: Node) -> Cost:
    """Count a product with a weight in a packed format, which may be scaled and activated."""
    columns = node.attr_int("N", 0)
    cost = _weight_only(node, columns, decode=decode_packed(node, "packed_type"))
    activation = node.attr_str("activation_type", "none")
    per_result = activation_ops("relu2" if activation == "relu_squared" else activation)
    if has_input(node, 2):
        per_result += MUL
    return cost.plus(rows_in(node.input(0)) * columns * per_result)


def count_matmul_bnb4(node: Node) -> Cost:
    """Count a product with a 4-bit weight [N, K], which is transposed unless `transB` is 0."""
    return _weight_only(node, node.attr_int("N" if node.attr_int("transB", 1) else "K", 0))


def count_matmul_fpq4(node: Node) -> Cost:
    """Count a product with a packed blob, whose shape [inner, columns] is the value of input 2."""
    shape = node.input(2).value
    columns = node.output().dims[-1] if shape is None else int(shape.reshape(-1)[-1])
    return _weight_only(node, columns)


def count_block_quantized(node: Node, *, bias: int, input_scale: int | None = None) -> Cost:
    """Count a product with a float4 or float8 weight. A scale of the input quantizes A, too."""
    cost = _weight_only(node, node.input(1).dims[0], bias=bias)
    if not has_input(node, input_scale):
        return cost
    return cost.plus(node.input(0).size * (QUANTIZE - ADD + MUL))


def count_matmul_nbits_mlp(node: Node) -> Cost:
    """Count activation(A' * gate) * (A' * up), where A' is A after an optional sum and RMS norm."""
    columns = node.attr_int("N", 0)
    elements = rows_in(node.input(0)) * columns
    activated = activation_ops(node.attr_str("activation", "")) + MUL
    return _normed_products(node, (columns, columns)).plus(elements * activated)


def count_matmul_nbits_qkv(node: Node) -> Cost:
    """Count three products with compressed weights after an optional addition and RMS norm of A."""
    key_value = node.attr_int("Nkv", 0)
    return _normed_products(node, (node.attr_int("Nq", 0), key_value, key_value))


def count_cdist(node: Node) -> Cost:
    """Count distances between the rows of two matrices by |a|^2 - 2ab + |b|^2."""
    (rows, width), columns = node.input(0).dims, node.input(1).dims[0]
    per_pair = MUL + 2 * ADD + CMP
    if node.attr_str("metric", "sqeuclidean") == "euclidean":
        per_pair += SQRT
    norms = (rows + columns) * width * (MUL + ADD)
    return Cost((Contraction(rows * columns * width, (0, 1)),), norms + rows * columns * per_pair)


def count_einsum(node: Node) -> Cost:
    """Count products of operands taken pairwise from left to right, as the equation names them."""
    # Rule for one pair: the product of the sizes of all distinct indexes of both, whether an index
    # is in one operand, in both or in the result, as in the loops that define an Einstein sum.
    # After each pair, indexes that neither the result nor a later operand has are summed. A pair
    # without a sum is not a contraction but a MUL per element. A single operand takes an ADD per
    # element if it sums, or a MOV per element of the result if it only picks or transposes.
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
    # The axes of an ellipsis are numbered from the right. The result has no given rank, so its
    # ellipsis means all indexes of the operands' ellipses.
    before, dots, after = term.partition("...")
    if not dots:
        return tuple(term)
    if rank is None:
        hidden = tuple(label for label in known or () if label.startswith("."))
    else:
        hidden = tuple(f".{i}" for i in range(rank - len(before) - len(after), 0, -1))
    return (*before, *hidden, *after)


def _implicit_output(terms: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the output without an arrow: the ellipsis, and every index that appears once."""
    labels = [label for term in terms for label in term]
    return tuple(x for x in dict.fromkeys(labels) if x.startswith(".") or labels.count(x) == 1)


def _turned(node: Node, dims: tuple[_Dim, ...], side: str) -> tuple[_Dim, ...]:
    """Return the shape of operand A or B as it is multiplied."""
    # `transBatch` moves the first dimension after those of the batch. `trans` then transposes the
    # matrix, but not a vector.
    if node.attr_int(f"transBatch{side}", 0) and len(dims) > 2:
        dims = dims[1:-1] + dims[:1] + dims[-1:]
    if node.attr_int(f"trans{side}", 0) and len(dims) > 1:
        dims = dims[:-2] + dims[-1:] + dims[-2:-1]
    return dims


def decode_packed(node: Node, kind: str) -> int:
    """Return the operations that decode one weight of the packed format in an attribute."""
    return 0 if node.attr_int(kind, -1) in UNPACKED_FORMATS else DEQUANTIZE_WEIGHT


def _weight_only(
    node: Node, columns: int, *, bias: int | None = None, decode: int = DEQUANTIZE_WEIGHT
) -> Cost:
    a = node.input(0)
    rows, inner = rows_in(a), a.dims[-1]
    return Cost(
        (Contraction(rows * inner * columns, (0, 1)),),
        inner * columns * decode + bias_ops(node, bias, rows * columns),
    )


def _normed_products(node: Node, widths: Sequence[int]) -> Cost:
    a = node.input(0)
    rows, inner = rows_in(a), a.dims[-1]
    weights = tuple(zip(range(3, 12, 3), widths, strict=False))
    norm = rms_norm_ops(rows, inner) if has_input(node, 2) else 0
    return Cost(
        tuple(Contraction(a.size * width, (0, index)) for index, width in weights),
        norm
        + bias_ops(node, 1, rows * inner)
        + inner * sum(widths) * DEQUANTIZE_WEIGHT
        + sum(bias_ops(node, index + 2, rows * width) for index, width in weights),
    )


def shape_matmul(node: Node, right: int = 1, dtype: int = 0) -> Outputs:
    a, b = shape_of(node, 0), shape_of(node, right)
    turned = None if a is None or b is None else (_turned(node, a, "A"), _turned(node, b, "B"))
    return outputs(dtype_of(node, dtype), None if turned is None else matmul(*turned))


def _gemm_shape(node: Node, right: int) -> Shape:
    return gemm(
        shape_of(node, 0),
        shape_of(node, right),
        transpose_left=node.attr_int("transA", 0) != 0,
        transpose_right=node.attr_int("transB", 0) != 0,
    )


def shape_fused_gemm(node: Node) -> Outputs:
    return outputs(dtype_of(node, 0), _gemm_shape(node, 1))


def shape_qgemm(node: Node) -> Outputs:
    """Return the output, which is quantized if it has a scale, else float32."""
    dtype = dtype_of(node, 8) if has_input(node, 8) else "float32"
    return outputs(dtype, _gemm_shape(node, 3))


def shape_gemm_float8(node: Node) -> Outputs:
    return outputs(named_dtype(node, "dtype", 1), _gemm_shape(node, 1))


def shape_matmul_integer16(node: Node) -> Outputs:
    unsigned = dtype_of(node, 0) == dtype_of(node, 1) == "uint16"
    shape = matmul(shape_of(node, 0), shape_of(node, 1))
    return outputs("uint32" if unsigned else "int32", shape)


def shape_by_columns(node: Node, columns: str = "N") -> Outputs:
    """Return a product with packed weights, whose number of columns is an attribute."""
    return outputs(dtype_of(node, 0), with_last(shape_of(node, 0), stated_size(node, columns)))


def shape_matmul_bnb4(node: Node) -> Outputs:
    return shape_by_columns(node, "N" if node.attr_int("transB", 1) else "K")


def shape_matmul_fp_q4(node: Node) -> Outputs:
    """Return a product with a blob of weights, whose shape is an input."""
    shape = matmul(shape_of(node, 0), ints_of(node, 2) or (None, None))
    return outputs(dtype_of(node, 0), shape)


def shape_by_weight_rows(node: Node) -> Outputs:
    """Return a product with weights stored as (N, K)."""
    return outputs(dtype_of(node, 0), with_last(shape_of(node, 0), dim(shape_of(node, 1), 0)))


def shape_matmul_nbits_mlp(node: Node) -> Outputs:
    return (*shape_by_columns(node), *like(0)(node))


def shape_matmul_nbits_qkv(node: Node) -> Outputs:
    rows, dtype = shape_of(node, 0), dtype_of(node, 0)
    widths = (stated_size(node, name) for name in ("Nq", "Nkv", "Nkv"))
    return outputs(dtype, *(with_last(rows, width) for width in widths), rows)


def shape_cdist(node: Node) -> Outputs:
    return outputs(dtype_of(node, 0), (dim(shape_of(node, 0), 0), dim(shape_of(node, 1), 0)))


OPERATORS: Mapping[str, Operator] = {
    **dict.fromkeys(
        (
            "com.microsoft::FusedMatMul", "com.microsoft::FusedMatMulActivation",
            "com.microsoft::TransposeMatMul",
        ),
        Operator(count_gemm, shape_matmul),
    ),
    "Einsum": Operator(count_einsum),
    "Gemm": Operator(count_gemm),
    "MatMul": Operator(count_matmul),
    "MatMulInteger": Operator(partial(count_matmul, zero_points=(2, 3))),
    "QLinearMatMul": Operator(
        partial(count_matmul, weight=3, zero_points=(2, 5), per_element=REQUANTIZE),
    ),
    "com.microsoft::CDist": Operator(count_cdist, shape_cdist),
    "com.microsoft::DynamicQuantizeMatMul": Operator(count_dynamic_quantize_matmul, shape_matmul),
    "com.microsoft::FusedGemm": Operator(count_gemm, shape_fused_gemm),
    "com.microsoft::GemmFastGelu": Operator(
        partial(count_matmul, bias=2, per_element=activation_ops("FastGelu")), shape_matmul,
    ),
    "com.microsoft::GemmFloat8": Operator(count_gemm_float8, shape_gemm_float8),
    "com.microsoft::MatMulBlockQuantizedFp4Weight": Operator(
        partial(count_block_quantized, bias=5), shape_by_weight_rows,
    ),
    "com.microsoft::MatMulBlockQuantizedFp8Weight": Operator(
        partial(count_block_quantized, bias=4, input_scale=3), shape_by_weight_rows,
    ),
    "com.microsoft::MatMulBnb4": Operator(count_matmul_bnb4, shape_matmul_bnb4),
    "com.microsoft::MatMulFpQ4": Operator(count_matmul_fpq4, shape_matmul_fp_q4),
    "com.microsoft::MatMulInteger16": Operator(count_matmul, shape_matmul_integer16),
    # The two scales become one factor.
    "com.microsoft::MatMulIntegerToFloat": Operator(
        partial(count_matmul, zero_points=(4, 5), bias=6, per_element=MUL),
        partial(shape_matmul, dtype=2),
    ),
    "com.microsoft::MatMulNBits": Operator(count_matmul_nbits, shape_by_columns),
    "com.microsoft::MatMulNBitsMlp": Operator(count_matmul_nbits_mlp, shape_matmul_nbits_mlp),
    "com.microsoft::MatMulNBitsQLoRA": Operator(count_matmul_nbits_qlora, shape_by_columns),
    "com.microsoft::MatMulNBitsQkv": Operator(count_matmul_nbits_qkv, shape_matmul_nbits_qkv),
    "com.microsoft::MatMulPacked": Operator(count_matmul_packed, shape_by_columns),
    "com.microsoft::QGemm": Operator(count_qgemm, shape_qgemm),
    "com.microsoft::QOrderedMatMul": Operator(
        count_qordered_matmul, partial(shape_matmul, right=2),
    ),
    "com.microsoft::SparseToDenseMatMul": Operator(count_gemm, partial(shape_matmul, dtype=1)),
}  # fmt: skip
