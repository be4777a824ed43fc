"""Parts: changed kernels with their neighbours, cut out of two plans, and their units."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from pytest_modelperf.graph.model_file import DATA_TYPES, packed_bytes
from pytest_modelperf.graph.plans.plan import EnginePlan, Matching, TensorTypes, stored_offset
from pytest_modelperf.graph.stored_tensors import remove_named, stored_names

# How far from a changed kernel its part reaches.
CONTEXT = 1
# Parts keep all of their neighbours up to this share of the model's time.
LARGEST_SHARE = 1 / 4
# The first version of ONNX in which weights need not be inputs.
_WEIGHTS_APART = 4
# ONNX Runtime aligns tensors to the width of the widest vector registers.
_ALIGNMENT = 64
# The size of the second-level cache of many processors.
_CACHE_BYTES = 1 << 20
# The products that wake threads take long enough for a core to wake, on little memory.
_WAKING_PRODUCTS, _WAKING_ROWS, _WAKING_COLUMNS = 8, 128, 64
# Names that no exporter gives to a tensor.
_WAKING, _WAKING_WEIGHT = "wakes threads", "weight that wakes threads"
# At most this many operators of a part are named.
_MOST_NAMED = 4
# Kernels by which an engine changes the memory layout of a tensor.
_REORDERS = frozenset({"Reorder", "ReorderInput", "ReorderOutput"})

# How long each kernel of a plan took, by its index.
KernelTimes = Mapping[int, int]
# The size of each tensor of a plan that a run reported, by its name.
TensorBytes = Mapping[str, int]


class PartSide(Struct, frozen=True, eq=False):
    """A part of one plan: its kernels by index, how many of them changed, and its edges."""

    kernels: tuple[int, ...]
    changed: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Part(Struct, frozen=True, eq=False):
    """The same place in two plans, before and after a change."""

    before: PartSide
    after: PartSide
    text: str


def find_parts(
    before: EnginePlan,
    after: EnginePlan,
    matching: Matching,
    times: tuple[KernelTimes, KernelTimes] | None = None,
) -> tuple[Part, ...]:
    """Return a part for each connected group of changed kernels.

    Both sides of a part have the same kernels around the change, so that these cancel out. With the
    times of the kernels on both sides, the largest neighbours are left out until the rest is small
    compared with the model.
    """
    both = _Both(before, after, matching)
    groups = both.groups()
    if times is not None:
        groups = both.without_large(groups, times)
    return tuple(_make_part((before, after), kernels, changed) for kernels, changed in groups)


# A kernel of either plan: 0 and its index before the change, or 1 and its index after it.
_Kernel = tuple[int, int]
# The kernels of a part, and those of them that changed.
_Group = tuple[frozenset[_Kernel], frozenset[_Kernel]]


class _Both:
    def __init__(self, before: EnginePlan, after: EnginePlan, matching: Matching) -> None:
        self._matching = matching
        self._partners = matching.partners, {b: a for a, b in matching.partners.items()}
        self._neighbours = _neighbours(before), _neighbours(after)

    def groups(self, left_out: Collection[_Kernel] = ()) -> list[_Group]:
        changed = [
            *((0, index) for index in self._matching.before),
            *((1, index) for index in self._matching.after),
        ]
        joined: list[tuple[set[_Kernel], set[_Kernel]]] = []
        for kernel in changed:
            kernels, own = self._around(kernel).difference(left_out), {kernel}
            apart = []
            for group in joined:
                if group[0] & kernels:
                    kernels |= group[0]
                    own |= group[1]
                else:
                    apart.append(group)
            joined = [*apart, (kernels, own)]
        return [(frozenset(kernels), frozenset(own)) for kernels, own in joined]

    def without_large(
        self, groups: Sequence[_Group], times: tuple[KernelTimes, KernelTimes]
    ) -> list[_Group]:
        totals = [max(sum(own.values()), 1) for own in times]
        shares = {
            (side, index): times[side].get(index, 0) / totals[side]
            for kernels, _ in groups
            for side, index in kernels
        }
        left, changed = set(shares), {kernel for _, own in groups for kernel in own}
        for kernel in sorted(left - changed, key=lambda each: (-shares[each], each)):
            taken = [sum(shares[each] for each in left if each[0] == side) for side in (0, 1)]
            if max(taken) <= LARGEST_SHARE:
                break
            left -= {kernel, *self._partner(*kernel)}
        left_out = set(shares) - left
        return self._paired(self.groups(left_out)) if left_out else list(groups)

    def _paired(self, groups: Sequence[_Group]) -> list[_Group]:
        """Join groups of new kernels with the groups of removed kernels in the same places."""
        # Only neighbours connect the two, and these may be left out. Groups whose neighbours are
        # most alike belong together.
        places = [set[_Kernel]().union(*map(self._around, own)) - own for _, own in groups]
        gone, come = (
            [n for n, (_, own) in enumerate(groups) if {each[0] for each in own} == {side}]
            for side in (0, 1)
        )
        alike = sorted(
            (-len(places[a] & places[b]) / len(places[a] | places[b]), a, b)
            for a in gone
            for b in come
            if places[a] & places[b]
        )
        mates: dict[int, int] = {}
        for _, a, b in alike:
            if a not in mates and b not in mates:
                mates |= {a: b, b: a}
        joined = [
            (groups[a][0] | groups[mates[a]][0], groups[a][1] | groups[mates[a]][1])
            for a in gone
            if a in mates
        ]
        return [*(group for n, group in enumerate(groups) if n not in mates), *joined]

    def _around(self, kernel: _Kernel) -> set[_Kernel]:
        found, reached = {kernel}, {kernel}
        for _ in range(CONTEXT):
            reached = {near for side, index in reached for near in self._near(side, index)} - found
            found |= reached
        return found

    def _near(self, side: int, index: int) -> Iterable[_Kernel]:
        for near in self._neighbours[side][index]:
            yield side, near
            yield from self._partner(side, near)

    def _partner(self, side: int, index: int) -> Iterable[_Kernel]:
        partner = self._partners[side].get(index)
        if partner is not None:
            yield 1 - side, partner


def _neighbours(plan: EnginePlan) -> Sequence[frozenset[int]]:
    found: list[set[int]] = [set() for _ in plan.kernels]
    for name, producer in plan.producers.items():
        for reader, _ in plan.readers.get(name, ()):
            found[producer].add(reader)
            found[reader].add(producer)
    return [frozenset(each) for each in found]


def _make_part(
    plans: tuple[EnginePlan, EnginePlan], kernels: frozenset[_Kernel], changed: frozenset[_Kernel]
) -> Part:
    before, after = (
        make_side(
            plan,
            sorted(index for own, index in kernels if own == side),
            sorted(index for own, index in changed if own == side),
        )
        for side, plan in enumerate(plans)
    )
    old, new = (
        Counter(plan.kernels[index].op_type for index in side.changed)
        for plan, side in zip(plans, (before, after), strict=True)
    )
    return Part(before, after, describe_change(old, new))


def make_side(plan: EnginePlan, kernels: Sequence[int], changed: Sequence[int]) -> PartSide:
    """Return these kernels of a plan with the tensors at their edges."""
    inside = set(kernels)
    made = {name for index in kernels for name in plan.kernels[index].outputs if name}
    reads = [name for index in kernels for name in plan.kernels[index].inputs if name]
    within = made | stored_names(plan.proto.graph)
    inputs = tuple(dict.fromkeys(name for name in reads if name not in within))
    outputs = tuple(
        name
        for index in kernels
        for name in plan.kernels[index].outputs
        if name
        and (
            name in plan.outputs
            or any(reader not in inside for reader, _ in plan.readers.get(name, ()))
        )
    )
    return PartSide(tuple(kernels), tuple(changed), inputs, outputs)


def describe_change(old: Counter[str], new: Counter[str]) -> str:
    """Describe the change of kernels: `1 Relu became 9 kernels (2 Add, 2 Mul, ReduceMean, ...)`."""
    come, gone = new - old, old - new
    if old == new:
        # The operators are the same, but their sizes or attributes differ.
        return f"{_kernels(new)} changed"
    if {*come, *gone} <= _REORDERS:
        around = f" around {_kernels(old & new)}" if old & new else ""
        changes = ((come, "added"), (gone, "removed"))
        listed = ", ".join(f"{_kernels(found)} {how}" for found, how in changes if found)
        return f"another layout{around}: {listed}"
    if not old:
        return f"{_kernels(new)} added"
    if not new:
        return f"{_kernels(old)} removed"
    return f"{_kernels(old)} became {_kernels(new)}"


def _kernels(found: Counter[str]) -> str:
    count = sum(found.values())
    if len(found) == 1:
        return f"{count} {next(iter(found))}"
    named = [f"{n} {op}" if n > 1 else op for op, n in found.most_common(_MOST_NAMED)]
    rest = ", ..." if len(found) > _MOST_NAMED else ""
    return f"{count} kernels ({', '.join(named)}{rest})"


def cold_share(
    plans: tuple[EnginePlan, EnginePlan], part: Part, sizes: tuple[TensorBytes, TensorBytes]
) -> float:
    """Return the share of the bytes of a part's changed kernels that are in no cache."""
    # A weight was last read an inference ago, so it is in no cache. The result of another kernel is
    # still in a cache to the extent that it is small compared with it. The share is 1 if a size is
    # not known.
    cold = total = 0.0
    for plan, side, known in zip(plans, (part.before, part.after), sizes, strict=True):
        kernels = [plan.kernels[index] for index in side.changed]
        for name in {name for each in kernels for name in (*each.inputs, *each.outputs) if name}:
            if name in plan.weights:
                size = packed_bytes(plan.weights[name])
                cold += size
            elif name in known:
                size = known[name]
                cold += size * min(1.0, size / _CACHE_BYTES)
            else:
                return 1.0
            total += size
    return cold / total if total else 1.0


