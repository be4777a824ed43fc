"""The bytes of a model's files."""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto, numpy_helper

from pytest_modelperf.errors import ChangedModelError, ModelError
from pytest_modelperf.graph.model_bytes import (
    KEEP_BYTES,
    KEEP_INTEGER_BYTES,
    WEIGHT_KEY,
    Clock,
    SeenFile,
    SkippedData,
    digest_model,
    restore_model,
    slim_model,
)
from pytest_modelperf.graph.model_file import ModelFile, dtype_name, open_model
from pytest_modelperf.graph.weights.numbers import ML_TYPES, dtype_of
from tests.support.graph_models import parse, random_floats, zeros
from tests.support.onnx_text import INSTALLED

_DATA_FIELDS = (
    "float_data", "int32_data", "string_data", "int64_data", "raw_data", "double_data",
    "uint64_data",
)  # fmt: skip

# Bits of an element, the field that holds it when it is not raw, and what fits in there.
_INT32_FIELD = {
    "FLOAT16": (16, 0, 0x7BFF), "BFLOAT16": (16, 0, 0x7F7F), "INT32": (32, -(2**31), 2**31 - 1),
    "INT16": (16, -(2**15), 2**15 - 1), "INT8": (8, -128, 127), "UINT16": (16, 0, 2**16 - 1),
    "UINT8": (8, 0, 255), "BOOL": (8, 0, 1), "FLOAT8E4M3FN": (8, 0, 0x7E),
    "FLOAT8E5M2": (8, 0, 0x7B), "INT4": (4, 0, 255), "UINT4": (4, 0, 255),
}  # fmt: skip
_BITS = {
    **{name: bits for name, (bits, _, _) in _INT32_FIELD.items()},
    "FLOAT": 32, "DOUBLE": 64, "INT64": 64, "UINT32": 32, "UINT64": 64,
    "COMPLEX64": 64, "COMPLEX128": 128,
}  # fmt: skip
_INTEGERS = ("UINT16", "INT16", "INT32", "INT64", "BOOL", "UINT32", "UINT64")


def _typed_values(name: str, count: int, rng: random.Random) -> tuple[str, list[Any]]:
    if name in _INT32_FIELD:
        bits, low, high = _INT32_FIELD[name]
        packed = (count * bits + 7) // 8 if bits < 8 else count
        return "int32_data", [rng.randint(low, high) for _ in range(packed)]
    if name == "INT64":
        return "int64_data", [rng.randint(-(2**63), 2**63 - 1) for _ in range(count)]
    if name in ("UINT32", "UINT64"):
        top = 2 ** _BITS[name] - 1
        return "uint64_data", [rng.randint(0, top) for _ in range(count)]
    if name == "STRING":
        return "string_data", [b"s" * rng.randint(0, 9) for _ in range(count)]
    field = "double_data" if name == "DOUBLE" else "float_data"
    return field, [rng.uniform(-9, 9) for _ in range(count)]


