"""One ONNX model on disk or in memory: its graph is read at once, its weights on demand."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import lru_cache
from io import BytesIO
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from msgspec import Struct, field
from onnx import TensorProto, numpy_helper

from pytest_modelperf.errors import ModelError, UsageError
from pytest_modelperf.files.documents import require_file
from pytest_modelperf.graph.model_bytes import (
    WEIGHT_KEY,
    Buffer,
    SeenFile,
    SkippedData,
    Tell,
    digest_model,
    give_back,
    slim_model,
)
from pytest_modelperf.graph.stored_tensors import walk_stored
from pytest_modelperf.graph.structure import BITS, byte_size
from pytest_modelperf.graph.weights.numbers import ML_TYPES, NumberType, dtype_of
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes, format_shape
from pytest_modelperf.text.words import nearest, shorten_list

if TYPE_CHECKING:
    import numpy.typing as npt

# A model given as a path, as bytes, or as the message itself.
ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto"

# protobuf cannot hold a larger message.
MAX_PROTO_BYTES = 2**31 - 1

# The limits of numpy's dimensions, and of elements that can be addressed.
MAX_RANK = 64
_MOST_ELEMENTS = 2**63 - 1

# A message about a missing model names at most this many of the models in its folder.
_MOST_NAMED = 5
# The start of a file, which shows whether it is text.
_HEAD_BYTES = 1024

_OTHER_FORMATS: Mapping[bytes, str] = {
    b"PK\x03\x04": "a zip archive, perhaps a PyTorch checkpoint: export the model to ONNX first",
    **dict.fromkeys(
        (b"\x80\x02", b"\x80\x03", b"\x80\x04\x95", b"\x80\x05\x95"),
        "a pickle, perhaps a PyTorch checkpoint: export the model to ONNX first",
    ),
    b"\x89HDF": "an HDF5 file, perhaps a Keras model: convert it to ONNX first",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"version https://git-lfs": "a Git LFS pointer: run `git lfs pull`",
    b"<?xml": "an XML file, perhaps OpenVINO IR: give the ONNX model that it was made from",
}
# A FlatBuffer begins with the offset of its root in four bytes, and then names its format.
_FLATBUFFERS: Mapping[bytes, str] = {
    b"ORTM": "a model in ONNX Runtime's own format: give the ONNX model that it was made from",
    b"TFL3": "a TensorFlow Lite model: convert it to ONNX first",
}


def dtype_name(data_type: int) -> str | None:
    """Return our name of a TensorProto.DataType, such as `float32`, or None if it is unknown."""
    return _DTYPES.get(data_type)


def packed_bytes(tensor: TensorProto) -> int:
    """Return the bytes of a tensor's packed elements, or 0 for text or an unknown type."""
    return byte_size(dtype_name(tensor.data_type) or "", prod(tensor.dims))


_RENAMED = {"FLOAT": "float32", "DOUBLE": "float64"}
DATA_TYPES: Mapping[str, int] = {
    _RENAMED.get(name, name.lower()): value
    for name, value in TensorProto.DataType.items()
    if name != "UNDEFINED"
}
_DTYPES: Mapping[int, str] = {value: name for name, value in DATA_TYPES.items()}


