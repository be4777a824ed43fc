"""Why one case is slower or larger than another, in words: facts of both graphs and both plans.

Each fact is read from the data of both sides, and its share of the difference is the time of the
layers that it is about. One layer can be part of several facts, so their shares need not sum to 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from pytest_modelperf.comparing.differences import Differences, Side
from pytest_modelperf.comparing.layer_pairs import is_alike
from pytest_modelperf.comparing.records import LayerTypeChange, TimeChange
from pytest_modelperf.profiler.measurements import LayerTime, RowKind
from pytest_modelperf.profiler.records import LayerRow, LayerType, StaticLayer
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_count, format_shape, format_signed_count

# Where nothing in the graph changed, a time is a reason from this share of the difference on.
_LEAST_SHARE = 0.05
# A share below this is not worth the words.
_LEAST_SHOWN = 0.01
# What makes out so much of the time is asked whether all became slower by the same factor: as far
# from that of the whole as this share of it.
_LEAST_PART = 0.02
_SAME_FACTOR = 0.25
_LEAST_CHANGE = 0.02
_PROVIDER = "ExecutionProvider"
# What ONNX Runtime adds to the names of nodes as it changes the layout of what they take.
_RENAMED = re.compile(r"(_nchwc|_token_\d+)+$")

_Pair: TypeAlias = tuple[int, int]


class PlanStep(Protocol):
    """A step of an engine's plan, as far as it is looked at here."""

    @property
    def name(self) -> str: ...
    @property
    def op_type(self) -> str: ...
    @property
    def inputs(self) -> Sequence[str]: ...
    @property
    def outputs(self) -> Sequence[str]: ...


class EnginePlan(Protocol):
    """The graph that an engine made of a model."""

    @property
    def nodes(self) -> Sequence[PlanStep]: ...


class Reason(Struct, frozen=True):
    """A fact, the time of what it is about, None where nothing of that ran, and its MACs."""

    text: str
    time: TimeChange | None = None
    added_macs: int = 0

    def in_words(self) -> str:
        if self.time is None and self.added_macs:
            return f"{self.text}: {format_signed_count(self.added_macs)} MACs"
        share = None if self.time is None else self.time.share
        if self.time is None or share is None or abs(share) < _LEAST_SHOWN:
            return self.text
        time = f"{self.time.ns / 1e6:+.{3 if abs(self.time.ns) < 1e6 else 2}f} ms"
        if self.time.is_within_noise:
            return f"{self.text}: {time}, within the noise"
        if share < 0:
            return f"{self.text}: {time}"
        return f"{self.text}: explains {100 * share:.0f} % of the difference ({time})"


def lower_bounds(*uncounted_ops: Iterable[str]) -> tuple[str, ...]:
    """Why a verdict may be unclear: the operators that could not be counted on either side."""
    ops = dict.fromkeys(op for side in uncounted_ops for op in side)
    if not ops:
        return ()
    return (f"MACs are lower bounds: {', '.join(map(printable, ops))} could not be counted",)


def reasons_of_counts(changes: Iterable[LayerTypeChange]) -> tuple[str, ...]:
    """What changed by operator: all that can be told without the graph of one side."""
    reasons = []
    for change in changes:
        before, after = _count(change.before), _count(change.after)
        if before != after:
            reasons.append(_counted(change.op, before, after))
        elif change.added_macs:
            reasons.append(f"{printable(change.op)}: {after} as before, of other shapes")
    return tuple(reasons)


def reasons_of_graphs(found: Differences) -> tuple[Reason, ...]:
    """What changed between two graphs, what added most MACs first; nothing of it ran."""
    facts = _Facts(found, None, None)
    return tuple(sorted([*facts.operators(), *facts.sizes()], key=lambda r: -r.added_macs))


