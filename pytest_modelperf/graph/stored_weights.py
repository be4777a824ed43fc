"""The stored weights of a model: read, digested, identified, and grouped if they are drawn alike.

A retrained model keeps its digests, although its weights have other values.

Groups matter: ONNX Runtime shares the packed form of equal weights within a session, so that six
equal ones of 16 MB ran 2.6 times as fast as six different ones. And it fuses a quantized
convolution only if the scales of its bias are those of its weight, times the scale of its input.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import prod

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from onnx import NodeProto, TensorProto

from pytest_modelperf.graph.model_bytes import KEEP_INTEGER_BYTES
from pytest_modelperf.graph.model_file import (
    ModelFile,
    check_stored_size,
    dtype_name,
    external_pieces,
    is_external,
    packed_bytes,
    skipped_data,
)
from pytest_modelperf.graph.stored_tensors import StoredTensor, walk_stored
from pytest_modelperf.graph.weights.notes import Note, RunLengths
from pytest_modelperf.graph.weights.numbers import Codes, NumberType, codes_of, number_type

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


Scales = npt.NDArray[np.float64]

# Decoding a piece takes a few arrays of twice this size.
PIECE_BYTES = 1 << 20
# The tags of packed float_data and double_data: they are raw data with another tag.
_PACKED_TAGS: Mapping[int, int] = {TensorProto.FLOAT: 0x22, TensorProto.DOUBLE: 0x52}
# How far the quotients of two vectors of scales may differ, because float32 rounds each product.
_QUOTIENT_TOLERANCE = 1e-5
# A tensor with fewer elements is a setting of an operator or exporter, such as a scale.
_LEAST_TRAINED = 16


def stored_number(tensor: TensorProto) -> NumberType | None:
    """Return the type of a tensor's numbers, or None for text."""
    return number_type(dtype_name(tensor.data_type) or "")


def read_codes(file: ModelFile, tensor: TensorProto, number: NumberType) -> Iterator[Codes]:
    """Yield the codes of a tensor of `file`, in pieces of one size. The last may be shorter."""
    # A complex number counts as its two components.
    left = prod(tensor.dims) * number.components
    for piece in _read_pieces(file, tensor, number):
        codes = piece[:left]
        left -= codes.size
        yield codes


def _read_pieces(file: ModelFile, tensor: TensorProto, number: NumberType) -> Iterator[Codes]:
    check_stored_size(file, tensor, "the weight")
    raw = None if is_external(tensor) else _place_of_raw(file, tensor)
    if is_external(tensor):
        for data in external_pieces(file, tensor, PIECE_BYTES):
            yield number.unpack(data)
    elif raw is not None:
        for start in range(raw[0], raw[1], PIECE_BYTES):
            stop = min(start + PIECE_BYTES, raw[1])
            yield number.unpack(file.piece(start, stop))
    elif tensor.HasField("raw_data"):
        yield number.unpack(tensor.raw_data)
    else:
        yield codes_of(file.read_tensor(tensor), number)


def _place_of_raw(file: ModelFile, tensor: TensorProto) -> tuple[int, int] | None:
    skipped = skipped_data(tensor) if tensor.data_location == TensorProto.EXTERNAL else None
    if skipped is None:
        return None
    tag = _PACKED_TAGS.get(tensor.data_type)
    if skipped.raw is not None or tag is None or len(skipped.spans) != 1:
        return skipped.raw
    start, stop = skipped.spans[0]
    head = file.piece(start, start + 11)
    size = next((i for i, byte in enumerate(head[1:], 2) if byte < 0x80), len(head))
    length = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(head[1:size]))
    begin = start + size
    is_packed = head[0] == tag and begin + length == stop == begin + packed_bytes(tensor)
    return (begin, stop) if is_packed else None


def digest_weights(file: ModelFile) -> str:
    """Read every weight, and return the digest of all trained values as 32 hexadecimal digits."""
    # Graph optimizations and exporters rename, reorder and reconnect weights, and add or fold small
    # constants. They do not change this digest of all large float tensors, each of which counts
    # once and in no order. Training changes it.
    return file.digest_once("weights", lambda: _digest_weights(file))


