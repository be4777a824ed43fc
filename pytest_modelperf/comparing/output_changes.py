"""Find how far the outputs of two models differ on the same inputs, and where this begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct, field

from pytest_modelperf.baselines.output_sketch import least_difference
from pytest_modelperf.baselines.records import TensorSketch
from pytest_modelperf.comparing.changes import FirstDifference, OutputChange, TensorDifference
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.errors import MeasureError, ModelError
from pytest_modelperf.graph.copies import can_be_watched
from pytest_modelperf.graph.deciding_inputs import find_random
from pytest_modelperf.graph.structure import Graph, Node, Tensor
from pytest_modelperf.profiler.model_in_worker import (
    MAX_BYTES,
    CasePlace,
    ReadTensors,
    Sent,
    reading_tensors,
)
from pytest_modelperf.profiler.prepare import Pair
from pytest_modelperf.text.units import format_bytes, format_shape

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.generic]


def compare_outputs(
    before: Mapping[str, Sent], after: Mapping[str, Sent]
) -> tuple[OutputChange, ...]:
    """Compare outputs by name, or by position if no name is shared but their number is equal."""
    if not before.keys() & after.keys() and len(before) == len(after):
        pairs = zip(before.items(), after.items(), strict=True)
        return tuple(
            _compare(old if old == new else f"{old} / {new}", a, b) for (old, a), (new, b) in pairs
        )
    return tuple(_compare(name, before.get(name), after.get(name)) for name in {**before, **after})


def compare_with_sketch(
    before: Mapping[str, TensorSketch], after: Mapping[str, Sent]
) -> tuple[OutputChange, ...]:
    """Compare each sketched output, and return by how much it differs at least."""
    return tuple(
        _compare_with_sketch(name, sketch, after.get(name)) for name, sketch in before.items()
    )


def _compare_with_sketch(name: str, before: TensorSketch, after: Sent | None) -> OutputChange:
    least = None if after is None else least_difference(before, after)
    if least is not None:
        return OutputChange(name=name, max_absolute=least, largest=before.largest, is_least=True)
    # Outputs that differ in more than their values are described as if both sides were known.
    change = _compare(name, (before.dtype, before.shape, None), after)
    if change.is_other or after is None or after[2] is None:
        return change
    return OutputChange(name=name, difference="other counts of NaN and infinity", is_other=True)


def judge_outputs(changes: Sequence[OutputChange], allowed: float) -> Metric:
    """Judge whether the outputs differ by no more than this share of their largest value.

    Outputs that cannot be compared leave the verdict open, unless they differ in more than their
    values.
    """
    shares = [change.share for change in changes]
    known = [share for share in shares if share is not None]
    if any(change.is_other for change in changes) or any(share > allowed for share in known):
        verdict = Verdict.REGRESSED
    else:
        verdict = Verdict.PASSED if known and None not in shares else Verdict.INCONCLUSIVE
    is_known = not any(change.is_other for change in changes)
    worst = max(known, default=None) if is_known else None
    return Metric("outputs", 0.0, worst, verdict, allowed=allowed)


def _compare(name: str, before: Sent | None, after: Sent | None) -> OutputChange:
    if before is None or after is None:
        side = "now" if before is None else "before"
        return OutputChange(name=name, difference=f"only {side}", is_other=True)
    old_type, new_type = (np.dtype(side[0]) for side in (before, after))
    if before[1] != after[1]:
        shapes = f"{format_shape(before[1])} before, {format_shape(after[1])} now"
        return OutputChange(name=name, difference=f"other shapes: {shapes}", is_other=True)
    if old_type.kind != new_type.kind:
        types = f"{old_type} before, {new_type} now"
        return OutputChange(name=name, difference=f"other types: {types}", is_other=True)
    if before[2] is None or after[2] is None:
        limit = f"not compared: no numbers, or more than {format_bytes(MAX_BYTES)}"
        return OutputChange(name=name, difference=limit)
    return _measure(name, np.frombuffer(before[2], old_type), np.frombuffer(after[2], new_type))


def _measure(name: str, before: Array, after: Array) -> OutputChange:
    kind = np.complex128 if before.dtype.kind == "c" else np.float64
    old, new = before.astype(kind), after.astype(kind)
    finite = np.isfinite(old) & np.isfinite(new)
    # The same infinity or NaN on both sides is not a difference.
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    if not bool(np.all(finite | same)):
        count = int(np.count_nonzero(~(finite | same)))
        finite_once = f"{count} of {old.size} are finite on one side only"
        return OutputChange(name=name, difference=finite_once, is_other=True)
    is_other = (before != after)[finite]
    old, new = old[finite], new[finite]
    # Large integers that differ can be equal as floats.
    distance = np.where(is_other & (old == new), 1.0, np.abs(new - old))
    scale = np.maximum(np.abs(old), np.abs(new))
    relative = np.divide(distance, scale, out=np.zeros_like(distance), where=scale > 0)
    norms = float(np.linalg.norm(old) * np.linalg.norm(new))
    return OutputChange(
        name=name,
        max_absolute=float(distance.max(initial=0.0)),
        max_relative=float(relative.max(initial=0.0)),
        cosine=float(np.vdot(old, new).real) / norms if norms else None,
        largest=float(np.abs(old).max(initial=0.0)),
    )


# Runs both sides with these tensors as outputs, and returns how far each of them differs.
Look: TypeAlias = Callable[[Sequence[str]], Mapping[str, OutputChange]]

# Enough to halve any graph. It also ends a search whose runs contradict each other.
MOST_RUNS = 40


def pair_tensors(before: Graph, after: Graph) -> Mapping[str, str]:
    """Map each tensor name of the model after to its counterpart in the model before.

    Graphs of the same operators in the same order are paired node by node. In others, tensors are
    paired that have the same name and are made by the same operator.
    """
    old, new = before.nodes, after.nodes
    if [node.qualified_op for node in old] == [node.qualified_op for node in new]:
        return {
            b.name: a.name
            for one, other in zip(old, new, strict=True)
            for a, b in zip(one.outputs, other.outputs, strict=False)
            if a is not None and b is not None
        }
    operators = {t.name: node.qualified_op for node in old for t in node.outputs if t is not None}
    return {
        tensor.name: tensor.name
        for node in new
        for tensor in node.outputs
        if tensor is not None and operators.get(tensor.name) == node.qualified_op
    }


class Sight(Struct, frozen=True):
    """A view into two models: its `look`, the visible tensors, and the most bytes per look."""

    look: Look
    tensors: Sequence[Tensor]
    most_bytes: int


def find_first_difference(
    graph: Graph, output: str, allowed: float, sight: Sight
) -> FirstDifference | None:
    """Find the first tensor on the way to this output that differs by more than `allowed`."""
    producers = {t.name: node for node in graph.nodes for t in node.outputs if t is not None}
    if output not in producers:
        return None
    sizes = {tensor.name: tensor.nbytes or 0 for tensor in sight.tensors}
    places = {node.id: place for place, node in enumerate(graph.nodes)}
    return _Search(graph, producers, places, allowed, sight, sizes).search(output)


def differs(change: OutputChange, allowed: float) -> bool:
    """Whether a change is known to exceed this share of its largest value."""
    return change.is_other or (change.share is not None and change.share > allowed)


class _Search(Struct):
    """One search, which remembers the tensors that are the same and those it could not compare."""

    graph: Graph
    producers: Mapping[str, Node]
    places: Mapping[str, int]
    allowed: float
    sight: Sight
    sizes: Mapping[str, int]
    same: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    runs: int = 0

    def search(self, output: str) -> FirstDifference | None:
        high = output
        seen = self._see((output,))
        if output in seen and not differs(seen[output], self.allowed):
            return None
        while self.runs < MOST_RUNS:
            region = self._region(high)
            cut = self._cut(region, high)
            if not cut:
                found = self._confirm(output, high, region)
                if not isinstance(found, str):
                    return found
                high = found
                continue
            seen = self._see((*cut, high))
            first = self._first_different(cut, seen)
            if first is not None:
                high = first
            elif high in seen and not differs(seen[high], self.allowed):
                return self._fused(output, high, cut)
            self.same |= {n for n in cut if n in seen and not differs(seen[n], self.allowed)}
        return None

    def _region(self, high: str) -> list[Node]:
        """Return the nodes that compute a tensor from tensors that are the same, in graph order."""
        found: dict[str, Node] = {}
        waiting = [self.producers[high]]
        while waiting:
            node = waiting.pop()
            if node.id in found:
                continue
            found[node.id] = node
            waiting += [
                self.producers[name]
                for name in _read_by(node)
                if name in self.producers and name not in self.same
            ]
        return sorted(found.values(), key=lambda node: self.places[node.id])

    def _cut(self, region: Sequence[Node], high: str) -> tuple[str, ...]:
        """Return the tensors of fewest bytes that cross the region near its middle, or none."""
        last_use = {name: place for place, node in enumerate(region) for name in _read_by(node)}
        middle = (len(region) - 2) / 2
        live: set[str] = set()
        best: tuple[tuple[bool, int, float], tuple[str, ...]] | None = None
        for place, node in enumerate(region[:-1]):
            made = {tensor.name for tensor in node.outputs if tensor is not None}
            live = {name for name in live | made if last_use.get(name, -1) > place}
            watched = live & self.sizes.keys() - self.same - self.unknown - {high}
            size = sum(self.sizes[name] for name in watched)
            if not watched or size > self.sight.most_bytes:
                continue
            away = abs(place - middle)
            rank = (away > len(region) / 4, size, away)
            if best is None or rank < best[0]:
                best = rank, tuple(sorted(watched, key=self._place))
        return () if best is None else best[1]

    def _confirm(
        self, output: str, high: str, region: Sequence[Node]
    ) -> FirstDifference | str | None:
        """Return the found tensor with its node's inputs, or the name of an input that differs."""
        node = self.producers[high]
        inputs = tuple(
            name
            for name in dict.fromkeys(_read_by(node))
            if name in self.sizes and name not in self.unknown
        )
        if sum(self.sizes[name] for name in inputs) > self.sight.most_bytes:
            inputs = ()
        seen = self._see((*inputs, high))
        earlier = self._first_different(inputs, seen)
        if earlier is not None:
            self.same.discard(earlier)
            return earlier
        if high not in seen:
            return None
        if not differs(seen[high], self.allowed):
            return self._fused(output, high, inputs) if inputs else None
        return FirstDifference(
            allowed=self.allowed,
            output=output,
            tensor=self._tensor(seen[high]),
            inputs=tuple(self._tensor(seen[name]) for name in inputs if name in seen),
            others=tuple(map(_layer, region[:-1])),
            runs=self.runs,
        )

    def _fused(self, output: str, high: str, watched: Sequence[str]) -> FirstDifference:
        """Find the tensor that ends the difference if it is an output, or return the first one."""
        seen: Mapping[str, OutputChange] = {}
        while len(watched) > 1 and self.runs < MOST_RUNS:
            middle = len(watched) // 2
            for half in (watched[:middle], watched[middle:]):
                seen = self._see((*half, high))
                if high in seen and not differs(seen[high], self.allowed):
                    watched = half
                    break
            else:
                break
        name = watched[0]
        if name not in seen:
            seen = self._see((name, high))
        readers = [node for node in self.graph.nodes if name in _read_by(node)]
        return FirstDifference(
            allowed=self.allowed,
            output=output,
            tensor=self._tensor(seen.get(name, OutputChange(name=name))),
            is_fused=True,
            readers=tuple(f"{_layer(node)} ({node.qualified_op})" for node in readers),
            runs=self.runs,
        )

    def _see(self, names: Sequence[str]) -> Mapping[str, OutputChange]:
        """Return the differences of these tensors in a run, if they can be compared."""
        self.runs += 1
        found = self.sight.look(names)
        seen = {
            name: found[name]
            for name in names
            if name in found and (found[name].is_other or found[name].share is not None)
        }
        self.unknown.update(name for name in names if name not in seen)
        return seen

    def _first_different(
        self, names: Iterable[str], seen: Mapping[str, OutputChange]
    ) -> str | None:
        found = [name for name in names if name in seen and differs(seen[name], self.allowed)]
        return min(found, key=self._place, default=None)

    def _place(self, name: str) -> int:
        return self.places[self.producers[name].id]

    def _tensor(self, change: OutputChange) -> TensorDifference:
        node = self.producers[change.name]
        return TensorDifference(layer=_layer(node), op_type=node.qualified_op, values=change)