def find_reasons(
    found: Differences, before_plan: EnginePlan | None, after_plan: EnginePlan | None
) -> tuple[Reason, ...]:
    """What changed between two cases that ran, what explains most of the difference first."""
    facts = _Facts(found, before_plan, after_plan)
    reasons = [
        *facts.operators(),
        *facts.sizes(),
        *facts.fusions(),
        *facts.inserted_kernels(),
        *facts.precisions(),
        *facts.providers(),
    ]
    proportional = facts.proportional()
    reasons += [proportional] if proportional else facts.slower()
    reasons += facts.engine()

    def order(reason: Reason) -> tuple[int, float]:
        share = 0.0 if reason.time is None else reason.time.share or 0.0
        explains = reason.time is not None and reason.time.explains(_LEAST_SHOWN)
        return (0 if explains else 1 if share > -_LEAST_SHOWN else 2, -share)

    return tuple(sorted(reasons, key=order))


class _Facts:
    """What can be told of the differences; layers that a fact is about are noted as `told`."""

    def __init__(
        self, found: Differences, before_plan: EnginePlan | None, after_plan: EnginePlan | None
    ) -> None:
        self.found = found
        self.before, self.after = found.before, found.after
        self.plans = before_plan, after_plan
        self.told: set[_Pair] = set()
        self.told_others: set[tuple[RowKind, str]] = set()

    # -- the graphs

    def operators(self) -> Iterator[Reason]:
        """Operators that were added or removed."""
        old = _by_operator(self.before, set(range(len(self.before.layers))) - set(self.found.pairs))
        new = _by_operator(
            self.after, set(range(len(self.after.layers))) - set(self.found.pairs.values())
        )
        counts = [Counter(x.qualified_op for x in s.layers) for s in (self.before, self.after)]
        for op in {**old, **new}:
            before, after = counts[0][op], counts[1][op]
            text = _counted(op, before, after)
            first = new.get(op) if after >= before else old.get(op)
            if before == after:
                text = f"{printable(op)}: {len(new.get(op, ()))} of {after} replaced by others"
            name = (
                _name((self.after if after >= before else self.before).layers[first[0]])
                if first
                else ""
            )
            if name:
                text += f" (first: {name})"
            yield self.reason(text, old.get(op, ()), new.get(op, ()))

    def sizes(self) -> Iterator[Reason]:
        """Layers of other shapes."""
        changed = [
            pair
            for pair in self.pairs()
            if not is_alike(self.before.layers[pair[0]], self.after.layers[pair[1]])
        ]
        for op, pairs in self.by_operator(changed).items():
            old, new = (self.before.layers[pairs[0][0]], self.after.layers[pairs[0][1]])
            count = sum(layer.qualified_op == op for layer in self.after.layers)
            how_many = f"all {count}" if count == len(pairs) > 1 else f"{len(pairs)} of {count}"
            yield self.about(
                f"{how_many} {printable(op)} of another {_what_differs(old, new)}"
                f" (first: {_name(new)}, {_size_change(old, new)})",
                pairs,
            )

    # -- the plans

    def fusions(self) -> Iterator[Reason]:
        """Layers that ran in one kernel on one side only."""
        if not all(map(self.tells_fusions, (self.before, self.after), self.plans)):
            return
        there = dict(self.found.pairs)
        back = {new: old for old, new in there.items()}
        for one, other, mates, word in (
            (self.before, self.after, there, "lost"),
            (self.after, self.before, back, "won"),
        ):
            for pattern, groups in _torn(one, other, mates).items():
                heads = {group.head for group in groups}
                elsewhere = {head for group in groups for head in group.elsewhere}
                members = [index for group in groups for index in group.members]
                lost = word == "lost"
                self.told |= {(m, mates[m]) if lost else (mates[m], m) for m in members}
                text = (
                    f"{len(groups)} {pattern} fusion{'s' if len(groups) > 1 else ''} {word}"
                    f" (first: {_name(one.layers[groups[0].head])})"
                )
                sides = (heads, elsewhere) if lost else (elsewhere, heads)
                yield Reason(text, self.time(*sides))

    @staticmethod
    def tells_fusions(side: Side, plan: EnginePlan | None) -> bool:
        return plan is not None or any(row.fused for row in side.rows)

    def inserted_kernels(self) -> Iterator[Reason]:
        """Kernels that stand for no layer: conversions and changes of layout."""
        old, new = self.before.others, self.after.others
        keys = [key for key in {**old, **new} if key[0] in (RowKind.LAYOUT, RowKind.OTHER)]
        steps = [
            None if plan is None else _inserted_steps(plan, side)
            for plan, side in zip(self.plans, (self.before, self.after), strict=True)
        ]
        for kind, op in keys:
            known = [None if by_op is None else by_op.get(op, []) for by_op in steps]
            before, after = (
                len(mine) if mine is not None else None if (kind, op) in others else 0
                for mine, others in zip(known, (old, new), strict=True)
            )
            text = _inserted(printable(op), before, after)
            if text is None:
                continue
            if after and not before and self.plans[1] is not None and known[1]:
                place = _place(known[1][0], self.plans[1], self.after)
                text += f" (first: {place})" if place else ""
            self.told_others.add((kind, op))
            yield Reason(
                text,
                self.found.time(_times(old.get((kind, op))), _times(new.get((kind, op)))),
            )

    def precisions(self) -> Iterator[Reason]:
        yield from self.moved("in", _precision, printable)

    def providers(self) -> Iterator[Reason]:
        yield from self.moved(
            "on",
            lambda row: None if row.time is None else row.time.provider,
            lambda value: printable(value.removesuffix(_PROVIDER)),
        )

    def moved(
        self, word: str, read: Callable[[LayerRow], str | None], show: Callable[[str], str]
    ) -> Iterator[Reason]:
        """Layers that run in or on something else than before."""
        found: dict[tuple[str, str, str], list[_Pair]] = {}
        for old, new in self.pairs():
            left, right = self.before.rows[old], self.after.rows[new]
            before, after = read(left), read(right)
            if before is not None and after is not None and before != after:
                key = (right.qualified_op, before, after)
                found.setdefault(key, []).append((old, new))
        for (op, before, after), pairs in found.items():
            count = f"{len(pairs)} layer{'s' if len(pairs) > 1 else ''}"
            yield self.about(
                f"{printable(op)}: {count} {word} {show(after)}, before {word} {show(before)}"
                f" (first: {_name(self.after.layers[pairs[0][1]])})",
                pairs,
            )

    # -- where nothing of that changed

    def proportional(self) -> Reason | None:
        """That everything became slower alike, which no change of a graph does."""
        ratio = self.found.ratio
        if not self.found.is_real or ratio is None or abs(ratio - 1) < _LEAST_CHANGE:
            return None
        if self.told or self.told_others or self.is_other_graph():
            return None
        types = self.found.of_layer_types()
        parts = [(c.time, c.before.ns) for c in types if c.before and c.before.ns and c.time]
        rows = self.found.of_layers()
        layers = [
            (c.time, c.before.ns)
            for c in rows
            if c.before is not None and c.before.static is not None and c.before.ns and c.time
        ]
        whole = sum(ns for _, ns in parts)
        factors = _common_factors(parts, whole, ratio, least=2)
        what = "layer type"
        if not factors:
            factors, what = _common_factors(layers, whole, ratio, least=3), "layer"
        if not factors:
            return None
        word = "slower" if ratio > 1 else "faster"
        return Reason(
            f"every {what} is {word} by about the same factor"
            f" ({min(factors):.2f}x to {max(factors):.2f}x): look at the runtime or the machine"
        )

    def is_other_graph(self) -> bool:
        count = len(self.found.pairs)
        return not (len(self.before.layers) == len(self.after.layers) == count) or any(
            not is_alike(self.before.layers[old], self.after.layers[new])
            for old, new in self.found.pairs.items()
        )

    def slower(self) -> list[Reason]:
        """Layers that nothing else was told of, and that take another time all the same."""
        reasons = []
        left = [pair for pair in self.pairs() if pair not in self.told]
        for op, pairs in self.by_operator(left).items():
            olds, news = self.heads(pairs)
            layers = f"{len(pairs)} layers" if len(pairs) > 1 else "layer"
            text = f"{printable(op)}: the same {layers}"
            reasons += self.if_it_matters(
                text, self.before.times_at(olds), self.after.times_at(news)
            )
        for key in {**self.before.others, **self.after.others}:
            if key in self.told_others:
                continue
            kind, op = key
            text = "the runtime itself, around the kernels,"
            if kind is not RowKind.OVERHEAD:
                text = f"{printable(op)} kernels put in by the engine, as many as before,"
            reasons += self.if_it_matters(
                text, _times(self.before.others.get(key)), _times(self.after.others.get(key))
            )
        return reasons

    def if_it_matters(
        self, text: str, before: Sequence[LayerTime], after: Sequence[LayerTime]
    ) -> list[Reason]:
        time = self.found.time(before, after)
        if time is None or not time.explains(_LEAST_SHARE):
            return []
        old, new = sum(t.ns for t in before), sum(t.ns for t in after)
        verb = "take" if text.endswith(("layers", ",")) and "runtime" not in text else "takes"
        how = f"{new / old:.2f}x as long" if old else "time now"
        return [Reason(f"{text} {verb} {how}", time)]

    # -- the engine

    def engine(self) -> list[Reason]:
        """What is known of the engines themselves."""
        old, new = (
            None if side.profile.measured is None else side.profile.measured.engine
            for side in (self.before, self.after)
        )
        if old is None or new is None:
            return []
        texts = []
        if (old.name, old.version) != (new.name, new.version):
            names = [printable(f"{e.name} {e.version or ''}".strip()) for e in (old, new)]
            texts.append(f"another engine: {names[0]} before, {names[1]} now")
        if old.python and new.python and old.python != new.python:
            pythons = printable(old.python), printable(new.python)
            texts.append(f"another Python: {pythons[0]} before, {pythons[1]} now")
        for key in {**old.options, **new.options}:
            values = [printable(e.options.get(key, "not set")) for e in (old, new)]
            if values[0] != values[1]:
                texts.append(f"option {printable(key)}: {values[0]} before, {values[1]} now")
        gone = [p for p in old.providers if p not in new.providers]
        if gone and new.providers and old.name == new.name:
            shown = ", ".join(printable(p.removesuffix(_PROVIDER)) for p in gone)
            texts.append(f"the engine has no {shown} any more")
        return [Reason(text) for text in texts]

    # -- helpers of all

    def pairs(self) -> list[_Pair]:
        return sorted(self.found.pairs.items(), key=lambda pair: pair[1])

    def by_operator(self, pairs: Iterable[_Pair]) -> dict[str, list[_Pair]]:
        found: dict[str, list[_Pair]] = {}
        for pair in pairs:
            found.setdefault(self.after.layers[pair[1]].qualified_op, []).append(pair)
        return found

    def heads(self, pairs: Iterable[_Pair]) -> tuple[set[int], set[int]]:
        """Of these layers those that have a time of their own."""
        olds, news = zip(*pairs, strict=True)
        return set(olds), set(news)

    def time(self, before: Iterable[int], after: Iterable[int]) -> TimeChange | None:
        return self.found.time(self.before.times_at(before), self.after.times_at(after))

    def about(self, text: str, pairs: Sequence[_Pair]) -> Reason:
        self.told.update(pairs)
        return self.reason(text, *map(sorted, self.heads(pairs)))

    def reason(self, text: str, before: Sequence[int], after: Sequence[int]) -> Reason:
        """A fact about these layers of both sides."""
        return Reason(
            text,
            self.time(before, after),
            sum(self.after.layers[index].macs or 0 for index in after)
            - sum(self.before.layers[index].macs or 0 for index in before),
        )


