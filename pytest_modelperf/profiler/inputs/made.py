"""Make the inputs that the user does not give, with the values that their uses in the graph need.

An input is followed to the nodes that its values matter to: as the rows of a table, as a size, as a
mask, or as a condition. It is followed through operators that pass values on unchanged, sums with
constants, and the bodies of control flow.

A made input depends only on the seed, its name, type and shape, and on what the graph does with it.
It does not even depend on the version of numpy.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import BindingError, Remedy
from pytest_modelperf.graph.binding import BoundInputs, InputSpec
from pytest_modelperf.graph.inference_inputs import require_fitting_values
from pytest_modelperf.graph.operators.operator import ONE, Demand
from pytest_modelperf.graph.operators.registry import OPERATORS
from pytest_modelperf.graph.shape_rules import dim
from pytest_modelperf.graph.structure import BITS, Graph, Node, Tensor
from pytest_modelperf.graph.weights.numbers import STORED_AS, NumberType, dtype_of, to_stored
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import exact_number, format_shape
from pytest_modelperf.text.words import shell_word

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]


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
    """Return the total added after a sum, or None if it is unknown or subtracts this term."""
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


# The most values that are drawn; a larger input repeats them. A prime, so that rows of a tensor
# differ from each other.
_DRAWN = 1_048_573
# Integers of unknown use are small, because they may be counts or rows of some table.
_SMALL = (0, 9)
# The product of two smaller numbers is subnormal in float16, and a processor can take up to 200
# times as long for it.
_SMALLEST_HALF = 2.0**-7
_MASK = re.compile(r"mask(?!ed|ing)", re.IGNORECASE)
_WORDS = (
    "the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "reads", "seven",
    "old", "books", "about", "rain",
)  # fmt: skip


class Feed(Struct, frozen=True, eq=False):
    """One input of a model, ready to be sent to a worker.

    `dtype` is this package's name of the type. If numpy lacks that type, `array` holds the bits.
    `note` is set if a made value decides how much the model computes.
    """

    dtype: str
    array: Array
    note: str | None = None

    def to_wire(self) -> tuple[str, str, tuple[int, ...], bytes | list[str]]:
        """Return the type, the stored type, the shape and the elements, as plain values."""
        shape = tuple(map(int, self.array.shape))
        if self.dtype == "string":
            return self.dtype, "O", shape, [str(text) for text in self.array.reshape(-1)]
        return self.dtype, self.array.dtype.str, shape, self.array.tobytes()


def make_inputs(
    graph: Graph,
    inputs: BoundInputs,
    seed: int = 0,
    given: Mapping[str, Feed] | None = None,
    model: str = "the model",
) -> dict[str, Feed]:
    """Return all inputs of a bound model: the `given` ones unchanged, the others made."""
    given = given or {}
    uses = find_uses(graph)
    feeds: dict[str, Feed] = {}
    for tensor in graph.inputs:
        feed = given.get(tensor.name)
        if feed is None:
            dtype, shape = _known_type(tensor, inputs, model)
            spec = inputs.values.get(tensor.name, InputSpec(tensor.name, dtype, shape))
            feed = make_input(spec, seed, demand_on(tensor, uses), model)
        feeds[tensor.name] = feed
    return feeds


def make_input(
    spec: InputSpec, seed: int = 0, demand: Demand | None = None, model: str = "the model"
) -> Feed:
    """Return one input, filled with its value or made to satisfy the `demand` on it."""
    if spec.texts is not None:
        return Feed(spec.dtype, _shaped(np.array(spec.texts, dtype=object), spec.shape))
    if spec.value is not None:
        require_fitting_values(spec, model)
        numbers = to_stored(np.asarray(spec.value, np.float64), spec.dtype)
        return Feed(spec.dtype, _shaped(numbers, spec.shape))
    return _made(spec.name, spec.dtype, spec.shape, demand or Demand(), seed)


def input_types(
    graph: Graph, inputs: BoundInputs, model: str = "the model"
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the type and shape of every input. Raise BindingError if one cannot be sent."""
    return {tensor.name: _known_type(tensor, inputs, model) for tensor in graph.inputs}


def _known_type(tensor: Tensor, inputs: BoundInputs, model: str) -> tuple[str, tuple[int, ...]]:
    name, shape = tensor.name, inputs.shapes.get(tensor.name)
    if tensor.dtype is None:
        raise BindingError(
            f"the input {printable(name)!r} of {model} is a sequence, an optional or a map. Only "
            "tensors can be sent to a worker, so this model cannot be measured yet; only its "
            "static profile is possible.",
            Remedy(
                "Ask for {static}. To measure it, export it with a tensor for each element, or "
                "time a Python function that runs it with the engine `callable`."
            ),
        )
    if shape is None:
        raise BindingError(
            f"the input {printable(name)!r} of {model} does not say how many dimensions it has.",
            Remedy(
                "Give its shape with {inputs}, as in 1x64.",
                inputs=f"{printable(name)}:{tensor.dtype}:SHAPE",
            ),
        )
    if tensor.dtype != "string" and tensor.dtype not in BITS:
        raise BindingError(
            f"the input {printable(name)!r} of {model} is of the type {printable(tensor.dtype)}, "
            "for which no input can be made. Export the model with inputs of another type."
        )
    return tensor.dtype, shape


def _shaped(array: Array, shape: tuple[int, ...]) -> Array:
    """Return the elements in this shape. A single element fills it."""
    if array.size == 1:
        return np.full(shape, array.reshape(-1)[0], array.dtype)
    return array.reshape(shape)