@st.composite
def tensors(draw: st.DrawFn) -> TensorProto:
    """A tensor of any type and either encoding, around the sizes at which it stops being kept."""
    name = draw(st.sampled_from([*_BITS, "STRING"]))
    rng = random.Random(draw(st.integers(0, 2**32)))  # content, not secrets
    bits = _BITS.get(name, 64)
    limit = 8 * (KEEP_INTEGER_BYTES if name in _INTEGERS else KEEP_BYTES) // bits
    count = draw(st.sampled_from([0, 1, 7, limit - 1, limit, limit + 1, limit + 40]))
    # Numbers of a complex tensor are only read as raw data by every release of onnx.
    if name == "STRING" or ("COMPLEX" not in name and not draw(st.booleans())):
        # Typed integers take up to ten bytes each: a small one is as telling as a large one.
        count = min(count, 400)
        tensor = TensorProto(data_type=TensorProto.DataType.Value(name), dims=[count])
        field, values = _typed_values(name, count, rng)
        getattr(tensor, field).extend(values)
        return tensor
    raw = rng.randbytes((count * bits + 7) // 8)
    if name == "BOOL":
        raw = bytes(byte & 1 for byte in raw)
    return TensorProto(data_type=TensorProto.DataType.Value(name), dims=[count], raw_data=raw)


def _in_initializer(model: onnx.ModelProto, tensor: TensorProto) -> None:
    model.graph.initializer.append(tensor)


def _in_attribute(model: onnx.ModelProto, tensor: TensorProto) -> None:
    model.graph.node.add(op_type="Constant").attribute.add(name="value", type=4, t=tensor)


def _in_attribute_list(model: onnx.ModelProto, tensor: TensorProto) -> None:
    model.graph.node.add(op_type="Custom").attribute.add(name="all", type=9, tensors=[tensor] * 2)


def _in_body(model: onnx.ModelProto, tensor: TensorProto) -> None:
    attribute = model.graph.node.add(op_type="If").attribute.add(name="then_branch", type=5)
    inner = attribute.g.node.add(op_type="Loop").attribute.add(name="body", type=5)
    inner.g.initializer.append(tensor)
    inner.g.node.add(op_type="Constant").attribute.add(name="value", type=4, t=tensor)


def _in_function(model: onnx.ModelProto, tensor: TensorProto) -> None:
    function = model.functions.add(name="f", domain="local")
    function.node.add(op_type="Constant").attribute.add(name="value", type=4, t=tensor)
    function.attribute_proto.add(name="default", type=4, t=tensor)


def _in_sparse(model: onnx.ModelProto, tensor: TensorProto) -> None:
    model.graph.sparse_initializer.add(values=tensor, indices=tensor, dims=[9])


def _in_training(model: onnx.ModelProto, tensor: TensorProto) -> None:
    model.training_info.add().initialization.initializer.append(tensor)


_PLACES = (
    _in_initializer, _in_attribute, _in_attribute_list, _in_body, _in_function, _in_sparse,
    _in_training,
)  # fmt: skip


@st.composite
def encoded_models(draw: st.DrawFn) -> bytes:
    """A model with tensors anywhere, its fields in any order, its numbers packed or not."""
    model = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    for number in range(draw(st.integers(1, 4))):
        tensor = draw(tensors())
        tensor.name = f"t{number}"
        draw(st.sampled_from(_PLACES))(model, tensor)
    rng = random.Random(draw(st.integers(0, 2**32)))  # order, not secrets
    plain = model.SerializeToString(deterministic=True)
    return plain if draw(st.booleans()) else _shuffled(plain, model.DESCRIPTOR, rng)


def _shuffled(data: bytes, kind: Any, rng: random.Random) -> bytes:  # noqa: ANN401  # descriptors are of two classes
    """The same message with its fields in another order, and some lists of numbers unpacked.

    The last of several raw_data fields counts, so that a wrong one in front changes nothing.
    """
    by_number: dict[int, list[bytes]] = {}
    order: list[int] = []
    for number, wire_type, content in _fields(data):
        field = kind.fields_by_number[number]
        kind_of_wire, encoded = wire_type, [content]
        if wire_type == 2 and field.message_type is not None:
            encoded = [_shuffled(content, field.message_type, rng)]
        elif wire_type == 2 and field.type not in (
            FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES,
        ):  # fmt: skip
            if rng.random() < 0.5:
                kind_of_wire, encoded = _unpacked(content, field)
        elif field.name == "raw_data" and rng.random() < 0.5:
            encoded.insert(0, b"wrong" * rng.randrange(500))
        for each in encoded:
            length = _varint(len(each)) if kind_of_wire == 2 else b""
            by_number.setdefault(number, []).append(
                _varint(number << 3 | kind_of_wire) + length + each
            )
            order.append(number)
    rng.shuffle(order)
    sources = {number: iter(encodings) for number, encodings in by_number.items()}
    return b"".join(next(sources[number]) for number in order)


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        wire_type = tag & 7
        if wire_type == 2:
            size, position = _read_varint(data, position)
            stop = position + size
        elif wire_type == 0:
            _, stop = _read_varint(data, position)
        else:
            stop = position + (8 if wire_type == 1 else 4)
        yield tag >> 3, wire_type, data[position:stop]
        position = stop


def _unpacked(content: bytes, field: FieldDescriptor) -> tuple[int, list[bytes]]:
    widths = {FieldDescriptor.TYPE_FLOAT: (5, 4), FieldDescriptor.TYPE_DOUBLE: (1, 8)}
    if field.type in widths:
        wire_type, width = widths[field.type]
        return wire_type, [content[i : i + width] for i in range(0, len(content), width)]
    pieces, position = [], 0
    while position < len(content):
        _, stop = _read_varint(content, position)
        pieces.append(content[position:stop])
        position = stop
    return 0, pieces


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _all_tensors(message: Message) -> Iterator[TensorProto]:
    if isinstance(message, TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for each in (value,) if isinstance(value, Message) else value:
            yield from _all_tensors(each)


def _without_data(model: onnx.ModelProto) -> bytes:
    for tensor in _all_tensors(model):
        for field in (*_DATA_FIELDS, "external_data", "data_location"):
            tensor.ClearField(field)
    return model.SerializeToString(deterministic=True)


def _parsed(data: bytes) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.ParseFromString(data)
    return model


def _same_values(file: ModelFile, slim: TensorProto, full: TensorProto) -> bool:
    name = dtype_name(full.data_type)
    if name is not None and name in ML_TYPES and INSTALLED < (1, 19):
        # This onnx reads them as other types.
        return bool(file.read_tensor(slim).dtype == dtype_of(name))
    expected = numpy_helper.to_array(full)
    values = file.read_tensor(slim)
    return (
        values.dtype == expected.dtype
        and values.shape == expected.shape
        and values.tolist().__repr__() == expected.tolist().__repr__()
    )


def _restored(slim: bytes, data: bytes) -> bytes:
    """The model of a slim one, with what was skipped taken from the whole."""
    chunks = restore_model(slim, "m")
    return b"".join(c if isinstance(c, bytes) else data[slice(*c)] for c in chunks)


def _least_size(value: object) -> int:
    return len(value) if isinstance(value, bytes) else 1


def _require_no_large_data(slim: onnx.ModelProto) -> None:
    for tensor in _all_tensors(slim):
        stored = sum(
            len(value) if isinstance(value, bytes) else sum(map(_least_size, value))
            for value in (getattr(tensor, field) for field in _DATA_FIELDS)
        )
        integer = TensorProto.DataType.Name(tensor.data_type) in _INTEGERS
        # A message no larger than the limit is not entered, whatever it holds.
        assert stored <= (KEEP_INTEGER_BYTES if integer else KEEP_BYTES)


@given(encoded_models())
@settings(max_examples=120)
def test_a_slim_model_is_the_model_without_large_data_which_can_be_read_and_restored(
    data: bytes,
) -> None:
    slim, full, file = slim_model(data, "m"), _parsed(data), open_model(data)
    restored = _parsed(_restored(slim, data))
    assert restored.SerializeToString(deterministic=True) == full.SerializeToString(
        deterministic=True
    )
    _require_no_large_data(_parsed(slim))
    assert _without_data(_parsed(slim)) == _without_data(_parsed(data))
    pairs = list(zip(_all_tensors(file.proto), _all_tensors(full), strict=True))
    assert pairs
    for stored, original in pairs:
        assert _same_values(file, stored, original)


def test_a_model_without_weights_is_not_changed() -> None:
    data = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }").SerializeToString()
    assert slim_model(data, "m") == data
    assert restore_model(data, "m") == (data,)


def test_a_slim_model_of_large_weights_is_small() -> None:
    model = parse(
        "g (float[1, 1000] x) => (float[1, 500] y) { y = MatMul (x, w) }", {"w": zeros(1000, 500)}
    )
    assert len(slim_model(model.SerializeToString(), "m")) < 500


def test_external_data_of_the_model_itself_survives_the_way_there_and_back() -> None:
    model = parse(
        "g (float[1, 100] x) => (float[1, 9] z) { y = MatMul (x, w)  z = MatMul (y, v) }",
        {"w": zeros(100, 50), "v": zeros(50, 9)},
    )
    outside = model.graph.initializer[0]
    outside.ClearField("raw_data")
    outside.data_location = TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="weights.bin")
    data = model.SerializeToString()
    slim = slim_model(data, "m")

    assert _parsed(slim).graph.initializer[0] == outside
    assert _parsed(_restored(slim, data)) == model


