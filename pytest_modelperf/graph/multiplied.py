"""Which operands of an operator are multiplied and summed: the weights of a model.

Operands that are only added, looked up or used as scales do not count: biases, norms, tables that a
Gather reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pytest_modelperf.graph.structure import Node

_BOTH, _SECOND = (0, 1), (1,)

MULTIPLIED: Mapping[str, tuple[int, ...]] = {
    "CausalConvWithState": _BOTH,
    "Conv": _BOTH,
    "ConvTranspose": _BOTH,
    "DeformConv": _BOTH,
    "GRU": (1, 2),
    "Gemm": _BOTH,
    "LSTM": (1, 2),
    "MatMul": _BOTH,
    "RNN": (1, 2),
    "com.microsoft::Attention": _SECOND,
    "com.microsoft::AttnLSTM": (1, 2, 8, 9, 10, 13),
    "com.microsoft::CausalConvWithState": _BOTH,
    "com.microsoft::ConvTransposeWithDynamicPads": _BOTH,
    "com.microsoft::DecoderAttention": (2, 3),
    "com.microsoft::DecoderMaskedSelfAttention": _SECOND,
    "com.microsoft::FusedConv": _BOTH,
    "com.microsoft::FusedGemm": _BOTH,
    "com.microsoft::FusedMatMul": _BOTH,
    "com.microsoft::FusedMatMulActivation": _BOTH,
    "com.microsoft::GatedAdd": (3,),
    "com.microsoft::GatedRelativePositionBias": (3,),
    "com.microsoft::GemmFastGelu": _BOTH,
    "com.microsoft::HyperConnectionLowRankMix": (2, 3, 4),
    "com.microsoft::LongformerAttention": (1, 4),
    "com.microsoft::MoE": (2, 4, 6),
    "com.microsoft::MoEGroupRouter": (2,),
    "com.microsoft::NhwcConv": _BOTH,
    "com.microsoft::NhwcFusedConv": _BOTH,
    "com.microsoft::PackedAttention": _SECOND,
    "com.microsoft::RouterGateUpProj": _BOTH,
    "com.microsoft::SparseToDenseMatMul": _BOTH,
    "com.microsoft::TransposeMatMul": _BOTH,
    "com.microsoft::VarlenCausalConvWithState": _BOTH,
    "com.microsoft::WordConvEmbedding": _SECOND,
}

# The same for operators whose weights are integers or packed.
INTEGER: Mapping[str, tuple[int, ...]] = {
    "ConvInteger": _SECOND,
    "MatMulInteger": _BOTH,
    "QLinearConv": (3,),
    "QLinearMatMul": (0, 3),
    "com.microsoft::DynamicQuantizeLSTM": (1, 2),
    "com.microsoft::DynamicQuantizeMatMul": _SECOND,
    "com.microsoft::MatMulBlockQuantizedFp4Weight": _SECOND,
    "com.microsoft::MatMulBlockQuantizedFp8Weight": _SECOND,
    "com.microsoft::MatMulBnb4": _SECOND,
    "com.microsoft::MatMulFpQ4": _SECOND,
    "com.microsoft::MatMulInteger16": _BOTH,
    "com.microsoft::MatMulIntegerToFloat": _SECOND,
    "com.microsoft::MatMulNBits": _SECOND,
    "com.microsoft::MatMulNBitsMlp": (3, 6),
    "com.microsoft::MatMulNBitsQLoRA": (1, 3, 5),
    "com.microsoft::MatMulNBitsQkv": (3, 6, 9),
    "com.microsoft::MatMulPacked": _SECOND,
    "com.microsoft::MoEPacked": (2, 3, 4),
    "com.microsoft::QAttention": _SECOND,
    "com.microsoft::QGemm": (3,),
    "com.microsoft::QLinearConv": (3,),
    "com.microsoft::QMoE": (2, 5, 8),
    "com.microsoft::QOrderedMatMul": (2,),
}


def multiplied_operands(op: str, inputs: int) -> tuple[int, ...]:
    """The indexes of the inputs that the operator `op` multiplies, if it has this many inputs."""
    if op == "Einsum":
        return tuple(range(inputs)) if inputs > 1 else ()
    operands = MULTIPLIED.get(op) or INTEGER.get(op, ())
    return tuple(index for index in operands if index < inputs)


def fan_in(node: Node, index: int, shape: tuple[int, ...]) -> int:
    """The number of products that one element of the result sums, for a weight of this shape."""
    if len(shape) < 2:
        return prod(shape)
    op = node.op_type
    if op == "ConvTranspose":
        # Each input element meets the whole kernel, but with a stride only a part in one output.
        return max(1, shape[0] // node.attr_int("group", 1))
    if "Conv" in op:
        return prod(shape[1:])
    if op in ("LSTM", "GRU", "RNN", "AttnLSTM"):
        return shape[-1]
    is_left = index == 0
    is_turned = node.attr_int("transA" if is_left else "transB", 0) != 0
    return shape[-1] if is_left != is_turned else shape[-2]
