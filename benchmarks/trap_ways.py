"""The ways by which a value reaches an operator: stored, computed from a factor, and so on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper, parser

Array: TypeAlias = "npt.NDArray[Any]"

# A one that follows from the values of `x`, which no optimizer knows, and one that is the size of
# an open batch.
_BY_INPUT = "mean = ReduceMean <keepdims = 0> (x) share = Sigmoid (mean) one = Ceil (share)"
_BY_SIZE = "shape = Shape (x) size = Gather (shape, first) one = Cast <to = 1> (size)"
_SCALED = "product = Mul (one, factor) v = Cast <to = {dtype}> (product)"
_IS_TAKEN = f"{_BY_INPUT} is_taken = Greater (one, limit)"
_ELSE = "<else_branch = other () => (inner) {{ inner = Cast <to = {output}> (x) }}>"
_ADDING = (
    "<body = body (int64 trip, bool goes_on, {type} sum) => (bool still, {type} next) "
    "{{ still = Identity (goes_on) next = Add (sum, step) }}>"
)
_FIRST, _ONE, _LIMIT = np.array(0), np.array(1, np.float32), np.array(0.5, np.float32)
_YES = np.ones((), bool)


def _factor(value: Array) -> Array:
    return value.astype(np.float32)


# Of each way the nodes that come before those of the graph, and the constants that both read.
WAYS: Mapping[str, tuple[str, Callable[[Array], Mapping[str, Array]]]] = {
    "stored": ("", lambda v: {"v": v}),
    "sparse": ("", lambda _: {}),
    "node": ("v = Constant ()", lambda _: {}),
    "identity": ("v = Identity (kept)", lambda v: {"kept": v}),
    "factor": (f"{_BY_INPUT} {_SCALED}", lambda v: {"factor": _factor(v)}),
    "size": (f"{_BY_SIZE} {_SCALED}", lambda v: {"factor": _factor(v), "first": _FIRST}),
    "concat": (
        f"{_BY_INPUT} {_SCALED.replace('v =', 'end =')} v = Concat <axis = 0> (begin, end)",
        lambda v: {"begin": v[:-1], "factor": _factor(v[-1:])},
    ),
    # A Where takes the value, and never the other one.
    "chosen": (
        f"{_IS_TAKEN} v = Where (is_taken, taken, other)",
        lambda v: {"limit": _LIMIT, "taken": v, "other": np.zeros_like(v)},
    ),
    # The operator and the value are in a branch that is always taken.
    "branch": (
        f"{_IS_TAKEN} y = If (is_taken) {_ELSE}",
        lambda _: {"limit": _LIMIT},
    ),
    # The operator and the value are in the body of a loop of two trips.
    "loop": ("y = Loop (trips, begins)", lambda _: {"trips": np.array(2), "begins": _YES}),
    # A loop adds up the value.
    "carried": (
        f"v = Loop (trips, begins, nothing) {_ADDING}",
        lambda v: {"trips": np.array(1), "begins": _YES, "nothing": np.zeros_like(v)},
    ),
    "unoptimized": (_SCALED, lambda v: {"factor": _factor(v), "one": _ONE}),
}


def complete(graph: GraphProto, way: str, value: Array) -> None:
    """Complete a graph that reads a float input `x` and a value `v`, and returns `y`."""
    text, constants_of = WAYS[way]
    kind, output = helper.np_dtype_to_tensor_dtype(value.dtype), graph.output[0].type
    name, sizes = TensorProto.DataType.Name(kind).lower(), ",".join(map(str, value.shape))
    type_text = f"{name}[{sizes}]" if sizes else name
    given = {"dtype": kind, "output": output.tensor_type.elem_type, "type": type_text}
    added = list(parser.parse_graph(f"added () => () {{ {text.format(**given)} }}").node)
    own = list(graph.node)
    del graph.node[:]
    tensor = numpy_helper.from_array(value, "v")
    if way == "sparse":
        sparse = graph.sparse_initializer.add(dims=value.shape)
        sparse.values.CopyFrom(numpy_helper.from_array(value[value != 0], "v"))
        sparse.indices.CopyFrom(numpy_helper.from_array(np.flatnonzero(value)))
    elif way == "node":
        added[0].attribute.append(helper.make_attribute("value", numpy_helper.from_array(value)))
    elif way == "carried":
        added[0].attribute[0].g.initializer.append(numpy_helper.from_array(value, "step"))
    elif way in {"branch", "loop"}:
        body = _enclosed(own, tensor, is_loop=way == "loop")
        name, own = "body" if way == "loop" else "then_branch", []
        added[-1].attribute.append(helper.make_attribute(name, body))
        for each in added[-1].attribute:
            each.g.output[-1].type.CopyFrom(output)
    graph.node.extend([*added, *own])
    for name, values in constants_of(value).items():
        graph.initializer.append(numpy_helper.from_array(values, name))


def _enclosed(nodes: Sequence[NodeProto], value: TensorProto, *, is_loop: bool) -> GraphProto:
    """The nodes and the value as a body that returns `inner`."""
    body = GraphProto(name="body", node=nodes, initializer=[value])
    for node in body.node:
        node.output[:] = ["inner" if name == "y" else name for name in node.output]
    if is_loop:
        body.input.append(helper.make_tensor_value_info("trip", TensorProto.INT64, []))
        body.input.append(helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []))
        body.node.append(helper.make_node("Identity", ["goes_on"], ["still"]))
        body.output.append(helper.make_tensor_value_info("still", TensorProto.BOOL, []))
    body.output.add(name="inner")
    return body
