"""Find the values that an input needs from its uses in the graph.

An input is followed to the nodes where its values matter: as the rows of a table, as a size, as a
mask, or as a condition. It is followed through operators that pass values on unchanged, sums with
constants, and the bodies of control flow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.graph.operators.operator import ONE, Demand
from pytest_modelperf.graph.operators.registry import OPERATORS
from pytest_modelperf.graph.shape_rules import dim
from pytest_modelperf.graph.structure import Graph, Node, Tensor

# The most tensors that are followed from one input.
_MAX_STEPS = 20_000


def demand_on(tensor: Tensor, uses: Uses) -> Demand:
    """Return the combined demand of all uses of a tensor.

    The tightest bounds win. If two demands exclude each other, one of them is on a value that is
    only used in some cases: a negative index, for example, is made positive first. Then the demand
    on the unchanged input wins.
    """
    total = Demand()
    for each in sorted(uses.demands(tensor), key=lambda found: found.is_changed):
        total = total.and_also(each.demand)
    return total


def find_uses(graph: Graph) -> Uses:
    uses = Uses()
    _add_uses(graph, uses)
    return uses


class _Found(Struct, frozen=True):
    """A demand on an input, and whether other nodes change the input before it gets there."""

    demand: Demand
    is_changed: bool


class _Step(Struct, frozen=True):
    """A tensor on the way, and what was added to the input so far, or None if that is unknown."""

    tensor: Tensor
    added: tuple[float, float] | None = (0.0, 0.0)


class Uses(Struct, frozen=True):
    """The nodes that read and make each tensor, and its names inside and outside of bodies."""

    nodes: dict[Tensor, list[tuple[Node, int]]] = field(default_factory=dict)
    makers: dict[Tensor, Node] = field(default_factory=dict)
    aliases: dict[Tensor, list[Tensor]] = field(default_factory=dict)

    def demands(self, tensor: Tensor) -> Iterator[_Found]:
        is_float = tensor.is_float
        may_be_length = not is_float and len(tensor.shape or ()) < 2
        first = _Step(tensor)
        waiting, seen = [first], {(first.tensor, first.added)}
        while waiting and len(seen) < _MAX_STEPS:
            step = waiting.pop()
            steps = [replace(step, tensor=t) for t in self.aliases.get(step.tensor, ())]
            for node, index in self.nodes.get(step.tensor, ()):
                demand = _demand(node, index, is_float=is_float)
                if demand is not None:
                    yield _moved(demand, step.added)
                if node.op_type in _COMPARISONS:
                    yield from self._compared(node, index, step)
                    if may_be_length:
                        yield from self._masked(node, index, step)
                steps.extend(_passed_on(node, index, step))
            for each in steps:
                if (each.tensor, each.added) not in seen:
                    seen.add((each.tensor, each.added))
                    waiting.append(each)

    def _compared(self, node: Node, index: int, step: _Step) -> Iterator[_Found]:
        """Yield the demand of a comparison with a constant if its result decides what runs."""
        other = node.optional_input(1 - index)
        value = None if other is None else other.value
        result = node.outputs[0] if node.outputs else None
        if value is None or value.size != 1 or value.dtype.kind not in "iuf" or result is None:
            return
        found = next((f.demand for f in self.demands(result) if f.demand.decides), None)
        if found is not None and step.added is not None:
            edge = float(value.reshape(-1)[0]) - step.added[0]
            values = (edge,) if node.op_type == "Equal" else (edge, edge + 1, edge - 1)
            # There is no value to suggest for a loop, which would not run or run only once.
            compared = values if found.is_of_branch else ()
            demand = Demand(
                decides=found.decides, compared=compared, is_of_branch=found.is_of_branch
            )
            yield _Found(demand, is_changed=True)

    def _masked(self, node: Node, index: int, step: _Step) -> Iterator[_Found]:
        """Yield the length of a range compared with the input, which masks a sequence's end."""
        other = node.optional_input(1 - index)
        made = None if other is None else self.makers.get(other)
        while made is not None and made.op_type in _RESHAPES:
            source = made.optional_input(0)
            made = None if source is None else self.makers.get(source)
        if made is None or made.op_type != "Range" or node.op_type == "Equal":
            return
        size = dim(made.output().shape, 0)
        if size is not None and step.added is not None:
            yield _moved(Demand(value=size), step.added)