class ModelFile(Struct, frozen=True, eq=False):
    """A model whose graph is in memory and whose weights are not.

    `name` is its name in messages. `proto` is the model without the data of its large tensors.
    `folder` is the folder of external data. `folder` and `seen` are None for a model given as
    bytes.
    """

    name: str
    path: Path | None
    proto: onnx.ModelProto
    data: Buffer
    seen: SeenFile | None = None
    # These are filled when they are first needed.
    _digests: dict[str, str] = field(default_factory=dict)
    _beside: list[Mapping[str, SeenFile]] = field(default_factory=list)
    _located: list[Mapping[str, TensorProto]] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    @property
    def total_bytes(self) -> int:
        """The size of the file with its external data. Raise ModelError if some is unreadable."""
        return self.size_bytes + sum(seen.size_bytes for seen in self.beside().values())

    @property
    def folder(self) -> Path | None:
        return None if self.path is None else self.path.parent

    @property
    def producer(self) -> str:
        """The program that wrote the model, or an empty text if its name is not text."""
        parts = (self.proto.producer_name, self.proto.producer_version)
        return " ".join(part for part in parts if part and isinstance(part, str))

    def sha256(self, tell: Tell = lambda _: None) -> str:
        """Return the digest of all bytes, external data too. `tell` reports a long step."""
        return self.digest_once("bytes", lambda: self._digest_bytes(tell))

    def _digest_bytes(self, tell: Tell) -> str:
        external = self.beside()
        if self.seen is None:
            return hashlib.sha256(self.data).hexdigest()
        return digest_model(self.seen, external, tell)

    def digest_once(self, subject: str, compute: Callable[[], str]) -> str:
        """Return the digest of this subject, which is computed once, on first use."""
        if subject not in self._digests:
            self._digests[subject] = compute()
        return self._digests[subject]

    def beside(self) -> Mapping[str, SeenFile]:
        """Return the files of external data by their names in the model, or raise ModelError."""
        if not self._beside:
            found = [external_location(self, tensor) for tensor in self.located().values()]
            self._beside.append({at.place: SeenFile.of(at.path, at.path.stat()) for at in found})
        return self._beside[0]

    def located(self) -> Mapping[str, TensorProto]:
        """Return one tensor for each file of external data. Checking a file takes longer."""
        if not self._located:
            found = external_tensors(self.proto)
            self._located.append({external_entries(t).get("location", ""): t for t in found})
        return self._located[0]

    @contextmanager
    def open_bytes(self) -> Iterator[BinaryIO]:
        """Open the model's file, or raise ChangedModelError if it was replaced."""
        if self.seen is None:
            yield BytesIO(self.data)
            return
        # If the mapping were read instead, all of its pages would count as memory of this process.
        with self.seen.open() as file:
            yield file

    def require_unchanged(self) -> None:
        """Raise ChangedModelError if the file, or external data that was used, has changed."""
        for seen in self.seen_files:
            seen.require_unchanged()

    @property
    def seen_files(self) -> tuple[SeenFile, ...]:
        """The file, and the files of external data that were used so far."""
        own = () if self.seen is None else (self.seen,)
        return (*own, *(seen for external in self._beside for seen in external.values()))

    def piece(self, start: int, stop: int) -> bytes:
        """Return bytes of the file, and release their mapped pages at once."""
        # The file is checked first: touching a page of a truncated file would end this process.
        self.require_unchanged()
        piece = self.data[start:stop]
        give_back(self.data, start, stop)
        return piece

    def read_tensor(self, tensor: TensorProto) -> npt.NDArray[np.generic]:
        """Return the values of a tensor of this model, from its file or from external data."""
        full = tensor
        if tensor.data_location == TensorProto.EXTERNAL:
            full = deepcopy(tensor)
            full.ClearField("external_data")
            full.ClearField("data_location")
            skipped = skipped_data(tensor)
            if skipped is None:
                full.raw_data = b"".join(external_pieces(self, tensor))
            elif skipped.raw is not None:
                full.raw_data = self.piece(*skipped.raw)
            else:
                full.MergeFromString(b"".join(self.piece(*span) for span in skipped.spans))
        try:
            is_listed = bool(tensor.int64_data) and not full.HasField("raw_data")
            if tensor.data_type == TensorProto.INT64 and is_listed:
                # Shapes have this type, and this is several times as fast as the general way.
                return np.array(tensor.int64_data, np.int64).reshape(tuple(tensor.dims))
            name = dtype_name(tensor.data_type)
            if name is not None and name in ML_TYPES:
                return _read_ml(full, NumberType(name))
            # onnx types the result as the union of all that numpy can hold.
            values: npt.NDArray[np.generic] = numpy_helper.to_array(full)
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            unknown = "onnx does not know the type " if isinstance(error, KeyError) else ""
            raise ModelError(
                f"the weight {printable_name(tensor)!r} of {self.name} cannot be read: "
                f"{unknown}{error}"
            ) from error
        return values


