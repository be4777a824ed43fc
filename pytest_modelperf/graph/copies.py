"""Copies of a model whose weights stream from file to file: with notes, shapes or more outputs."""

from __future__ import annotations

import difflib
import filecmp
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path

import onnx
from msgspec import Struct
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from pytest_modelperf.errors import ModelError, OutputError, UsageError
from pytest_modelperf.files.output import Target, cannot_write, has_folder, written_bytes
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.model_bytes import Chunk, chunk_size, restore_model
from pytest_modelperf.graph.model_file import DATA_TYPES, MAX_PROTO_BYTES, ModelFile, external_files
from pytest_modelperf.graph.stored_tensors import remove_named, stored_names, with_bodies
from pytest_modelperf.graph.structure import Graph, Node, Tensor, is_open
from pytest_modelperf.graph.weights.numbers import NUMPY_DTYPES
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes

_PIECE_BYTES = 1 << 20


def restored_chunks(proto: onnx.ModelProto, file: ModelFile, change: str) -> tuple[Chunk, ...]:
    """Return the chunks to write for `proto`, which was made from `file`.

    `change` describes the change: "with its shapes". Raise ModelError if the result is too large.
    """
    chunks = restore_model(proto.SerializeToString(), file.name)
    size = sum(map(chunk_size, chunks))
    if size > MAX_PROTO_BYTES:
        raise ModelError(
            f"{file.name} {change} would have {format_bytes(size)}; an ONNX file can "
            f"have {format_bytes(MAX_PROTO_BYTES)} at most. Store its weights as external data "
            "first (onnx.save with save_as_external_data=True)."
        )
    return chunks


def write_chunks(file: ModelFile, target: Target, chunks: Sequence[Chunk]) -> None:
    """Write the chunks in one step, so that the copy may replace the model's own file."""
    with written_bytes(target) as stream:
        for piece in read_chunks(file, chunks, {}):
            stream.write(piece)


def read_chunks(
    file: ModelFile, chunks: Sequence[Chunk], made: Mapping[int, Callable[[], Iterator[bytes]]]
) -> Iterator[bytes]:
    """Yield the bytes of the chunks in pieces, from the file or as `made` for a start."""
    with file.open_bytes() as source:
        for chunk in chunks:
            if isinstance(chunk, bytes):
                yield chunk
            elif chunk[0] in made:
                yield from made[chunk[0]]()
            else:
                start, stop = chunk
                source.seek(start)
                for begin in range(start, stop, _PIECE_BYTES):
                    yield source.read(min(_PIECE_BYTES, stop - begin))


# -- a copy of a model whose nodes carry notes


def write_annotated(
    file: ModelFile, notes: Mapping[str, Mapping[str, str]], target: Target
) -> None:
    """Write the model with notes for its nodes, by their first output or else their name."""
    proto = deepcopy(file.proto)
    for node in with_bodies(proto.graph.node):
        first = next((name for name in node.output if name), str(node.name))
        own = notes.get(first, {})
        remove_named(node.metadata_props, own, by="key")
        for key, value in own.items():
            node.metadata_props.add(key=key, value=value)
    write_chunks(file, target, restored_chunks(proto, file, "with its notes"))


# -- write a copy of a model with a unique name for every node; weights stream from file to file


def needs_copy(bound: BoundModel) -> bool:
    """Whether the model needs a copy: names are missing, or it differs from its file."""
    if bound.file.path is None or bound.inputs.rebound or bound.file.proto.functions:
        return True
    names = Counter(node.name for node in _running(bound.file.proto.graph))
    return any(count > 1 or not _is_safe(name) for name, count in names.items())


def write_runnable(bound: BoundModel, path: Path) -> None:
    """Write the model as it has to run, each of its nodes with a unique name."""
    proto = as_it_runs(bound)
    _name_nodes(proto.graph)
    chunks = restored_chunks(proto, bound.file, "with the names of its nodes")
    write_chunks(bound.file, path, chunks)


def nodes_by_name(bound: BoundModel) -> dict[str, Node]:
    """Return the nodes that run, by their names in the copy (or their own without a copy)."""
    proto = deepcopy(bound.proto)
    _name_nodes(proto.graph)
    return dict(_pairs(proto.graph, bound.graph))