# -- fusions


class _TornGroup(Struct, frozen=True):
    """Layers of one kernel that run in several kernels on the other side, shown at `elsewhere`."""

    head: int
    members: tuple[int, ...]
    elsewhere: frozenset[int]


def _torn(one: Side, other: Side, mates: Mapping[int, int]) -> dict[str, list[_TornGroup]]:
    """The kernels of one side whose layers are in several on the other, by their operators."""
    found: dict[str, list[_TornGroup]] = {}
    for head, group in one.groups.items():
        members = tuple(m for m in group if m in mates and mates[m] in other.heads)
        elsewhere = frozenset(other.heads[mates[m]] for m in members)
        if len(elsewhere) > 1:
            pattern = "+".join(printable(one.layers[m].qualified_op) for m in members)
            found.setdefault(pattern, []).append(_TornGroup(head, members, elsewhere))
    return found


# -- kernels that were put in


def _inserted_steps(plan: EnginePlan, side: Side) -> dict[str, list[PlanStep]]:
    """The steps that are no layer of the model, by their operator."""
    ids, names = {x.id for x in side.layers}, {x.name for x in side.layers if x.name}
    found: dict[str, list[PlanStep]] = {}
    for step in plan.nodes:
        if step.name not in names and ids.isdisjoint(step.outputs):
            found.setdefault(step.op_type, []).append(step)
    return found


