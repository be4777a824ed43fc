"""One ONNX model on disk or in memory: its graph at once, the bytes of a weight when asked for."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from msgspec import Struct, field
from onnx import TensorProto, numpy_helper

from pytest_modelperf.errors import ModelError, UsageError
from pytest_modelperf.files.reading import require_file
from pytest_modelperf.graph.digests import Tell, digest_model
from pytest_modelperf.graph.seen_file import SeenFile
from pytest_modelperf.graph.stored_tensors import walk_stored
from pytest_modelperf.graph.structure import byte_size
from pytest_modelperf.graph.wire import WEIGHT_KEY, Buffer, Skipped, give_back, slim_model
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes, format_shape
from pytest_modelperf.text.words import nearest, shorten_list

if TYPE_CHECKING:
    import numpy.typing as npt

# What a model can be given as: its path, its bytes, or the message itself.
ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto"

# protobuf cannot hold a message that is larger.
MAX_PROTO_BYTES = 2**31 - 1

# numpy has no array of more dimensions; and what has more elements cannot be addressed.
MAX_RANK = 64
_MOST_ELEMENTS = 2**63 - 1

# Of the models beside a path that has none, a message names so many.
_MOST_NAMED = 5
# What of a file tells whether it is a text.
_HEAD_BYTES = 1024

_OTHER_FORMATS: Mapping[bytes, str] = {
    b"PK\x03\x04": "a zip archive, perhaps a PyTorch checkpoint: export the model to ONNX first",
    **dict.fromkeys(
        (b"\x80\x02", b"\x80\x03", b"\x80\x04\x95", b"\x80\x05\x95"),
        "a pickle, perhaps a PyTorch checkpoint: export the model to ONNX first",
    ),
    b"\x89HDF": "an HDF5 file, perhaps a Keras model: convert it to ONNX first",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"version https://git-lfs": "a Git LFS pointer, not the model: run `git lfs pull`",
    b"<?xml": "an XML file, perhaps OpenVINO IR: give the ONNX model that it was made from",
}


def dtype_name(data_type: int) -> str | None:
    """Our name of a TensorProto.DataType: `float32`; None for one that is not known."""
    return _DTYPES.get(data_type)


def _dtype_names() -> dict[int, str]:
    renamed = {"FLOAT": "float32", "DOUBLE": "float64"}
    return {
        value: renamed.get(name, name.lower())
        for name, value in TensorProto.DataType.items()
        if name != "UNDEFINED"
    }


_DTYPES: Mapping[int, str] = _dtype_names()
DATA_TYPES: Mapping[str, int] = {name: value for value, name in _DTYPES.items()}


class ModelFile(Struct, frozen=True, eq=False):
    """A model whose graph is in memory and whose weights are not.

    `name` is what messages call it. `proto` is the model without the data of its large tensors.
    `folder` is where external data may lie; it is None for a model that came as bytes, and so is
    `seen`.
    """

    name: str
    path: Path | None
    proto: onnx.ModelProto
    data: Buffer
    seen: SeenFile | None = None
    # Each is empty until it is asked for.
    _digest: list[str] = field(default_factory=list)
    _beside: list[Mapping[str, SeenFile]] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    @property
    def folder(self) -> Path | None:
        return None if self.path is None else self.path.parent

    @property
    def producer(self) -> str:
        """What wrote the model, as far as that is text."""
        parts = (self.proto.producer_name, self.proto.producer_version)
        return " ".join(part for part in parts if part and isinstance(part, str))

    def sha256(self, tell: Tell = lambda _: None) -> str:
        """The digest of all bytes of the model, those of its external data included.

        ModelError where external data cannot be read. A step that lasts is told.
        """
        if not self._digest:
            beside = self.beside()
            if self.seen is None:
                self._digest.append(hashlib.sha256(self.data).hexdigest())
            else:
                self._digest.append(digest_model(self.seen, beside, tell))
        return self._digest[0]

    def beside(self) -> Mapping[str, SeenFile]:
        """The files with external data as they were at the first look, by their names in the model.

        ModelError where one is not there or must not be read.
        """
        if not self._beside:
            tensors = filter(is_external, (stored.tensor for stored in walk_stored(self.proto)))
            # One for each file: to check a place takes longer than to find it.
            by_location = {_entries(tensor).get("location"): tensor for tensor in tensors}
            found = [external_location(self, tensor) for tensor in by_location.values()]
            self._beside.append({at.place: SeenFile.of(at.path, at.path.stat()) for at in found})
        return self._beside[0]

    @contextmanager
    def open_bytes(self) -> Iterator[BinaryIO]:
        """The model's file to read from end to end; ChangedModelError where it is another one.

        Not through the mapping: all pages of it would count as this process's memory.
        """
        if self.seen is None:
            yield BytesIO(self.data)
            return
        with self.seen.open() as file:
            yield file

    def require_unchanged(self) -> None:
        """ChangedModelError where the file is not the one any more whose graph is here."""
        if self.seen is not None:
            self.seen.require_unchanged()

    def piece(self, start: int, stop: int) -> bytes:
        """Bytes of the file; the pages that they were mapped to are given back at once.

        To touch a page that the file has no more, for someone cut it off, would end this process.
        """
        self.require_unchanged()
        piece = self.data[start:stop]
        give_back(self.data, start, stop)
        return piece

    def read_tensor(self, tensor: TensorProto) -> npt.NDArray[np.generic]:
        """The values of a tensor of this model, from wherever they lie."""
        full = tensor
        if tensor.data_location == TensorProto.EXTERNAL:
            full = TensorProto()
            full.CopyFrom(tensor)
            full.ClearField("external_data")
            full.ClearField("data_location")
            skipped = _skipped(tensor)
            if skipped is None:
                full.raw_data = self._read_external(tensor)
            elif skipped.raw is not None:
                full.raw_data = self.piece(*skipped.raw)
            else:
                full.MergeFromString(b"".join(self.piece(*span) for span in skipped.spans))
        try:
            is_listed = bool(tensor.int64_data) and not full.HasField("raw_data")
            if tensor.data_type == TensorProto.INT64 and is_listed:
                # What shapes come as; several times as fast as the general way.
                return np.array(tensor.int64_data, np.int64).reshape(tuple(tensor.dims))
            # onnx types the result as the union of all that numpy can hold.
            values: npt.NDArray[np.generic] = numpy_helper.to_array(full)
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            reason = f"onnx knows no type {error}" if isinstance(error, KeyError) else error
            raise ModelError(
                f"the weight {printable_name(tensor)!r} of {self.name} cannot be read: {reason}"
            ) from error
        return values

    def _read_external(self, tensor: TensorProto) -> bytes:
        location = external_location(self, tensor)
        try:
            with location.path.open("rb") as file:
                file.seek(location.offset)
                return file.read(location.length)
        except OSError as error:
            raise ModelError(
                f"the external data {printable(str(location.path))} of {self.name} cannot be read: "
                f"{_reason(error)}."
            ) from error


class ExternalLocation(Struct, frozen=True):
    """Where one weight lies outside of the model file, checked to be inside its folder.

    `place` is the path as the model names it, relative to its folder.
    """

    place: str
    path: Path
    offset: int
    length: int


def open_model(source: ModelSource) -> ModelFile:
    """The model at a path, or in bytes, or built in memory; its weights stay where they are."""
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
            if found.st_size == 0:
                raise ModelError(f"{name} is empty. Give the path of an ONNX model.")
            return mmap(file.fileno(), 0, access=ACCESS_READ), SeenFile.of(path, found)
    except FileNotFoundError:
        raise ModelError(
            f"there is no file {name}.{_hint(path)} Give the path of an ONNX model."
        ) from None
    except IsADirectoryError:
        raise ModelError(f"{name} is a folder. Give the path of an ONNX model in it.") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{name} cannot be read: {_reason(error)}.") from error


def _hint(path: Path) -> str:
    """Which model a path may mean: the one whose name is most like it, or some of those there."""
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
        raise
    return ModelFile(printable(path.name) if path else name, path, proto, data, seen)


def _read_proto(data: Buffer, name: str) -> onnx.ModelProto:
    slim = slim_model(data, name)
    if len(slim) > MAX_PROTO_BYTES:
        raise ModelError(
            f"{name} holds {format_bytes(len(slim))} beside its weights; "
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
    """Whether it has no byte that texts do without. A small message can be such a text too."""
    return all(byte >= ord(" ") or byte in b"\t\n\r" for byte in head)


def printable_name(tensor: TensorProto) -> str:
    """The name of a tensor as it can be shown: protobuf hands out one that is no text as bytes."""
    return printable(str(tensor.name))


def check_dims(dims: Sequence[int | None], what: str) -> None:
    """Raise ModelError where no tensor can have these dimensions: figures would be made of them."""
    if len(dims) > MAX_RANK:
        raise ModelError(f"{what} has {len(dims):,} dimensions; there can be {MAX_RANK}.")
    known = [dim for dim in dims if dim is not None]
    if known and min(known) < 0:
        raise ModelError(
            f"{what} has a negative dimension: {known}. The file is damaged: export the model "
            "again."
        )
    if prod(known) > _MOST_ELEMENTS:
        raise ModelError(
            f"{what} has the shape {format_shape(tuple(dims))}, which is more than any machine "
            "holds. The file is damaged: export the model again."
        )


def check_stored_size(file: ModelFile, tensor: TensorProto, what: str) -> None:
    """Raise ModelError where a tensor claims more, or other, data than it has."""
    dims = tuple(tensor.dims)
    dtype = dtype_name(tensor.data_type)
    check_dims(dims, f"{what} {printable_name(tensor)!r} of {file.name}")
    if dtype is None:
        raise ModelError(
            f"{what} {printable_name(tensor)!r} of {file.name} has the element type "
            f"{tensor.data_type}, which onnx {onnx.__version__} does not know. Install a newer "
            "onnx: pip install --upgrade onnx"
        )
    if is_external(tensor):
        return
    elements = prod(dims)
    expected = byte_size(dtype, elements)
    stored = _stored_bytes(tensor)
    if stored == expected or (stored is None and _has_elements(tensor, elements)):
        return
    claim = f"that is {format_bytes(expected)}" if expected else f"{elements:,} elements"
    raise ModelError(
        f"{what} {printable_name(tensor)!r} of {file.name} claims the shape {list(dims)}, {claim}, "
        f"but the file holds {'other data' if stored is None else format_bytes(stored)} for it. "
        "The file is damaged: export the model again."
    )


def _stored_bytes(tensor: TensorProto) -> int | None:
    """The bytes of a tensor's raw data; None where its data is typed, or not there."""
    if tensor.data_location == TensorProto.EXTERNAL:
        skipped = _skipped(tensor)
        if skipped is None or skipped.raw is None:
            return None
        return skipped.raw[1] - skipped.raw[0]
    return len(tensor.raw_data) if tensor.HasField("raw_data") else None