def as_it_runs(bound: BoundModel) -> onnx.ModelProto:
    """Return the model with only the shapes that its file declares."""
    # The plan of an engine depends on the shapes that it knows, and the copy must run like the
    # file. If the batch was changed, the declared shapes are wrong and removed. Then inputs have
    # the bound sizes, except along axes that change with the steps of a generation.
    original, is_rebound = bound.file.proto, bound.inputs.rebound
    proto = deepcopy(bound.proto if is_rebound or original.functions else original)
    if is_rebound:
        changing = {} if bound.phase is None else bound.phase.changing_axes
        for info in proto.graph.input:
            for axis in changing.get(info.name, ()):
                info.type.tensor_type.shape.dim[axis].Clear()
    elif original.functions:
        for kept, own in (
            (proto.graph.input, original.graph.input),
            (proto.graph.output, original.graph.output),
            (proto.graph.value_info, original.graph.value_info),
        ):
            del kept[:]
            kept.extend(own)
    return proto


def _running(graph: GraphProto) -> list[NodeProto]:
    return [node for node in with_bodies(graph.node) if node.op_type != "Constant"]


def _name_nodes(graph: GraphProto) -> None:
    nodes = _running(graph)
    taken = {node.name for node in nodes}
    kept: set[str] = set()
    for node in nodes:
        if node.name not in kept and _is_safe(node.name):
            kept.add(node.name)
            continue
        wish = next(filter(None, node.output), "") or node.name
        wish = wish if _is_safe(wish) else node.op_type
        name, count = wish, 1
        while name in taken:
            count += 1
            name = f"{wish}#{count}"
        node.name = name
        taken.add(name)
        kept.add(name)


def _is_safe(name: str) -> bool:
    """Whether a name is safe in a profile: older versions of ONNX Runtime do not escape it."""
    return bool(name) and name.isprintable() and not {'"', "\\"} & set(name)


def _pairs(proto: GraphProto, graph: Graph) -> Iterator[tuple[str, Node]]:
    made = {tensor.name: node for node in graph.nodes for tensor in node.outputs if tensor}
    for call in proto.node:
        node = next((made[name] for name in call.output if name in made), None)
        if node is None:
            continue
        yield call.name, node
        for attribute in call.attribute:
            if attribute.name in node.bodies:
                yield from _pairs(attribute.g, node.bodies[attribute.name])


# -- a copy of a model that also returns tensors inside it


def can_be_watched(tensor: Tensor | None) -> bool:
    """Whether a run can return this tensor as a numpy array. Constants are not worth it."""
    return tensor is not None and not tensor.is_constant and tensor.dtype in NUMPY_DTYPES


def write_watched_model(bound: BoundModel, names: Iterable[str], path: Path) -> None:
    """Write the model as it has to run, with these tensors as further outputs."""
    proto = as_it_runs(bound)
    present = {output.name for output in proto.graph.output}
    for name in names:
        if name not in present:
            # The shape is left out, because it may hold for one case only.
            data_type = DATA_TYPES.get(bound.tensors[name].dtype or "", TensorProto.UNDEFINED)
            proto.graph.output.append(helper.make_tensor_value_info(name, data_type, None))
    write_chunks(bound.file, path, restored_chunks(proto, bound.file, "with more outputs"))


# -- write a bound model with the shape of every tensor in it; weights stream from file to file


class ShapedModel(Struct, frozen=True):
    """A written model: its number of tensors, those without a complete shape, and new outputs."""

    tensors: int
    unknown: tuple[str, ...]
    new_outputs: tuple[str, ...]
    # The files with weights that could not be copied next to it.
    left_beside: tuple[str, ...]


def write_shaped_model(bound: BoundModel, target: Target, names: Sequence[str] = ()) -> ShapedModel:
    """Write the model with all known shapes, and the tensors `names` as further outputs."""
    proto = deepcopy(bound.proto)
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
        if name not in declared and name not in stored and tensor.dtype is not None:
            graph.value_info.append(_value_info(tensor))
    return tuple(unknown)


def _value_info(tensor: Tensor) -> ValueInfoProto:
    data_type = DATA_TYPES.get(tensor.dtype or "", TensorProto.UNDEFINED)
    return helper.make_tensor_value_info(tensor.name, data_type, tensor.shape)


def _copy_external_data(bound: BoundModel, path: Path) -> None:
    target = path.parent.resolve()
    for place, location in sorted(external_files(bound.file).items()):
        copy = target / place
        if path.resolve() in (location, copy):
            raise OutputError(
                f"{printable(str(path))} holds the weights of {bound.file.name}. "
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