def _product() -> onnx.ModelProto:
    text = "g (float[1, 100] x) => (float[1, 9] y) { y = MatMul (x, w) }"
    return parse(text, {"w": random_floats(100, 9)})


def test_data_in_the_file_is_restored_despite_a_leftover_external_location() -> None:
    """Older versions of onnx left the location when they read external data into a model."""
    model = _product()
    model.graph.initializer[0].external_data.add(key="location", value="gone.bin")
    data = model.SerializeToString()
    assert _parsed(_restored(slim_model(data, "m"), data)) == model


def test_a_changed_slim_model_is_restored_with_its_change() -> None:
    """Do what `rewrite` does: the graph is edited while the weights are elsewhere."""
    model = _product()
    data = model.SerializeToString()
    slim = _parsed(slim_model(data, "m"))
    slim.graph.node[0].name = model.graph.node[0].name = "renamed"
    assert _parsed(_restored(slim.SerializeToString(), data)) == model


def test_a_name_that_reads_like_a_note_is_not_taken_for_one() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    model.graph.node[0].name = WEIGHT_KEY
    model.graph.doc_string = WEIGHT_KEY * 100
    data = model.SerializeToString()
    assert _restored(slim_model(data, "m"), b"") == data


def test_truncation_at_every_byte_is_refused_or_still_a_model() -> None:
    model = parse(
        """g (float[1, 300] x) => (float[1, 2] y) {
            c = Constant <value = float[2] {1, 2}> ()
            h = MatMul (x, w)
            y = Add (h, c)
        }""",
        {"w": zeros(300, 2)},
    )
    data = model.SerializeToString()
    refused = sum(_is_refused(data[:length]) for length in range(len(data)))
    # A cut between two fields of the model itself leaves a message that is whole.
    assert refused > len(data) * 0.9


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_arbitrary_bytes_are_refused_with_our_own_error(data: bytes) -> None:
    assert _is_refused(data) or open_model(data).proto.HasField("graph")


