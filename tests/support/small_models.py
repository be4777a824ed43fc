"""Models small enough to count by hand, written as ONNX text next to the assertions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from pytest_modelperf.profiler.counting.records import StaticLayer, StaticProfile
from pytest_modelperf.profiler.hookspecs import Operators
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from tests.support.onnx_text import parse_model, tensor_of

OTHER_DOMAINS: Mapping[str, int] = {
    "ai.onnx.ml": 3,
    "com.microsoft": 1,
    "my.ops": 1,
    "local": 1,
}


def parse(
    text: str,
    opset: int = 21,
    weights: Mapping[str, npt.NDArray[Any]] | None = None,
) -> onnx.ModelProto:
    """A model from the text of its graph and local functions; `weights` are stored in it.

    The test is skipped where onnx is older than the operators.
    """
    newest = onnx.defs.onnx_opset_version()
    if opset > newest:
        pytest.skip(f"onnx {onnx.__version__} knows opsets up to {newest}, not {opset}")
    used = {name: version for name, version in OTHER_DOMAINS.items() if f"{name}." in text}
    domains = ", ".join(f'"{name}": {version}' for name, version in {"": opset, **used}.items())
    model = parse_model(f"<ir_version: 10, opset_import: [{domains}]> {text}")
    for name, values in (weights or {}).items():
        model.graph.initializer.append(tensor_of(values, name))
    return model


def static_of(
    model: onnx.ModelProto | str,
    operators: Operators | None = None,
    batch_size: int | None = None,
    **weights: npt.NDArray[Any],
) -> StaticProfile:
    """The static profile of a model, or of the text of one; `weights` are stored in it."""
    proto = parse(model, weights=weights) if isinstance(model, str) else model
    request = ProfileRequest(batch_sizes=(batch_size,))
    return profile_model(proto, request, operators).cases[0].static


def sparse_of(model: onnx.ModelProto) -> StaticProfile:
    """The static profile of a model with its weights read."""
    return profile_model(model, ProfileRequest(sparsity=True)).cases[0].static


def layer_of(profile: StaticProfile, op: str) -> StaticLayer:
    """The one layer of an operator."""
    (layer,) = (layer for layer in profile.layers if layer.qualified_op == op)
    return layer


def ones(*shape: int) -> npt.NDArray[np.float32]:
    return np.ones(shape, np.float32)


def save_beside(model: onnx.ModelProto, path: Path, location: str = "weights") -> Path:
    """Save a model at `path`, and return the file next to it that has all weights."""
    onnx.save(model, str(path), save_as_external_data=True, location=location, size_threshold=0)
    return path.with_name(location)


def zero(path: Path) -> None:
    """Overwrite a file with zeros of the same number.

    A file that keeps its size is known as changed by its time alone, and on some systems two
    writes within 10 ms have the same one.
    """
    before = path.stat()
    path.write_bytes(bytes(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