class ExternalLocation(Struct, frozen=True):
    """The checked location of a weight outside the model file. `place` is relative to it."""

    place: str
    path: Path
    offset: int
    length: int


def open_model(source: ModelSource) -> ModelFile:
    """Open a model at a path, in bytes or in memory. Its weights are read on demand."""
    if isinstance(source, onnx.ModelProto):
        source = source.SerializeToString()
    if isinstance(source, bytes):
        return _parse(source, "the given model", None)
    if not isinstance(source, (str, os.PathLike)):
        raise UsageError(
            "a model is given as its path, its bytes or an onnx.ModelProto, "
            f"not {type(source).__name__}."
        )
    path = Path(source)
    name = printable(str(path))
    data, seen = _map(path, name)
    return _parse(data, name, path, seen)


def _map(path: Path, name: str) -> tuple[Buffer, SeenFile]:
    try:
        require_file(path)
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            # An empty file cannot be mapped.
            data = mmap(file.fileno(), 0, access=ACCESS_READ) if found.st_size else b""
            return data, SeenFile.of(path, found)
    except FileNotFoundError:
        raise ModelError(
            f"there is no file {name}.{_hint(path)} Give the path of an ONNX model."
        ) from None
    except IsADirectoryError:
        raise ModelError(f"{name} is a folder. Give the path of an ONNX model in it.") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{name} cannot be read: {_reason(error)}.") from error