def _has_elements(tensor: TensorProto, elements: int) -> bool:
    """Whether typed data can be that of so many elements.

    A number in a typed field is one element, or half a complex one, or up to eight packed ones.
    """
    if tensor.data_location == TensorProto.EXTERNAL:
        # Skipped typed data; its numbers have a varying width, so only a bound is known.
        skipped = _skipped(tensor)
        spans = () if skipped is None else skipped.spans
        return 8 * sum(stop - start for start, stop in spans) >= elements
    # The first field that holds anything: a tensor has no more than one.
    stored = 0
    for name in _TYPED_DATA_FIELDS:
        stored = len(getattr(tensor, name))
        if stored:
            break
    return stored <= 2 * elements and 8 * stored >= elements


_TYPED_DATA_FIELDS = (
    "float_data", "int64_data", "int32_data", "double_data", "uint64_data", "string_data",
)  # fmt: skip


def _skipped(tensor: TensorProto) -> Skipped | None:
    for entry in tensor.external_data:
        if entry.key == WEIGHT_KEY:
            try:
                return Skipped.decode(entry.value)
            except ValueError:
                raise ModelError(
                    f"the weight {printable_name(tensor)!r} has external data of an unknown form. "
                    "The file is damaged: export the model again."
                ) from None
    return None


