"""Merge the kernels of two plans into one graph, which has a common kernel only once."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import KernelChange, LayerChange
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.measurements import GraphKernel
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.report.picture.records import BoxState

Kernels = Sequence[GraphKernel]


class KnownPlans(Struct, frozen=True):
    """The kernels that both plans have, before to after, and the part of each changed kernel."""

    partners: Mapping[int, int] = field(default_factory=dict)
    parts: tuple[Mapping[int, int], Mapping[int, int]] = ({}, {})


NO_PLANS = KnownPlans()


def merge_kernels(
    before: Kernels, after: Kernels, layers: Sequence[LayerChange], known: KnownPlans
) -> tuple[KernelChange, ...]:
    """Return all kernels of both sides: those of the plan now, then those that are gone.

    Kernels that the plans do not pair are merged if they run the same layer, or if they were
    inserted between the same kernels.
    """
    if not before or not after:
        return ()
    changes = {
        (change.before.time.layer, change.after.time.layer): change
        for change in layers
        if change.before is not None and change.before.time is not None
        if change.after is not None and change.after.time is not None
        if change.before.time.layer is not None and change.after.time.layer is not None
    }
    pairs = dict(known.partners)
    _pair(before, after, pairs, changes)
    _untangle(before, after, pairs)
    return _merge(before, after, pairs, changes, known)


def _pair(
    before: Kernels,
    after: Kernels,
    pairs: dict[int, int],
    layers: Mapping[tuple[int, int], LayerChange],
) -> None:
    mates = dict(layers.keys())
    _join(
        pairs,
        [None if kernel.layer is None else mates.get(kernel.layer) for kernel in before],
        [kernel.layer for kernel in after],
    )
    # An inserted kernel is identified by the kernel that feeds it, or else by the one that reads
    # it.
    for old_near, new_near in (
        ([kernel.inputs for kernel in before], [kernel.inputs for kernel in after]),
        (_readers(before), _readers(after)),
    ):
        back = {new: old for old, new in pairs.items()}
        _join(
            pairs,
            [_inserted(*each) for each in zip(before, old_near, strict=True)],
            [
                _inserted(kernel, [back.get(each, -1) for each in near])
                for kernel, near in zip(after, new_near, strict=True)
            ],
        )


def _inserted(kernel: GraphKernel, near: Sequence[int]) -> Hashable | None:
    return (kernel.op_type, *near) if kernel.layer is None and near else None


def _join(
    pairs: dict[int, int], old_keys: Sequence[Hashable], new_keys: Sequence[Hashable]
) -> None:
    """Pair the kernels without a partner that have the same key, in their order."""
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for at, key in enumerate(old_keys):
        if key is not None and at not in pairs:
            waiting[key].append(at)
    taken = set(pairs.values())
    for at, key in enumerate(new_keys):
        if key is not None and at not in taken and waiting.get(key):
            pairs[waiting[key].popleft()] = at


def _readers(kernels: Kernels) -> Sequence[Sequence[int]]:
    found: list[list[int]] = [[] for _ in kernels]
    for at, kernel in enumerate(kernels):
        for feeder in kernel.inputs:
            found[feeder].append(at)
    return found


def _untangle(before: Kernels, after: Kernels, pairs: dict[int, int]) -> None:
    """Separate pairs whose order differs between the sides. Merged, they would form a cycle."""
    while True:
        places = _Places(before, after, pairs)
        feeders = [
            {*old, *new} for old, new in (places.feeders(node) for node in range(places.count))
        ]
        left = _tangled(feeders)
        old = next((old for old, new in pairs.items() if new in left), None)
        if old is None:
            return
        del pairs[old]


def _tangled(feeders: Sequence[set[int]]) -> set[int]:
    """Return the nodes that are on a cycle, or between two."""
    readers: list[set[int]] = [set() for _ in feeders]
    for node, own in enumerate(feeders):
        for feeder in own:
            readers[feeder].add(node)
    left = set(range(len(feeders)))
    for ahead, behind in ((readers, feeders), (feeders, readers)):
        waits = {node: len(behind[node] & left) for node in left}
        ready = [node for node in left if not waits[node]]
        while ready:
            node = ready.pop()
            left.discard(node)
            for other in ahead[node]:
                if other in waits:
                    waits[other] -= 1
                    if not waits[other]:
                        ready.append(other)
    return left


class _Places:
    """The place of each kernel among those of both sides: all of those now, then those gone."""

    def __init__(self, before: Kernels, after: Kernels, pairs: Mapping[int, int]) -> None:
        self._before = before
        self._after = after
        self.old_of = {new: old for old, new in pairs.items()}
        gone = [old for old in range(len(before)) if old not in pairs]
        self.count = len(after) + len(gone)
        self._old_places = {**pairs, **{old: len(after) + at for at, old in enumerate(gone)}}
        self._gone = gone

    def kernels(self, node: int) -> tuple[int | None, int | None]:
        if node < len(self._after):
            return self.old_of.get(node), node
        return self._gone[node - len(self._after)], None

    def feeders(self, node: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        old, new = self.kernels(node)
        was = () if old is None else self._before[old].inputs
        now = () if new is None else self._after[new].inputs
        return tuple(self._old_places[each] for each in was), tuple(now)


def _merge(
    before: Kernels,
    after: Kernels,
    pairs: Mapping[int, int],
    layers: Mapping[tuple[int, int], LayerChange],
    known: KnownPlans,
) -> tuple[KernelChange, ...]:
    places = _Places(before, after, pairs)
    merged = []
    for node in range(places.count):
        old, new = places.kernels(node)
        was, now = places.feeders(node)
        part = next(
            (
                of_side[kernel]
                for of_side, kernel in zip(known.parts, (old, new), strict=True)
                if kernel is not None and kernel in of_side
            ),
            None,
        )
        is_both = old is not None and new is not None
        merged.append(
            KernelChange(
                before=None if old is None else _lean(before[old]),
                after=None if new is None else _lean(after[new]),
                state=_state(before, after, (old, new), layers, known),
                inputs=tuple(dict.fromkeys((*now, *was))),
                only_before=tuple(x for x in was if x not in now) if is_both else (),
                only_after=tuple(x for x in now if x not in was) if is_both else (),
                part=part,
            )
        )
    return tuple(merged)


def _lean(kernel: GraphKernel) -> GraphKernel:
    """Return the kernel without its inputs, because the merged kernel has them."""
    return replace(kernel, inputs=())


def _state(
    before: Kernels,
    after: Kernels,
    pair: tuple[int | None, int | None],
    layers: Mapping[tuple[int, int], LayerChange],
    known: KnownPlans,
) -> BoxState:
    old, new = pair
    if old is None or new is None:
        return BoxState.NEW if old is None else BoxState.GONE
    if known.partners.get(old) == new:
        return BoxState.SAME
    here, there = before[old], after[new]
    if here.layer is not None and there.layer is not None:
        change = layers.get((here.layer, there.layer))
        if change is None or change.before is None or change.after is None:
            return BoxState.CHANGED
        if _work(change.before.static) != _work(change.after.static):
            return BoxState.CHANGED
        if _fused(change.before) != _fused(change.after):
            return BoxState.REFUSED
    is_in_part = old in known.parts[0] or new in known.parts[1]
    return BoxState.CHANGED if is_in_part or here.op_type != there.op_type else BoxState.SAME


def _work(layer: StaticLayer | None) -> object:
    if layer is None:
        return None
    return (
        layer.qualified_op, layer.input_shape, layer.output_shape, layer.macs, layer.params,
        layer.precision, dict(layer.attributes),
    )  # fmt: skip


def _fused(row: LayerRow) -> Sequence[str]:
    return sorted(layer.qualified_op for layer in row.fused)
