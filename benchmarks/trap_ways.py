"""The ways by which a value reaches an operator: stored, computed from a factor, and so on.

Each way completes a graph that reads a float input `x` and a value `v`, which it lacks, and returns
`y`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

Array: TypeAlias = "npt.NDArray[Any]"


@dataclass
class Draft:
    """A graph that lacks `v`, and the nodes and constants that are added before its own."""

    graph: GraphProto
    nodes: list[NodeProto] = field(default_factory=list)

    def store(self, name: str, value: Array) -> str:
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:  # noqa: ANN401  # as onnx takes them
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def finish(self) -> None:
        own = list(self.graph.node)
        del self.graph.node[:]
        self.graph.node.extend([*self.nodes, *own])

    def one_by_input(self) -> str:
        """A one that follows from the values of `x`, which no optimizer knows."""
        self.add("ReduceMean", ["x"], "mean", keepdims=0)
        self.add("Sigmoid", ["mean"], "share")
        return self.add("Ceil", ["share"], "one")

    def one_by_size(self) -> str:
        """A one that is the size of an open batch."""
        self.add("Shape", ["x"], "shape")
        self.add("Gather", ["shape", self.store("first", np.array(0))], "size")
        return self.add("Cast", ["size"], "one", to=TensorProto.FLOAT)

    def scale(self, one: str, value: Array, output: str) -> None:
        """`output` is the product of a one and a stored factor, in the type of the value."""
        self.store("factor", value.astype(np.float32))
        self.add("Mul", [one, "factor"], "product")
        self.add("Cast", ["product"], output, to=_type_of(value))

    def enclose(self) -> GraphProto:
        """The graph's nodes and constants moved into a body without inputs that returns `inner`."""
        body = GraphProto(name="body")
        body.node.extend(self.graph.node)
        body.initializer.extend(self.graph.initializer)
        for node in body.node:
            node.output[:] = ["inner" if name == "y" else name for name in node.output]
        body.output.add(name="inner", type=self.graph.output[0].type)
        del self.graph.node[:], self.graph.initializer[:]
        return body


def _stored(draft: Draft, value: Array) -> None:
    draft.store("v", value)


def _sparse(draft: Draft, value: Array) -> None:
    tensor = draft.graph.sparse_initializer.add(dims=value.shape)
    tensor.values.CopyFrom(numpy_helper.from_array(value[value != 0], "v"))
    tensor.indices.CopyFrom(numpy_helper.from_array(np.flatnonzero(value)))


def _node(draft: Draft, value: Array) -> None:
    draft.add("Constant", [], "v", value=numpy_helper.from_array(value))
    draft.finish()


def _identity(draft: Draft, value: Array) -> None:
    draft.add("Identity", [draft.store("kept", value)], "v")
    draft.finish()


def _factor(draft: Draft, value: Array) -> None:
    draft.scale(draft.one_by_input(), value, "v")
    draft.finish()


def _size(draft: Draft, value: Array) -> None:
    draft.scale(draft.one_by_size(), value, "v")
    draft.finish()


def _concat(draft: Draft, value: Array) -> None:
    draft.store("begin", value[:-1])
    draft.scale(draft.one_by_input(), value[-1:], "end")
    draft.add("Concat", ["begin", "end"], "v", axis=0)
    draft.finish()


def _chosen(draft: Draft, value: Array) -> None:
    """A Where takes it, and never the other one."""
    draft.store("limit", np.array(0.5, np.float32))
    draft.add("Greater", [draft.one_by_input(), "limit"], "is_taken")
    draft.store("taken", value)
    draft.store("other", np.zeros_like(value))
    draft.add("Where", ["is_taken", "taken", "other"], "v")
    draft.finish()


def _unoptimized(draft: Draft, value: Array) -> None:
    draft.scale(draft.store("one", np.array(1, np.float32)), value, "v")
    draft.finish()


def _branch(draft: Draft, value: Array) -> None:
    """The operator and the value are in a branch that is always taken."""
    draft.store("v", value)
    then, other = draft.enclose(), GraphProto(name="other")
    other.output.add().CopyFrom(then.output[0])
    dtype = then.output[0].type.tensor_type.elem_type
    other.node.append(helper.make_node("Cast", ["x"], ["inner"], to=dtype))
    draft.store("limit", np.array(0.5, np.float32))
    draft.add("Greater", [draft.one_by_input(), "limit"], "is_taken")
    draft.add("If", ["is_taken"], "y", then_branch=then, else_branch=other)
    draft.finish()


def _loop(draft: Draft, value: Array) -> None:
    """The operator and the value are in the body of a loop of two trips."""
    draft.store("v", value)
    body = draft.enclose()
    body.input.extend(
        [
            helper.make_tensor_value_info("trip", TensorProto.INT64, []),
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
        ]
    )
    result = body.output[0]
    body.node.append(helper.make_node("Identity", ["goes_on"], ["still"]))
    del body.output[:]
    body.output.append(helper.make_tensor_value_info("still", TensorProto.BOOL, []))
    body.output.append(result)
    draft.store("trips", np.array(2))
    draft.store("begins", np.ones((), bool))
    draft.add("Loop", ["trips", "begins"], "y", body=body)
    draft.finish()


def _carried(draft: Draft, value: Array) -> None:
    """A loop adds up the value."""
    sides = [
        helper.make_tensor_value_info(name, dtype, shape)
        for name, dtype, shape in (
            ("trip", TensorProto.INT64, []),
            ("goes_on", TensorProto.BOOL, []),
            ("sum", _type_of(value), value.shape),
            ("still", TensorProto.BOOL, []),
            ("next", _type_of(value), value.shape),
        )
    ]
    nodes = [
        helper.make_node("Identity", ["goes_on"], ["still"]),
        helper.make_node("Add", ["sum", "step"], ["next"]),
    ]
    body = helper.make_graph(
        nodes, "body", sides[:3], sides[3:], [numpy_helper.from_array(value, "step")]
    )
    draft.store("trips", np.array(1))
    draft.store("begins", np.ones((), bool))
    draft.store("nothing", np.zeros_like(value))
    draft.add("Loop", ["trips", "begins", "nothing"], "v", body=body)
    draft.finish()


def _type_of(value: Array) -> int:
    return helper.np_dtype_to_tensor_dtype(value.dtype)


WAYS: Mapping[str, Callable[[Draft, Array], None]] = {
    "stored": _stored,
    "sparse": _sparse,
    "node": _node,
    "identity": _identity,
    "factor": _factor,
    "size": _size,
    "concat": _concat,
    "chosen": _chosen,
    "branch": _branch,
    "loop": _loop,
    "carried": _carried,
    "unoptimized": _unoptimized,
}
