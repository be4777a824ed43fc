"""Reasons in the graphs: pieces that were replaced by other pieces, and the operators left over.

A piece is a set of connected layers that the other side does not have. Two pieces are one edit if
the same layers feed them and the same layers read them. Equal edits are counted as one reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.differences import CaseLayers, Differences
from pytest_modelperf.comparing.reasons.counts import describe_count_change
from pytest_modelperf.comparing.reasons.reason import Reason, layer_name, reason_about_layers
from pytest_modelperf.graph.plans.parts import describe_change
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import join_words

# The operators of a larger piece are counted one by one.
_LARGEST_PIECE = 16
_MOST_NAMED = 6
# Stands for the inputs and the outputs of a model among the neighbours of a piece.
_OUTSIDE = -1


class _Piece(Struct, frozen=True):
    """Connected layers of one side. Its neighbours are indexes of the side after."""

    layers: tuple[int, ...]
    feeds: frozenset[int]
    readers: frozenset[int]

    def is_at(self, other: _Piece) -> bool:
        """Whether both have the same neighbours."""
        return (self.feeds, self.readers) == (other.feeds, other.readers)


class _Edit(Struct, frozen=True):
    """Layers of the side before that layers of the side after replace. Either may be empty."""

    removed: tuple[int, ...]
    added: tuple[int, ...]


def edit_reasons(found: Differences) -> tuple[Reason, ...]:
    """One reason for all equal edits, and one for each operator with other new or lost layers."""
    edits = _find_edits(found)
    grouped: dict[tuple[str, str], list[_Edit]] = defaultdict(list)
    for edit in edits:
        ops = _describe_piece(found.before, edit.removed), _describe_piece(found.after, edit.added)
        grouped[ops].append(edit)
    return (
        *(_reason(found, *ops, alike) for ops, alike in grouped.items()),
        *_operator_reasons(found, edits),
    )


# -- pieces


def _find_edits(found: Differences) -> Sequence[_Edit]:
    """The edits in the order of the graphs; none if the edges of a graph are not known."""
    partners = {new: new for new in found.pairs.values()}
    sides = (found.before, found.pairs), (found.after, partners)
    unmatched = [_unmatched(side, places) for side, places in sides]
    for (side, _), indexes in zip(sides, unmatched, strict=True):
        if any(side.layers[index].fed_by is None for index in indexes):
            return ()
    removed, added = (
        _pieces(side, indexes, places)
        for (side, places), indexes in zip(sides, unmatched, strict=True)
    )
    # By readers, of which a piece has few: the input of a model may feed thousands.
    by_reader: dict[int, list[_Piece]] = defaultdict(list)
    for piece in added:
        for reader in piece.readers:
            by_reader[reader].append(piece)
    taken: set[_Piece] = set()
    edits = []
    for old in removed:
        near = {piece: None for reader in sorted(old.readers) for piece in by_reader[reader]}
        free = [piece for piece in near if piece not in taken and piece.feeds & old.feeds]
        # Of pieces with a neighbour in common on each end, one with all of them is preferred.
        new = min(free, key=lambda piece: not piece.is_at(old), default=None)
        if new is not None:
            taken.add(new)
            edits.append(_Edit(old.layers, new.layers))
        elif len(old.layers) > 1:
            edits.append(_Edit(old.layers, ()))
    edits += [_Edit((), new.layers) for new in added if new not in taken and len(new.layers) > 1]
    return [edit for edit in edits if max(map(len, (edit.removed, edit.added))) <= _LARGEST_PIECE]


def _unmatched(side: CaseLayers, known: Collection[int]) -> Sequence[int]:
    return [index for index in range(len(side.layers)) if index not in known]


def _pieces(
    side: CaseLayers, unmatched: Sequence[int], places: Mapping[int, int]
) -> Sequence[_Piece]:
    """The unmatched layers of a side in connected pieces."""
    layers = side.layers
    readers: dict[int, list[int]] = defaultdict(list)
    for index, layer in enumerate(layers):
        for feeder in layer.fed_by or ():
            readers[feeder].append(index)
    left, pieces = set(unmatched), []
    for start in unmatched:
        if start not in left:
            continue
        inside, waiting = {start}, [start]
        left.discard(start)
        while waiting:
            here = waiting.pop()
            for near in (*(layers[here].fed_by or ()), *readers[here]):
                if near in left:
                    left.discard(near)
                    inside.add(near)
                    waiting.append(near)
        pieces.append(_piece(inside, side, readers, places))
    return pieces


def _piece(
    inside: Collection[int],
    side: CaseLayers,
    readers: Mapping[int, Sequence[int]],
    places: Mapping[int, int],
) -> _Piece:
    def neighbours(ends: Iterable[Sequence[int]]) -> Iterator[int]:
        for near in ends:
            yield from (places[each] for each in near if each in places)
            if not near:
                yield _OUTSIDE

    order = tuple(sorted(inside))
    return _Piece(
        order,
        frozenset(neighbours(side.layers[index].fed_by or () for index in order)),
        frozenset(neighbours(readers.get(index, ()) for index in order)),
    )


# -- sentences


def _reason(found: Differences, old_ops: str, new_ops: str, edits: Sequence[_Edit]) -> Reason:
    old = [index for edit in edits for index in edit.removed]
    new = [index for edit in edits for index in edit.added]
    count = len(edits)
    if len(old) == count:
        what = f"{count} {old_ops} became {new_ops}"
    else:
        what = _describe_edit(old_ops, new_ops)
        what += f" in {count} places" if count > 1 else ""
    side, first = (found.after, new[0]) if new else (found.before, old[0])
    text = f"{what} (first: {layer_name(side.layers[first])})"
    of_plans = describe_change(
        _kernels(found.before, edits[0].removed), _kernels(found.after, edits[0].added)
    )
    return replace(reason_about_layers(found, text, old, new), of_plans=of_plans)


def _describe_edit(old_ops: str, new_ops: str) -> str:
    if old_ops and new_ops:
        return f"{old_ops} became {new_ops}"
    return f"{new_ops} added" if new_ops else f"{old_ops} removed"


def _kernels(side: CaseLayers, piece: Sequence[int]) -> Counter[str]:
    return Counter(side.layers[index].op_type for index in piece)


def _describe_piece(side: CaseLayers, piece: Sequence[int]) -> str:
    """`Add, Clip, 2 Mul and Div`, in the order of the graph."""
    counts = Counter(printable(side.layers[index].qualified_op) for index in piece)
    if len(piece) == 1:
        return "".join(counts)
    named = [op if n == 1 else f"{n} {op}" for op, n in counts.items()]
    if len(named) > _MOST_NAMED:
        rest = sum(list(counts.values())[_MOST_NAMED - 1 :])
        named[_MOST_NAMED - 1 :] = [f"{rest} more"]
    return join_words(named) if named else ""


def _operator_reasons(found: Differences, edits: Sequence[_Edit]) -> tuple[Reason, ...]:
    """One reason for each operator with added or removed layers that are in no edit."""
    removed = {index for edit in edits for index in edit.removed}
    added = {index for edit in edits for index in edit.added}
    old_layers = _by_operator(found.before, {*found.pairs, *removed})
    new_layers = _by_operator(found.after, {*found.pairs.values(), *added})
    before, after = (
        Counter(layer.qualified_op for layer in side.layers) for side in (found.before, found.after)
    )
    edited = {found.before.layers[index].qualified_op for index in removed}
    edited |= {found.after.layers[index].qualified_op for index in added}
    reasons = []
    for op in {**old_layers, **new_layers}:
        old, new = old_layers.get(op, []), new_layers.get(op, [])
        if op in edited:
            text = _describe_others(op, len(old), len(new))
        elif before[op] == after[op]:
            text = f"{printable(op)}: {len(new)} of {after[op]} replaced by others"
        else:
            text = describe_count_change(op, before[op], after[op])
        side, shown = (found.after, new) if len(new) >= len(old) else (found.before, old)
        text += f" (first: {layer_name(side.layers[shown[0]])})"
        reasons.append(reason_about_layers(found, text, old, new))
    return tuple(reasons)


def _describe_others(op: str, old: int, new: int) -> str:
    """`2 other Relu added`: those that are in no edit, of an operator that some edits have."""
    name = printable(op)
    if old and new:
        return f"{old} other {name} replaced by {new}"
    return f"{new} other {name} added" if new else f"{old} other {name} removed"


def _by_operator(side: CaseLayers, known: Collection[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for index in _unmatched(side, known):
        found.setdefault(side.layers[index].qualified_op, []).append(index)
    return found