# -- small models


class Move(Struct, frozen=True):
    """The place of a weight in the file of a plan's weights, its length, and its new place."""

    offset: int
    nbytes: int
    place: int


def find_moves(plan: EnginePlan, side: PartSide) -> tuple[Move, ...]:
    """Return the weights of a part that need a file of their own to be aligned to 64 bytes."""
    # While the whole model runs, its weights are aligned. In the file of the plan they follow one
    # another without gaps, and a kernel can take longer on a weight that is not aligned.
    spans = {
        (offset, packed_bytes(tensor))
        for tensor in _weights_of(plan, side)
        if (offset := stored_offset(tensor)) is not None and offset % _ALIGNMENT
    }
    moves: list[Move] = []
    place = 0
    for offset, nbytes in sorted(spans):
        moves.append(Move(offset, nbytes, place))
        place += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    return tuple(moves)


def _weights_of(plan: EnginePlan, side: PartSide) -> Iterator[TensorProto]:
    read = _read_by(plan, side)
    return (tensor for name, tensor in plan.weights.items() if name in read)


def _read_by(plan: EnginePlan, side: PartSide) -> set[str]:
    return {name for index in side.kernels for name in plan.kernels[index].inputs}


def moved_file(part: str) -> str:
    """Return the name of the file with the moved weights, next to that of the part."""
    return f"{part.removesuffix('.onnx')}.weights"