def _hint(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    there = {p.stem: printable(str(p)) for p in sorted(path.parent.glob("*.onnx"))}
    near = nearest(path.stem, there)
    if near is not None:
        return f" Did you mean {there[near]}?"
    return f" There are: {shorten_list([*there.values()], _MOST_NAMED)}." if there else ""


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _parse(data: Buffer, name: str, path: Path | None, seen: SeenFile | None = None) -> ModelFile:
    if not data:
        raise ModelError(f"{name} is empty. Give the path of an ONNX model.")
    for magic, what in _OTHER_FORMATS.items():
        if data[: len(magic)] == magic:
            raise ModelError(f"{name} is not an ONNX model but {what}.")
    try:
        proto = _read_proto(data, name)
    except ModelError:
        if _is_text(data[:_HEAD_BYTES]):
            raise ModelError(
                f"{name} is not an ONNX model but a text. Give the path of an ONNX model."
            ) from None
        other = _FLATBUFFERS.get(data[4:8])
        if other is not None:
            raise ModelError(f"{name} is not an ONNX model but {other}.") from None
        raise
    return ModelFile(printable(path.name) if path else name, path, proto, data, seen)


def _read_proto(data: Buffer, name: str) -> onnx.ModelProto:
    slim = slim_model(data, name)
    if len(slim) > MAX_PROTO_BYTES:
        raise ModelError(
            f"{name} holds {format_bytes(len(slim))} besides its weights; "
            f"an ONNX graph can have {format_bytes(MAX_PROTO_BYTES)} at most."
        )
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(slim)
    except DecodeError as error:
        raise ModelError(
            f"{name} is not an ONNX model: its bytes are not a valid protobuf message ({error})."
        ) from error
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ModelError(f"{name} is not an ONNX model: it holds no graph.")
    return proto


def _is_text(head: bytes) -> bool:
    return all(byte >= ord(" ") or byte in b"\t\n\r" for byte in head)


def printable_name(tensor: TensorProto) -> str:
    """Return the printable name of a tensor: protobuf returns a name that is not text as bytes."""
    return printable(str(tensor.name))


# Many tensors of a graph have the same dimensions.
@lru_cache(maxsize=1024)
def problem_of_dims(dims: tuple[int | None, ...]) -> str | None:
    """Return why no tensor can have these dimensions, as text that follows its name."""
    if len(dims) > MAX_RANK:
        return f"has {len(dims):,} dimensions; there can be {MAX_RANK}."
    known = [dim for dim in dims if dim is not None]
    if known and min(known) < 0:
        return f"has a negative dimension: {known}. The file is damaged: export the model again."
    if prod(known) > _MOST_ELEMENTS:
        return (
            f"has the shape {format_shape(dims)}, which is more than any machine holds. "
            "The file is damaged: export the model again."
        )
    return None


def check_stored_size(file: ModelFile, tensor: TensorProto, what: str) -> None:
    """Raise ModelError if a tensor claims more data than it has, or other data."""
    dims = tuple(tensor.dims)
    dtype = dtype_name(tensor.data_type)
    problem = problem_of_dims(dims)
    if problem is not None:
        raise ModelError(f"{what} {printable_name(tensor)!r} of {file.name} {problem}")
    if dtype is None:
        raise ModelError(
            f"{what} {printable_name(tensor)!r} of {file.name} has the element type "
            f"{tensor.data_type}, which onnx {onnx.__version__} does not know. Install a newer "
            "onnx: pip install --upgrade onnx"
        )
    if dtype not in BITS and dtype != "string":
        raise ModelError(
            f"{what} {printable_name(tensor)!r} of {file.name} has the element type {dtype}, which "
            "is not supported yet. Export the model with another type."
        )
    skipped = None
    if tensor.data_location == TensorProto.EXTERNAL:
        skipped = skipped_data(tensor)
        if skipped is None:
            return
    elements = prod(dims)
    expected = byte_size(dtype, elements)
    stored = _stored_bytes(tensor, skipped)
    if stored == expected or (stored is None and _has_elements(tensor, skipped, elements)):
        return
    claim = f"that is {format_bytes(expected)}" if expected else f"{elements:,} elements"
    raise ModelError(
        f"{what} {printable_name(tensor)!r} of {file.name} claims the shape {list(dims)}, {claim}, "
        f"but the file holds {'other data' if stored is None else format_bytes(stored)} for it. "
        "The file is damaged: export the model again."
    )


def _stored_bytes(tensor: TensorProto, skipped: SkippedData | None) -> int | None:
    """Return the bytes of a tensor's raw data, or None if its data is typed or missing."""
    if skipped is not None:
        return None if skipped.raw is None else skipped.raw[1] - skipped.raw[0]
    return len(tensor.raw_data) if tensor.HasField("raw_data") else None


def _has_elements(tensor: TensorProto, skipped: SkippedData | None, elements: int) -> bool:
    """Whether typed data can have this many elements."""
    if skipped is not None:
        # Skipped numbers have a varying width, so only a bound is known.
        return 8 * sum(stop - start for start, stop in skipped.spans) >= elements
    # A tensor fills at most one of these fields.
    lengths = (len(getattr(tensor, name)) for name in _TYPED_DATA_FIELDS)
    stored = next(filter(None, lengths), 0)
    # A number in a typed field is one element, half a complex one, or up to eight packed ones.
    return stored <= 2 * elements and 8 * stored >= elements


_TYPED_DATA_FIELDS = (
    "float_data", "int64_data", "int32_data", "double_data", "uint64_data", "string_data",
)  # fmt: skip


def _read_ml(tensor: TensorProto, number: NumberType) -> npt.NDArray[np.generic]:
    """Return values in a type of ml_dtypes, which onnx before 1.19 reads as other types."""
    data = tensor.raw_data
    if not tensor.HasField("raw_data"):
        little = number.code_dtype.newbyteorder("<")
        data = np.array(tensor.int32_data, np.int32).astype(little).tobytes()
    size = prod(tensor.dims)
    codes = number.unpack(data)
    if number.bits < 8:
        # The last byte may have padding.
        codes = codes[:size]
    return codes.view(dtype_of(number.name)).reshape(tuple(tensor.dims))


def skipped_data(tensor: TensorProto) -> SkippedData | None:
    """Return the place of a tensor's data in the file of its model, or None if it is elsewhere."""
    notes = (entry.value for entry in tensor.external_data if entry.key == WEIGHT_KEY)
    return next(map(SkippedData.decode, notes), None)


def is_external(tensor: TensorProto) -> bool:
    """Whether the data is in a file other than the model's."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return False
    return all([entry.key != WEIGHT_KEY for entry in tensor.external_data])  # noqa: C419  # faster


def external_tensors(proto: onnx.ModelProto) -> Iterator[TensorProto]:
    return filter(is_external, (stored.tensor for stored in walk_stored(proto)))


def external_entries(tensor: TensorProto) -> dict[str, str]:
    return {str(entry.key): str(entry.value) for entry in tensor.external_data}


def external_location(file: ModelFile, tensor: TensorProto) -> ExternalLocation:
    """Return the location of an external tensor's data, which must be in the model's folder."""
    name = printable_name(tensor)
    entries = external_entries(tensor)
    location = entries.get("location", "")
    shown = printable(location)
    if file.path is None:
        raise ModelError(
            f"the weight {name!r} is in the file {shown!r}, which a model given as bytes does "
            "not have next to it. Give the path of the model."
        )
    path = _path_inside(file, tensor, location)
    dtype = dtype_name(tensor.data_type)
    expected = byte_size(dtype or "", prod(tensor.dims))
    try:
        size = path.stat().st_size
        offset = int(entries.get("offset", 0))
        # A length of 0 means that it is not given, as for ONNX Runtime.
        length = int(entries.get("length", 0)) or expected
    except FileNotFoundError:
        raise ModelError(
            f"the weight {name!r} of {file.name} is stored in {shown!r}, which is not there. "
            "Put that file next to the model."
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the external data {shown!r} of {file.name} cannot be used: {error}."
        ) from error
    if not path.is_file():
        raise ModelError(
            f"the external data {shown!r} of {file.name} is not a file. Put the file that the "
            "model was saved with in its place."
        )
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(
            f"the weight {name!r} of {file.name} claims bytes {offset:,} to {offset + length:,} "
            f"of {shown!r}, which has {size:,}. The two files do not belong together: copy both "
            "from the same place."
        )
    if dtype is not None and length != expected:
        raise ModelError(
            f"the weight {name!r} of {file.name} has the shape {list(tensor.dims)}, that is "
            f"{format_bytes(expected)}, but its external data has {format_bytes(length)}. The two "
            "files do not belong together: copy both from the same place."
        )
    return ExternalLocation(posixpath.normpath(location), path, offset, length)


def external_pieces(
    file: ModelFile, tensor: TensorProto, piece_bytes: int | None = None
) -> Iterator[bytes]:
    """Yield the data of an external tensor, in pieces of this size or as a whole."""
    location = external_location(file, tensor)
    left = location.length
    try:
        with location.path.open("rb") as source:
            source.seek(location.offset)
            while left and (data := source.read(min(piece_bytes or left, left))):
                left -= len(data)
                yield data
    except OSError as error:
        raise ModelError(
            f"the external data {printable(str(location.path))} of {file.name} cannot be read: "
            f"{_reason(error)}."
        ) from error


def _path_inside(file: ModelFile, tensor: TensorProto, location: str) -> Path:
    place = PurePosixPath(posixpath.normpath(location))
    inside = bool(location) and not place.is_absolute() and place.parts[:1] not in {(), ("..",)}
    if inside and file.path is not None:
        # A path that is too long, or that contains a zero byte, raises an error here.
        with suppress(OSError, ValueError):
            path = (file.path.parent / location).resolve()
            if any(map(path.is_relative_to, _folders(file.path))):
                return path
    raise ModelError(
        f"the weight {printable_name(tensor)!r} of {file.name} points to {printable(location)!r}, "
        "outside of the model's folder. External data is read only from the folder of the model: "
        "save the model with that file next to it."
    )


def require_inside(file: ModelFile) -> None:
    """Raise ModelError if external data is outside the model's folder. It need not exist."""
    for location, tensor in file.located().items() if file.path else ():
        _path_inside(file, tensor, location)


def external_files(file: ModelFile) -> dict[str, Path]:
    """Return the external data by its names in the model. Check it, because an engine opens it."""
    found = (external_location(file, tensor) for tensor in external_tensors(file.proto))
    return {location.place: location.path for location in found}


def _folders(path: Path) -> set[Path]:
    """Return the folders that may hold a model's data. The file may be a link into a cache."""
    return {path.parent.resolve(), path.resolve().parent}
