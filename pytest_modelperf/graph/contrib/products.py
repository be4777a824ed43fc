"""Output shapes of ONNX Runtime's own matrix products, embeddings and recurrences."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.model_file import dtype_name
from pytest_modelperf.graph.shape_arithmetic import (
    dim,
    gemm,
    matmul,
    product,
    quotient,
    total,
    transpose_matrix,
    with_last,
)
from pytest_modelperf.graph.shape_rule import (
    OutputType,
    ShapeRule,
    dtype_of,
    has_input,
    ints_of,
    like,
    one,
    shape_of,
    stated_size,
)
from pytest_modelperf.graph.structure import Node, Shape


def _matrix_of(node: Node, index: int, side: str) -> Shape | None:
    """An operand of FusedMatMul as it is after its transpositions.

    `transBatch` moves the first dimension behind the batch ones, before `trans` swaps the last two.
    """
    shape = shape_of(node, index)
    if shape is None or len(shape) < 2:
        return shape
    if node.attr_int(f"transBatch{side}", 0):
        shape = (*shape[1:-1], shape[0], shape[-1])
    return transpose_matrix(shape) if node.attr_int(f"trans{side}", 0) else shape


def _matmul(right: int = 1, dtype: int = 0) -> ShapeRule:
    def rule(node: Node) -> tuple[OutputType]:
        shape = matmul(_matrix_of(node, 0, "A"), _matrix_of(node, right, "B"))
        return one(dtype_of(node, dtype), shape)

    return rule


def _gemm_shape(node: Node, right: int) -> Shape:
    return gemm(
        shape_of(node, 0),
        shape_of(node, right),
        transpose_left=node.attr_int("transA", 0) != 0,
        transpose_right=node.attr_int("transB", 0) != 0,
    )


def _fused_gemm(node: Node) -> tuple[OutputType]:
    return one(dtype_of(node, 0), _gemm_shape(node, 1))


def _qgemm(node: Node) -> tuple[OutputType]:
    """The output is quantized if it has a scale, else float32."""
    dtype = dtype_of(node, 8) if has_input(node, 8) else "float32"
    return one(dtype, _gemm_shape(node, 3))


def _gemm_float8(node: Node) -> tuple[OutputType]:
    return one(dtype_name(node.attr_int("dtype", 1)), _gemm_shape(node, 1))


def _matmul_integer16(node: Node) -> tuple[OutputType]:
    unsigned = dtype_of(node, 0) == dtype_of(node, 1) == "uint16"
    shape = matmul(shape_of(node, 0), shape_of(node, 1))
    return one("uint32" if unsigned else "int32", shape)


def _by_stated_columns(node: Node) -> tuple[OutputType]:
    """A product with packed weights; the attribute N is their number of columns."""
    return one(dtype_of(node, 0), with_last(shape_of(node, 0), stated_size(node, "N")))


def _matmul_bnb4(node: Node) -> tuple[OutputType]:
    columns = stated_size(node, "N" if node.attr_int("transB", 1) else "K")
    return one(dtype_of(node, 0), with_last(shape_of(node, 0), columns))


def _matmul_fp_q4(node: Node) -> tuple[OutputType]:
    """A product with a blob of weights, whose shape is an input."""
    shape = matmul(shape_of(node, 0), ints_of(node, 2) or (None, None))
    return one(dtype_of(node, 0), shape)


def _by_rows_of_weights(node: Node) -> tuple[OutputType]:
    """A product with weights stored as (N, K)."""
    return one(dtype_of(node, 0), with_last(shape_of(node, 0), dim(shape_of(node, 1), 0)))


def _matmul_nbits_mlp(node: Node) -> tuple[OutputType, ...]:
    return (*_by_stated_columns(node), *like(0)(node))


def _matmul_nbits_qkv(node: Node) -> tuple[OutputType, ...]:
    widths = (stated_size(node, name) for name in ("Nq", "Nkv", "Nkv"))
    rows, dtype = shape_of(node, 0), dtype_of(node, 0)
    return (*(OutputType(dtype, with_last(rows, width)) for width in widths), *like(0)(node))


def _router_gate_up(node: Node) -> tuple[OutputType, ...]:
    """One product, split into a router's logits and an activated pair of equal halves."""
    rows, dtype = shape_of(node, 0), dtype_of(node, 0)
    logits = stated_size(node, "router_size")
    both = total(dim(shape_of(node, 1), 1), product(-1, logits))
    return (
        OutputType(dtype, with_last(rows, logits)),
        OutputType(dtype, with_last(rows, quotient(both, 2))),
    )


def _lstm(hidden_axis: int) -> ShapeRule:
    """ONNX's LSTM: Y, Y_h and Y_c; without a hidden_size, the recurrent weights give it."""

    def rule(node: Node) -> tuple[OutputType, ...]:
        length, batch = dim(shape_of(node, 0), 0), dim(shape_of(node, 0), 1)
        hidden = node.attr_int("hidden_size", 0) or dim(shape_of(node, 2), hidden_axis)
        directions = 2 if node.attr_str("direction", "forward") == "bidirectional" else 1
        dtype = dtype_of(node, 0)
        last = OutputType(dtype, (directions, batch, hidden))
        return OutputType(dtype, (length, directions, batch, hidden)), last, last

    return rule


def _word_conv_embedding(node: Node) -> tuple[OutputType]:
    """One vector for each word, the words being rows of characters."""
    size = node.attr_int("embedding_size", 0) or dim(shape_of(node, 1), 0)
    return one(dtype_of(node, 1), (dim(shape_of(node, 0), 0), size))


PRODUCT_RULES: Mapping[str, ShapeRule] = {
    "FusedMatMul": _matmul(),
    "FusedMatMulActivation": _matmul(),
    "TransposeMatMul": _matmul(),
    "SparseToDenseMatMul": _matmul(dtype=1),
    "MatMulIntegerToFloat": _matmul(dtype=2),
    "DynamicQuantizeMatMul": _matmul(),
    "QOrderedMatMul": _matmul(right=2),
    "GemmFastGelu": _matmul(),
    "MatMulInteger16": _matmul_integer16,
    "FusedGemm": _fused_gemm,
    "QGemm": _qgemm,
    "GemmFloat8": _gemm_float8,
    "MatMulNBits": _by_stated_columns,
    "MatMulNBitsQLoRA": _by_stated_columns,
    "MatMulNBitsMlp": _matmul_nbits_mlp,
    "MatMulNBitsQkv": _matmul_nbits_qkv,
    "MatMulPacked": _by_stated_columns,
    "RouterGateUpProj": _router_gate_up,
    "MatMulBnb4": _matmul_bnb4,
    "MatMulFpQ4": _matmul_fp_q4,
    "MatMulBlockQuantizedFp4Weight": _by_rows_of_weights,
    "MatMulBlockQuantizedFp8Weight": _by_rows_of_weights,
    "DynamicQuantizeLSTM": _lstm(hidden_axis=1),
    "AttnLSTM": _lstm(hidden_axis=2),
    "WordConvEmbedding": _word_conv_embedding,
}