def _digest_weights(file: ModelFile) -> str:
    digests = set()
    for stored in walk_stored(file.proto):
        dtype = dtype_name(stored.tensor.data_type) or ""
        if "float" in dtype and prod(stored.tensor.dims) >= _LEAST_TRAINED:
            values = np.ascontiguousarray(file.read_tensor(stored.tensor))
            digest = hashlib.blake2b(dtype.encode(), digest_size=16)
            digest.update(values.view(np.uint8).data)
            digests.add(digest.digest())
    return digest_bytes(b"".join(sorted(digests))).hex()


# -- weights that are drawn alike


class NotedWeight(Struct, frozen=True, eq=False):
    """A weight with its data and its note. A scale turns integers into floats."""

    stored: StoredTensor
    number: NumberType
    note: Note
    is_scale: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(self.stored.tensor.dims)


def find_groups(file: ModelFile, weights: Sequence[NotedWeight]) -> tuple[int | None, ...]:
    """Return the number of the group of each weight of a file, or None if it has no group.

    Weights of one group are drawn alike. Equal weights have the same type, shape and bytes: groups
    of zeros are drawn along an axis, so one note gives other bytes in another shape. Vectors of
    scales are in one group even if one is only a multiple of the other. Groups are numbered from 1,
    in the order of their first weights. A weight with an exact note needs no group. Only scales,
    and weights with the same type, shape and note, are read once more.
    """
    # By everything but its bytes that the drawn numbers of a weight depend on.
    alike: dict[object, list[int]] = defaultdict(list)
    scales: dict[tuple[NumberType, tuple[int, ...]], list[int]] = defaultdict(list)
    for index, weight in enumerate(weights):
        if isinstance(weight.note, RunLengths):
            continue
        if weight.is_scale and weight.number.is_float and len(weight.dims) == 1:
            scales[weight.number, weight.dims].append(index)
        else:
            alike[weight.number, weight.dims, weight.stored.dense_shape, weight.note].append(index)
    groups: list[list[int]] = []
    for candidates in (each for each in alike.values() if len(each) > 1):
        equal: dict[bytes, list[int]] = defaultdict(list)
        for index in candidates:
            equal[_digest(file, weights[index])].append(index)
        groups += equal.values()
    for candidates in scales.values():
        groups += _multiples({index: _read(file, weights[index]) for index in candidates})
    members = sorted(group for group in groups if len(group) > 1)
    numbers = {index: number for number, group in enumerate(members, 1) for index in group}
    return tuple(numbers.get(index) for index in range(len(weights)))


def _multiples(scales: dict[int, Scales]) -> Iterator[list[int]]:
    spreads = {
        index: float(values.max() / values.mean())
        for index, values in scales.items()
        if np.isfinite(values).all() and values.min() > 0.0
    }
    group: list[int] = []
    # Multiples have the same spread, so sorting puts them next to each other.
    for index in sorted(spreads, key=spreads.__getitem__):
        if group and not _is_multiple(scales[index], scales[group[-1]]):
            yield sorted(group)
            group = []
        group.append(index)
    yield sorted(group)


def _is_multiple(values: Scales, other: Scales) -> bool:
    quotients = values / other
    return float(np.ptp(quotients)) <= _QUOTIENT_TOLERANCE * float(quotients.max())


def _read(file: ModelFile, weight: NotedWeight) -> Scales:
    pieces = read_codes(file, weight.stored.tensor, weight.number)
    return np.concatenate([weight.number.decode(codes) for codes in pieces]).astype(np.float64)


def _digest(file: ModelFile, weight: NotedWeight) -> bytes:
    digest = hashlib.blake2b()
    for codes in read_codes(file, weight.stored.tensor, weight.number):
        digest.update(codes.tobytes())
    return digest.digest()
