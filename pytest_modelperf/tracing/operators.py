"""Places operators into recorded inferences, and finds the layers of the model that each runs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.graph.binding import Binding, InputSpec
from pytest_modelperf.graph.load import declared_inputs, load_model
from pytest_modelperf.graph.model_file import ModelFile, open_model
from pytest_modelperf.graph.plans.plan import read_plan
from pytest_modelperf.graph.structure import Node, PlanGraph
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.fusion import KernelPlace, KernelPlaces
from pytest_modelperf.profiler.hookspecs import Operators
from pytest_modelperf.profiler.layers import layer_indexes, main_layer
from pytest_modelperf.profiler.measurements import Kernel
from pytest_modelperf.profiler.request import profile_bound
from pytest_modelperf.text.units import format_shape
from pytest_modelperf.tracing.records import ERROR, Argument, Category, Counter, Event, Span
from pytest_modelperf.tracing.spool import ARGUMENTS, HIDDEN, KIND, SHAPES, Record

# Covers the time between the two clock readings, and times that are cut to microseconds.
_SLACK_NS = 20_000
# The most by which rounding makes an inference in a profile longer than its call.
_ROUNDING_NS = 1_500


class Placed(Struct, frozen=True):
    """The operators and counters of a recorded inference.

    `shapes` is the index of its input shapes, -1 if they are unknown.
    """

    shapes: int
    operators: tuple[Span, ...]
    counters: tuple[Counter, ...]


class Calls(Struct):
    """The calls of one session on one thread, in order, as columns.

    `shapes` are the indexes of their input shapes, -1 if unknown. A call that `failed` may have
    stopped before it ran. A `hidden` call was made during a pause.
    """

    ids: array[int] = field(default_factory=lambda: array("q"))
    starts_ns: array[int] = field(default_factory=lambda: array("q"))
    ends_ns: array[int] = field(default_factory=lambda: array("q"))
    shapes: array[int] = field(default_factory=lambda: array("q"))
    failed: bytearray = field(default_factory=bytearray)
    hidden: bytearray = field(default_factory=bytearray)

    def add(self, record: Record) -> None:
        start_ns, minus_end_ns, id_ = record[:3]
        self.ids.append(id_)
        self.starts_ns.append(start_ns)
        self.ends_ns.append(-minus_end_ns)
        self.shapes.append(-1 if record[SHAPES] is None else record[SHAPES])
        self.failed.append(ERROR in record[ARGUMENTS])
        self.hidden.append(record[KIND] == HIDDEN)


class _Clock(Struct):
    """The offset between two clocks, corrected by intervals that must be within others."""

    offset_ns: int

    def move(self, start_ns: int, end_ns: int, low_ns: int, high_ns: int) -> None:
        """Correct the offset so that start and end on the other clock are between low and high."""
        first, last = low_ns - start_ns, high_ns - end_ns
        if first > last:
            self.offset_ns = (first + last) // 2
        else:
            self.offset_ns = min(max(self.offset_ns, first), last)


class _Inside:
    def __init__(self, inference: Span) -> None:
        self.inference = inference
        self.operators: list[Span] = []
        self.counters: list[Counter] = []
        self._ids = {inference.id}

    def add(self, event: Event) -> None:
        if isinstance(event, Counter):
            self.counters.append(event)
        elif isinstance(event, Span) and event.parent in self._ids:
            # The parent of an operator outside any inference is not among these.
            self._ids.add(event.id)
            self.operators.append(event)


class OperatorPlacer:
    """The placement of a profile's inferences in the calls of its session, on the trace's clock."""

    def __init__(
        self, calls: Mapping[int, Calls], begun_ns: int, new_id: Callable[[], int]
    ) -> None:
        self.placed = 0
        # Inferences of the profile without a recorded call.
        self.strays = 0
        # The most by which an operator exceeded its inference.
        self.overhang_ns = 0
        self._calls = calls
        self._begun_ns = begun_ns
        self._new_id = new_id
        self._at: dict[int, int] = {}

    def place(self, events: Iterable[Event]) -> Iterator[Placed]:
        """Yield the inferences one by one, with each span before the spans inside it."""
        clock = _Clock(self._begun_ns)
        inside: _Inside | None = None
        for event in events:
            if isinstance(event, Span) and event.category is Category.INFERENCE:
                yield from self._fit(inside, clock)
                inside = _Inside(event)
            elif inside is not None:
                inside.add(event)
        yield from self._fit(inside, clock)

    def _fit(self, inside: _Inside | None, clock: _Clock) -> Iterator[Placed]:
        if inside is None:
            return
        inference = inside.inference
        calls = self._calls.get(inference.thread)
        place = None if calls is None else self._find(inference, calls, clock.offset_ns)
        if calls is None or place is None:
            self.strays += 1
            return
        low_ns, high_ns = calls.starts_ns[place], calls.ends_ns[place]
        clock.move(inference.start_ns, inference.end_ns, low_ns, high_ns)
        if calls.hidden[place]:
            return
        self.placed += 1
        own_id = calls.ids[place]
        ids = {span.id: self._new_id() for span in inside.operators}
        moved = []
        for span in inside.operators:
            first_ns, last_ns = span.start_ns + clock.offset_ns, span.end_ns + clock.offset_ns
            # Nesting is preserved.
            start_ns, end_ns = (min(max(ns, low_ns), high_ns) for ns in (first_ns, last_ns))
            self.overhang_ns = max(self.overhang_ns, start_ns - first_ns, last_ns - end_ns)
            duration_ns = end_ns - start_ns
            moved.append(
                replace(
                    span,
                    start_ns=start_ns,
                    duration_ns=duration_ns,
                    self_ns=None if span.self_ns is None else min(span.self_ns, duration_ns),
                    id=ids[span.id],
                    parent=ids.get(span.parent or 0, own_id),
                )
            )
        timed = tuple(
            replace(counter, at_ns=min(max(counter.at_ns + clock.offset_ns, low_ns), high_ns))
            for counter in inside.counters
        )
        yield Placed(calls.shapes[place], tuple(moved), timed)

    def _find(self, inference: Span, calls: Calls, offset_ns: int) -> int | None:
        start_ns, end_ns = inference.start_ns + offset_ns, inference.end_ns + offset_ns
        at = self._at.get(inference.thread, 0)
        while at < len(calls.ids):
            low_ns, high_ns = calls.starts_ns[at] - _SLACK_NS, calls.ends_ns[at] + _SLACK_NS
            if end_ns < low_ns:
                return None
            at += 1
            # The profile has every call except those that failed before running.
            if not calls.failed[at - 1] or (low_ns <= start_ns and end_ns <= high_ns):
                self._at[inference.thread] = at
                return at - 1
        return None

    @property
    def is_sure(self) -> bool:
        """Whether all operators were inside their inferences, apart from rounding."""
        return self.overhang_ns <= _ROUNDING_NS


# -- finds the layers of the model that an operator runs


# The largest number of channels in a block of a kernel.
_MAX_BLOCK = 16
_LACKED = "operators lack MACs and fused layers"
# The most sets of shapes of one session; each costs as much as a static profile.
MAX_SHAPES = 16

# The facts of a layer that are the same at any shapes.
_AT_ANY_SHAPES = ("layer", "params", "fused")
_NOTHING: Mapping[str, Argument] = {}

Shapes = Mapping[str, tuple[int, ...]]


class OperatorKey(Struct, frozen=True):
    """The identity of an operator in its session."""

    name: str
    op_type: str


def join_facts(
    kernel: Mapping[str, Argument], model: Mapping[str, Argument]
) -> Mapping[str, Argument]:
    """Join the facts of an operator from its kernel and the model, the most useful first.

    Shapes are the kernel's, as measured. If the kernel only filled up a block of channels, they are
    the model's, and the kernel's shapes have keys of their own.
    """
    joined = {**model, **{name: value for name, value in kernel.items() if name not in model}}
    for name in ("input_shape", "output_shape"):
        measured, own = kernel.get(name), model.get(name)
        if measured is None:
            continue
        if is_filled_up(str(measured), str(own)):
            joined[f"kernel_{name}"] = measured
        else:
            joined[name] = measured
    return joined


def is_filled_up(kernel: str, model: str) -> bool:
    """Whether the kernel's shape is the model's with a few more channels."""
    theirs, own = kernel.split("x"), model.split("x")
    if len(theirs) != len(own) or len(own) < 2 or not (theirs[1] + own[1]).isdigit():
        return False
    is_alike = theirs[:1] + theirs[2:] == own[:1] + own[2:]
    return is_alike and 0 < int(theirs[1]) - int(own[1]) < _MAX_BLOCK


class _Bound(Struct):
    """A model at one set of shapes, and the facts of each operator that was looked up."""

    places: KernelPlaces
    layers: Sequence[StaticLayer]
    indexes: Mapping[Node, int]
    found: dict[OperatorKey, Mapping[str, Argument]] = field(default_factory=dict)
    found_at_any: dict[OperatorKey, Mapping[str, Argument]] = field(default_factory=dict)
    # Only one operator shows the MACs of a layer, though the plan may split it into several.
    told: set[int] = field(default_factory=set)

    def facts(self, keys: Sequence[OperatorKey]) -> list[Mapping[str, Argument]]:
        # Operators without a name are matched by their order.
        new = list(dict.fromkeys(key for key in keys if key not in self.found))
        kernels = [Kernel(name=key.name, op_type=key.op_type, self_ns=()) for key in new]
        for key, place in zip(new, self.places.of_kernels(kernels), strict=True):
            self.found[key] = self._facts(key, place)
        return [self.found[key] for key in keys]

    def facts_at_any_shapes(self, keys: Sequence[OperatorKey]) -> list[Mapping[str, Argument]]:
        """Return those facts of each operator that are the same at any shapes."""
        for key, facts in zip(keys, self.facts(keys), strict=True):
            if key not in self.found_at_any:
                same = {name: facts[name] for name in _AT_ANY_SHAPES if name in facts}
                self.found_at_any[key] = same
        return [self.found_at_any[key] for key in keys]

    def _facts(self, key: OperatorKey, place: KernelPlace) -> Mapping[str, Argument]:
        covered = sorted({self.indexes[node] for node in place.nodes})
        shown = main_layer(covered, self.layers, key.op_type)
        if shown is None:
            return {}
        layer = self.layers[shown]
        facts: dict[str, Argument] = {"layer": layer.id or layer.name}
        # The input of the first layer, the output of the last.
        first, last = self.layers[covered[0]], self.layers[covered[-1]]
        for name, shape in (
            ("input_shape", first.input_shape),
            ("output_shape", last.output_shape),
        ):
            facts[name] = None if shape is None else format_shape(shape)
        if shown not in self.told:
            facts |= {"macs": layer.macs, "params": layer.params}
            self.told.add(shown)
        fused = [self.layers[index] for index in covered if index != shown]
        if fused:
            facts["fused"] = [f"{part.id or part.name} ({part.qualified_op})" for part in fused]
        return {name: value for name, value in facts.items() if value is not None}


class LayerFacts:
    """The layers of a session's model, at each set of shapes that it ran at."""

    def __init__(self, model: Path, plan: bytes | None) -> None:
        # Notes on missing facts of the model, with the reasons.
        self.note: str | None = None
        self._model = model
        self._plan = plan
        self._file: ModelFile | None = None
        self._read_plan: PlanGraph | None = None
        self._bound: dict[object, _Bound | None] = {}
        # The model at the first known shapes.
        self._first: _Bound | None = None

    def of(
        self, keys: Sequence[OperatorKey], shapes: Shapes | None
    ) -> list[Mapping[str, Argument]]:
        """Return the model's facts of each operator of an inference, empty if they are unknown.

        If the shapes are unknown, or too many sets of shapes came before, return only facts that
        are the same at any shapes.
        """
        bound = None if shapes is None else self._at(shapes)
        if bound is not None:
            self._first = self._first or bound
            return bound.facts(keys)
        if self._first is not None:
            return self._first.facts_at_any_shapes(keys)
        return [_NOTHING for _ in keys]

    def _at(self, shapes: Shapes) -> _Bound | None:
        at = tuple(shapes.items())
        if at not in self._bound:
            self._bound[at] = self._bind(shapes)
        return self._bound[at]

    def _bind(self, shapes: Shapes) -> _Bound | None:
        if len(self._bound) >= MAX_SHAPES:
            self.note = f"operators have MACs at the first {MAX_SHAPES} sets of shapes only"
            return None
        try:
            return self._made(shapes)
        except ModelPerfError as error:
            self.note = f"{_LACKED}: {error}"
        except Exception as error:  # noqa: BLE001  # a trace without MACs is better than none
            self.note = f"{_LACKED}: {type(error).__name__}: {error}"
        return None

    def _made(self, shapes: Shapes) -> _Bound:
        if self._file is None:
            self._file = open_model(str(self._model))
            self._read_plan = None if self._plan is None else read_plan(self._plan)
        bound = load_model(self._file, _binding(self._file, shapes))
        static = profile_bound(bound, Operators())
        named = {node.name: node for node in bound.graph.walk() if node.name}
        places = KernelPlaces(bound.graph, named)
        if self._read_plan is not None:
            places.add_plan(self._read_plan, bound.graph)
        return _Bound(places, static.layers, layer_indexes(bound.graph, static.layers))


def _binding(file: ModelFile, shapes: Shapes) -> Binding:
    specs = [
        InputSpec(declared.name, declared.dtype, shapes[declared.name])
        for declared in declared_inputs(file.proto)
        if declared.name in shapes and declared.dtype is not None
    ]
    return Binding(inputs=tuple(specs))
