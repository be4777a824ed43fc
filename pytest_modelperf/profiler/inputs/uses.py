"""The values that an input has to have, found from its uses in the graph.

An input is followed to where its values matter: as the rows of a table, as a size, as a mask, as
a condition. On the way lie operators that hand values on as they are, sums with constants, and
the bodies of control flow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.graph.shape_arithmetic import dim
from pytest_modelperf.graph.structure import Graph, Node, Tensor
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.graph.structure import Shape

# How many tokens a search makes, unless the user says.
_NEW_TOKENS = 16
# The most tensors that are followed from one input.
_MAX_STEPS = 20_000


class Demand(Struct, frozen=True):
    """The values that uses of an input ask for: bounds, both included, and the best value.

    `words` are the only texts that they take. `decides` says which work depends on the value: then
    a value from the user is better than any made one. If that is a branch (`is_of_branch`),
    `compared` are the values at which another one runs, by the constants that the graph compares
    it with.
    """

    low: float = -math.inf
    high: float = math.inf
    value: float | None = None
    decides: str = ""
    words: tuple[str, ...] = ()
    compared: tuple[float, ...] = ()
    is_of_branch: bool = False

    def shifted(self, low: float, high: float) -> Demand:
        """The demand on x, if this demand is on x plus something from `low` to `high`."""
        value = None if self.value is None else self.value - low
        return replace(self, low=self.low - low, high=self.high - high, value=value)

    def loosened(self) -> Demand:
        """The demand on x, if this demand is on something computed from x and others."""
        is_bounded = math.isfinite(self.low) and self.value is None
        return replace(self, value=self.low) if is_bounded else self

    def and_also(self, other: Demand) -> Demand:
        """Both demands together; this one alone if they exclude each other."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        if low > high:
            return self
        return Demand(
            low,
            high,
            self.value if self.value is not None else other.value,
            self.decides or other.decides,
            self.words or other.words,
            (*self.compared, *(v for v in other.compared if v not in self.compared)),
            self.is_of_branch or other.is_of_branch,
        )


def demand_on(tensor: Tensor, uses: Uses) -> Demand:
    """The demand of all uses of a tensor together.

    The tightest bounds win. If two exclude each other, one of them is on a value that is only used
    in some cases (a negative index is made positive first): the demand that the input reaches
    unchanged stays.
    """
    total = Demand()
    for each in sorted(uses.demands(tensor), key=lambda found: found.is_changed):
        total = total.and_also(each.demand)
    return total


def find_uses(graph: Graph) -> Uses:
    """The consumers of each tensor of a graph and of its bodies."""
    uses = Uses()
    _add_uses(graph, uses)
    return uses


class _Found(Struct, frozen=True):
    """A demand on an input, and whether the input is computed with before it gets there."""

    demand: Demand
    is_changed: bool


class _Step(Struct, frozen=True):
    """A tensor on the way, and what was added to the input so far; None where that is unknown."""

    tensor: Tensor
    added: tuple[float, float] | None = (0.0, 0.0)


class Uses(Struct, frozen=True):
    """The nodes that take and make each tensor, and its names inside and outside of bodies."""

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
        """The demand of a comparison with a constant that decides what runs."""
        other = node.optional_input(1 - index)
        value = None if other is None else other.value
        result = node.outputs[0] if node.outputs else None
        if value is None or value.size != 1 or value.dtype.kind not in "iuf" or result is None:
            return
        found = next((f.demand for f in self.demands(result) if f.demand.decides), None)
        if found is not None and step.added is not None:
            edge = float(value.reshape(-1)[0]) - step.added[0]
            values = (edge,) if node.op_type == "Equal" else (edge, edge + 1, edge - 1)
            # At such a value a loop does not run, or once.
            compared = values if found.is_of_branch else ()
            demand = Demand(
                decides=found.decides, compared=compared, is_of_branch=found.is_of_branch
            )
            yield _Found(demand, is_changed=True)

    def _masked(self, node: Node, index: int, step: _Step) -> Iterator[_Found]:
        """The whole length, if a range is compared with it to mask what is behind a sequence."""
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
            for made, outer in _names_out(node, body):
                if outer is not None:
                    uses.aliases.setdefault(made, []).append(outer)


