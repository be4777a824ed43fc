"""The identity of a weight in a digest: its type, its shape, and values that affect the time.

So a retrained model keeps its digests, although its weights have other values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from math import prod

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from onnx import NodeProto, TensorProto

from pytest_modelperf.graph.model_file import dtype_name, packed_bytes
from pytest_modelperf.graph.wire import KEEP_INTEGER_BYTES

# Operators of plain arithmetic: the value of a single factor or term does not change their time.
_ARITHMETIC = frozenset({"Add", "Div", "Mul", "Sub"})
# The names of operators on quantized numbers begin with one of these.
_QUANTIZED = ("QLinear", "QGemm", "QAttention", "QEmbed", "QMoE", "QOrdered")
_DIGEST_BYTES = 16
# Factors and terms within these powers of ten do not lead to subnormal numbers.
_USUAL_MAGNITUDE = 6


class Contents(Struct, frozen=True):
    """How to read the data of a tensor: as its values, or as a digest of its bytes."""

    values: Callable[[TensorProto], npt.NDArray[np.generic]]
    digest: Callable[[TensorProto], bytes]


def identify_setting(tensor: TensorProto, content: bytes) -> str:
    """Return the identity of a weight that decides how long the graph takes (see `ValueFlow`)."""
    return f"{tensor.data_type} {tuple(tensor.dims)} {content.hex()}"


def identify_weight(tensor: TensorProto, operators: AbstractSet[str], contents: Contents) -> str:
    """Return the identity of a weight that these operators read and that does not decide time."""
    # The scales and zero points of a quantized operator count only by whether they are zero:
    # retraining changes them, which never changes the time.
    shown = f"{tensor.data_type} {tuple(tensor.dims)}"
    is_of_quantized = bool(operators) and all(map(is_quantized, operators))
    is_plain = is_float(tensor) and bool(operators) and operators <= _ARITHMETIC
    is_single = prod(tensor.dims) == 1
    if is_of_quantized or is_plain:
        return f"{shown} {_number_class(tensor, contents)}" if is_single else shown
    is_known = is_single if is_float(tensor) else packed_bytes(tensor) <= KEEP_INTEGER_BYTES
    return f"{shown} {contents.digest(tensor).hex()}" if is_known else shown


def is_float(tensor: TensorProto) -> bool:
    name = dtype_name(tensor.data_type) or ""
    return name.startswith(("float", "bfloat", "complex"))


def is_quantized(operator: str) -> bool:
    return (
        operator.startswith(_QUANTIZED)
        or "quantize" in operator.lower()
        or "Integer" in operator
        or "NBits" in operator
    )


def _number_class(tensor: TensorProto, contents: Contents) -> str:
    """Return the class of a number. Numbers of one class take the same time."""
    # A float is `zero`, `subnormal`, `normal` or `no number`. A very small or large one has its
    # order of magnitude, because two such factors turn normal numbers into subnormal ones. An
    # integer other than zero is `nonzero`.
    try:
        value = np.asarray(contents.values(tensor)).reshape(-1)[0]
    except (TypeError, ValueError, IndexError):
        return "unknown"
    number = float(value)
    if not np.isfinite(number):
        return "no number"
    if number == 0.0:
        return "zero"
    if not np.issubdtype(value.dtype, np.floating):
        return "nonzero"
    if abs(number) < float(np.finfo(value.dtype).tiny):
        return "subnormal"
    magnitude = math.floor(math.log10(abs(number)))
    return "normal" if abs(magnitude) <= _USUAL_MAGNITUDE else f"1e{magnitude}"


def digest_nodes(
    nodes: Iterable[NodeProto],
    known: dict[str, str],
    outer: Callable[[str], str],
    kind: Callable[[NodeProto, Callable[[str], str]], Iterable[str]],
) -> tuple[str, ...]:
    """Return a digest of each node: of its `kind` and of its inputs, whatever their names are.

    `known` maps names of tensors to their identities, and those of the outputs are added to it.
    `outer` finds the identity of any other tensor.
    """

    def lookup(name: str) -> str:
        found = known.get(name)
        return outer(name) if found is None else found

    digests = []
    for node in nodes:
        own = digest_texts(*kind(node, lookup), *(lookup(str(name)) for name in node.input))
        digests.append(own)
        known.update({str(name): f"{own}/{k}" for k, name in enumerate(node.output) if name})
    return tuple(digests)


def digest_texts(*parts: str) -> str:
    return digest_bytes("\n".join(parts).encode("utf-8", "surrogatepass")).hex()


def digest_bytes(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
