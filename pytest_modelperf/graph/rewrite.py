"""Write a bound model with the shape of every tensor in it; weights stream from file to file."""

from __future__ import annotations

import difflib
import filecmp
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import onnx
from msgspec import Struct
from onnx import TensorProto, ValueInfoProto, helper

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.files.output import Target, cannot_write, has_folder
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.model_file import DATA_TYPES, external_files
from pytest_modelperf.graph.stored_tensors import stored_names
from pytest_modelperf.graph.stream import restored_chunks, write_chunks
from pytest_modelperf.graph.structure import Tensor, is_open
from pytest_modelperf.text.escaping import printable


class ShapedModel(Struct, frozen=True):
    """A written model: its number of tensors, those without a complete shape, and new outputs.

    `left_beside` are the files with weights that could not be copied beside it.
    """

    tensors: int
    unknown: tuple[str, ...]
    new_outputs: tuple[str, ...]
    left_beside: tuple[str, ...]


def write_shaped_model(bound: BoundModel, target: Target, names: Sequence[str] = ()) -> ShapedModel:
    """Write the model with all known shapes, and the tensors `names` as further outputs."""
    proto = onnx.ModelProto()
    proto.CopyFrom(bound.proto)
    new_outputs = _add_outputs(bound, proto.graph, names)
    unknown = _add_shapes(bound, proto.graph)
    chunks = restored_chunks(proto, bound.file, "with its shapes")
    # A pipe or a device has no folder for other files.
    left_beside = () if has_folder(target) else tuple(sorted(external_files(bound.file)))
    if not left_beside:
        try:
            _copy_external_data(bound, Path(target))
        except OSError as error:
            raise cannot_write(os.fspath(target), error) from error
    write_chunks(bound.file, target, chunks)
    return ShapedModel(len(bound.tensors), unknown, new_outputs, left_beside)


def _add_outputs(
    bound: BoundModel, graph: onnx.GraphProto, names: Sequence[str]
) -> tuple[str, ...]:
    present = {output.name for output in graph.output}
    wanted = dict.fromkeys(
        name
        for text in names
        for name in ((text,) if text in bound.tensors else map(str.strip, text.split(",")))
    )
    for name in wanted:
        if name not in bound.tensors:
            near = difflib.get_close_matches(name, list(bound.tensors), 3)
            hint = f" Did you mean {', '.join(map(printable, near))}?" if near else ""
            raise UsageError(f"{bound.file.name} has no tensor {printable(name)!r}.{hint}")
    added = tuple(name for name in wanted if name not in present)
    for name in added:
        graph.output.append(_value_info(bound.tensors[name]))
    return added


def _add_shapes(bound: BoundModel, graph: onnx.GraphProto) -> tuple[str, ...]:
    """Give every tensor its shape; returns the names of tensors without a complete one."""
    declared = {info.name for info in (*graph.input, *graph.output)}
    stored = stored_names(graph)
    for output in graph.output:
        tensor = bound.tensors[output.name]
        if tensor.dtype is not None and tensor.shape is not None:
            output.CopyFrom(_value_info(tensor))
    unknown: list[str] = []
    for name, tensor in bound.tensors.items():
        if is_open(tensor):
            unknown.append(name)
        if name in declared or name in stored or tensor.dtype is None:
            continue
        graph.value_info.append(_value_info(tensor))
    return tuple(unknown)


def _value_info(tensor: Tensor) -> ValueInfoProto:
    data_type = DATA_TYPES.get(tensor.dtype or "", TensorProto.UNDEFINED)
    return helper.make_tensor_value_info(tensor.name, data_type, tensor.shape)


def _copy_external_data(bound: BoundModel, path: Path) -> None:
    """Copy the external data to the places that the copy of the model refers to."""
    target = path.parent.resolve()
    for place, location in sorted(external_files(bound.file).items()):
        copy = target / place
        if path.resolve() in (location, copy):
            raise OutputError(
                f"{printable(str(path))} is where the weights of {bound.file.name} lie. "
                "Write to another file."
            )
        if copy.exists():
            if copy.samefile(location) or filecmp.cmp(copy, location, shallow=False):
                continue
            raise OutputError(
                f"the external data of {bound.file.name} would overwrite {printable(str(copy))}. "
                "Write to another folder."
            )
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(location, copy)