def _names_in(node: Node, body: Graph) -> Iterator[tuple[Tensor | None, Tensor]]:
    """The tensors passed to a body, and their names inside."""
    if node.op_type == "Loop":
        yield from zip(node.inputs[2:], body.inputs[2:], strict=False)
        yield from zip(body.outputs[1:], body.inputs[2:], strict=False)
    elif node.op_type == "Scan":
        # In operator set 8 the lengths of sequences come first.
        first = 1 if node.opset == 8 else 0
        yield from zip(node.inputs[first:], body.inputs, strict=False)


def _names_out(node: Node, body: Graph) -> Iterator[tuple[Tensor, Tensor | None]]:
    """The outputs of a body, and their names outside."""
    first = 1 if node.op_type == "Loop" else 0
    yield from zip(body.outputs[first:], node.outputs, strict=False)


def _moved(demand: Demand, added: tuple[float, float] | None) -> _Found:
    if added is None:
        return _Found(demand.loosened(), is_changed=True)
    return _Found(demand.shifted(*added), is_changed=added != (0.0, 0.0))


# -- what hands values on

# The inputs whose elements are those of the outputs, or some of them.
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
# Only the first output of these operators has them.
_FIRST_OUTPUT = frozenset({"Dropout", "TopK", "Unique"})
_SUMS = frozenset({"Add", "Sub"})
_RESHAPES = frozenset({"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
# The smallest index is the safest for values computed here.
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
    """The total added after a sum; None if the other term is no number, or this one negated."""
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


# -- what asks for certain values

_Rule: TypeAlias = Callable[[Node, int], "Demand | None"]
_ZERO, _ONE = Demand(value=0), Demand(value=1)
_MAKES, _KEEPS = "how much {} makes", "how much {} keeps"
_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


def _demand(node: Node, index: int, *, is_float: bool) -> Demand | None:
    rule = _RULES.get(node.qualified_op, {}).get(index)
    demand = rule(node, index) if callable(rule) else rule
    return demand if demand is not None or is_float else _mask_demand(node, index)


def _mask_demand(node: Node, index: int) -> Demand | None:
    """Ones for inputs that choose between values or are subtracted from 1, as masks are."""
    op = node.qualified_op
    if op == "Where" and index == 0:
        return _ONE
    if op == "Cast" and node.output().dtype == "bool":
        return _ONE if node.input(0).dtype != "bool" else None
    if op == "Sub" and index == 1:
        other = node.input(0).value
        is_one = other is not None and other.size and bool((other == 1).all())
        return _ONE if is_one else None
    return None


def _below(size: int | None) -> Demand | None:
    """An index into so many rows; 0 where their number is unknown."""
    if size is None:
        return Demand(low=0, value=0)
    return Demand(low=0, high=size - 1) if size > 0 else None


def _shape(node: Node, index: int) -> Shape | None:
    tensor = node.optional_input(index)
    return None if tensor is None else tensor.shape


def _along(attribute: str) -> _Rule:
    """Indices along the axis that an attribute tells."""
    return lambda node, _: _below(dim(_shape(node, 0), node.attr_int(attribute, 0)))


def _gather_nd(node: Node, _: int) -> Demand | None:
    data, indices = _shape(node, 0), _shape(node, 1)
    first = node.attr_int("batch_dims", 0)
    depth = dim(indices, -1)
    if data is None or depth is None:
        return _below(None)
    sizes = data[first : first + depth]
    return _below(None if None in sizes else min((s for s in sizes if s is not None), default=1))


def _one_hot(node: Node, _: int) -> Demand | None:
    depth = node.optional_input(1)
    if depth is None or depth.value is None or depth.value.size != 1:
        return _below(None)
    return _below(int(depth.value.reshape(-1)[0]))


def _category(node: Node, _: int) -> Demand | None:
    """One of the categories, for an encoder may fail at any other."""
    words = node.attributes.get("cats_strings")
    if isinstance(words, tuple) and words:
        return Demand(words=words)  # type: ignore[arg-type]  # by ONNX's types
    numbers = sorted(node.attr_ints("cats_int64s"))
    if not numbers:
        return None
    first, last = numbers[0], numbers[-1]
    has_gaps = numbers != list(range(first, last + 1))
    return Demand(value=first) if has_gaps else Demand(low=first, high=last)


def _rows_of(table: int, axis: int = 0) -> _Rule:
    """Indices of the rows of another input."""
    return lambda node, _: _below(dim(_shape(node, table), axis))


def _whole(size: int | None) -> Demand:
    """The whole length, so that nothing is left out."""
    return Demand(low=1, high=math.inf if size is None else size, value=size or 1)


def _all_of(table: int, axis: int) -> _Rule:
    """The whole length of another input."""
    return lambda node, _: _whole(dim(_shape(node, table), axis))


def _whole_sequence(node: Node, _: int) -> Demand:
    return _whole(dim(_shape(node, 0), node.attr_int("time_axis", 0)))


def _end_of_slice(node: Node, _: int) -> Demand:
    """The end of the longest dimension, so that a slice keeps what follows its start."""
    sizes = [size for size in _shape(node, 0) or () if size is not None]
    return Demand(value=max(sizes, default=1), decides=_what(node, _KEEPS))


def _equal_pieces(node: Node, index: int) -> Demand:
    """The size of each piece where a dimension is split evenly."""
    size = dim(_shape(node, 0), node.attr_int("axis", 0)) or 1
    pieces = prod(s or 1 for s in _shape(node, index) or ())
    return Demand(value=max(size // max(pieces, 1), 1), decides=_what(node, "where {} splits"))


def _grid_size(node: Node, _: int) -> Demand:
    """One point for each transformation of the batch, which is the first of the sizes."""
    return Demand(low=1, value=dim(_shape(node, 0), 0) or 1, decides=_what(node, _MAKES))


def _signal_length(node: Node, _: int) -> Demand:
    """The length of the signal, which is neither cut nor filled up then."""
    axis = node.optional_input(2)
    known = None if axis is None or axis.value is None else int(axis.value.reshape(-1)[0])
    size = dim(_shape(node, 0), node.attr_int("axis", -2) if known is None else known)
    return Demand(low=1, value=size or 1, decides=_what(node, _MAKES))


def _attention_mask(sequence: int) -> _Rule:
    """Ones, or where a mask tells each sequence's length by a number, the whole length."""

    def rule(node: Node, index: int) -> Demand:
        mask, length = _shape(node, index), dim(_shape(node, sequence), 1)
        return _ONE if mask is None or len(mask) > 1 else Demand(value=length or 1)

    return rule


def _past_length(past: int, axis: int) -> _Rule:
    """The number of past keys that fit into their buffer beside the new ones."""

    def rule(node: Node, _: int) -> Demand:
        buffer, new = dim(_shape(node, past), axis), dim(_shape(node, 0), 1)
        return Demand(low=0, value=max(0, (buffer or 0) - (new or 1)))

    return rule


def _total_length(*, minus: int) -> _Rule:
    """All past keys and the new ones, for attention that takes (query, key, value, past key)."""

    def rule(node: Node, _: int) -> Demand:
        past, new = dim(_shape(node, 3), 2) or 0, dim(_shape(node, 0), 1) or 1
        return Demand(low=0, value=past + new - minus)

    return rule


def _rotary_start(node: Node, index: int) -> Demand | None:
    """Positions in the table of angles; one that tells the first leaves room for the others."""
    table, positions = dim(_shape(node, 2), 0), _shape(node, index)
    length = dim(_shape(node, 0), -2)
    if table is None or positions is None or len(positions) > 1:
        return _below(table)
    return _below(max(1, table - (length or 1) + 1))


def _cache_position(node: Node, _: int) -> Demand:
    """Where a cache is written so that all of the update fits."""
    axis = node.attr_int("axis", -2)
    cache, update = dim(_shape(node, 0), axis), dim(_shape(node, 1), axis)
    last = 0 if cache is None or update is None else max(0, cache - update)
    return Demand(low=0, high=last)


def _longest_text(node: Node, _: int) -> Demand:
    """Room for some tokens behind the prompt, which a decoder takes and an encoder does not."""
    is_decoder = node.op_type != "WhisperBeamSearch" and node.attr_int("model_type", 0) == 0
    prompt = dim(_shape(node, 0 if is_decoder else 10), 1) or 1
    return Demand(low=1, value=prompt + _NEW_TOKENS, decides=_what(node, _MAKES))


def _divisor(node: Node, _: int) -> Demand | None:
    """Not 0, which ends the process where integers are divided."""
    return None if node.input(1).is_float else Demand(low=1)


def _text_of_number(node: Node, _: int) -> Demand | None:
    return Demand(low=0, high=9) if node.input(0).dtype == "string" else None


def _what(node: Node, text: str) -> str:
    return text.format(f"{node.op_type} {printable(node.name or node.id)!r}")


def _branch(node: Node, _: int) -> Demand:
    decides = _what(node, "which branch of {} runs")
    return Demand(low=0, value=1, decides=decides, is_of_branch=True)


def _size(text: str, value: float = 1) -> _Rule:
    """A number that decides how large the output of a node is."""
    return lambda node, _: Demand(low=0, value=value, decides=_what(node, text))


_LENGTH = _size(_MAKES)
_ALONG_AXIS = _along("axis")
# The longest and shortest text, penalties, and masks of words and of the prompt.
_SEARCH: Mapping[int, Demand | _Rule] = {
    1: _longest_text, 2: _ZERO, 3: _ONE, 4: _ONE, 5: _ONE, 6: _ONE,
}  # fmt: skip
# The same, behind the numbers of beams and of the texts that come out.
_BEAM_SEARCH: Mapping[int, Demand | _Rule] = {
    1: _longest_text, 2: _ZERO, 3: _size("how many beams {} keeps", 4),
    4: Demand(low=1, value=1), 5: _ONE, 6: _ONE, 7: _ONE, 8: _ONE, 9: _ONE, 11: _ZERO,
}  # fmt: skip

_RULES: Mapping[str, Mapping[int, Demand | _Rule]] = {
    "Gather": {1: _ALONG_AXIS},
    "GatherElements": {1: _ALONG_AXIS},
    "GatherND": {1: _gather_nd},
    "Scatter": {1: _ALONG_AXIS},
    "ScatterElements": {1: _ALONG_AXIS},
    "ScatterND": {1: _gather_nd},
    "TensorScatter": {2: _cache_position},
    "OneHot": {0: _one_hot, 1: _LENGTH},
    "ai.onnx.ml::ArrayFeatureExtractor": {1: _rows_of(0, -1)},
    "ai.onnx.ml::OneHotEncoder": {0: _category},
    "RoiAlign": {2: _rows_of(0)},
    "NegativeLogLikelihoodLoss": {1: _rows_of(0, 1)},
    "SoftmaxCrossEntropyLoss": {1: _rows_of(0, 1)},
    "RotaryEmbedding": {3: _rows_of(1)},
    # Sizes
    "ConstantOfShape": {0: _LENGTH},
    "Expand": {1: _LENGTH},
    "Range": {0: _size(_MAKES, 0), 1: _LENGTH, 2: _LENGTH},
    "Reshape": {1: _LENGTH},
    "Resize": {2: _LENGTH, 3: _LENGTH},
    "Upsample": {1: _LENGTH},
    "Tile": {1: _LENGTH},
    "TopK": {1: _LENGTH},
    "Pad": {1: _size(_MAKES, 0), 3: _ZERO},
    "Slice": {1: _size(_KEEPS, 0), 2: _end_of_slice, 3: _ZERO, 4: _size(_KEEPS)},
    "Split": {1: _equal_pieces},
    "SplitToSequence": {1: _equal_pieces},
    "MaxUnpool": {1: _rows_of(0, -1), 2: _LENGTH},
    "AffineGrid": {1: _grid_size},
    "Col2Im": {1: _LENGTH, 2: _LENGTH},
    "CropAndResize": {2: _rows_of(0), 3: _LENGTH},
    "BlackmanWindow": {0: _LENGTH},
    "HammingWindow": {0: _LENGTH},
    "HannWindow": {0: _LENGTH},
    "MelWeightMatrix": {0: _LENGTH, 1: _size(_MAKES, 2)},
    "DFT": {1: _signal_length, 2: _ONE},
    "STFT": {1: _LENGTH, 3: _LENGTH},
    "NonMaxSuppression": {
        2: _LENGTH,
        3: Demand(low=0, high=1, value=0.5),
        4: Demand(low=0, high=1, value=0.5),
    },
    "CenterCropPad": {1: _LENGTH},
    # Axes and the like
    **{op: {1: _size(_MAKES, 0)} for op in _REDUCTIONS},
    "SequenceAt": {1: _ZERO},
    "SequenceErase": {1: _ZERO},
    "SequenceInsert": {2: _ZERO},
    "CumProd": {1: _ZERO},
    "CumSum": {1: _ZERO},
    "Squeeze": {1: _ZERO},
    "Unsqueeze": {1: _ZERO},
    "Trilu": {1: _ZERO},
    "BitShift": {1: Demand(low=0, high=7)},
    "Div": {1: _divisor},
    "Mod": {1: _divisor},
    "Cast": {0: _text_of_number},
    # Inference, not training
    "Dropout": {1: _ZERO, 2: _ZERO},
    # Control flow
    "If": {0: _branch},
    "Loop": {0: _size("how often {} runs"), 1: _size("whether {} runs")},
    # Lengths of sequences
    "RNN": {4: _all_of(0, 0)},
    "LSTM": {4: _all_of(0, 0)},
    "GRU": {4: _all_of(0, 0)},
    "ReverseSequence": {1: _whole_sequence},
    "Attention": {3: _ONE, 6: _all_of(1, -2)},
    # ONNX Runtime's own
    "com.microsoft::Attention": {3: _attention_mask(0), 6: _past_length(4, 3)},
    "com.microsoft::QAttention": {5: _attention_mask(0)},
    "com.microsoft::MultiHeadAttention": {4: _attention_mask(1), 8: _past_length(6, 2)},
    "com.microsoft::DecoderMaskedMultiHeadAttention": {
        3: _ONE, 7: _past_length(5, 2), 8: _ONE, 9: _ZERO,
    },
    "com.microsoft::DecoderMaskedSelfAttention": {
        3: _ONE, 6: _past_length(4, 3), 7: _ONE, 8: _ZERO,
    },
    "com.microsoft::GroupQueryAttention": {
        5: _total_length(minus=1), 6: _total_length(minus=0), 9: _rows_of(7),
        16: _all_of(0, 1),
    },
    "com.microsoft::EmbedLayerNormalization": {
        0: _rows_of(2), 1: _rows_of(4), 7: _ONE, 8: _rows_of(3),
    },
    "com.microsoft::QEmbedLayerNormalization": {0: _rows_of(2), 1: _rows_of(4), 7: _ONE},
    "com.microsoft::GatherBlockQuantized": {1: _along("gather_axis")},
    "com.microsoft::GatherND": {1: _gather_nd},
    "com.microsoft::MRotaryEmbedding": {1: _rotary_start},
    "com.microsoft::RotaryEmbedding": {1: _rotary_start},
    "com.microsoft::BeamSearch": _BEAM_SEARCH,
    "com.microsoft::WhisperBeamSearch": {**_BEAM_SEARCH, 12: _ZERO, 14: _ONE},
    "com.microsoft::GreedySearch": _SEARCH,
    "com.microsoft::Sampling": _SEARCH,
    "com.microsoft::CropAndResize": {2: _rows_of(0), 3: _LENGTH},
    "com.microsoft::ExpandDims": {1: _ZERO},
    "com.microsoft::Pad": {1: _size(_MAKES, 0)},
    "com.microsoft::WordConvEmbedding": {0: _rows_of(3)},
    "com.microsoft::DynamicQuantizeLSTM": {4: _all_of(0, 0)},
    "com.microsoft::AttnLSTM": {4: _all_of(0, 0), 12: _all_of(11, 1)},
}  # fmt: skip
