"""Pair the layers of two models, although names, numbers and shapes may have changed.

A name that a person chose identifies a layer anywhere, if the operator is the same. A name that an
exporter numbered does not: an inserted node shifts all numbers after it. Layers without a chosen
name are aligned by operator and shapes in graph order, between neighbours with a chosen name.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from pytest_modelperf.graph.common_order import MOST_DIFFERENCES, in_common
from pytest_modelperf.profiler.counting.records import StaticLayer

# A number alone, or after a separator: `534`, `Conv_12`, `onnx::Relu_7`, `input.4`, `Relu__5:0`.
_NUMBERED = re.compile(r"(?:.*[^A-Za-z0-9])?\d+(?::\d+)?", re.DOTALL)
# The operator and a number, as in names by old exporters: `Conv12`, `conv2d_3`.
_AFTER_OPERATOR = re.compile(r"([A-Za-z]+?)\d*d?_?\d+(?::\d+)?")
# A quantizer extends a name after one of these.
_SEPARATOR = re.compile(r"[_.:/]")
# Operators that compute the same thing in other number formats, most of them integers.
_FAMILIES = {
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv"), "Conv"),
    **dict.fromkeys(
        (
            *("MatMul", "MatMulInteger", "QLinearMatMul", "MatMulIntegerToFloat"),
            *("DynamicQuantizeMatMul", "MatMulNBits", "Gemm", "QGemm"),
        ),
        "MatMul",
    ),
}
_SAME, _SAME_RESULT, _SAME_OPERATOR = 1.0, 0.5, 0.25


class AlignmentLimits(Struct, frozen=True):
    """How much an alignment may cost. It stores a number for each pair of layers.

    Beyond this many pairs, only the layers between equal ones are aligned. Beyond this many
    differences, order alone decides.
    """

    pairs: int = 1 << 23
    differences: int = MOST_DIFFERENCES


LIMITS = AlignmentLimits()


def match_layers(
    before: Sequence[StaticLayer], after: Sequence[StaticLayer], limits: AlignmentLimits = LIMITS
) -> dict[int, int]:
    """Map corresponding layers by index, before to after. Each layer is in at most one pair."""
    sides = _Sides(before, after, limits)
    pairs: dict[int, int] = {}
    for read in _CHOSEN:
        _match_unique(before, after, read, pairs)
    for read in _FORMS:
        _match_forms(before, after, read, pairs)
    named_old, named_new = set(pairs), set(pairs.values())
    for old, new in _gaps(pairs, len(before), len(after)):
        _align(sides, _without(old, named_old), _without(new, named_new), pairs)
    # Layers that moved to another place in the graph.
    for kind in (_named_work, _likeness, _work):
        left = (
            _without(range(len(before)), set(pairs)),
            _without(range(len(after)), set(pairs.values())),
        )
        _match_in_order(before, after, *left, pairs, kind)
    return pairs


def is_alike(old: StaticLayer, new: StaticLayer) -> bool:
    """Whether two layers have the same operator and the same sizes."""
    return _likeness(old) == _likeness(new)


def _likeness(layer: StaticLayer) -> tuple[Hashable, ...]:
    return (
        layer.qualified_op, layer.input_shape, layer.output_shape,
        layer.params, layer.macs, layer.elementwise_ops,
    )  # fmt: skip


def _operator(layer: StaticLayer) -> str:
    return layer.qualified_op


def _work(layer: StaticLayer) -> Hashable | None:
    """Return its kind of product and amount of work, or None unless it multiplies."""
    family = _FAMILIES.get(layer.op_type)
    return None if family is None or not layer.macs else (family, layer.macs)


def _named_work(layer: StaticLayer) -> Hashable | None:
    """Return its work with its name, which may be numbered, or None unless it multiplies."""
    work = _work(layer)
    return None if work is None or not layer.name else (work, layer.name)


# -- by name


def _chosen(name: str | None, layer: StaticLayer) -> str | None:
    """Return the name, or None if it was numbered and so does not identify the layer."""
    if not name or _NUMBERED.fullmatch(name):
        return None
    counted = _AFTER_OPERATOR.fullmatch(name)
    is_counted = counted is not None and counted[1].casefold() == layer.op_type.casefold()
    return None if is_counted else name


_Read: TypeAlias = Callable[[StaticLayer], str | None]
_CHOSEN: Sequence[_Read] = (
    lambda layer: _chosen(layer.name, layer),
    lambda layer: _chosen(layer.weight, layer),
    lambda layer: _chosen(layer.id, layer),
)


def _match_unique(
    before: Sequence[StaticLayer], after: Sequence[StaticLayer], read: _Read, pairs: dict[int, int]
) -> None:
    old = _unique(before, read, set(pairs))
    new = _unique(after, read, set(pairs.values()))
    for name, index in old.items():
        other = new.get(name)
        if other is not None and before[index].qualified_op == after[other].qualified_op:
            pairs[index] = other


def _unique(layers: Sequence[StaticLayer], read: _Read, taken: set[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    twice: set[str] = set()
    for index, layer in enumerate(layers):
        name = read(layer)
        if name is None:
            continue
        if name in found:
            twice.add(name)
        found[name] = index
    return {n: i for n, i in found.items() if n not in twice and i not in taken}


# -- by name, of another form


_FORMS: Sequence[_Read] = (lambda layer: layer.weight, lambda layer: layer.name or None)


def _match_forms(
    before: Sequence[StaticLayer], after: Sequence[StaticLayer], read: _Read, pairs: dict[int, int]
) -> None:
    """Pair a layer with its quantized form: one of their names begins with the other.

    A quantizer only adds to names, as in `conv1.weight_quantized` and `Conv_12_quant`. So even a
    name with a number identifies the layer here.
    """
    old = _of_families(before, read, set(pairs))
    new = _of_families(after, read, set(pairs.values()))
    found = [*((mate, index) for index, mate in _begun_with(new, old)), *_begun_with(old, new)]
    once = [Counter(pair[side] for pair in found) for side in (0, 1)]
    pairs.update(
        (one, other)
        for one, other in found
        if once[0][one] == once[1][other] == 1 and before[one].op_type != after[other].op_type
    )


_Named: TypeAlias = dict[tuple[str, str], int]


def _of_families(layers: Sequence[StaticLayer], read: _Read, taken: set[int]) -> _Named:
    found: _Named = {}
    for index, layer in enumerate(layers):
        family, name = _FAMILIES.get(layer.op_type), read(layer)
        if index not in taken and family is not None and name is not None:
            found[family, name] = index
    return found


def _begun_with(longer: _Named, shorter: _Named) -> Iterator[tuple[int, int]]:
    """Yield pairs of layers in which the name of the first begins with that of the second."""
    for (family, name), index in longer.items():
        begins = [(family, name[: match.start()]) for match in _SEPARATOR.finditer(name)]
        # The longest of these names is the nearest.
        mates = [shorter[begin] for begin in begins if begin in shorter][-1:]
        yield from ((index, mate) for mate in mates)


# -- by operator and shapes, in graph order


def _gaps(pairs: dict[int, int], before: int, after: int) -> Iterator[tuple[range, range]]:
    """Yield the ranges between neighbouring pairs that have the same order on both sides."""
    ordered = [(-1, -1), *_longest_rising(sorted(pairs.items())), (before, after)]
    for (old, new), (next_old, next_new) in pairwise(ordered):
        yield range(old + 1, next_old), range(new + 1, next_new)


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    ends: list[int] = []
    at: list[int] = []
    previous: list[int] = []
    for index, (_, value) in enumerate(pairs):
        place = bisect_left(ends, value)
        previous.append(at[place - 1] if place else -1)
        if place == len(ends):
            ends.append(value)
            at.append(index)
        else:
            ends[place] = value
            at[place] = index
    kept = []
    index = at[-1] if at else -1
    while index >= 0:
        kept.append(pairs[index])
        index = previous[index]
    return kept[::-1]


def _without(indexes: range, taken: set[int]) -> list[int]:
    return [index for index in indexes if index not in taken]


class _Sides(Struct, frozen=True):
    before: Sequence[StaticLayer]
    after: Sequence[StaticLayer]
    limits: AlignmentLimits


def _align(sides: _Sides, old: list[int], new: list[int], pairs: dict[int, int]) -> None:
    """Pair the layers at these indexes in order, with the largest total likeness."""
    if not old or not new:
        return
    if len(old) * len(new) > sides.limits.pairs:
        _align_between_equals(sides, old, new, pairs)
        return
    gains = _gains([sides.before[i] for i in old], [sides.after[i] for i in new])
    for row, column in _best_path(gains):
        pairs[old[row]] = new[column]


def _align_between_equals(
    sides: _Sides, old: list[int], new: list[int], pairs: dict[int, int]
) -> None:
    """Pair equal layers, and align only those between them, because aligning all costs too much."""
    for read in (_likeness, _operator):
        left, right = _codes([sides.before[i] for i in old], [sides.after[i] for i in new], read)
        equal = in_common(left.tolist(), right.tolist(), sides.limits.differences)
        if equal is None:
            continue
        ends = [(-1, -1), *equal, (len(old), len(new))]
        for (row, column), (next_row, next_column) in pairwise(ends):
            _align(sides, old[row + 1 : next_row], new[column + 1 : next_column], pairs)
        pairs.update((old[row], new[column]) for row, column in equal)
        return
    _match_in_order(sides.before, sides.after, old, new, pairs, _likeness)


def _gains(old: Sequence[StaticLayer], new: Sequence[StaticLayer]) -> npt.NDArray[np.float64]:
    same = _equal(old, new, _likeness)
    result = _equal(old, new, lambda layer: (layer.qualified_op, layer.output_shape))
    result |= _equal(old, new, lambda layer: id(layer) if (w := _work(layer)) is None else w)
    operator = _equal(old, new, _operator)
    gains: npt.NDArray[np.float64] = np.where(
        same, _SAME, np.where(result, _SAME_RESULT, np.where(operator, _SAME_OPERATOR, 0.0))
    )
    # Equal names only break ties: all of them together weigh less than one layer.
    named = _equal(old, new, lambda layer: layer.name) & operator
    gains += named * (0.1 / max(len(old), len(new)))
    return gains


def _equal(
    old: Sequence[StaticLayer], new: Sequence[StaticLayer], read: Callable[[StaticLayer], Hashable]
) -> npt.NDArray[np.bool_]:
    equal: npt.NDArray[np.bool_] = np.equal.outer(*_codes(old, new, read))
    return equal


def _codes(
    old: Sequence[StaticLayer], new: Sequence[StaticLayer], read: Callable[[StaticLayer], Hashable]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the values of `read` for both sides as integers, equal for equal values."""
    codes: dict[Hashable, int] = {}
    left, right = (
        np.array([codes.setdefault(read(layer), len(codes)) for layer in side], np.int64)
        for side in (old, new)
    )
    return left, right


