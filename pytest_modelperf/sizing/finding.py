"""Find sizes that a model runs with: by shapes first, and by one inference at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import BindingError, EngineError, ModelError
from pytest_modelperf.graph.binding import (
    Binding,
    DeclaredInput,
    find_batch,
    open_batch,
    open_dims,
    parse_input_spec,
)
from pytest_modelperf.graph.load import declared_inputs, load_model
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, open_model
from pytest_modelperf.graph.structure import Graph
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.sizing.candidates import Places, choices, open_dims_of
from pytest_modelperf.sizing.records import FoundInput, FoundSize, FoundSizes
from pytest_modelperf.sizing.trial import run_once
from pytest_modelperf.sizing.values import value_choices
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of

BUDGET_S = 2.0


def find_sizes(  # noqa: PLR0913  # the clock and the budget are for tests
    source: ModelSource | ModelFile,
    binding: Binding | None = None,
    *,
    setup: Setup | None = None,
    extensions: Extensions | None = None,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.monotonic,
) -> FoundSizes:
    """Sizes for what `binding` leaves open, and values for inputs that choose a branch.

    Candidates are tried for `budget_s`, by shapes; one that fits runs once by `setup`, and the
    next is tried if it fails. Without a `setup` nothing runs. An error of the model file is raised.
    If nothing fits, the result says what was tried.
    """
    file = source if isinstance(source, ModelFile) else open_model(source)
    return _Search(
        file=file,
        inputs=declared_inputs(file.proto),
        binding=binding or Binding(),
        setup=setup,
        extensions=extensions or Extensions(),
        clock=clock,
        deadline=clock() + budget_s,
    ).find()


class _Search(Struct, kw_only=True):
    """One search for the sizes of one model."""

    file: ModelFile
    inputs: tuple[DeclaredInput, ...]
    binding: Binding
    setup: Setup | None
    extensions: Extensions
    clock: Callable[[], float]
    deadline: float
    tried: int = 0
    last_error: str | None = None

    def find(self) -> FoundSizes:
        # The graph with open shapes tells the values to try; each value can settle a branch.
        graph = self._open_graph(self.binding)
        for values in value_choices(graph, self.binding):
            binding = replace(
                self.binding,
                inputs=(*self.binding.inputs, *(parse_input_spec(each.text) for each in values)),
            )
            found = self._with_values(binding, values)
            if found is not None:
                return found
        return self._nothing()

    def _open_graph(self, binding: Binding) -> Graph:
        open_binding = replace(binding, leaves_open=True)
        return load_model(self.file, open_binding, self.extensions.operators.shape_rules).graph

    def _with_values(self, binding: Binding, values: Sequence[FoundInput]) -> FoundSizes | None:
        places = open_dims(self.inputs, binding, self.file.name)
        graph = self._open_graph(binding)
        batch = open_batch(self.inputs, binding, self.file.name)
        for chosen in choices(open_dims_of(graph, self.inputs, places, batch)):
            if self.tried and self.clock() >= self.deadline:
                return None
            self.tried += 1
            sizes = {name: each.size for name, each in chosen.items()}
            whole = replace(binding, dims={**binding.dims, **sizes})
            if not self._fits(whole):
                continue
            result = FoundSizes(
                model=self.file.name,
                dims=tuple(
                    FoundSize(name, each.size, _shown(places[name]), each.reason)
                    for name, each in chosen.items()
                ),
                inputs=tuple(values),
                batch=find_batch(self.inputs),
                tried=self.tried,
            )
            if self.setup is None:
                return replace(result, not_run="nothing was to run")
            error = run_once(self.file, whole, self.setup, self.extensions)
            if error is None:
                return replace(result, has_run=True)
            if isinstance(error, EngineError):
                return replace(result, not_run=str(error))
            self.last_error = str(error)
        return None

    def _fits(self, binding: Binding) -> bool:
        """Whether all shapes fit together at these sizes, as far as they are known."""
        try:
            bound = load_model(self.file, binding, self.extensions.operators.shape_rules)
        except (BindingError, ModelError) as error:
            self.last_error = str(error)
            return False
        if bound.notes:
            self.last_error = bound.notes[0]
        return not bound.notes

    def _nothing(self) -> FoundSizes:
        reason = f" The last one: {self.last_error}" if self.last_error else ""
        return FoundSizes(
            model=self.file.name,
            batch=find_batch(self.inputs),
            error=f"{count_of(self.tried, 'choice')} of sizes did not fit.{reason}",
            tried=self.tried,
        )


def _shown(places: Places) -> tuple[str, ...]:
    return tuple(f"{printable(name)}[{axis}]" for name, axis in places)
