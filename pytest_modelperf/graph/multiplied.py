"""Which operands of an operator are multiplied and summed, and whether these are integers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.graph.model_file import MAX_PROTO_BYTES, external_tensors, open_model
from pytest_modelperf.graph.stored_tensors import with_bodies
from pytest_modelperf.graph.structure import Node

MULTIPLIED: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "CausalConvWithState", "Conv", "ConvTranspose", "DeformConv", "Gemm", "MatMul",
            "com.microsoft::CausalConvWithState", "com.microsoft::ConvTransposeWithDynamicPads",
            "com.microsoft::FusedConv", "com.microsoft::FusedGemm", "com.microsoft::FusedMatMul",
            "com.microsoft::FusedMatMulActivation", "com.microsoft::GemmFastGelu",
            "com.microsoft::NhwcConv", "com.microsoft::NhwcFusedConv",
            "com.microsoft::RouterGateUpProj", "com.microsoft::SparseToDenseMatMul",
            "com.microsoft::TransposeMatMul", "com.microsoft::VarlenCausalConvWithState",
        ),
        (0, 1),
    ),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), (1, 2)),
    **dict.fromkeys(
        (
            "com.microsoft::Attention", "com.microsoft::DecoderMaskedSelfAttention",
            "com.microsoft::PackedAttention", "com.microsoft::WordConvEmbedding",
        ),
        (1,),
    ),
    "com.microsoft::AttnLSTM": (1, 2, 8, 9, 10, 13),
    "com.microsoft::DecoderAttention": (2, 3),
    "com.microsoft::GatedAdd": (3,),
    "com.microsoft::GatedRelativePositionBias": (3,),
    "com.microsoft::HyperConnectionLowRankMix": (2, 3, 4),
    "com.microsoft::LongformerAttention": (1, 4),
    "com.microsoft::MoE": (2, 4, 6),
    "com.microsoft::MoEGroupRouter": (2,),
}  # fmt: skip

# The same for operators with integer or packed weights.
INTEGER: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "ConvInteger", "com.microsoft::DynamicQuantizeMatMul",
            "com.microsoft::MatMulBlockQuantizedFp4Weight",
            "com.microsoft::MatMulBlockQuantizedFp8Weight", "com.microsoft::MatMulBnb4",
            "com.microsoft::MatMulFpQ4", "com.microsoft::MatMulIntegerToFloat",
            "com.microsoft::MatMulNBits", "com.microsoft::MatMulPacked",
            "com.microsoft::QAttention",
        ),
        (1,),
    ),
    **dict.fromkeys(("QLinearConv", "com.microsoft::QGemm", "com.microsoft::QLinearConv"), (3,)),
    "MatMulInteger": (0, 1),
    "QLinearMatMul": (0, 3),
    "com.microsoft::DynamicQuantizeLSTM": (1, 2),
    "com.microsoft::MatMulInteger16": (0, 1),
    "com.microsoft::MatMulNBitsMlp": (3, 6),
    "com.microsoft::MatMulNBitsQLoRA": (1, 3, 5),
    "com.microsoft::MatMulNBitsQkv": (3, 6, 9),
    "com.microsoft::MoEPacked": (2, 3, 4),
    "com.microsoft::QMoE": (2, 5, 8),
    "com.microsoft::QOrderedMatMul": (2,),
}  # fmt: skip


def multiplied_operands(op: str, inputs: int) -> tuple[int, ...]:
    """Return the indexes of the inputs that the operator `op` multiplies, if it has `inputs`."""
    if op == "Einsum":
        return tuple(range(inputs)) if inputs > 1 else ()
    operands = MULTIPLIED.get(op) or INTEGER.get(op, ())
    return tuple(index for index in operands if index < inputs)


def fan_in(node: Node, index: int, shape: tuple[int, ...]) -> int:
    """Return how many products one element of the result sums, for a weight of this shape."""
    if len(shape) < 2:
        return prod(shape)
    op = node.op_type
    if op == "ConvTranspose":
        # Each input element meets the whole kernel, but with a stride, an output element sums only
        # a part of it.
        return max(1, shape[0] // node.attr_int("group", 1))
    if "Conv" in op:
        return prod(shape[1:])
    if op in ("LSTM", "GRU", "RNN", "AttnLSTM"):
        return shape[-1]
    is_left = index == 0
    is_turned = node.attr_int("transA" if is_left else "transB", 0) != 0
    return shape[-1] if is_left != is_turned else shape[-2]


# -- whether the nodes of a model multiply floats or integers


_STANDARD = ("", "ai.onnx")


class ProductCounts(Struct, frozen=True):
    """The number of nodes that multiply integers, and of each type that multiply floats.

    A node multiplies integers if its weights are integers, or if its factors come from
    DequantizeLinear: an engine fuses both into one kernel. `is_large`: the model should not be
    copied into one file.
    """

    opset: int
    of_integers: int
    of_floats: Mapping[str, int]
    is_large: bool


def read_products(path: Path) -> ProductCounts:
    """Count the nodes that multiply in the model at `path`, including bodies and functions."""
    file = open_model(path)
    proto = file.proto
    floats: Counter[str] = Counter()
    integers = 0
    for scope in (proto.graph.node, *(function.node for function in proto.functions)):
        nodes = list(with_bodies(scope))
        producers = {name: node.op_type for node in nodes for name in node.output}
        for node in nodes:
            op = node.op_type if node.domain in _STANDARD else f"{node.domain}::{node.op_type}"
            operands = multiplied_operands(op, len(node.input))
            if op in INTEGER or (
                operands
                and all(
                    producers.get(node.input[i]) == "DequantizeLinear"
                    for i in operands
                    if node.input[i]
                )
            ):
                integers += 1
            elif operands:
                floats[op] += 1
    has_external = next(external_tensors(proto), None) is not None
    return ProductCounts(
        opset=max((e.version for e in proto.opset_import if e.domain in _STANDARD), default=0),
        of_integers=integers,
        of_floats=dict(floats.most_common()),
        is_large=has_external or file.size_bytes > MAX_PROTO_BYTES // 2,
    )
