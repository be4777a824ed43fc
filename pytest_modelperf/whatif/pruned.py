"""Write a model with a share of each weight set to zero, and find operands of multiplications.

Only float weights that contractions multiply are pruned, not biases, norms or lookup tables.
Existing zeros count. A weight that a ConstantOfShape generates has no magnitudes, so it is stored
with seeded random numbers.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from onnx import GraphProto, ModelProto, TensorProto

from pytest_modelperf.errors import ModelError, UsageError
from pytest_modelperf.graph.copies import as_it_runs
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.model_file import (
    DATA_TYPES,
    MAX_PROTO_BYTES,
    external_tensors,
    is_external,
    open_model,
)
from pytest_modelperf.graph.replaced import Replacement, write_replaced
from pytest_modelperf.graph.stored_tensors import (
    StorageKind,
    bodies_of,
    body_path,
    dense_weights,
    remove_named,
    used_names,
    with_bodies,
)
from pytest_modelperf.graph.stored_weights import read_codes, stored_number
from pytest_modelperf.graph.structure import Node, Tensor, Weight
from pytest_modelperf.graph.weights.drawing import Drawer
from pytest_modelperf.graph.weights.notes import Statistics
from pytest_modelperf.graph.weights.numbers import Codes, NumberType
from pytest_modelperf.text.escaping import printable

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
    """Return the number of products in one element of the result, for a weight of this shape."""
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
    DequantizeLinear: an engine fuses both into one kernel. `is_large` means that the model should
    not be copied into one file.
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


_Read: TypeAlias = Callable[[], Iterator[Codes]]
_Make: TypeAlias = Callable[[], Iterator[bytes]]

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
# The node that generates weights without values.
_FILLER = "ConstantOfShape"
# The largest generated number, in standard deviations, so that no outlier decides a range.
_WIDEST = 4.0
# Before this version, all weights had to be inputs, too.
_FIRST_IR_WITHOUT_WEIGHT_INPUTS = 4
# The most operators, or weights, in a message.
_NAMED = 6


class UnprunedWeight(Struct, frozen=True):
    """A multiplied weight that was not pruned, and why."""

    weight: str
    reason: str


class Pruned(Struct, frozen=True):
    """The numbers of pruned weights, elements and zeros. `generated` ones were not stored."""

    weights: int
    elements: int
    zeros: int
    generated: int
    skipped: tuple[UnprunedWeight, ...] = ()


def write_pruned(
    bound: BoundModel,
    path: Path,
    share: float,
    seed: int = 0,
    *,
    max_file_bytes: int = MAX_PROTO_BYTES,
) -> Pruned:
    """Write the model with this share of every prunable weight set to zero.

    A share of 0 sets nothing to zero, but stores generated weights. Weights in external data are
    put into the file or, if it would be too large, into a separate file.
    """
    if not 0 <= share < 1:
        raise UsageError(
            f"a share of {share:g} of the weights cannot be set to zero: give a number from 0 to "
            "1, and less than 1, such as 0.9."
        )
    prunable, spared = _find(bound)
    if not prunable:
        raise ModelError(
            f"{bound.file.name} has no weight that can be pruned: {_why(bound, spared)}."
        )
    writer = _Writer(bound, prunable, Drawer(seed), share)
    generated = writer.write(path, max_file_bytes)
    return Pruned(
        weights=len(prunable),
        elements=sum(each.weight.size for each in prunable.values()),
        zeros=writer.zeros,
        generated=generated,
        skipped=spared,
    )


def write_stored(bound: BoundModel, path: Path, seed: int = 0) -> int:
    """Store all multiplied weights as `write_pruned` does, and return how many were generated."""
    prunable, _ = _find(bound)
    return _Writer(bound, prunable, Drawer(seed)).write(path)


class _Prunable(Struct, frozen=True):
    weight: Weight
    fan_in: int


def _find(bound: BoundModel) -> tuple[Mapping[str, _Prunable], tuple[UnprunedWeight, ...]]:
    """Return the multiplied weights that can be pruned, and those that cannot."""
    prunable: dict[str, _Prunable] = {}
    spared: dict[str, UnprunedWeight] = {}
    stored = {each.path + each.name for each in dense_weights(bound.proto.graph)}
    for node in bound.graph.walk():
        for index in multiplied_operands(node.qualified_op, len(node.inputs)):
            tensor = node.optional_input(index)
            if tensor is None or not tensor.weights:
                continue
            # Take the largest one, because others scale or shift it.
            weight = max(
                (bound.graph.weights[name] for name in tensor.weights), key=lambda w: w.size
            )
            reason = _why_not(bound, tensor, weight, stored)
            if reason is not None:
                spared[weight.name] = UnprunedWeight(weight.name, reason)
            elif weight.name not in prunable:
                # The weight may be stored transposed.
                shape = tensor.dims if tensor.is_complete else weight.shape
                prunable[weight.name] = _Prunable(weight, fan_in(node, index, shape))
    return prunable, tuple(each for name, each in spared.items() if name not in prunable)


def _why_not(bound: BoundModel, tensor: Tensor, weight: Weight, stored: set[str]) -> str | None:
    alike = [n for n in tensor.weights if bound.graph.weights[n].size == weight.size]
    if weight.dtype not in _FLOATS:
        return f"it is stored as {weight.dtype}"
    if weight.nonzeros is not None:
        return "it is stored as a sparse tensor"
    if len(alike) > 1 or (tensor.is_complete and tensor.size != weight.size):
        return "the multiplied tensor is computed from it and has other elements"
    if weight.name not in bound.stored and weight.origin != _FILLER:
        return f"it is computed by a node of type {printable(weight.origin)}"
    if weight.name in bound.stored and weight.name not in stored:
        return "it is not stored as a tensor"
    return None


def _why(bound: BoundModel, spared: Sequence[UnprunedWeight]) -> str:
    if spared:
        shown = [f"{printable(each.weight)!r}: {each.reason}" for each in spared[:_NAMED]]
        return "; ".join(shown) + ("; ..." if len(spared) > _NAMED else "")
    counts = Counter(node.qualified_op for node in bound.graph.walk()).most_common()
    if not counts:
        return "none of its operators runs"
    named = ", ".join(f"{count} {printable(op)}" for op, count in counts[:_NAMED])
    rest = f" and {len(counts) - _NAMED} other types" if len(counts) > _NAMED else ""
    return f"none of its operators multiplies with one (it has {named}{rest})"


class _Writer(Struct):
    bound: BoundModel
    prunable: Mapping[str, _Prunable]
    drawer: Drawer
    share: float | None = None
    zeros: int = 0

    def write(self, path: Path, max_file_bytes: int = MAX_PROTO_BYTES) -> int:
        proto = as_it_runs(self.bound)
        generated = {n: p for n, p in self.prunable.items() if n not in self.bound.stored}
        _store_generated(proto, generated)
        replacements = [
            Replacement(each.tensor, make, is_initializer=each.kind is StorageKind.INITIALIZER)
            for each in dense_weights(proto.graph)
            if (make := self._make(each.path + each.name, each.tensor, generated)) is not None
        ]
        write_replaced(self.bound.file, proto, replacements, path, max_file_bytes=max_file_bytes)
        return len(generated)

    def _make(
        self, name: str, tensor: TensorProto, generated: Mapping[str, _Prunable]
    ) -> _Make | None:
        number = stored_number(tensor)
        is_pruned = self.share is not None and name in self.prunable
        if number is None or not (is_pruned or name in generated or is_external(tensor)):
            return None
        if name in generated:
            drawn = _distribution(generated[name])
            read = partial(self.drawer.draw_codes, drawn, number, tuple(tensor.dims), name)
        else:
            # Make a copy, because the replaced tensor loses the location of its elements.
            read = partial(read_codes, self.bound.file, deepcopy(tensor), number)
        return partial(self._elements, name, number, read, is_pruned=is_pruned)

    def _elements(
        self, name: str, number: NumberType, read: _Read, *, is_pruned: bool
    ) -> Iterator[bytes]:
        """Yield the packed elements of a tensor, all at once for a weight to prune."""
        pieces = read()
        if is_pruned:
            pieces = iter((self._prune(np.concatenate(list(pieces)), number, name),))
        for codes in pieces:
            yield number.pack(codes)

    def _prune(self, codes: Codes, number: NumberType, name: str) -> Codes:
        """Set the smallest magnitudes among the codes to zero, in place."""
        # Without the sign bit, the codes of floats have the order of their magnitudes.
        unsigned = codes.dtype.type((1 << (number.bits - 1)) - 1)
        magnitudes = codes & unsigned
        wanted = round((self.share or 0.0) * codes.size)
        present = codes.size - int(np.count_nonzero(magnitudes))
        self.zeros += max(wanted, present)
        if wanted <= present:
            return codes
        # Partition in place, then compute the magnitudes again: a weight may take half of the
        # memory.
        magnitudes.partition(wanted - 1)
        limit = magnitudes[wanted - 1]
        np.bitwise_and(codes, unsigned, out=magnitudes)
        below = magnitudes < limit
        ties = np.flatnonzero(magnitudes == limit)
        random = np.random.RandomState([self.drawer.seed & 0xFFFFFFFF, zlib.crc32(name.encode())])
        codes[below] = 0
        codes[random.permutation(ties)[: wanted - int(np.count_nonzero(below))]] = 0
        return codes


def _distribution(generated: _Prunable) -> Statistics:
    """Return a distribution that keeps the range of activations behind a ReLU."""
    # https://arxiv.org/abs/1502.01852, equation 10.
    deviation = math.sqrt(2 / max(1, generated.fan_in))
    return Statistics(0.0, deviation, -_WIDEST * deviation, _WIDEST * deviation)


def _store_generated(proto: ModelProto, generated: Mapping[str, _Prunable]) -> None:
    if proto.ir_version < _FIRST_IR_WITHOUT_WEIGHT_INPUTS:
        # The weights are no longer inputs. They stay constants.
        remove_named(proto.graph.input, {tensor.name for tensor in proto.graph.initializer})
        proto.ir_version = _FIRST_IR_WITHOUT_WEIGHT_INPUTS
    shapes = _store_in(proto.graph, generated, "")
    remove_named(proto.graph.initializer, shapes - set(used_names(proto)))


def _store_in(graph: GraphProto, generated: Mapping[str, _Prunable], path: str) -> set[str]:
    """Replace the nodes of one graph and its bodies, and return the inputs of the removed nodes."""
    taken: set[str] = set()
    gone: set[str] = set()
    for index in reversed(range(len(graph.node))):
        node = graph.node[index]
        for attribute in node.attribute:
            for body in bodies_of(attribute):
                taken |= _store_in(body, generated, body_path(path, node, attribute))
        name = next(iter(node.output), "")
        each = generated.get(path + name)
        if each is not None:
            data_type = DATA_TYPES[each.weight.dtype]
            graph.initializer.add(name=name, data_type=data_type, dims=each.weight.shape)
            gone.add(name)
            taken.update(node.input)
            del graph.node[index]
    remove_named(graph.value_info, gone)
    return taken