def _is_refused(data: bytes) -> bool:
    try:
        open_model(data)
    except ModelError:
        return True
    return False


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "claims 9,223,372,036,854,775,807 bytes"),
        (b"\x3a\x80", "ends within a number"),
        (b"\x3a" + b"\xff" * 11, "number of more than 10 bytes"),
        (b"\x0d\x00", "ends within a number"),
        (b"\x0f", "wire type 7"),
        (b"\x00\x00", "field with the number 0"),
    ],
)
def test_a_broken_message_says_how_and_where(data: bytes, what: str) -> None:
    with pytest.raises(ModelError, match=what) as caught:
        slim_model(data, "cut.onnx")
    assert "cut.onnx" in str(caught.value)
    assert f"of {len(data)}" in str(caught.value)


@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1, max_size=4),
    st.none() | st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)),
)
def test_a_note_decodes_to_what_was_encoded(
    spans: list[tuple[int, int]], raw: tuple[int, int] | None
) -> None:
    skipped = SkippedData(tuple(spans), raw)
    assert SkippedData.decode(skipped.encode()) == skipped


def test_the_numbers_of_an_attribute_do_not_count_as_fields() -> None:
    """A model of trees has millions of them, each a field of its own; a weight may be between."""
    model = parse("g (float[1, 300] x) => (float[1, 2] y) { y = MatMul (x, w) }")
    tree = model.graph.node.add(op_type="TreeEnsembleRegressor", domain="ai.onnx.ml")
    values = tree.attribute.add(name="values", floats=[0.5] * 10_000, ints=range(-500, 9_500))
    values.t.CopyFrom(numpy_helper.from_array(random_floats(300, 2)))
    data = model.SerializeToString()
    slim = slim_model(data, "m", max_fields=100)

    assert len(data) - len(slim) > 2000
    assert _parsed(_restored(slim, data)) == model


def test_a_file_of_tiny_fields_is_refused_before_it_takes_minutes() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    model.graph.node.extend([NodeProto(op_type="Relu")] * 500)
    with pytest.raises(ModelError, match=r"^m has more than 100 fields .* Is it a model\?$"):
        slim_model(model.SerializeToString(), "m", max_fields=100)


def test_numbers_of_a_weight_are_bit_for_bit_those_of_the_file() -> None:
    values = random_floats(40, 40)
    model = parse("g (float[40, 40] x) => (float y) { y = MatMul (x, w) }", {"w": values})
    file = open_model(model)
    np.testing.assert_array_equal(file.read_tensor(file.proto.graph.initializer[0]), values)


