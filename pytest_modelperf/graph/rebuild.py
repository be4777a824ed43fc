"""Rebuild a runnable model from a twin, with weights that are drawn and written piece by piece."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from onnx import ModelProto

from pytest_modelperf.errors import ModelError, OutputError
from pytest_modelperf.files.output import cannot_write
from pytest_modelperf.graph.model_file import MAX_PROTO_BYTES, ModelFile
from pytest_modelperf.graph.replaced import Replacement, write_replaced
from pytest_modelperf.graph.stored_tensors import StorageKind, remove_named
from pytest_modelperf.graph.twin import MAX_MODEL_BYTES, TWIN_KEY, LeftOutWeight, Twin, left_out
from pytest_modelperf.graph.weights.drawing import Drawer
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes

# The metadata key that marks a rebuilt model.
REBUILT_KEY = "modelperf.rebuilt"


def rebuild(  # noqa: PLR0913  # a twin, where to, and the limits of files
    twin: Twin,
    path: Path,
    seed: int = 0,
    *,
    max_bytes: int = MAX_MODEL_BYTES,
    max_file_bytes: int = MAX_PROTO_BYTES,
    recorded_bytes: int | None = None,
) -> Path:
    """Write a model that runs as the twin's did, its weights drawn by `seed`, and return `path`.

    Weights that were equal in the model are drawn equal, others each by its own key.

    If the model would be larger than `max_file_bytes`, its weights go into a file next to it. They
    also do so if the file of the recorded model, of `recorded_bytes`, was too small for them:
    engines map such weights, which changes the time to load them. A model of more than `max_bytes`
    in all, or too large for the disk, is refused before anything is written.
    """
    proto = ModelProto()
    proto.CopyFrom(twin.proto)
    weights = tuple(left_out(Twin(twin.name, proto)))
    remove_named(proto.metadata_props, {TWIN_KEY}, by="key")
    proto.metadata_props.add(key=REBUILT_KEY, value=json.dumps({"seed": seed}))
    weight_bytes = sum(weight.nbytes for weight in weights)
    size = proto.ByteSize() + weight_bytes
    _check_room(twin, path, size, max_bytes)
    drawer = Drawer(seed)
    replacements = []
    for weight in weights:
        weight.tensor.ClearField("metadata_props")
        is_initializer = weight.stored.kind is StorageKind.INITIALIZER
        make = partial(_drawn, weight, drawer)
        replacements.append(Replacement(weight.tensor, make, is_initializer=is_initializer))
    had_no_room = recorded_bytes is not None and 2 * recorded_bytes < weight_bytes
    # All data is drawn, so this file needs no bytes to copy from.
    empty = ModelFile(twin.name, None, proto, b"")
    is_split = size > max_file_bytes or had_no_room
    write_replaced(empty, proto, replacements, path, is_split=is_split)
    return path


def _check_room(twin: Twin, path: Path, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ModelError(
            f"the model of {twin.name} would have {format_bytes(size)}; "
            f"{format_bytes(max_bytes)} are allowed."
        )
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise cannot_write(str(path), error) from error
    if size > free:
        raise OutputError(
            f"cannot write {printable(str(path))}: the model would have {format_bytes(size)}, "
            f"and {format_bytes(free)} are free."
        )


def _drawn(weight: LeftOutWeight, drawer: Drawer) -> Iterator[bytes]:
    codes = drawer.draw_codes(
        weight.note, weight.number, weight.dims, weight.group, weight.stored.dense_shape
    )
    return map(weight.number.pack, codes)