def _inserted(op: str, before: int | None, after: int | None) -> str | None:
    """None where as many are there as before, or it is not known."""
    if before == 0:
        count = f"{after} {op} kernel{'s' if after != 1 else ''}" if after else f"{op} kernels"
        return f"{count} put in by the engine, none before" if after != 0 else None
    if after == 0:
        return (
            f"no {op} kernels put in by the engine any more{f', {before} before' if before else ''}"
        )
    if before is None or after is None or before == after:
        return None
    return f"{op} kernels put in by the engine: {before} before, {after} now"


def _place(step: PlanStep, plan: EnginePlan, side: Side) -> str | None:
    """The first layer behind the step that can be told."""
    layers = {x.id: x for x in side.layers} | {x.name: x for x in side.layers if x.name}
    takers: dict[str, list[PlanStep]] = {}
    for node in plan.nodes:
        for name in node.inputs:
            takers.setdefault(name, []).append(node)
    queue, seen = [step], {id(step)}
    while queue:
        here = queue.pop(0)
        for name in here.outputs:
            for taker in takers.get(name, ()):
                known = (*taker.outputs, taker.name, _RENAMED.sub("", taker.name))
                layer = next((layers[n] for n in known if n in layers), None)
                if layer is not None:
                    return f"before {_name(layer)}"
                if id(taker) not in seen:
                    seen.add(id(taker))
                    queue.append(taker)
    return None