def _layer(node: Node) -> str:
    return node.name or node.id


def _read_by(node: Node) -> tuple[str, ...]:
    """Return the tensors that a node reads, with those that its bodies read from outside."""
    inner = [each for body in node.bodies.values() for each in body.walk()]
    return tuple(
        tensor.name for each in (node, *inner) for tensor in each.inputs if tensor is not None
    )


class SearchedOutputs(Struct, frozen=True):
    """Where outputs begin to differ. `notes` say why that was not found."""

    first: FirstDifference | None = None
    notes: tuple[str, ...] = ()


def search_difference(
    pair: Pair, place: CasePlace, outputs: Sequence[OutputChange], allowed: float
) -> SearchedOutputs:
    """Follow the output that differs most back to its first difference beyond `allowed`."""
    try:
        return SearchedOutputs(_search(pair, place, outputs, allowed))
    except (MeasureError, ModelError) as error:
        note = f"the first difference of the outputs was not found: {error}"
        return SearchedOutputs(notes=(note,))


def _search(
    pair: Pair, place: CasePlace, outputs: Sequence[OutputChange], allowed: float
) -> FirstDifference | None:
    old, new = pair.before.bound.graph, pair.after.bound.graph
    random = find_random(new)
    makers = {tensor.name for node in new.nodes for tensor in node.outputs if tensor is not None}
    found = [
        (change.share or 0.0, names)
        for change, names in zip(outputs, _output_names(outputs, old, new), strict=False)
        if differs(change, allowed) and names[1] in makers - random
    ]
    if not found:
        return None
    _, (output_before, output) = max(found, key=lambda each: each[0])
    partners = {**pair_tensors(old, new), output: output_before}
    known = pair.before.bound.tensors
    watchable = [
        tensor
        for node in new.nodes
        for tensor in node.outputs
        if tensor is not None
        and tensor.name not in random
        and can_be_watched(tensor)
        and can_be_watched(known.get(partners.get(tensor.name, "")))
    ]
    place.tell("finding where outputs begin to differ")
    with reading_tensors(pair, place) as readers:
        look = _looking(*readers, partners)
        # Each side may send half of the allowed bytes.
        return find_first_difference(new, output, allowed, Sight(look, watchable, MAX_BYTES // 2))


def _output_names(outputs: Sequence[OutputChange], old: Graph, new: Graph) -> list[tuple[str, str]]:
    """Pair the names of the compared outputs, by their order if no name is the same."""
    names = [tuple(tensor.name for tensor in graph.outputs) for graph in (old, new)]
    if set(names[0]) & set(names[1]):
        return [(change.name, change.name) for change in outputs]
    return list(zip(*names, strict=False))


def _looking(before: ReadTensors, after: ReadTensors, partners: Mapping[str, str]) -> Look:
    def look(names: Sequence[str]) -> Mapping[str, OutputChange]:
        old, new = before([partners[name] for name in names]), after(names)
        return {
            name: compare_outputs({name: old[partners[name]]}, {name: new[name]})[0]
            for name in names
            if partners[name] in old and name in new
        }

    return look
