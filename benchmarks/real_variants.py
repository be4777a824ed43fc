"""Slower variants of a model: with a load beside it, with one block more, or decomposed operators.

Each function takes the twin of a model and returns another twin, or None if the change does not
apply. These functions only change the graph; real.py measures how much slower a variant is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

# The load is a chain of this many matrix products of this width.
LOAD_DEPTH = 8
LOAD_WIDTH = 64
LOAD_NAME = "benchmark_load"
# Prefix of the names of everything that is added.
PREFIX = "benchmark_"
# Limits of the share of MACs of a block that is repeated.
MOST_SHARE, LEAST_SHARE = 0.12, 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """MACs and output shape of one node, from the static profile."""

    macs: int
    shape: tuple[int | None, ...] | None


def add_load(twin: ModelProto, rows: int) -> ModelProto:
    """Adds a chain of matrix products beside the model; its mean is one more output.

    The chain depends on the first number of the first input, so no engine can fold it into a
    constant. Its time grows with `rows`. The kernels of the model itself stay the same.
    """
    made = _copy(twin)
    graph = made.graph
    random = np.random.RandomState(0)
    known = {tensor.name for tensor in graph.initializer}
    source = next(value.name for value in graph.input if value.name not in known)
    for name, numbers in (("flat", [-1]), ("first", [0]), ("size", [rows, LOAD_WIDTH])):
        graph.initializer.append(
            numpy_helper.from_array(np.array(numbers, np.int64), f"{LOAD_NAME}_{name}")
        )
    nodes = [
        helper.make_node("Reshape", [source, f"{LOAD_NAME}_flat"], [f"{LOAD_NAME}_all"]),
        helper.make_node(
            "Gather", [f"{LOAD_NAME}_all", f"{LOAD_NAME}_first"], [f"{LOAD_NAME}_one"]
        ),
        helper.make_node("Cast", [f"{LOAD_NAME}_one"], [f"{LOAD_NAME}_real"], to=TensorProto.FLOAT),
        helper.make_node("Expand", [f"{LOAD_NAME}_real", f"{LOAD_NAME}_size"], [f"{LOAD_NAME}_0"]),
    ]
    for index in range(LOAD_DEPTH):
        # This scale keeps the products from growing or vanishing.
        values = random.standard_normal((LOAD_WIDTH, LOAD_WIDTH)) / np.sqrt(LOAD_WIDTH)
        weight = f"{LOAD_NAME}_weight_{index}"
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), weight))
        nodes.append(
            helper.make_node(
                "MatMul", [f"{LOAD_NAME}_{index}", weight], [f"{LOAD_NAME}_{index + 1}"]
            )
        )
    nodes.append(
        helper.make_node("ReduceMean", [f"{LOAD_NAME}_{LOAD_DEPTH}"], [LOAD_NAME], keepdims=0)
    )
    for node in nodes:
        node.name = f"{node.output[0]}_node"
    graph.node.extend(nodes)
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
    best: tuple[float, int, _Block] | None = None
    for block in _blocks(twin.graph, costs, MOST_SHARE * total):
        if block.macs < LEAST_SHARE * total:
            continue
        rank = (abs(block.macs / total - share), block.stop - block.start, block)
        if best is None or rank[:2] < best[:2]:
            best = rank
    return None if best is None else _repeated(twin, best[2], residual_scale)


def _copy(proto: ModelProto) -> ModelProto:
    made = ModelProto()
    made.CopyFrom(proto)
    return made


# -- one block more


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
    nodes = list(graph.node)
    uses = _Uses.of(graph)
    for start in range(len(nodes)):
        part = _Part(uses)
        for stop in range(start + 1, len(nodes) + 1):
            node = nodes[stop - 1]
            cost = costs.get(node.output[0])
            part.add(node, 0 if cost is None else cost.macs)
            if part.macs > most_macs or any(each.g.node or each.graphs for each in node.attribute):
                break
            before, after = part.ends(stop)
            if not part.macs or before is None or after is None:
                continue
            shape = _shape(costs, after)
            if shape is not None and _shape(costs, before) == shape:
                yield _Block(start, stop, before, after, part.macs)


@dataclass(frozen=True, slots=True)
class _Uses:
    """Who reads each value: the number of nodes and the last one; outputs and constants."""

    count: Mapping[str, int]
    last: Mapping[str, int]
    outputs: frozenset[str]
    fixed: frozenset[str]

    @classmethod
    def of(cls, graph: GraphProto) -> _Uses:
        read = [(index, name) for index, node in enumerate(graph.node) for name in set(node.input)]
        return cls(
            Counter(name for _, name in read),
            {name: index for index, name in read},
            frozenset(value.name for value in graph.output),
            _constants(graph),
        )


class _Part:
    """A run of nodes, with the values that it reads from before and that later nodes read."""

    def __init__(self, uses: _Uses) -> None:
        self.uses = uses
        self.macs = 0
        self.seen: Counter[str] = Counter()
        self.inside: set[str] = set()
        self.leaving: set[str] = set()
        self.taken: set[str] = set()

    def add(self, node: NodeProto, macs: int) -> None:
        uses = self.uses
        self.macs += macs
        for name in filter(None, set(node.input)):
            self.seen[name] += 1
            if name in self.inside:
                if self.seen[name] == uses.count[name] and name not in uses.outputs:
                    self.leaving.discard(name)
            elif name not in uses.fixed:
                self.taken.add(name)
        made = set(filter(None, node.output)) - uses.fixed
        self.inside |= made
        self.leaving |= {name for name in made if uses.count.get(name) or name in uses.outputs}

    def ends(self, stop: int) -> tuple[str | None, str | None]:
        """The input that nothing reads after `stop` and the only output; None if not unique."""
        uses = self.uses
        ended = [name for name in self.taken if uses.last[name] < stop and name not in uses.outputs]
        before = ended[0] if len(ended) == 1 else None
        made = self.leaving - uses.outputs
        return before, next(iter(made)) if len(self.leaving) == len(made) == 1 else None


def _shape(costs: Mapping[str, Cost], name: str) -> tuple[int | None, ...] | None:
    cost = costs.get(name)
    return None if cost is None else cost.shape


def _constants(graph: GraphProto) -> frozenset[str]:
    """The names of values that are the same in every inference."""
    found = {tensor.name for tensor in graph.initializer}
    found |= {tensor.values.name for tensor in graph.sparse_initializer}
    for node in graph.node:
        if all(name in found for name in node.input if name):
            found |= set(node.output)
    return frozenset(found)


def _repeated(twin: ModelProto, block: _Block, residual_scale: float | None) -> ModelProto:
    made = _copy(twin)
    graph = made.graph
    chosen = list(twin.graph.node)[block.start : block.stop]
    weights = {tensor.name: tensor for tensor in twin.graph.initializer}
    fixed = _constants(twin.graph)
    renamed = {
        name: f"{PREFIX}again_{name}"
        for node in chosen
        for name in node.output
        if name not in fixed
    }
    added: list[NodeProto] = []
    for node in chosen:
        if set(node.output) <= fixed:
            continue
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.name = f"{PREFIX}again_{node.name or node.output[0]}"
        del copy.input[:], copy.output[:]
        for name in node.input:
            if name in weights and name not in renamed:
                renamed[name] = f"{PREFIX}again_{name}"
                tensor = graph.initializer.add()
                tensor.CopyFrom(weights[name])
                tensor.name = renamed[name]
            copy.input.append(block.after if name == block.before else renamed.get(name, name))
        copy.output.extend(renamed[name] if name else "" for name in node.output)
        added.append(copy)
    result = renamed[block.after]
    if residual_scale is not None:
        scale, scaled, total = (f"{PREFIX}residual_{name}" for name in ("scale", "scaled", "total"))
        graph.initializer.append(
            numpy_helper.from_array(np.array(residual_scale, np.float32), scale)
        )
        added.append(helper.make_node("Mul", [result, scale], [scaled], f"{scaled}_node"))
        added.append(helper.make_node("Add", [block.after, scaled], [total], f"{total}_node"))
        result = total
    nodes: list[NodeProto] = []
    for index, node in enumerate(twin.graph.node):
        copy = NodeProto()
        copy.CopyFrom(node)
        if index == block.stop:
            nodes += added
        if index >= block.stop:
            inputs = [result if name == block.after else name for name in node.input]
            del copy.input[:]
            copy.input.extend(inputs)
        nodes.append(copy)
    del graph.node[:]
    graph.node.extend(nodes)
    return made


# -- decomposed operators


class Steps:
    """The nodes that replace one node."""

    def __init__(self, node: NodeProto, constants: dict[str, TensorProto], opset: int) -> None:
        self.node = node
        self.constants = constants
        self.opset = opset
        self.nodes: list[NodeProto] = []

    def attribute(self, name: str, default: float) -> float:
        for each in self.node.attribute:
            if each.name == name:
                return float(helper.get_attribute_value(each))
        return default

    def number(self, value: float) -> str:
        return self._constant(f"{PREFIX}number_{value!r}", np.array(value, np.float32))

    def last_axis(self) -> str:
        return self._constant(f"{PREFIX}last_axis", np.array([-1], np.int64))

    def add(self, op: str, *inputs: str, keepdims: int | None = None) -> str:
        name = f"{PREFIX}{self.node.output[0]}_{len(self.nodes)}"
        node = helper.make_node(op, inputs, [name], f"{name}_node", keepdims=keepdims)
        self.nodes.append(node)
        return name

    def _constant(self, name: str, value: npt.NDArray[Any]) -> str:
        self.constants[name] = numpy_helper.from_array(value, name)
        return name

    def done(self, last: str) -> list[NodeProto]:
        """All nodes, after the value `last` has taken the name of the replaced output."""
        (node,) = [each for each in self.nodes if last in each.output]
        node.output[0] = self.node.output[0]
        return self.nodes


def _decompose_clip(steps: Steps) -> list[NodeProto] | None:
    inputs = steps.node.input
    if len(inputs) != 3 or not all(inputs):
        return None
    return steps.done(steps.add("Min", steps.add("Max", inputs[0], inputs[1]), inputs[2]))


def _decompose_sigmoid(steps: Steps) -> list[NodeProto]:
    negative = steps.add("Neg", steps.node.input[0])
    below = steps.add("Add", steps.add("Exp", negative), steps.number(1.0))
    return steps.done(steps.add("Reciprocal", below))


def _decompose_gelu(steps: Steps) -> list[NodeProto] | None:
    x = steps.node.input[0]
    if any(each.name == "approximate" and each.s == b"tanh" for each in steps.node.attribute):
        return None
    half = steps.number(0.5)
    inner = steps.add("Erf", steps.add("Mul", x, steps.number(0.5**0.5)))
    return steps.done(steps.add("Mul", x, steps.add("Add", half, steps.add("Mul", half, inner))))


def _decompose_layer_norm(steps: Steps) -> list[NodeProto] | None:
    inputs = steps.node.input
    is_last = steps.attribute("axis", -1.0) < 0 and len(steps.node.output) == 1
    if not is_last or steps.opset < 18 or len(inputs) != 3:
        return None
    x, scale, shift = inputs
    centred = steps.add("Sub", x, steps.add("ReduceMean", x, steps.last_axis(), keepdims=1))
    square = steps.add("Mul", centred, centred)
    variance = steps.add("ReduceMean", square, steps.last_axis(), keepdims=1)
    least = steps.number(steps.attribute("epsilon", 1e-5))
    width = steps.add("Reciprocal", steps.add("Sqrt", steps.add("Add", variance, least)))
    scaled = steps.add("Mul", steps.add("Mul", centred, width), scale)
    return steps.done(steps.add("Add", scaled, shift))


DECOMPOSITIONS: Mapping[str, Callable[[Steps], Sequence[NodeProto] | None]] = {
    "Clip": _decompose_clip,
    "Gelu": _decompose_gelu,
    "LayerNormalization": _decompose_layer_norm,
    "Sigmoid": _decompose_sigmoid,
}
