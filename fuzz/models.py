"""What must hold of the readers of models and of twins, whatever bytes they are given."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto, TensorProto, numpy_helper

# Imported here although only the check of a model needs it: what is imported later is not watched.
import pytest_modelperf.profiler.counting.sparsity  # noqa: F401
from fuzz.laws import hold, read_or_refuse
from fuzz.scratch import scratch_file, scratch_path
from pytest_modelperf.errors import BindingError, ModelError
from pytest_modelperf.graph.model_bytes import restore_model, slim_model
from pytest_modelperf.graph.model_file import (
    MAX_PROTO_BYTES,
    ModelFile,
    check_stored_size,
    open_model,
)
from pytest_modelperf.graph.replaced import rebuild
from pytest_modelperf.graph.stored_tensors import walk_stored
from pytest_modelperf.graph.stored_weights import read_codes
from pytest_modelperf.graph.twin import LeftOutWeight, Twin, left_out, read_twin
from pytest_modelperf.graph.weights import program
from pytest_modelperf.graph.weights.notes import Statistics
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.profiler.shown.document import dump_profile
from pytest_modelperf.profiler.shown.tables.layers import LayerView
from pytest_modelperf.report.page import TextStyle
from tests.support.rendered import render_profile

_DATA_FIELDS = (
    "raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data",
    "string_data",
)  # fmt: skip
_ELSEWHERE_FIELDS = ("external_data", "data_location")
# What protobuf accepts and the reader does not, because nothing that writes models writes it.
_KNOWN_REFUSALS = ("wire type 3", "nest deeper", "two tensors")
_MOST_REBUILT_BYTES = 1 << 20
_BATCH_SIZE = 3
# To draw a million numbers takes longer than all else; what is drawn from fewer keeps the laws.
_POOL = 10_007


def check_wire(data: bytes) -> bool:
    """A model without its weights is what onnx reads without them, and each is found again."""
    whole = _parsed(data)
    try:
        slim = slim_model(data, "m")
    except ModelError as error:
        hold(str(error).isprintable(), f"an error can be shown: {str(error)!r}")
        is_known = any(what in str(error) for what in _KNOWN_REFUSALS)
        hold(whole is None or is_known, f"what onnx reads is read: {error}")
        return False
    file = read_or_refuse(lambda: open_model(data), ModelError)
    if whole is None or file is None:
        return False
    hold(_without_data(file.proto) == _without_data(whole), "only data is left out")
    for found, told in zip(_tensors(file.proto), _tensors(whole), strict=True):
        if told.data_location != TensorProto.EXTERNAL:
            _check_values(file, found, told)
    restored = b"".join(
        chunk if isinstance(chunk, bytes) else data[slice(*chunk)]
        for chunk in restore_model(slim, "m")
    )
    again = _parsed(restored)
    hold(
        again is not None and _with_data(again) == _with_data(whole),
        "what is restored is what was there",
    )
    return True


def check_model(data: bytes) -> bool:
    """A model has a profile, the same one as after onnx has written it anew, or is refused."""
    profile = read_or_refuse(
        lambda: profile_model(data, ProfileRequest(sparsity=True)), ModelError, BindingError
    )
    if profile is None:
        return False
    static = profile.cases[0].static
    _check_figures(static)
    json.loads(dump_profile(profile))
    text = render_profile(profile, LayerView(), TextStyle())
    hold(text.replace("\n", "").isprintable(), "a report can be shown")
    read_or_refuse(
        lambda: profile_model(data, ProfileRequest(batch_sizes=(_BATCH_SIZE,))),
        ModelError,
        BindingError,
    )
    whole = _parsed(data)
    if whole is not None:
        anew = profile_model(whole, ProfileRequest(sparsity=True)).cases[0].static
        hold(anew == static, "the order of fields in a file means nothing")
    return True


def _check_figures(static: StaticProfile) -> None:
    figures = (
        *(static.macs, static.elementwise_ops, static.backward_macs, static.params),
        *(static.weight_bytes, static.activation_bytes, static.peak_activation_bytes or 0),
    )
    hold(min(figures) >= 0, f"no figure is negative: {figures}")
    hold(0 <= static.coverage <= 1, f"coverage is a share: {static.coverage}")
    effective = static.effective_macs
    hold(effective is None or 0 <= effective <= static.macs, "effective MACs are some of the MACs")
    for layer in static.layers:
        hold(layer.sparsity is None or 0 <= layer.sparsity.ratio <= 1, "sparsity is a share")


def check_twin(data: bytes) -> bool:
    """A twin becomes a model with all of its weights, wherever they lie, or is refused."""
    path = scratch_file("twin.onnx", data)
    twin = read_or_refuse(lambda: read_twin(path), ModelError)
    if twin is None:
        return False
    weights = tuple(left_out(twin))
    # All in one file, and what can be in a file of its own.
    with patch.object(program, "POOL", _POOL):
        files = (_rebuilt(twin, "one.onnx", MAX_PROTO_BYTES), _rebuilt(twin, "two.onnx", 0))
    one, two = ([] if file is None else _drawn(file, twin, weights) for file in files)
    hold(one == two, "a weight is the same wherever it is written")
    return True


def _rebuilt(twin: Twin, name: str, max_file_bytes: int) -> ModelFile | None:
    path = scratch_path(name)
    path.unlink(missing_ok=True)
    made = read_or_refuse(
        lambda: rebuild(twin, path, max_bytes=_MOST_REBUILT_BYTES, max_file_bytes=max_file_bytes),
        ModelError,
    )
    hold(path.exists() == (made is not None), "nothing is left of a refused twin")
    return None if made is None else open_model(made)


def _drawn(file: ModelFile, twin: Twin, weights: Sequence[LeftOutWeight]) -> list[bytes]:
    """The weights as they were drawn, each as its note says where that is exact."""
    pairs = zip(walk_stored(twin.proto), walk_stored(file.proto), strict=True)
    tensors = [s.tensor for t, s in pairs if t.tensor.data_location == TensorProto.EXTERNAL]
    drawn = []
    for weight, tensor in zip(weights, tensors, strict=True):
        check_stored_size(file, tensor, "the weight")
        note, number = weight.note, weight.number
        codes = np.concatenate([np.zeros(0, np.uint8), *read_codes(file, tensor, number)])
        codes = codes.astype(f"u{max(number.bits, 8) // 8}")
        if isinstance(note, Statistics):
            zeros = codes.size - int(np.count_nonzero(number.decode(codes)))
            is_right = zeros == note.zeros or number.lowest > 0
            hold(is_right, f"the zeros are there: {zeros}, not {note.zeros}")
        drawn.append(codes.tobytes())
    return drawn


def _check_values(file: ModelFile, found: TensorProto, told: TensorProto) -> None:
    """A tensor whose data may have been left out has the values that onnx reads."""
    try:
        expected: Any = numpy_helper.to_array(told)
    except Exception:  # noqa: BLE001  # onnx raises anything where it cannot make an array
        read_or_refuse(lambda: file.read_tensor(found), ModelError)
        return
    values = file.read_tensor(found)
    hold(values.dtype == expected.dtype, f"{values.dtype} is {expected.dtype}")
    hold(values.shape == expected.shape, f"{values.shape} is {expected.shape}")
    is_same = (
        values.tolist() == expected.tolist()
        if values.dtype == object
        else values.tobytes() == expected.tobytes()
    )
    hold(is_same, "a weight is what onnx reads of it")


def _parsed(data: bytes) -> ModelProto | None:
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError):
        return None
    return model


def _known(model: ModelProto) -> ModelProto:
    """A copy without the fields that onnx does not know, whose order means nothing."""
    copy = ModelProto()
    copy.CopyFrom(model)
    copy.DiscardUnknownFields()
    return copy


def _without_data(model: ModelProto) -> bytes:
    known = _known(model)
    for tensor in _tensors(known):
        for field in (*_DATA_FIELDS, *_ELSEWHERE_FIELDS):
            tensor.ClearField(field)
    return bytes(known.SerializeToString(deterministic=True))


def _with_data(model: ModelProto) -> bytes:
    """The whole model, without what says of data that is there that it is elsewhere."""
    known = _known(model)
    for tensor in _tensors(known):
        if any(getattr(tensor, field) for field in _DATA_FIELDS):
            for field in _ELSEWHERE_FIELDS:
                tensor.ClearField(field)
    return bytes(known.SerializeToString(deterministic=True))


def _tensors(message: Message) -> Iterator[TensorProto]:
    if isinstance(message, TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in (value,) if isinstance(value, Message) else value:
                yield from _tensors(inner)