def is_external(tensor: TensorProto) -> bool:
    """Whether the data lies in another file than the model."""
    return tensor.data_location == TensorProto.EXTERNAL and _skipped(tensor) is None


def _entries(tensor: TensorProto) -> dict[str, Any]:
    """What a tensor says of where its data lies."""
    return {entry.key: entry.value for entry in tensor.external_data}


def external_location(file: ModelFile, tensor: TensorProto) -> ExternalLocation:
    """Where the data of an external tensor lies; refuses a path out of the model's folder."""
    name = printable_name(tensor)
    entries = _entries(tensor)
    location = str(entries.get("location", ""))
    shown = printable(location)
    if file.path is None or file.folder is None:
        raise ModelError(
            f"the weight {name!r} lies in the file {shown!r}, which a model given as bytes does "
            "not have beside it. Give the path of the model."
        )
    place = PurePosixPath(posixpath.normpath(location))
    inside = bool(location) and not place.is_absolute() and place.parts[:1] not in {(), ("..",)}
    try:
        path = (file.folder / location).resolve()
        inside = inside and any(map(path.is_relative_to, _folders(file.path)))
    except (OSError, ValueError):
        inside = False
    if not inside:
        raise ModelError(
            f"the weight {name!r} of {file.name} points to {shown!r}, outside of the model's "
            "folder. External data is read only from the folder of the model: save the model "
            "with that file beside it."
        )
    try:
        size = path.stat().st_size
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", size - offset))
    except FileNotFoundError:
        raise ModelError(
            f"the weight {name!r} of {file.name} lies in {shown!r}, which is not there. "
            "Put that file beside the model."
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the external data {shown!r} of {file.name} cannot be used: {error}."
        ) from error
    if not path.is_file():
        raise ModelError(
            f"the external data {shown!r} of {file.name} is no file. Put the file that the model "
            "was saved with in its place."
        )
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(
            f"the weight {name!r} of {file.name} claims bytes {offset:,} to {offset + length:,} "
            f"of {shown!r}, which has {size:,}. The two files do not belong together: copy both "
            "from the same place."
        )
    return ExternalLocation(place.as_posix(), path, offset, length)


def external_files(file: ModelFile) -> dict[str, Path]:
    """The files beside the model in which some of its data lies, by how the model names them.

    ModelError where one is not there or must not be read: an engine opens them by itself.
    """
    tensors = (stored.tensor for stored in walk_stored(file.proto))
    found = (external_location(file, tensor) for tensor in tensors if is_external(tensor))
    return {location.place: location.path for location in found}


def _folders(path: Path) -> set[Path]:
    """Where the data of a model may lie: beside it, and beside what it is a link to.

    A cache of downloads has links to files that lie together elsewhere.
    """
    return {path.parent.resolve(), path.resolve().parent}