# -- words


def _counted(op: str, before: int, after: int) -> str:
    name = printable(op)
    if before == 0:
        return f"{after} {name} added"
    if after == 0:
        return f"{before} {name} removed, none left"
    return f"{name}: {before} before, {after} now"


def _what_differs(old: StaticLayer, new: StaticLayer) -> str:
    shapes = [(layer.input_shape, layer.output_shape) for layer in (old, new)]
    return "shape" if shapes[0] != shapes[1] else "size"


def _size_change(old: StaticLayer, new: StaticLayer) -> str:
    if old.output_shape != new.output_shape:
        return f"output {format_shape(old.output_shape)} -> {format_shape(new.output_shape)}"
    if old.input_shape != new.input_shape:
        return f"input {format_shape(old.input_shape)} -> {format_shape(new.input_shape)}"
    if old.params != new.params:
        return f"{format_count(old.params)} -> {format_count(new.params)} params"
    return f"{format_count(old.macs)} -> {format_count(new.macs)} MACs"


def _name(layer: StaticLayer) -> str:
    return printable(layer.name or layer.id)


def _count(kind: LayerType | None) -> int:
    return 0 if kind is None else kind.count


def _precision(row: LayerRow) -> str | None:
    """What the layer ran in, where that is known; else what the model is written in."""
    if row.time is not None and row.time.precision is not None:
        return row.time.precision
    return None if row.static is None else row.static.precision


def _by_operator(side: Side, indexes: set[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for index in sorted(indexes):
        found.setdefault(side.layers[index].qualified_op, []).append(index)
    return found


def _times(row: LayerRow | None) -> list[LayerTime]:
    return [] if row is None or row.time is None else [row.time]


def _common_factors(
    parts: Sequence[tuple[TimeChange, float]], whole: float, ratio: float, least: int
) -> list[float]:
    """How many times as long each part takes, if all agree with the whole; else nothing."""
    large = [(time, ns) for time, ns in parts if ns >= _LEAST_PART * whole]
    bounds = sorted((1 + (ratio - 1) * (1 - _SAME_FACTOR), 1 + (ratio - 1) * (1 + _SAME_FACTOR)))
    for time, ns in large:
        low = time.ns if time.low_ns is None else time.low_ns
        high = time.ns if time.high_ns is None else time.high_ns
        if 1 + low / ns > bounds[1] or 1 + high / ns < bounds[0]:
            return []
    return [1 + time.ns / ns for time, ns in large] if len(large) >= least else []