def write_part(
    plan: EnginePlan,
    side: PartSide,
    types: Mapping[str, tuple[str, Sequence[int]]],
    path: Path,
    *,
    wakes_threads: bool = False,
) -> None:
    """Write a part as a model that runs next to the files of the plan's weights and moved ones.

    `types` has the type and the shape of each tensor at its edge. With `wakes_threads`, all threads
    are awake when its kernels begin.
    """
    model = ModelProto(ir_version=max(plan.proto.ir_version, _WEIGHTS_APART))
    model.opset_import.extend(plan.proto.opset_import)
    model.functions.extend(plan.proto.functions)
    model.graph.CopyFrom(GraphProto(name="part"))
    if not side.kernels:
        _do_nothing(model.graph)
    model.graph.node.extend(plan.kernels[index].node for index in side.kernels)
    places = {move.offset: move.place for move in find_moves(plan, side)}
    for tensor in _weights_of(plan, side):
        own = model.graph.initializer.add()
        own.CopyFrom(tensor)
        offset = stored_offset(tensor)
        if offset in places:
            moved = {"location": moved_file(path.name), "offset": str(places[offset])}
            for entry in own.external_data:
                entry.value = moved.get(entry.key, entry.value)
    read = _read_by(plan, side)
    model.graph.sparse_initializer.extend(
        sparse for sparse in plan.proto.graph.sparse_initializer if sparse.values.name in read
    )
    for name in side.inputs:
        dtype, shape = types[name]
        model.graph.input.append(helper.make_tensor_value_info(name, DATA_TYPES[dtype], shape))
    model.graph.output.extend(ValueInfoProto(name=name) for name in side.outputs)
    if wakes_threads:
        _wake_threads(model.graph)
    path.write_bytes(model.SerializeToString())


