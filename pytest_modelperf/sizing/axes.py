"""Follow an axis of an input through the operators that use it, to the sizes that they need.

A convolution makes one element from every `stride` elements, so the sizes that fit are multiples of
the product of the strides. If an operator accepts only one size (a product with a stored matrix, a
Squeeze, a sum with a stored tensor), the operators before it determine which sizes of the input
lead to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isqrt, prod
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.graph.shape_rules import ints_of
from pytest_modelperf.graph.structure import Node, Tensor
from pytest_modelperf.graph.validity import describe_node
from pytest_modelperf.profiler.inputs.made import Uses

# An axis is followed to at most this many places.
_MAX_PLACES = 20_000
# Larger steps and sizes come from a bug in the inference, not from a real input.
_LARGEST = 1 << 20


class SizeRange(Struct, frozen=True):
    """Sizes from `low` to `high`, both included."""

    low: int
    high: int


class WindowSizes(Struct, frozen=True):
    """A sliding window, which makes `(size + padding - kernel) // stride + 1` elements."""

    kernel: int
    stride: int
    padding: int

    def before(self, wanted: SizeRange) -> SizeRange | None:
        """Return the input sizes that give the wanted output sizes, or None if none does."""
        low = (wanted.low - 1) * self.stride + self.kernel - self.padding
        high = wanted.high * self.stride + self.kernel - self.padding - 1
        return SizeRange(max(low, 1), high) if high >= 1 else None


class Merge(Struct, frozen=True):
    """A Flatten of axes. `others` is the product of the known sizes.

    The unknown sizes are assumed to be equal.
    """

    others: int
    unknown: int

    def before(self, wanted: SizeRange) -> SizeRange | None:
        product, rest = divmod(wanted.low, self.others or 1)
        side = isqrt(product) if self.unknown == 2 else product
        if wanted.low != wanted.high or rest or side**self.unknown != product or not side:
            return None
        return SizeRange(side, side)


class Wish(Struct, frozen=True):
    """The sizes that an operator accepts of an input's axis. Multiples of `step` are the safest."""

    sizes: SizeRange
    step: int
    reason: str


class AxisUses(Struct):
    """The demands of the operators that use an axis on its size.

    `steps` are numbers whose multiples operators accept, each with its reason. `step` is the
    product of all strides. Below the size `least`, a window makes no element. If the axis is that
    of a cache, `cache_of` names the Concat that adds new entries to it.
    """

    step: int = 1
    least: int = 1
    steps: dict[int, str] = field(default_factory=dict)
    wishes: list[Wish] = field(default_factory=list)
    cache_of: str = ""


class _Place(Struct, frozen=True):
    tensor: Tensor
    axis: int
    before: tuple[WindowSizes | Merge, ...] | None = ()
    step: int = 1

    def behind(self, each: WindowSizes | Merge, stride: int = 1) -> _Place:
        before = None if self.before is None else (*self.before, each)
        return replace(self, before=before, step=self.step * stride)

    def lost(self) -> _Place:
        return replace(self, before=None)

    @property
    def shape(self) -> tuple[int | None, ...]:
        return self.tensor.shape or ()

    def back(self, sizes: SizeRange) -> SizeRange | None:
        found: SizeRange | None = None if self.before is None else sizes
        for each in reversed(self.before or ()):
            found = None if found is None else each.before(found)
        return found


def follow_axis(tensor: Tensor, axis: int, uses: Uses) -> AxisUses:
    walk = _Walk(uses)
    waiting = [_Place(tensor, axis)]
    seen = {(tensor, axis, 1)}
    while waiting and len(seen) < _MAX_PLACES:
        place = waiting.pop()
        onward = [replace(place, tensor=each) for each in uses.aliases.get(place.tensor, ())]
        for node, index in uses.nodes.get(place.tensor, ()):
            onward.extend(walk.behind(node, index, place))
        for each in onward:
            key = (each.tensor, each.axis, each.step)
            if key not in seen and each.step <= _LARGEST:
                seen.add(key)
                waiting.append(each)
    return walk.found


def _to_outputs(node: Node, place: _Place, axis: int) -> Iterator[_Place]:
    for tensor in node.outputs:
        if tensor is not None:
            yield replace(place, tensor=tensor, axis=axis)


