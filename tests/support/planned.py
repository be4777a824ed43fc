"""An engine with a plan and a clock of its own: each kernel takes a fixed time.

A product takes 100 µs and any other kernel 10 µs, each up to a hundredth more, and a profile says
so. Its plan of a model is the model itself. A model whose `doc_string` says `hides 300 us` takes so
much longer as a whole, which none of its kernels shows. Parts with a `Tan` cannot be loaded. The
kernels of the operator that the option `slow` names take ten times as long. With the option `whole`
no part of a plan runs by itself.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from onnx import shape_inference
from onnx.reference import ReferenceEvaluator

from tests.support import timed
from tests.support.timed import clock_ns

__all__ = ["clock_ns"]

_PRODUCT_US, _OTHER_US = 100, 10


def describe(options: dict[str, str]) -> dict[str, Any]:
    return {"name": "planned", "version": "1", "options": options, "providers": []}


def load(model: Any, threads: int, options: dict[str, str]) -> _Session:  # noqa: ANN401, ARG001  # the contract's
    proto = onnx.load(model.path)
    hidden = re.search(r"hides (\d+) us", proto.doc_string)
    return _Session(_cost_us(proto, options) + (int(hidden[1]) if hidden else 0))


def load_part(model: Any, threads: int, options: dict[str, str]) -> _Session:  # noqa: ANN401, ARG001  # the same
    proto = onnx.load(model.path)
    if any(node.op_type == "Tan" for node in proto.graph.node):
        raise RuntimeError("there is no kernel for Tan by itself")
    return _Session(_cost_us(proto, options))


def save_plan(model: Any, threads: int, options: dict[str, str], folder: str) -> str:  # noqa: ANN401, ARG001  # the same
    path = os.path.join(folder, "plan.onnx")  # noqa: PTH118  # paths are texts on this side
    shutil.copy(model.path, path)
    return path


def runs_parts(options: dict[str, str]) -> bool:
    return "whole" not in options


def read_tensors(  # noqa: PLR0913, PLR0917  # the contract's
    model: Any,  # noqa: ANN401  # the same
    threads: int,  # noqa: ARG001  # the same
    options: dict[str, str],  # noqa: ARG001  # the same
    inputs: Mapping[str, Any],
    dtypes: Mapping[str, str],  # noqa: ARG001  # the same
    names: Sequence[str],
) -> dict[str, Any]:
    if not names:
        return {}
    found: Any = ReferenceEvaluator(onnx.load(model.path)).run(list(names), dict(inputs))
    return dict(zip(names, found, strict=True))


def observe_shapes(
    model: Any,  # noqa: ANN401  # the same
    options: dict[str, str],
    inputs: Mapping[str, Any],  # noqa: ARG001  # the same
    dtypes: Mapping[str, str],  # noqa: ARG001  # the same
    folder: str,  # noqa: ARG001  # the same
) -> list[dict[str, Any]]:
    graph = shape_inference.infer_shapes(onnx.load(model.path)).graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.value_info, *graph.output)
    }
    return [
        {
            "name": node.name,
            "calls": [[shapes[name] for name in node.output]],
            "types": ["float32"] * len(node.output),
            "spent_ns": 1000 * _kernel_us(node, options),
        }
        for node in graph.node
    ]


def plan_options(options: Mapping[str, str]) -> Mapping[str, str]:
    return options


def load_profiled(model: Any, threads: int, options: dict[str, str], folder: str) -> _Profiled:  # noqa: ANN401, ARG001  # the same
    return _Profiled(onnx.load(model.path), options)


def _cost_us(proto: onnx.ModelProto, options: Mapping[str, str]) -> int:
    return sum(_kernel_us(node, options) for node in proto.graph.node)


def _kernel_us(node: onnx.NodeProto, options: Mapping[str, str]) -> int:
    factor = 10 if node.op_type == options.get("slow") else 1
    return factor * (_PRODUCT_US if node.op_type == "MatMul" else _OTHER_US)


class _Session:
    def __init__(self, microseconds: int) -> None:
        self._timed = timed.Session(microseconds)

    def prepare(self, inputs: object, dtypes: object) -> Callable[[], None]:
        return self._timed.prepare(inputs, dtypes)

    def peak_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        pass


class _Profiled(_Session):
    def __init__(self, proto: onnx.ModelProto, options: Mapping[str, str]) -> None:
        super().__init__(_cost_us(proto, options))
        self._nodes, self._options = proto.graph.node, options

    def report(self, runs: int) -> dict[str, Any]:
        kernels = [
            {
                "name": node.name,
                "op_type": node.op_type,
                "provider": None,
                "precision": None,
                "calls": 1,
                "originals": None,
                "self_ns": [1000 * _kernel_us(node, self._options)] * runs,
            }
            for node in self._nodes
        ]
        return {"kernels": kernels, "plan": None, "peak_bytes": None}