def _add_uses(graph: Graph, uses: Uses) -> None:
    for node in graph.nodes:
        uses.makers.update((tensor, node) for tensor in node.outputs if tensor is not None)
        for index, tensor in enumerate(node.inputs):
            if tensor is not None and not tensor.is_constant:
                uses.nodes.setdefault(tensor, []).append((node, index))
        for body in node.bodies.values():
            _add_uses(body, uses)
            for outer, inner in _names_in(node, body):
                if outer is not None:
                    uses.aliases.setdefault(outer, []).append(inner)
            # The first output of a Loop's body is its condition.
            inner_outputs = body.outputs[1 if node.op_type == "Loop" else 0 :]
            for made, outer in zip(inner_outputs, node.outputs, strict=False):
                if outer is not None:
                    uses.aliases.setdefault(made, []).append(outer)


def _names_in(node: Node, body: Graph) -> Iterator[tuple[Tensor | None, Tensor]]:
    if node.op_type == "Loop":
        yield from zip(node.inputs[2:], body.inputs[2:], strict=False)
        yield from zip(body.outputs[1:], body.inputs[2:], strict=False)
    elif node.op_type == "Scan":
        # In operator set 8 the first input of Scan has the lengths of the sequences.
        first = 1 if node.opset == 8 else 0
        yield from zip(node.inputs[first:], body.inputs, strict=False)


def _moved(demand: Demand, added: tuple[float, float] | None) -> _Found:
    if added is None:
        return _Found(demand.loosened(), is_changed=True)
    return _Found(demand.shifted(*added), is_changed=added != (0.0, 0.0))


# The inputs whose elements the outputs contain, or some of them.
_PASSES: Mapping[str, Sequence[int]] = {
    **dict.fromkeys(
        (
            "Abs", "Cast", "CastLike", "Ceil", "Clip", "Compress", "Dropout", "Expand", "Flatten",
            "Floor", "Gather", "GatherElements", "GatherND", "Identity", "Not", "Pad",
            "ReduceMax", "ReduceMin", "Reshape", "ReverseSequence", "Round", "Slice", "Split",
            "Squeeze", "Tile", "TopK", "Transpose", "Trilu", "Unique", "Unsqueeze",
        ),
        (0,),
    ),
    "And": (0, 1),
    "Concat": range(1 << 20),
    "Max": range(1 << 20),
    "Min": range(1 << 20),
    "Or": (0, 1),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
    "Where": (1, 2),
    "ai.onnx.ml::ArrayFeatureExtractor": (0,),
    "ai.onnx.ml::Imputer": (0,),
    "com.microsoft::ExpandDims": (0,),
}  # fmt: skip
# Only the first output of these operators contains elements of the input.
_FIRST_OUTPUT = frozenset({"Dropout", "TopK", "Unique"})
_SUMS = frozenset({"Add", "Sub"})
_RESHAPES = frozenset({"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
# These compute new values, for which the smallest index is the safest.
_COMPUTES = frozenset({"Mul", "Mod", "ReduceSum", "Sum"})


def _passed_on(node: Node, index: int, step: _Step) -> list[_Step]:
    op = node.qualified_op
    added = step.added
    if op in _SUMS:
        added = _sum(node, index, added)
    elif op in _COMPUTES:
        added = None
    elif index not in _PASSES.get(op, ()):
        return []
    outputs = node.outputs[:1] if op in _FIRST_OUTPUT else node.outputs
    return [_Step(tensor, added) for tensor in outputs if tensor is not None]


def _sum(node: Node, index: int, added: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the total that is added after a sum. None if unknown, or if it subtracts this term."""
    term = node.optional_input(1 - index)
    value = None if term is None else term.value
    if added is None or value is None or not value.size or value.dtype.kind not in "iuf":
        return None
    low, high = float(value.min()), float(value.max())
    if not math.isfinite(high - low):
        return None
    if node.op_type == "Add":
        return added[0] + low, added[1] + high
    return None if index == 1 else (added[0] - high, added[1] - low)


def _demand(node: Node, index: int, *, is_float: bool) -> Demand | None:
    operator = OPERATORS.get(node.qualified_op)
    rule = None if operator is None else operator.demands.get(index)
    demand = rule(node, index) if callable(rule) else rule
    return demand if demand is not None or is_float else _mask_demand(node, index)


def _mask_demand(node: Node, index: int) -> Demand | None:
    """Return ones for inputs that choose between values or are subtracted from 1, as masks are."""
    op = node.qualified_op
    if op == "Where" and index == 0:
        return ONE
    if op == "Cast" and node.output().dtype == "bool":
        return ONE if node.input(0).dtype != "bool" else None
    if op == "Sub" and index == 1:
        other = node.input(0).value
        is_one = other is not None and other.size and bool((other == 1).all())
        return ONE if is_one else None
    return None