# Few of each, so that two models often share a part.
_BYTES = st.sampled_from([b"", b"a", b"b", b"ab"])
_FILES = st.tuples(_BYTES, st.dictionaries(st.sampled_from(["a", "b", "ab", "é"]), _BYTES))


def see(path: Path) -> SeenFile:
    return SeenFile.of(path, path.stat())


def write(folder: Path, graph: bytes, data_files: Mapping[str, bytes]) -> str:
    """The digest of a model of these bytes."""
    (folder / "model.onnx").write_bytes(graph)
    for name, content in data_files.items():
        (folder / name).write_bytes(content)
    seen = {name: see(folder / name) for name in data_files}
    return digest_model(see(folder / "model.onnx"), seen, lambda _: None)


@given(_FILES, _FILES)
def test_two_digests_are_equal_if_all_bytes_and_names_are(
    one: tuple[bytes, dict[str, bytes]], other: tuple[bytes, dict[str, bytes]]
) -> None:
    digests = []
    for graph, data_files in (one, other, one):
        with TemporaryDirectory() as folder:
            digests.append(write(Path(folder), graph, data_files))
    assert (digests[0] == digests[1]) == (one == other)
    assert digests[0] == digests[2]
    assert all(len(digest) == 64 for digest in digests)


@given(_BYTES)
def test_a_model_in_one_file_has_the_digest_of_that_file(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        assert write(Path(folder), content, {}) == hashlib.sha256(content).hexdigest()


@given(st.permutations(["a", "b", "c"]))
def test_the_order_in_which_a_model_names_its_files_does_not_matter(order: list[str]) -> None:
    with TemporaryDirectory() as folder:
        ordered = write(Path(folder), b"g", {name: name.encode() for name in "abc"})
        assert write(Path(folder), b"g", {name: name.encode() for name in order}) == ordered


def test_a_file_is_read_again_only_when_it_was_written(tmp_path: Path) -> None:
    weights = tmp_path / "w"
    first = write(tmp_path, b"graph", {"w": b"before"})
    found = weights.stat()
    with weights.open("r+b") as file:
        file.write(b"after!")
    # As if nothing had been written: reading the bytes would show it.
    os.utime(weights, ns=(found.st_atime_ns, found.st_mtime_ns))
    model = see(tmp_path / "model.onnx")
    assert digest_model(model, {"w": see(weights)}, lambda _: None) == first
    os.utime(weights, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000_000))
    assert digest_model(model, {"w": see(weights)}, lambda _: None) != first


def ticking(seconds: float) -> Clock:
    """A clock that goes on by so much whenever it is looked at."""
    ticks: Iterator[int] = count()
    return lambda: next(ticks) * seconds


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.6, ["reading weights (3.000 KiB)"]), (0.1, [])]
)
def test_slow_reading_is_reported_once_with_the_size_of_all_files(
    tmp_path: Path, seconds: float, expected: list[str]
) -> None:
    data_files = {"a": b"x" * 1000, "b": b"y" * 2000}
    for name, content in {"m": b"z" * 72, **data_files}.items():
        (tmp_path / name).write_bytes(content)
    seen = {name: see(tmp_path / name) for name in data_files}
    reported: list[str] = []
    digest_model(see(tmp_path / "m"), seen, reported.append, ticking(seconds))
    assert reported == expected
    digest_model(see(tmp_path / "m"), seen, reported.append, ticking(seconds))
    assert reported == expected, "what is known is not read"


@pytest.mark.parametrize("change", ["written", "replaced", "removed"])
def test_a_file_that_changes_while_it_is_read_has_no_digest(tmp_path: Path, change: str) -> None:
    graph, weights, other = tmp_path / "m", tmp_path / "w", tmp_path / "other"
    for path, content in ((graph, b"graph"), (weights, b"before"), (other, b"after!")):
        path.write_bytes(content)

    def disturb(_: str) -> None:
        if change == "written":
            weights.write_bytes(b"longer than before")
        elif change == "replaced":
            other.replace(weights)
        else:
            weights.unlink()

    with pytest.raises(ChangedModelError, match="w was "):
        digest_model(see(graph), {"w": see(weights)}, disturb, ticking(0.9))


def test_a_file_that_cannot_be_read_is_an_error_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(ModelError, match=r"m cannot be read: Is a directory\."):
        digest_model(see(tmp_path / "m"), {}, lambda _: None, time.monotonic)
