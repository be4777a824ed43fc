"""One ONNX model on disk or in memory: its graph at once, the bytes of a weight when asked for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, numpy_helper

from pytest_modelperf.errors import ModelError, UsageError
from pytest_modelperf.graph.structure import byte_size
from pytest_modelperf.graph.wire import WEIGHT_KEY, Buffer, Skipped, give_back, slim_model
from pytest_modelperf.units import format_bytes, printable

if TYPE_CHECKING:
    import numpy.typing as npt

# What a model can be given as: its path, its bytes, or the message itself.
ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto"

# protobuf cannot hold a message that is larger.
MAX_PROTO_BYTES = 2**31 - 1

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


@dataclass(frozen=True, slots=True, eq=False)
class ModelFile:
    """A model whose graph is in memory and whose weights are not.

    `proto` is the model without the data of its large tensors. `folder` is where external data
    may lie; it is None for a model that came as bytes.
    """

    name: str
    path: Path | None
    proto: onnx.ModelProto
    data: Buffer

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

    def sha256(self) -> str:
        """The digest of the whole file, weights included, read in pieces."""
        digest = hashlib.sha256()
        with self.open_bytes() as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
        return digest.hexdigest()

    def open_bytes(self) -> BinaryIO:
        """The model as a file to read from end to end.

        Not through the mapping: all pages of it would count as this process's memory.
        """
        return BytesIO(self.data) if self.path is None else self.path.open("rb")

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
                full.raw_data = self._copy(*skipped.raw)
            else:
                full.MergeFromString(b"".join(self._copy(*span) for span in skipped.spans))
        try:
            if tensor.data_type == TensorProto.INT64 and tensor.int64_data:
                # What shapes come as; several times as fast as the general way.
                return np.array(tensor.int64_data, np.int64).reshape(tuple(tensor.dims))
            # onnx types the result as the union of all that numpy can hold.
            values: npt.NDArray[np.generic] = numpy_helper.to_array(full)
        except (ValueError, TypeError, RuntimeError) as error:
            raise ModelError(
                f"the weight {printable(tensor.name)!r} of {self.name} cannot be read: {error}"
            ) from error
        return values

    def _copy(self, start: int, stop: int) -> bytes:
        """Bytes of the file; the pages that they were mapped to are given back at once."""
        piece = self.data[start:stop]
        give_back(self.data, start, stop)
        return piece

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


@dataclass(frozen=True, slots=True)
class ExternalLocation:
    """Where one weight lies outside of the model file, checked to be inside its folder."""

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
    data = _map(path, name)
    return _parse(data, name, path)


def _map(path: Path, name: str) -> Buffer:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelError(f"{name} is empty. Give the path of an ONNX model.")
            return mmap(file.fileno(), 0, access=ACCESS_READ)
    except FileNotFoundError:
        hint = ""
        if path.parent.is_dir():
            near = sorted(str(p) for p in path.parent.glob("*.onnx"))[:5]
            hint = f" There are: {', '.join(map(printable, near))}." if near else ""
        raise ModelError(
            f"there is no file {name}.{hint} Give the path of an ONNX model."
        ) from None
    except IsADirectoryError:
        raise ModelError(f"{name} is a folder. Give the path of an ONNX model in it.") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{name} cannot be read: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _parse(data: Buffer, name: str, path: Path | None) -> ModelFile:
    for magic, what in _OTHER_FORMATS.items():
        if data[: len(magic)] == magic:
            raise ModelError(f"{name} is not an ONNX model but {what}.")
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
    return ModelFile(path.name if path else name, path, proto, data)


def check_stored_size(file: ModelFile, tensor: TensorProto, what: str) -> None:
    """Raise ModelError where a tensor claims more, or other, data than it has."""
    dims = tuple(tensor.dims)
    dtype = dtype_name(tensor.data_type)
    if dims and min(dims) < 0:
        raise ModelError(
            f"{what} {printable(tensor.name)!r} of {file.name} has a negative dimension: "
            f"{list(dims)}."
        )
    if dtype is None:
        raise ModelError(
            f"{what} {printable(tensor.name)!r} of {file.name} has the element type "
            f"{tensor.data_type}, which onnx {onnx.__version__} does not know."
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
        f"{what} {printable(tensor.name)!r} of {file.name} claims the shape {list(dims)}, {claim}, "
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
    for field in _TYPED_DATA_FIELDS:
        stored = len(getattr(tensor, field))
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
                    f"the weight {printable(tensor.name)!r} has external data of an unknown form."
                ) from None
    return None


def is_external(tensor: TensorProto) -> bool:
    """Whether the data lies in another file than the model."""
    return tensor.data_location == TensorProto.EXTERNAL and _skipped(tensor) is None


def external_location(file: ModelFile, tensor: TensorProto) -> ExternalLocation:
    """Where the data of an external tensor lies; refuses a path out of the model's folder."""
    name = printable(tensor.name)
    entries: dict[str, Any] = {entry.key: entry.value for entry in tensor.external_data}
    location = str(entries.get("location", ""))
    shown = printable(location)
    if file.folder is None:
        raise ModelError(
            f"the weight {name!r} lies in the file {shown!r}, which a model given as bytes does "
            "not have beside it. Give the path of the model."
        )
    try:
        folder = file.folder.resolve()
        path = (folder / location).resolve()
        inside = path.is_relative_to(folder) and not Path(location).is_absolute()
    except (OSError, ValueError):
        inside = False
    if not inside or not location:
        raise ModelError(
            f"the weight {name!r} of {file.name} points to {shown!r}, outside of the model's "
            "folder. External data is read only from the folder of the model."
        )
    try:
        size = path.stat().st_size
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", size - offset))
    except FileNotFoundError:
        raise ModelError(
            f"the weight {name!r} of {file.name} lies in {shown!r}, which is not there. "
            f"Put that file beside the model."
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the external data {shown!r} of {file.name} cannot be used: {error}."
        ) from error
    if not path.is_file():
        raise ModelError(f"the external data {shown!r} of {file.name} is no file.")
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(
            f"the weight {name!r} of {file.name} claims bytes {offset:,} to {offset + length:,} "
            f"of {shown!r}, which has {size:,}. The two files do not belong together."
        )
    return ExternalLocation(path, offset, length)