def _best_path(gains: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return the rising path of pairs with the largest sum.

    This is the algorithm of Needleman and Wunsch without a gap penalty: "A general method
    applicable to the search for similarities in the amino acid sequence of two proteins", Journal
    of Molecular Biology 48 (1970).
    """
    rows, columns = gains.shape
    best = np.zeros((rows + 1, columns + 1), np.float64)
    for row in range(rows):
        paired = best[row, :-1] + gains[row]
        best[row + 1, 1:] = np.maximum.accumulate(np.maximum(paired, best[row, 1:]))
    path = []
    row, column = rows, columns
    while row and column:
        here = best[row, column]
        if here == best[row - 1, column]:
            row -= 1
        elif here == best[row, column - 1]:
            column -= 1
        else:
            row -= 1
            column -= 1
            path.append((row, column))
    return path[::-1]


def _match_in_order(  # noqa: PLR0913, PLR0917  # both sides, and what is left of them
    before: Sequence[StaticLayer],
    after: Sequence[StaticLayer],
    old: Sequence[int],
    new: Sequence[int],
    pairs: dict[int, int],
    kind_of: Callable[[StaticLayer], Hashable | None],
) -> None:
    """Pair the first layers of each kind, then the second ones, and so on."""
    waiting: dict[Hashable, list[int]] = defaultdict(list)
    for index in reversed(new):
        waiting[kind_of(after[index])].append(index)
    for index in old:
        kind = kind_of(before[index])
        candidates = waiting.get(kind)
        if kind is not None and candidates:
            pairs[index] = candidates.pop()