def _wake_threads(graph: GraphProto) -> None:
    """Add products that the engine divides among its threads, and runs before all other kernels."""
    # The threads sleep when an inference begins, but in the whole model they have long been awake
    # when a part of it begins. ONNX Runtime starts with the kernels that are last in the file.
    random = np.random.default_rng(0)
    rows, columns = _WAKING_ROWS, _WAKING_COLUMNS
    for name, shape in ((_WAKING, (rows, columns)), (_WAKING_WEIGHT, (columns, columns))):
        values = random.standard_normal(shape).astype(np.float32) / columns
        graph.initializer.append(numpy_helper.from_array(values, name))
    result = _WAKING
    for number in range(_WAKING_PRODUCTS):
        inputs, result = [result, _WAKING_WEIGHT], f"{_WAKING} {number}"
        graph.node.add(op_type="MatMul", name=result, input=inputs, output=[result])
    graph.output.append(ValueInfoProto(name=result))


def _do_nothing(graph: GraphProto) -> None:
    """Add a kernel that returns a number, so that an empty side shows the cost of a run."""
    graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "nothing"))
    graph.node.add(op_type="Identity", input=["nothing"], output=["still nothing"])
    graph.output.append(ValueInfoProto(name="still nothing"))


def write_watched(plan: EnginePlan, names: Iterable[str], path: Path) -> None:
    model = _copy(plan)
    present = set(plan.outputs)
    model.graph.output.extend(
        ValueInfoProto(name=name)
        for name in names
        if name in plan.producers and name not in present
    )
    path.write_bytes(model.SerializeToString())


def write_numbered(plan: EnginePlan, path: Path) -> None:
    """Write a whole plan whose kernels have their numbers as names: `0`, `1`, `2`."""
    model = _copy(plan)
    for number, node in enumerate(model.graph.node):
        node.name = str(number)
    path.write_bytes(model.SerializeToString())


def _copy(plan: EnginePlan) -> ModelProto:
    model = ModelProto()
    model.CopyFrom(plan.proto)
    model.ir_version = max(plan.proto.ir_version, _WEIGHTS_APART)
    stored = {value.name for value in model.graph.input}.difference(plan.model_inputs)
    remove_named(model.graph.input, stored)
    return model


# -- units: the kernels of two plans that are in the same place


class Unit(Struct, frozen=True):
    """Kernels of both plans in the same place, by their indexes. Partners are unchanged."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    is_changed: bool = True


def find_units(
    before: EnginePlan,
    after: EnginePlan,
    matching: Matching,
    types: tuple[TensorTypes, TensorTypes],
) -> tuple[Unit, ...]:
    """Return all kernels of both plans as units in the order of the plans, each kernel in one."""
    plans = before, after
    changed = [
        unit for part in find_parts(before, after, matching) for unit in _divide(plans, part, types)
    ]
    same = [Unit((old,), (new,), is_changed=False) for old, new in matching.partners.items()]
    return tuple(sorted([*changed, *same], key=lambda unit: (unit.after or unit.before)[0]))


def kernels_of(units: Iterable[Unit], side: int) -> tuple[int, ...]:
    """Return the kernels of these units on one side, 0 before and 1 after, in the plan's order."""
    return tuple(sorted(index for unit in units for index in (unit.before, unit.after)[side]))


def _divide(
    plans: tuple[EnginePlan, EnginePlan], part: Part, types: tuple[TensorTypes, TensorTypes]
) -> Iterator[Unit]:
    old, new = part.before.changed, part.after.changed
    here, there = (
        [(plan.kernels[i].op_type, own.get(plan.kernels[i].name)) for i in indexes]
        for plan, indexes, own in zip(plans, (old, new), types, strict=True)
    )
    matcher = difflib.SequenceMatcher(None, here, there, autojunk=False)
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(old[first:last], new[begin:end], strict=True)
            yield from (Unit((a,), (b,)) for a, b in pairs)
        elif tag == "replace":
            yield Unit(tuple(old[first:last]), tuple(new[begin:end]))
        else:
            yield from (Unit((index,), ()) for index in old[first:last])
            yield from (Unit((), (index,)) for index in new[begin:end])