def _made(name: str, dtype: str, shape: tuple[int, ...], demand: Demand, seed: int) -> Feed:
    draw = _Draw(_random_state(name, seed), min(prod(shape), _DRAWN))
    demand = _named(name, dtype, demand)
    if dtype == "string":
        array = _words(draw, demand)
    elif dtype == "bool":
        fixed = demand.value
        array = draw.integers(0, 1).astype(bool) if fixed is None else np.array([fixed != 0])
    elif dtype.startswith(("int", "uint")):
        array = _integers(draw, dtype, demand)
    else:
        array = _floats(draw, dtype, demand)
    note = _note(name, dtype, shape, demand, array)
    try:
        # Repeats the drawn values as often as the shape needs.
        return Feed(dtype, np.resize(array, shape), note)
    except (MemoryError, ValueError):
        raise BindingError(
            f"the input {printable(name)!r} ({format_shape(shape)} of {dtype}) does not fit into "
            "memory.",
            Remedy("Give smaller dimensions with {batch}, {dims} or {inputs}."),
        ) from None


def _random_state(name: str, seed: int) -> np.random.RandomState:
    """Return a random stream for each name, of a generator that numpy never changes (NEP 19)."""
    digest = hashlib.sha256(f"{seed}/{name}".encode("utf-8", "surrogatepass")).digest()
    return np.random.RandomState(np.frombuffer(digest, "<u4").astype(np.uint32))


class _Draw(Struct, frozen=True):
    state: np.random.RandomState
    count: int

    def normal(self) -> Array:
        return self.state.standard_normal(self.count)

    def integers(self, low: int, high: int) -> Array:
        """Draw integers from `low` to `high`, both included."""
        if low >= high:
            return np.array([low], np.int64)
        return self.state.randint(low, high + 1, self.count, dtype=np.int64)


def _named(name: str, dtype: str, demand: Demand) -> Demand:
    """Return the demand, with 1 for an input that is named as a mask, so that it hides nothing."""
    if demand.value is None and dtype != "string" and _MASK.search(name):
        return demand.and_also(Demand(value=1))
    return demand


def _bounds(dtype: str, demand: Demand) -> tuple[int, int]:
    # Integers of one byte are pixels or quantized numbers, so they may have any value.
    is_byte = "int" in dtype and BITS[dtype] <= 8
    low, high = _limits(dtype) if is_byte else _SMALL
    if math.isfinite(demand.low) and math.isfinite(demand.high):
        low, high = _limits(dtype)
    elif demand.low > low or demand.high < high:
        # If one bound is known, take a range of the usual width next to it.
        width = high - low
        if demand.low > low:
            low, high = int(demand.low), int(demand.low) + width
        else:
            low, high = int(demand.high) - width, int(demand.high)
    smallest, largest = _limits(dtype)
    low = int(min(max(low, smallest, demand.low), largest))
    high = max(low, int(min(high, largest, demand.high)))
    # The graph adds a constant before it uses the input as an index. Even so, real inputs are
    # not negative.
    return (0, high) if -math.inf < demand.low < 0 <= high else (low, high)


def _limits(dtype: str) -> tuple[int, int]:
    if "int" not in dtype:
        return -(2**53), 2**53
    number = NumberType(dtype)
    # All integers are drawn as int64.
    return max(int(number.lowest), -(2**62)), min(int(number.highest), 2**62)


def _clipped(value: float, dtype: str, demand: Demand) -> float:
    low, high = _limits(dtype)
    return min(max(min(max(value, demand.low), demand.high), low), high)


def _integers(draw: _Draw, dtype: str, demand: Demand) -> Array:
    if demand.value is not None:
        values: Array = np.array([int(_clipped(demand.value, dtype, demand))])
    else:
        values = draw.integers(*_bounds(dtype, demand))
    return to_stored(values, dtype)


def _floats(draw: _Draw, dtype: str, demand: Demand) -> Array:
    if demand.value is not None:
        values: Array = np.array([_clipped(demand.value, dtype, demand)])
    elif math.isfinite(demand.low) or math.isfinite(demand.high):
        # It is used as an index, so it needs whole numbers.
        values = draw.integers(*_bounds(dtype, demand)).astype(np.float64)
    elif dtype.startswith("complex"):
        values = draw.normal() + 1j * draw.normal()
    else:
        values = draw.normal()
        if BITS[dtype] == 16:
            far = np.maximum(np.abs(values), _SMALLEST_HALF)
            values = np.copysign(far, values)
    return to_stored(values, dtype)


def _words(draw: _Draw, demand: Demand) -> Array:
    """Return words that the model accepts, numbers if it reads texts as numbers, or short words."""
    if math.isfinite(demand.low) and not demand.words:
        texts = [str(number) for number in draw.integers(*_bounds("int64", demand))]
    else:
        words = demand.words or _WORDS
        texts = [words[index] for index in draw.integers(0, len(words) - 1)]
    return np.array(texts, dtype=object)


def _note(
    name: str, dtype: str, shape: tuple[int, ...], demand: Demand, array: Array
) -> str | None:
    if not demand.decides or not array.size:
        return None
    numbers = array.view(dtype_of(dtype)) if dtype in STORED_AS else array
    (shown,) = numbers.reshape(-1)[:1].tolist()
    size = format_shape(shape) if shape else ""
    real, advice = "VALUE", "Give its real value"
    if demand.compared:
        real = exact_number(demand.compared[0])
        advice = f"The graph compares it with {real}: give that value, or its real one,"
    return (
        f"the input {printable(name)!r} decides {demand.decides}; it was set to {shown}. "
        f"{advice} as the input {shell_word(f'{name}:{dtype}:{size}:{real}')}"
    )
