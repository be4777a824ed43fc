"""Find reasons in the graphs: changed layers, replaced pieces, weights, inputs and outputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import LayerTypeChange
from pytest_modelperf.comparing.differences import CaseLayers, Differences
from pytest_modelperf.comparing.layer_pairs import is_alike
from pytest_modelperf.comparing.reasons.reason import (
    LayerPair,
    Reason,
    layer_name,
    pairs_by_operator,
    pairs_in_order,
    reason_about_change,
    reason_about_layers,
    reason_about_pairs,
)
from pytest_modelperf.graph.plans.parts import describe_change
from pytest_modelperf.graph.structure import Graph, PlanGraph, Tensor
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes, format_count, format_shape
from pytest_modelperf.text.words import count_of, join_words

# Weights with fewer bytes per parameter on average, scales and biases included, are quantized.
_LEAST_OF_A_FLOAT = 2.0
# Weights that take more or less by this factor are stored in another type. Scales and zero points
# of equally quantized weights make a smaller difference.
_OTHER_TYPE = 1.25


def weight_reasons(found: Differences, after_plan: PlanGraph | None) -> tuple[Reason, ...]:
    """Return one reason for each operator whose layers only have weights of another type."""
    before, after = found.before.layers, found.after.layers
    dequantized = _dequantized_weights(after_plan)
    changes: dict[tuple[str, str], list[LayerPair]] = {}
    for old, new in pairs_in_order(found):
        if has_other_weights(before[old], after[new]):
            what = _describe(before[old], after[new])
            if after[new].weight in dequantized:
                what += ", dequantized in each run"
            changes.setdefault((after[new].qualified_op, what), []).append((old, new))
    reasons = []
    for (op, what), pairs in changes.items():
        old, new = pairs[0]
        sizes = [format_bytes(each.weight_bytes) for each in (before[old], after[new])]
        reasons.append(reason_about_change(found, op, pairs, what, " -> ".join(sizes)))
    return tuple(reasons)


def has_other_weights(old: StaticLayer, new: StaticLayer) -> bool:
    """Whether two layers of one operator do the same work with weights of another type."""
    if (old.qualified_op, *_work(old)) != (new.qualified_op, *_work(new)):
        return False
    sizes = sorted(map(_bytes_per_param, (old, new)))
    return sizes[1] > _OTHER_TYPE * sizes[0] > 0.0


def _work(layer: StaticLayer) -> tuple[object, ...]:
    return layer.input_shape, layer.output_shape, layer.macs, layer.precision


def _bytes_per_param(layer: StaticLayer) -> float:
    return layer.weight_bytes / layer.params if layer.params else 0.0


def _describe(old: StaticLayer, new: StaticLayer) -> str:
    was_quantized, is_quantized = (
        _bytes_per_param(layer) < _LEAST_OF_A_FLOAT for layer in (old, new)
    )
    if was_quantized == is_quantized:
        return "with weights of another type"
    return "with quantized weights" if is_quantized else "with weights no longer quantized"


def _dequantized_weights(plan: PlanGraph | None) -> frozenset[str]:
    """Return the stored tensors that a separate kernel converts to floats."""
    if plan is None:
        return frozenset()
    steps = (step for step in plan.nodes if step.op_type == "DequantizeLinear")
    return plan.constants & {name for step in steps for name in step.inputs[:1]}


# -- reasons in layers that both graphs have


def form_reasons(found: Differences) -> tuple[Reason, ...]:
    """Return one reason for each operator whose layers compute the same in another form."""
    before, after = found.before.layers, found.after.layers
    forms: dict[tuple[str, str], list[LayerPair]] = {}
    for old, new in pairs_in_order(found):
        ops = before[old].qualified_op, after[new].qualified_op
        if ops[0] != ops[1]:
            forms.setdefault(ops, []).append((old, new))
    return tuple(
        reason_about_pairs(
            found,
            f"{len(pairs)} {printable(old)} became {printable(new)}"
            f" (first: {layer_name(after[pairs[0][1]])})",
            pairs,
        )
        for (old, new), pairs in forms.items()
    )


def size_reasons(found: Differences) -> tuple[Reason, ...]:
    """Return one reason for each operator whose layers have another shape or size."""
    before, after = found.before.layers, found.after.layers
    changed = [
        (old, new)
        for old, new in pairs_in_order(found)
        if before[old].qualified_op == after[new].qualified_op
        and not is_alike(before[old], after[new])
        and not has_other_weights(before[old], after[new])
    ]
    reasons = []
    for op, pairs in pairs_by_operator(found, changed).items():
        old, new = before[pairs[0][0]], after[pairs[0][1]]
        what, change = _what_differs(old, new), _size_change(old, new)
        reasons.append(reason_about_change(found, op, pairs, what, change))
    return tuple(reasons)


def _what_differs(old: StaticLayer, new: StaticLayer) -> str:
    shapes = [(layer.input_shape, layer.output_shape) for layer in (old, new)]
    if shapes[0] != shapes[1]:
        return "of another shape"
    if (old.macs, old.elementwise_ops) != (new.macs, new.elementwise_ops):
        return "of another size"
    # A quantized weight has its own scales and zero points.
    return "with other params"


def _size_change(old: StaticLayer, new: StaticLayer) -> str:
    if old.output_shape != new.output_shape:
        return f"output {format_shape(old.output_shape)} -> {format_shape(new.output_shape)}"
    if old.input_shape != new.input_shape:
        return f"input {format_shape(old.input_shape)} -> {format_shape(new.input_shape)}"
    if old.params != new.params:
        return f"{format_count(old.params)} -> {format_count(new.params)} params"
    if old.macs != new.macs:
        return f"{format_count(old.macs)} -> {format_count(new.macs)} MACs"
    counts = (format_count(layer.elementwise_ops) for layer in (old, new))
    return f"{' -> '.join(counts)} elementwise operations"


# -- reasons that follow from counts alone


def lower_bounds(*uncounted_ops: Iterable[str]) -> tuple[str, ...]:
    """Return which operators could not be counted on a side. They may leave a verdict open."""
    ops = dict.fromkeys(op for side in uncounted_ops for op in side)
    if not ops:
        return ()
    return (f"MACs are lower bounds: {', '.join(map(printable, ops))} could not be counted",)


def reasons_of_counts(changes: Iterable[LayerTypeChange]) -> tuple[str, ...]:
    reasons = []
    for change in changes:
        before, after = (
            0 if kind is None else kind.count for kind in (change.before, change.after)
        )
        if before != after:
            reasons.append(describe_count_change(change.op, before, after))
        elif change.added_macs:
            reasons.append(f"{printable(change.op)}: {after} as before, of other shapes")
    return tuple(reasons)


def causes_by_counts(changes: Sequence[LayerTypeChange]) -> dict[str, str]:
    """Return the operator that added most to each count that grew, by the name of its metric."""
    causes: dict[str, str] = {}
    for name, added in (("macs", lambda change: change.added_macs), ("params", _added_params)):
        most = max(changes, key=added, default=None)
        if most is not None and added(most) > 0:
            causes.update((name, text) for text in reasons_of_counts((most,)))
    return causes


def _added_params(change: LayerTypeChange) -> int:
    before, after = (0 if side is None else side.params for side in (change.before, change.after))
    return after - before


def describe_count_change(op: str, before: int, after: int) -> str:
    """Return `3 Conv added`, or `Conv: 3 before, 4 now`."""
    name = printable(op)
    if before == 0:
        return f"{after} {name} added"
    if after == 0:
        return f"{before} {name} removed, none left"
    return f"{name}: {before} before, {after} now"


# In a larger piece, each operator is counted separately.
_LARGEST_PIECE = 16
_MOST_NAMED = 6
# Represents the inputs and outputs of a model among the neighbours of a piece.
_OUTSIDE = -1


class _Piece(Struct, frozen=True):
    """Connected layers of one side. Its neighbours are indexes of the side after."""

    layers: tuple[int, ...]
    feeds: frozenset[int]
    readers: frozenset[int]

    def is_at(self, other: _Piece) -> bool:
        return (self.feeds, self.readers) == (other.feeds, other.readers)


class _Edit(Struct, frozen=True):
    """Layers of the side before that layers of the side after replace. Either may be empty."""

    removed: tuple[int, ...]
    added: tuple[int, ...]


def edit_reasons(found: Differences) -> tuple[Reason, ...]:
    """Return one reason for all equal edits, and one for each other operator that changed."""
    edits = _find_edits(found)
    grouped: dict[tuple[str, str], list[_Edit]] = defaultdict(list)
    for edit in edits:
        ops = _describe_piece(found.before, edit.removed), _describe_piece(found.after, edit.added)
        grouped[ops].append(edit)
    return (
        *(_reason(found, *ops, alike) for ops, alike in grouped.items()),
        *_operator_reasons(found, edits),
    )


def _find_edits(found: Differences) -> Sequence[_Edit]:
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
    # Look pieces up by readers: each piece has few readers, but a model's input may have thousands.
    by_reader: dict[int, list[_Piece]] = defaultdict(list)
    for piece in added:
        for reader in piece.readers:
            by_reader[reader].append(piece)
    taken: set[_Piece] = set()
    edits = []
    for old in removed:
        near = {piece: None for reader in sorted(old.readers) for piece in by_reader[reader]}
        free = [piece for piece in near if piece not in taken and piece.feeds & old.feeds]
        # Among pieces that share a neighbour on each end, prefer one that shares all of them.
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


def _reason(found: Differences, old_ops: str, new_ops: str, edits: Sequence[_Edit]) -> Reason:
    old = [index for edit in edits for index in edit.removed]
    new = [index for edit in edits for index in edit.added]
    count = len(edits)
    if old_ops and new_ops:
        what = f"{old_ops} became {new_ops}"
    else:
        what = f"{new_ops} added" if new_ops else f"{old_ops} removed"
    if len(old) == count:
        what = f"{count} {old_ops} became {new_ops}"
    elif count > 1:
        what += f" in {count} places"
    side, first = (found.after, new[0]) if new else (found.before, old[0])
    text = f"{what} (first: {layer_name(side.layers[first])})"
    of_plans = describe_change(
        _kernels(found.before, edits[0].removed), _kernels(found.after, edits[0].added)
    )
    return replace(reason_about_layers(found, text, old, new), of_plans=of_plans)


def _kernels(side: CaseLayers, piece: Sequence[int]) -> Counter[str]:
    return Counter(side.layers[index].op_type for index in piece)


def _describe_piece(side: CaseLayers, piece: Sequence[int]) -> str:
    """Return `Add, Clip, 2 Mul and Div`, in graph order."""
    counts = Counter(printable(side.layers[index].qualified_op) for index in piece)
    if len(piece) == 1:
        return "".join(counts)
    named = [op if n == 1 else f"{n} {op}" for op, n in counts.items()]
    if len(named) > _MOST_NAMED:
        rest = sum(list(counts.values())[_MOST_NAMED - 1 :])
        named[_MOST_NAMED - 1 :] = [f"{rest} more"]
    return join_words(named) if named else ""


def _operator_reasons(found: Differences, edits: Sequence[_Edit]) -> tuple[Reason, ...]:
    """Return one reason for each operator with added or removed layers that are in no edit."""
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
    """Return `2 other Relu added`: layers in no edit, of an operator that some edits have."""
    name = printable(op)
    if old and new:
        return f"{old} other {name} replaced by {new}"
    return f"{new} other {name} added" if new else f"{old} other {name} removed"


def _by_operator(side: CaseLayers, known: Collection[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for index in _unmatched(side, known):
        found.setdefault(side.layers[index].qualified_op, []).append(index)
    return found


# Numbers of params that differ by no more than this share count as equal.
_ALIKE = 0.01


def interface_reasons(before: Graph, after: Graph) -> tuple[Reason, ...]:
    """Return the inputs and outputs that only one of two models has."""
    sides = (("input", before.inputs, after.inputs), ("output", before.outputs, after.outputs))
    return tuple(reason for side in sides for reason in _compare_names(*side))


def _compare_names(
    what: str, before: Sequence[Tensor], after: Sequence[Tensor]
) -> Iterator[Reason]:
    old, new = ([tensor.name for tensor in side] for side in (before, after))
    added = [name for name in new if name not in old]
    removed = [name for name in old if name not in new]
    if len(added) == len(removed):
        # They only have other names.
        return
    for names, word in ((added, "added"), (removed, "removed")):
        if names:
            text = f"{count_of(len(names), what)} {word} (first: {printable(names[0])})"
            yield Reason(text, outputs=frozenset(names if what == "output" else ()))


def sharing_reasons(found: Differences) -> tuple[Reason, ...]:
    """Return the weights that several layers share on one side only."""
    before, after = found.before.profile.counted, found.after.profile.counted
    if before is None or after is None or not before.params or not after.params:
        return ()
    used, uses = before.layer_params, after.layer_params
    if not used or abs(uses / used - 1) > _ALIKE or abs(after.params / before.params - 1) <= _ALIKE:
        return ()
    change = f"{format_bytes(before.weight_bytes)} -> {format_bytes(after.weight_bytes)}"
    if after.params > before.params:
        text = f"weights that layers shared are stored for each of them now: {change}"
        return (Reason(text, added_params=after.params - before.params),)
    return (Reason(f"weights that were stored for each layer are shared now: {change}"),)
