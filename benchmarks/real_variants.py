"""Slower variants of a model: with a load beside it, one block more, or its heaviest layer twice.

These functions only change the graph; real.py measures how much slower a variant is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.request import ProfileRequest

ProtoT = TypeVar("ProtoT", ModelProto, NodeProto)

# The load is a chain of this many matrix products of this width.
LOAD_DEPTH = 8
LOAD_WIDTH = 64
LOAD_NAME = "benchmark_load"
# Prefix of the names of everything that is added.
PREFIX = "benchmark_"
_LAYERS = frozenset({"Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul"})
# Of a layer that runs twice: other weights, or an engine would compute both from one.
_SCALE = 0.5
# Limits of the share of MACs of a block that is repeated.
MOST_SHARE, LEAST_SHARE = 0.12, 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """MACs and output shape of one node, from the static profile."""

    macs: int
    shape: tuple[int | None, ...] | None


def costs_of(model: Path, request: ProfileRequest) -> dict[str, Cost]:
    """MACs and output shape of each node by the name of its first output."""
    layers = Model.load(model, request, Extensions()).static.layers
    return {each.id: Cost(each.macs or 0, each.output_shape) for each in layers}


def add_load(twin: ModelProto, rows: int) -> ModelProto:
    """Adds a chain of matrix products beside the model; its mean is one more output.

    The chain depends on the first number of the first input, so no engine can fold it into a
    constant. Its time grows with `rows`. The kernels of the model itself stay the same.
    """
    made = copy_of(twin)
    graph = made.graph
    random = np.random.RandomState(0)
    known = {tensor.name for tensor in graph.initializer}
    source = next(value.name for value in graph.input if value.name not in known)

    def store(name: str, values: npt.NDArray[Any]) -> str:
        graph.initializer.append(numpy_helper.from_array(values, f"{LOAD_NAME}_{name}"))
        return f"{LOAD_NAME}_{name}"

    def add(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:  # noqa: ANN401  # as make_node
        graph.node.append(helper.make_node(op, inputs, [output], f"{output}_node", **attributes))
        return output

    flat, first = (store(name, np.array([at])) for name, at in (("flat", -1), ("first", 0)))
    size = store("size", np.array([rows, LOAD_WIDTH]))
    last = add("Reshape", [source, flat], f"{LOAD_NAME}_all")
    last = add("Gather", [last, first], f"{LOAD_NAME}_one")
    last = add("Cast", [last], f"{LOAD_NAME}_real", to=TensorProto.FLOAT)
    last = add("Expand", [last, size], f"{LOAD_NAME}_0")
    for index in range(LOAD_DEPTH):
        # This scale keeps the products from growing or vanishing.
        values = random.standard_normal((LOAD_WIDTH, LOAD_WIDTH)) / np.sqrt(LOAD_WIDTH)
        weight = store(f"weight_{index}", values.astype(np.float32))
        last = add("MatMul", [last, weight], f"{LOAD_NAME}_{index + 1}")
    add("ReduceMean", [last], LOAD_NAME, keepdims=0)
    graph.output.append(helper.make_tensor_value_info(LOAD_NAME, TensorProto.FLOAT, []))
    return made


def repeat_block(
    twin: ModelProto,
    costs: Mapping[str, Cost],
    share: float = 0.05,
    residual_scale: float | None = None,
) -> ModelProto | None:
    """Repeats one block of the model: the one whose share of the MACs is nearest to `share`.

    A block is a run of nodes that replaces one value by another of the same shape. It may also
    read earlier values that later nodes still use, such as a mask. The copy has its own weights.
    With a `residual_scale`, the result of the copy is multiplied by it and added to its input.
    """
    total = sum(cost.macs for cost in costs.values())
    blocks = (
        block
        for block in _blocks(twin.graph, costs, MOST_SHARE * total)
        if block.macs >= LEAST_SHARE * total
    )
    best = min(
        blocks,
        key=lambda block: (abs(block.macs / total - share), block.stop - block.start),
        default=None,
    )
    return None if best is None else _repeated(twin, best, residual_scale)


@dataclass(frozen=True, slots=True)
class _Block:
    """The nodes from `start` up to `stop`, which turn the value `before` into `after`."""

    start: int
    stop: int
    before: str
    after: str
    macs: int


def _blocks(graph: GraphProto, costs: Mapping[str, Cost], most_macs: float) -> Iterator[_Block]:
    """Every block of a graph with at most `most_macs` and without nested graphs."""
    outputs = {value.name for value in graph.output}
    fixed = constants_of(graph)
    last_reader = {name: index for index, node in enumerate(graph.node) for name in node.input}
    unknown = Cost(0, None)
    for start in range(len(graph.node)):
        macs, made, taken = 0, set[str](), set[str]()
        for stop, node in enumerate(graph.node[start:], start + 1):
            macs += costs.get(node.output[0], unknown).macs
            if macs > most_macs or any(each.g.node or each.graphs for each in node.attribute):
                break
            taken |= {name for name in node.input if name} - made - fixed
            made |= {name for name in node.output if name} - fixed
            ended = [name for name in taken - outputs if last_reader[name] < stop]
            leaving = [n for n in made if n in outputs or last_reader.get(n, -1) >= stop]
            if not macs or len(ended) != 1 or len(leaving) != 1 or leaving[0] in outputs:
                continue
            before, after = (costs.get(name, unknown).shape for name in (*ended, *leaving))
            if before is not None and before == after:
                yield _Block(start, stop, ended[0], leaving[0], macs)


def _repeated(twin: ModelProto, block: _Block, residual_scale: float | None) -> ModelProto:
    made = copy_of(twin)
    graph = made.graph
    weights = {tensor.name: tensor for tensor in twin.graph.initializer}
    fixed = constants_of(twin.graph)
    chosen = [n for n in twin.graph.node[block.start : block.stop] if not set(n.output) <= fixed]
    renamed = {name: f"{PREFIX}again_{name}" for node in chosen for name in node.output if name}
    added = [copy_of(node) for node in chosen]
    for node in added:
        node.name = f"{PREFIX}again_{node.name or node.output[0]}"
        for name in node.input:
            if name in weights and name not in renamed:
                renamed[name] = f"{PREFIX}again_{name}"
                graph.initializer.add().CopyFrom(weights[name])
                graph.initializer[-1].name = renamed[name]
        inputs = [block.after if n == block.before else renamed.get(n, n) for n in node.input]
        node.input[:] = inputs
        node.output[:] = [renamed[name] if name else "" for name in node.output]
    result = renamed[block.after]
    if residual_scale is not None:
        scale, scaled, total = (f"{PREFIX}residual_{name}" for name in ("scale", "scaled", "total"))
        graph.initializer.append(
            numpy_helper.from_array(np.array(residual_scale, np.float32), scale)
        )
        added.append(helper.make_node("Mul", [result, scale], [scaled], f"{scaled}_node"))
        added.append(helper.make_node("Add", [block.after, scaled], [total], f"{total}_node"))
        result = total
    insert_nodes(graph, block.stop, added, {block.after: result})
    return made


# -- the heaviest layer twice


def double_layer(model: ModelProto) -> ModelProto | None:
    """The model with the layer of most weights in each graph computed twice, and both added.

    The second time it has other weights. None if no graph of the model has a layer with weights.
    """
    made = copy_of(model)
    count = sum(_double(graph, weights) for graph, weights in _graphs(made.graph, {}))
    return made if count else None


def _graphs(
    graph: GraphProto, outer: Mapping[str, TensorProto]
) -> Iterator[tuple[GraphProto, Mapping[str, TensorProto]]]:
    """Each graph of a model with the weights that its nodes can read."""
    weights = dict(outer) | {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            for each in node.attribute:
                if each.name == "value":
                    weights[node.output[0]] = each.t
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g, weights)
    yield graph, weights


def _double(graph: GraphProto, weights: Mapping[str, TensorProto]) -> bool:
    """Whether a layer of the graph runs twice now."""
    layers = [
        (len(numpy_helper.to_array(weights[name]).tobytes()), -index, name)
        for index, node in enumerate(graph.node)
        if node.op_type in _LAYERS and not node.domain
        for name in node.input[1:2]
        if name in weights
    ]
    if not layers:
        return False
    _, place, name = max(layers)
    node = graph.node[-place]
    values = numpy_helper.to_array(weights[name])
    other = f"{PREFIX}weight_{name}"
    graph.initializer.append(numpy_helper.from_array((values * _SCALE).astype(values.dtype), other))
    again = copy_of(node)
    again.name = f"{PREFIX}again_{node.name or node.output[0]}"
    again.input[1] = other
    added = [again]
    for index, output in enumerate(node.output):
        if output:
            pair = [f"{PREFIX}once_{output}", f"{PREFIX}twice_{output}"]
            node.output[index], again.output[index] = pair
            added.append(helper.make_node("Add", pair, [output], f"{PREFIX}sum_{output}"))
    insert_nodes(graph, 1 - place, added, {})
    return True


# -- graphs


def copy_of(proto: ProtoT) -> ProtoT:
    made = type(proto)()
    made.CopyFrom(proto)
    return made


def insert_nodes(
    graph: GraphProto, place: int, added: Iterable[NodeProto], renamed: Mapping[str, str]
) -> None:
    """Put nodes in a graph; those behind them read the values by their new names."""
    nodes = list(graph.node)
    for node in nodes[place:]:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    nodes[place:place] = added
    del graph.node[:]
    graph.node.extend(nodes)


def constants_of(graph: GraphProto) -> frozenset[str]:
    """The names of values that are the same in every inference."""
    found = {tensor.name for tensor in graph.initializer}
    found |= {tensor.values.name for tensor in graph.sparse_initializer}
    for node in graph.node:
        if all(name in found for name in node.input if name):
            found |= set(node.output)
    return frozenset(found)
