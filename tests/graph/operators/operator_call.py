"""One operator call written as text: a node for a shape rule, a model for ONNX Runtime.

Inputs and outputs read `f32[2,3]`, `-` if one is left out, `i64=[1,2]` for a constant whose
value a rule may know, and `u8![2,3]` for a constant of ones. An unknown type, dimension or
shape is `?[2]`, `f32[?,3]` or plain `f32`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import helper

from pytest_modelperf.graph.operators.registry import OPERATORS
from pytest_modelperf.graph.shape_rules import OutputType
from pytest_modelperf.graph.structure import Attribute, Node, Shape, Tensor

Array = npt.NDArray[np.generic]

_DTYPES = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4m3fn": "float8e4m3fn",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
    "u32": "uint32", "u8": "uint8", "bool": "bool", "str": "string", "?": None,
}  # fmt: skip


# ONNX Runtime has these up to opset 9.
_WITHDRAWN = frozenset({
    "Affine", "Crop", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh",
    "Upsample",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Given:
    """An input by its type and shape; its value if it is a constant."""

    dtype: str
    shape: tuple[int, ...]
    value: Array | None = None

    @property
    def is_initializer(self) -> bool:
        # Strings are the data here, never a parameter.
        return self.value is not None and self.dtype != "string"

    @property
    def array(self) -> Array:
        # Ones serve everywhere: as data, as scales and as indexes into more than one.
        return np.ones(self.shape, self.dtype) if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class Call:
    """`outputs` are the positions of those that are not left out.

    `answer` is given if a rule cannot know the whole truth, or has no reference to compare with.
    """

    op: str
    inputs: tuple[Given | None, ...]
    outputs: tuple[int, ...]
    answer: tuple[OutputType, ...] | None
    attributes: Mapping[str, Attribute]

    @property
    def domain(self) -> str:
        return self.op.rpartition("::")[0]

    @property
    def op_type(self) -> str:
        return self.op.rpartition("::")[2]

    def node(self) -> Node:
        inputs = (
            None
            if given is None
            else Tensor(
                f"i{index}",
                given.dtype,
                given.shape,
                is_constant=given.is_initializer,
                value=given.value,
            )
            for index, given in enumerate(self.inputs)
        )
        return Node(
            name="call",
            op_type=self.op_type,
            domain=self.domain,
            inputs=tuple(inputs),
            outputs=tuple(Tensor(name) if name else None for name in self._output_names()),
            attributes=self.attributes,
        )

    def session(self, declared: tuple[OutputType, ...] | None = None) -> ort.InferenceSession:
        """The call as a model of its own, its outputs declared or left to be inferred.

        What is declared and does not agree with what is inferred is an error.
        """
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.strict_shape_type_inference", "1")
        model = self._model(declared).SerializeToString()
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def returned(self) -> tuple[OutputType, ...]:
        """Return the outputs of the CPU kernel."""
        feeds = {name: given.array for name, given in self._named() if not given.is_initializer}
        values = self.session().run(None, feeds)
        names = ("string" if value.dtype == object else value.dtype.name for value in values)
        return tuple(
            OutputType(name, value.shape) for name, value in zip(names, values, strict=True)
        )

    def _named(self) -> list[tuple[str, Given]]:
        return [(f"i{index}", each) for index, each in enumerate(self.inputs) if each is not None]

    def _output_names(self) -> list[str]:
        return [f"o{i}" if i in self.outputs else "" for i in range(max(self.outputs) + 1)]

    def _model(self, declared: tuple[OutputType, ...] | None) -> onnx.ModelProto:
        attributes: dict[str, Any] = dict(self.attributes)
        node = helper.make_node(
            self.op_type,
            ["" if given is None else f"i{index}" for index, given in enumerate(self.inputs)],
            self._output_names(),
            domain=self.domain,
            **attributes,
        )
        inputs = [
            helper.make_tensor_value_info(name, _onnx_type(given.dtype), given.shape)
            for name, given in self._named()
            if not given.is_initializer
        ]
        constants = [
            onnx.numpy_helper.from_array(given.array, name)
            for name, given in self._named()
            if given.is_initializer
        ]
        graph = helper.make_graph([node], "call", inputs, self._outputs(declared), constants)
        # The NHWC forms have the versions of the standard operators that they are forms of.
        own = 19 if "nhwc" in self.domain else 1
        versions = {"": 9 if self.op in _WITHDRAWN else 21}
        versions |= {self.domain: own} if self.domain else {}
        imports = [helper.make_opsetid(*version) for version in versions.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def _outputs(self, declared: tuple[OutputType, ...] | None) -> list[onnx.ValueInfoProto]:
        if declared is not None:
            return [
                helper.make_tensor_value_info(f"o{index}", _onnx_type(kind.dtype or ""), kind.shape)
                for index, kind in zip(self.outputs, declared, strict=False)
            ]
        outputs = [helper.make_empty_tensor_value_info(f"o{index}") for index in self.outputs]
        for place, output in enumerate(self.answer or ()):
            if output.dtype is None:
                # A type that ONNX Runtime leaves to the model.
                name = f"o{self.outputs[place]}"
                outputs[place] = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        return outputs


def call(
    op: str,
    inputs: str,
    outputs: int | tuple[int, ...] = 1,
    answer: str | None = None,
    **attributes: Attribute,
) -> Call:
    """A call of an operator of the contrib domain, unless another domain is named.

    It has the first `outputs`, one for each answer, or those at these positions.
    """
    standard = op in OPERATORS and OPERATORS[op].shapes is not None
    expected = None if answer is None else tuple(map(_output, answer.split()))
    if isinstance(outputs, int):
        outputs = tuple(range(outputs if expected is None else len(expected)))
    return Call(
        op if standard or "::" in op else f"com.microsoft::{op}",
        tuple(map(_input, inputs.split())),
        outputs,
        expected,
        attributes,
    )


def _input(text: str) -> Given | None:
    if text == "-":
        return None
    name, mark, rest = re.fullmatch(r"(\w+)([=!]?)(.+)", text).groups()  # type: ignore[union-attr]  # a typing error in a test should fail
    dtype = _DTYPES[name]
    assert dtype is not None
    if mark == "=":
        value = np.array(json.loads(rest), object if dtype == "string" else dtype)
        return Given(dtype, value.shape, value)
    shape = tuple(json.loads(rest))
    return Given(dtype, shape, np.ones(shape, dtype) if mark else None)


def _output(text: str) -> OutputType:
    name, _, dims = text.partition("[")
    shape: Shape | None = None
    if dims:
        shape = tuple(None if dim == "?" else int(dim) for dim in dims[:-1].split(",") if dim)
    return OutputType(_DTYPES[name], shape)


def _onnx_type(dtype: str) -> int:
    named = {"string": onnx.TensorProto.STRING, "float8e4m3fn": onnx.TensorProto.FLOAT8E4M3FN}
    return named.get(dtype) or helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
