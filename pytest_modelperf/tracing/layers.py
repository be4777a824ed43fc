"""Finds the layers of the model that an operator runs: their MACs, parameters and fused layers.

A session may run at many shapes; for each, the model is bound as for a profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.graph.binding import Binding, InputSpec
from pytest_modelperf.graph.kernels import read_plan
from pytest_modelperf.graph.load import declared_inputs, load_model
from pytest_modelperf.graph.model_file import ModelFile, open_model
from pytest_modelperf.graph.structure import Node, PlanGraph
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.fusion import KernelPlace, KernelPlaces
from pytest_modelperf.profiler.hookspecs import Operators
from pytest_modelperf.profiler.layers import layer_indexes, main_layer
from pytest_modelperf.profiler.measurements import Kernel
from pytest_modelperf.profiler.request import profile_bound
from pytest_modelperf.text.units import format_shape
from pytest_modelperf.tracing.records import Argument

# The largest number of channels in a block of a kernel.
_MAX_BLOCK = 16
_LACKED = "operators lack MACs and fused layers"
# Sets of shapes of one session; each costs as much as a static profile.
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
    """The facts of an operator from its kernel and the model, the most useful first.

    Shapes are the kernel's, as measured. If the kernel only filled up a block of channels, they are
    the model's, and the kernel's shapes have keys of their own.
    """
    joined = {**model, **{name: value for name, value in kernel.items() if name not in model}}
    for name in ("input_shape", "output_shape"):
        told, own = kernel.get(name), model.get(name)
        if told is None:
            continue
        if is_filled_up(str(told), str(own)):
            joined[f"kernel_{name}"] = told
        else:
            joined[name] = told
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
        """The facts of each operator, in the order in which they ran."""
        # Operators without a name are matched by their order.
        new = list(dict.fromkeys(key for key in keys if key not in self.found))
        kernels = [Kernel(name=key.name, op_type=key.op_type, self_ns=()) for key in new]
        for key, place in zip(new, self.places.of_kernels(kernels), strict=True):
            self.found[key] = self._facts(key, place)
        return [self.found[key] for key in keys]

    def facts_at_any_shapes(self, keys: Sequence[OperatorKey]) -> list[Mapping[str, Argument]]:
        """The facts of each operator that other shapes do not change."""
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
        # What some operators lack of the facts of the model, and why.
        self.note: str | None = None
        self._model = model
        self._plan = plan
        self._file: ModelFile | None = None
        self._read_plan: PlanGraph | None = None
        self._bound: dict[object, _Bound | None] = {}
        # The one of the first shapes that are known.
        self._first: _Bound | None = None

    def of(
        self, keys: Sequence[OperatorKey], shapes: Shapes | None
    ) -> list[Mapping[str, Argument]]:
        """The model's facts of the operators of an inference; empty if they are not known.

        If its shapes are unknown, or too many came before, those that shapes do not change.
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
    """A binding of each input to the shape that the inference had."""
    specs = [
        InputSpec(declared.name, declared.dtype, shapes[declared.name])
        for declared in declared_inputs(file.proto)
        if declared.name in shapes and declared.dtype is not None
    ]
    return Binding(inputs=tuple(specs))