class _Walk:
    def __init__(self, uses: Uses) -> None:
        self.found = AxisUses()
        self._uses = uses
        self._rules: Mapping[str, _Rule] = {
            **dict.fromkeys(_WINDOWS, self._slide),
            **dict.fromkeys(_ENLARGING, self._enlarge),
            **dict.fromkeys(_RECURRENT, self._recur),
            **dict.fromkeys(("Gemm", "MatMul"), self._multiply),
            **dict.fromkeys(("Flatten", "Reshape"), self._reshape),
            "Concat": self._join,
            "Gather": self._gather,
            "Pad": self._pad,
            "Shape": self._restore,
            "STFT": self._frame,
            "Slice": self._slice,
            "SpaceToDepth": self._to_depth,
            "Squeeze": self._squeeze,
            "Transpose": self._transpose,
            "Unsqueeze": self._unsqueeze,
        }

    def behind(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        if place.axis >= len(place.shape) and node.op_type not in _WITHOUT_RANK:
            # Most rules count axes from the end, and need all of them.
            return iter(())
        if node.op_type.startswith("Reduce"):
            return self._reduce(node, index, place)
        return self._rules.get(node.op_type, self._keep)(node, index, place)

    def _wish(self, place: _Place, size: int, reason: str) -> None:
        sizes = place.back(SizeRange(size, size))
        if place.before is None and place.step > 1:
            # This is approximate: changes of the size on the way are small compared with a step.
            sizes = SizeRange(size * place.step, size * place.step)
        if sizes is not None and sizes.low <= _LARGEST:
            self.found.wishes.append(Wish(sizes, place.step, reason))

    def _step(self, step: int, reason: str) -> None:
        if step <= _LARGEST:
            self.found.steps.setdefault(step, reason)

    def _keep(self, node: Node, _: int, place: _Place) -> Iterator[_Place]:
        """Keep the axis, counted from the end, and note the size of a stored operand."""
        behind = place.axis - len(place.shape)
        for other in node.inputs if node.op_type in _ELEMENTWISE else ():
            shape = None if other is None or not other.is_constant else other.shape
            size = shape[behind] if shape is not None and len(shape) >= -behind else None
            if size is not None and size > 1:
                self._wish(place, size, f"{describe_node(node)} adds {size} stored values to it")
        for tensor in node.outputs:
            shape = None if tensor is None else tensor.shape
            if tensor is None or shape is None or len(shape) < len(place.shape):
                continue
            # An open axis that becomes a fixed size is another axis, such as after a RoiAlign.
            is_same = len(shape) == len(place.shape) and (
                shape[behind] is None or place.shape[behind] is not None
            )
            if node.op_type in _ELEMENTWISE or is_same:
                yield replace(place, tensor=tensor, axis=behind + len(shape))

    def _slide(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        at = place.axis - 2
        kernel = _kernel(node, at) if index == 0 and at >= 0 else None
        if index == 0 and place.axis == 0:
            yield from _to_outputs(node, place, 0)
        if kernel is None:
            return
        stride = _along(node, "strides", at)
        reach = (kernel - 1) * _along(node, "dilations", at) + 1
        window = WindowSizes(reach, stride, _padding(node, at, reach, stride))
        yield from self._behind_window(node, place, window)

    def _behind_window(self, node: Node, place: _Place, window: WindowSizes) -> Iterator[_Place]:
        place = place.behind(window, window.stride)
        if window.stride > 1:
            self._stride(node, place)
        least = place.back(SizeRange(1, _LARGEST))
        if least is not None:
            self.found.least = max(self.found.least, least.low)
        yield from _to_outputs(node, place, place.axis)

    def _frame(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        step, length = _values(node, 1), _values(node, 3)
        window = node.optional_input(2)
        if not length and window is not None and window.shape and window.shape[0] is not None:
            length = (window.shape[0],)
        if index == 0 and place.axis == 0:
            yield from _to_outputs(node, place, 0)
        elif index == 0 and place.axis == 1 and step and length:
            yield from self._behind_window(node, place, WindowSizes(length[0], step[0], 0))

    def _stride(self, node: Node, place: _Place) -> None:
        self.found.step = max(self.found.step, place.step)
        self._step(place.step, f"the strides up to {describe_node(node)} multiply to {place.step}")

    def _enlarge(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        if index == 0:
            yield from _to_outputs(node, replace(place, before=None, step=1), place.axis)

    def _pad(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        pads = node.attr_ints("pads") or _values(node, 1)
        rank = len(place.shape)
        if index != 0:
            return
        is_known = len(pads) == 2 * rank
        added = pads[place.axis] + pads[rank + place.axis] if is_known else 0
        place = place.behind(WindowSizes(1, 1, added)) if is_known else place.lost()
        yield from _to_outputs(node, place, place.axis)

    def _to_depth(self, node: Node, _: int, place: _Place) -> Iterator[_Place]:
        block = node.attr_int("blocksize", 1)
        place = place.behind(WindowSizes(block, block, 0), block)
        self._stride(node, place)
        yield from _to_outputs(node, place, place.axis)

    def _slice(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        rank = len(place.shape)
        axes = [axis % rank for axis in _values(node, 3) or range(len(_values(node, 1)))]
        if index != 0:
            return
        if place.axis in axes or not axes:
            place = self._sliced(node, axes.index(place.axis) if axes else 0, place)
        yield from _to_outputs(node, place, place.axis)

    def _sliced(self, node: Node, at: int, place: _Place) -> _Place:
        starts, ends, strides = _values(node, 1), _values(node, 2), _values(node, 4)
        stride = strides[at] if at < len(strides) else 1
        if at >= len(starts) or at >= len(ends) or starts[at] < 0 or stride < 1:
            return place.lost()
        is_to_end = ends[at] >= _LARGEST
        if not is_to_end and ends[at] >= 0:
            return place.lost()
        dropped = starts[at] - (0 if is_to_end else ends[at])
        place = place.behind(WindowSizes(1, stride, -dropped), stride)
        if stride > 1:
            self._stride(node, place)
        return place

    def _recur(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        if index == 0 and place.axis == 0 and node.outputs and node.outputs[0] is not None:
            yield replace(place, tensor=node.outputs[0], axis=0)

    def _multiply(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        """Demand the number of the other factor's rows if this is the inner axis of a product."""
        if index > 1:
            return
        other = node.optional_input(1 - index)
        if place.axis != _inner_axis(node, index, len(place.shape)):
            yield from self._keep(node, index, place)
        elif other is not None and other.is_constant and other.shape:
            rows = other.shape[_inner_axis(node, 1 - index, len(other.shape))]
            if rows is not None:
                self._wish(place, rows, f"{describe_node(node)} takes {rows} features")

    def _reshape(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        """Demand the product of the axes if they are merged, or whole tiles if an axis is cut."""
        shape, axis = place.shape, place.axis
        target = _target(node, shape)
        if index != 0 or not target or not shape:
            return
        kept = _kept(shape, target)
        if axis < kept:
            yield from _to_outputs(node, place, axis)
        elif kept == len(target) - 1:
            unknown = shape[kept:].count(None)
            others = prod(size for size in shape[kept:] if size is not None)
            place = place.behind(Merge(others, unknown))
            if target[-1] > 0:
                self._wish(place, target[-1], f"{describe_node(node)} makes {target[-1]} of it")
            yield from _to_outputs(node, place, kept)
        else:
            for tile in sorted({size for size in target[1:] if size > 1} - set(shape)):
                self._step(place.step * tile, f"{describe_node(node)} cuts it into tiles of {tile}")

    def _restore(self, node: Node, _: int, place: _Place) -> Iterator[_Place]:
        """Follow a Reshape to the shape of this tensor, such as after a group normalization."""
        if node.attr_int("start", 0) == 0:
            for user, index in self._uses.nodes.get(node.output(), ()):
                if user.op_type == "Reshape" and index == 1:
                    yield from _to_outputs(user, place, place.axis)

    def _join(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        if node.attr_int("axis", 0) % max(len(place.shape), 1) != place.axis:
            yield from self._keep(node, index, place)
            return
        others = [t for at, t in enumerate(node.inputs) if t is not None and at != index]
        if index == 0 and not place.before and any(not each.is_constant for each in others):
            self.found.cache_of = describe_node(node)
        # The other inputs add to the size, so later operators demand no size of this axis alone.
        yield from _to_outputs(node, place.lost(), place.axis)

    def _gather(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        """Replace the indexed axis by the axes of the indices."""
        indices = node.optional_input(1)
        data = node.optional_input(0)
        ranks = [None if t is None or t.shape is None else len(t.shape) for t in (data, indices)]
        # A damaged model may gather from a scalar, which does not have axes.
        if not ranks[0] or ranks[1] is None:
            return
        axis = node.attr_int("axis", 0) % ranks[0]
        if index == 1:
            yield from _to_outputs(node, place, axis + place.axis)
        elif place.axis == axis:
            if ranks[1] == 0 and indices is not None and indices.is_constant and place.step > 1:
                self._wish(place, 1, f"{describe_node(node)} takes one element of it")
        else:
            later = place.axis + ranks[1] - 1
            yield from _to_outputs(node, place, place.axis if place.axis < axis else later)

    def _squeeze(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        axes = _axes(node, len(place.shape)) if index == 0 else ()
        if place.axis in axes:
            self._wish(
                place, 1, f"{describe_node(node)} removes it, so it has to shrink to 1 there"
            )
        elif axes:
            yield from _to_outputs(node, place, place.axis - sum(a < place.axis for a in axes))

    def _unsqueeze(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        if index == 0:
            rank = len(place.shape) + (len(node.attr_ints("axes")) or len(_values(node, 1)))
            added = _axes(node, rank)
            kept = [axis for axis in range(rank) if axis not in added]
            if place.axis < len(kept):
                yield from _to_outputs(node, place, kept[place.axis])

    def _reduce(self, node: Node, index: int, place: _Place) -> Iterator[_Place]:
        axes = _axes(node, len(place.shape)) if index == 0 else ()
        if axes and place.axis not in axes:
            lost = 0 if node.attr_int("keepdims", 1) else sum(a < place.axis for a in axes)
            yield from _to_outputs(node, place, place.axis - lost)

    def _transpose(self, node: Node, _: int, place: _Place) -> Iterator[_Place]:
        order = node.attr_ints("perm", tuple(reversed(range(len(place.shape)))))
        if place.axis in order:
            yield from _to_outputs(node, place, order.index(place.axis))


_Rule: TypeAlias = "Callable[[Node, int, _Place], Iterator[_Place]]"

_WINDOWS = ("AveragePool", "Conv", "ConvInteger", "LpPool", "MaxPool", "QLinearConv")
_ENLARGING = ("ConvTranspose", "DepthToSpace", "Resize", "Upsample")
_RECURRENT = ("GRU", "LSTM", "RNN")
# Their rules need the index of the axis, but not the number of axes.
_WITHOUT_RANK = frozenset({*_WINDOWS, *_ENLARGING, *_RECURRENT})
_ELEMENTWISE = frozenset({"Add", "Div", "Mul", "Sub", "Where"})


def _inner_axis(node: Node, index: int, rank: int) -> int:
    is_turned = bool(node.attr_int("transB" if index else "transA", 0))
    return rank - 1 if (index == 0) != is_turned else max(rank - 2, 0)


def _kernel(node: Node, at: int) -> int | None:
    given = node.attr_ints("kernel_shape")
    if at < len(given):
        return given[at]
    weight = node.optional_input(3 if node.op_type == "QLinearConv" else 1)
    shape = None if weight is None else weight.shape
    return None if shape is None or at + 2 >= len(shape) else shape[at + 2]


def _along(node: Node, attribute: str, at: int) -> int:
    given = node.attr_ints(attribute)
    return given[at] if at < len(given) else 1


def _padding(node: Node, at: int, reach: int, stride: int) -> int:
    if node.attr_str("auto_pad", "NOTSET").startswith("SAME"):
        return reach - 1
    pads = node.attr_ints("pads")
    half = len(pads) // 2
    both = pads[at] + pads[half + at] if at < half else 0
    return both + (stride - 1 if node.attr_int("ceil_mode", 0) else 0)


def _values(node: Node, index: int) -> tuple[int, ...]:
    return ints_of(node, index) or ()


def _axes(node: Node, rank: int) -> tuple[int, ...]:
    axes = node.attr_ints("axes") or _values(node, 1)
    return tuple(axis % rank for axis in axes) if rank else ()


def _target(node: Node, shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the target of a Reshape or a Flatten: 0 keeps a size, -1 takes the rest."""
    if node.op_type == "Flatten":
        return (0, -1) if node.attr_int("axis", 1) == 1 and len(shape) > 1 else ()
    return _values(node, 1) or node.attr_ints("shape")


def _kept(shape: tuple[int | None, ...], target: tuple[int, ...]) -> int:
    """Count the leading axes that a target keeps, always including the batch."""
    kept = 0
    for old, new in zip(shape, target, strict=False):
        is_same = new == 0 or (old is not None and new == old)
        # A -1 can be an unknown size that is kept, if all sizes after it are kept.
        is_rest = new == -1 and shape[kept + 1 :] == target[kept + 1 :]
        if kept and not (is_same or is_rest):
            break
        kept += 1
    return kept
