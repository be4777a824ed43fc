"""Find sizes that a model runs with, and show them to paste.

Shapes are tried first, then single inferences. Sizes are pasted as a command, as a table of
`pyproject.toml`, or as arguments of a marker.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import product
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import (
    BindingError,
    MeasureError,
    MisfitError,
    ModelError,
    ModelPerfError,
    OpenSizesError,
)
from pytest_modelperf.graph.binding import (
    Binding,
    DeclaredInput,
    bind_inputs,
    find_batch,
    open_dims,
    parse_input_spec,
)
from pytest_modelperf.graph.load import Asked, BoundModel, declared_inputs, load_model
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, open_model
from pytest_modelperf.graph.structure import Graph
from pytest_modelperf.profiler.hookspecs import Extensions, Operators
from pytest_modelperf.profiler.inputs.made import demand_on, find_uses
from pytest_modelperf.profiler.model_in_worker import make_workload, start_on, unchanged
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.request import ProfileRequest, profile_bound
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import set_up
from pytest_modelperf.profiler.worker.client import ProcessWorker
from pytest_modelperf.profiler.worker.lock import measuring_alone
from pytest_modelperf.sizing.candidates import (
    WINDOWS,
    Candidate,
    OpenDim,
    Places,
    choices,
    choices_told,
    open_dims_of,
)
from pytest_modelperf.sizing.records import FoundInput, FoundSize, FoundSizes
from pytest_modelperf.spec.declaring import path_key
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import exact_number, format_shape
from pytest_modelperf.text.words import count_of, quoted_text, shell_word, toml_key

# The limit for a silent worker, and for the wait for another measurement. The inference is only a
# check, which is not worth a long wait.
LIMIT_S = 10.0
_NS_PER_S = 1_000_000_000


class Trials(AbstractContextManager["Trials"]):
    """Single inferences of one model, in one worker that starts with the first of them.

    This is a context manager, which ends the worker. Other measurements on this machine wait
    meanwhile. `patience_s` limits the wait for a measurement that is running.
    """

    def __init__(
        self, file: ModelFile, setup: Setup, extensions: Extensions, patience_s: float = LIMIT_S
    ) -> None:
        self._file = file
        self._setup = replace(setup, limit_s=min(setup.limit_s, LIMIT_S))
        self._extensions = extensions
        self._patience_s = patience_s
        self._open = ExitStack()
        self._worker: ProcessWorker | None = None

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def start(self) -> ProcessWorker:
        """Return the worker, started if needed, or raise MeasureError or EngineError."""
        if self._worker is None:
            self._open.enter_context(measuring_alone(longest_s=self._patience_s))
            worker = self._open.enter_context(start_on(self._setup, 1))
            worker.use_engine(self._setup.engine, self._setup.options)
            self._worker = worker
        return self._worker

    def run(self, binding: Binding, bound: BoundModel) -> MeasureError | None:
        """Run one inference, and return the error if the model does not run at these sizes."""
        static = profile_bound(bound, self._extensions.operators)
        model = prepare(
            Model(self._file, binding, ProfileRequest(), self._extensions, bound, static)
        )
        worker = self.start()
        try:
            with unchanged(model):
                rig = set_up(worker, self._setup, 1, make_workload(model, worker))
                rig.open()
                rig.take(1, _NS_PER_S)
                rig.close()
        except MeasureError as error:
            self._forget_ended(worker)
            return error
        return None

    def _forget_ended(self, worker: ProcessWorker) -> None:
        """Forget a worker that an inference has ended, so that the next one starts another."""
        try:
            worker.ask("clocks", "as its clocks were read")
        except MeasureError:
            self._open.close()
            self._worker = None


# -- the values to try for inputs that choose a branch


def value_choices(graph: Graph, binding: Binding) -> Iterator[tuple[FoundInput, ...]]:
    """Yield choices of values, most likely first. The last one leaves all to the made values."""
    given = {spec.name for spec in binding.inputs}
    uses = find_uses(graph)
    choices = []
    for tensor in graph.inputs:
        is_scalar = tensor.dtype is not None and tensor.shape in ((), (1,))
        if tensor.name in given or not is_scalar:
            continue
        demand = demand_on(tensor, uses)
        values = demand.compared
        if tensor.dtype == "bool" and demand.decides:
            values = (1.0, 0.0)
        size = format_shape(tensor.shape) if tensor.shape else ""
        found = [
            FoundInput(
                tensor.name,
                f"{tensor.name}:{tensor.dtype}:{size}:{value}",
                f"decides {demand.decides}; the graph compares it with {value}",
            )
            for value in map(exact_number, values)
        ]
        if found:
            choices.append(found)
    yield from product(*choices)
    if choices:
        yield ()


# -- find sizes that a model runs with


BUDGET_S = 2.0
# The least number of choices to try: a busy machine may spend the whole budget on one.
_LEAST_TRIES = 4
# Factors for sizes at which an output has a single element.
_FACTORS = (4, 16, 64, 256)


def find_sizes(  # noqa: PLR0913  # the clock and the budget are for tests
    source: ModelSource | ModelFile,
    binding: Binding | None = None,
    *,
    setup: Setup | None = None,
    extensions: Extensions | None = None,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.monotonic,
) -> FoundSizes:
    """Find sizes for dimensions that `binding` leaves open, and values that choose a branch.

    Candidates are tried by shapes for `budget_s`. One that fits runs once with `setup`, and the
    next is tried if it fails. Without a `setup`, candidates are only tried by shapes. An error of
    the model file is raised. If no candidate fits, the result says what was tried.
    """
    file = source if isinstance(source, ModelFile) else open_model(source)
    known = extensions or Extensions()
    with ExitStack() as stack:
        trials = None if setup is None else stack.enter_context(Trials(file, setup, known))
        return _Search(
            file=file,
            inputs=declared_inputs(file.proto),
            binding=binding or Binding(),
            extensions=known,
            trials=trials,
            clock=clock,
            deadline=clock() + budget_s,
        ).find()


class _OutputAxis(Struct, frozen=True):
    output: str
    axis: int
    length: int


class _Fitting(Struct, frozen=True, eq=False):
    chosen: Mapping[str, Candidate]
    binding: Binding
    bound: BoundModel

    def because(self, axis: _OutputAxis, smaller: Mapping[str, Candidate]) -> _Fitting:
        shown = f"{printable(axis.output)}[{axis.axis}]"
        chosen = {
            name: each
            if each.size == smaller[name].size
            else replace(
                each,
                reason=f"{shown} has {axis.length} elements then, and one or none at "
                f"{smaller[name].size}",
            )
            for name, each in self.chosen.items()
        }
        return replace(self, chosen=chosen)


class _Search(Struct, kw_only=True):
    file: ModelFile
    inputs: tuple[DeclaredInput, ...]
    binding: Binding
    extensions: Extensions
    trials: Trials | None
    clock: Callable[[], float]
    deadline: float
    tried: int = 0
    last_error: str | None = None
    # The error of the last choice that was tried, or None if its shapes fit together.
    misfit: MisfitError | None = None

    def find(self) -> FoundSizes:
        # The graph with open shapes shows which values choose a branch.
        graph = self._open_graph(replace(self.binding, dims={}))
        for values in value_choices(graph, self.binding):
            given = map(parse_input_spec, (each.text for each in values))
            binding = replace(self.binding, inputs=(*self.binding.inputs, *given))
            found = self._find_dims(binding, values, None if values or self.binding.dims else graph)
            if found is not None:
                return found
        if self.tried == 1 and self.last_error:
            # Each open dimension would have more candidates, so none is open.
            return self._result(error=self.last_error)
        last = f" The last one: {self.last_error}" if self.last_error else ""
        return self._result(error=f"{count_of(self.tried, 'choice')} of sizes did not fit.{last}")

    def _find_dims(
        self, binding: Binding, values: Sequence[FoundInput], graph: Graph | None
    ) -> FoundSizes | None:
        """Return the first choice of sizes that fits and runs with these values.

        `graph` is the model with open shapes, if it is known.
        """
        places = open_dims(self.inputs, binding, self.file.name)
        opened = replace(binding, leaves_open=True)
        batch = bind_inputs(self.inputs, opened, self.file.name).batch_size
        try:
            graph = graph or self._open_graph(binding)
        except MisfitError as error:
            # A branch does not fit the given sizes, but the model may run another one.
            self.last_error = error.message
            return None
        dims = open_dims_of(graph, self.inputs, places, batch)
        for chosen in self._choices(dims):
            if self.tried >= _LEAST_TRIES and self.clock() >= self.deadline:
                return None
            self.tried += 1
            sizes = {name: each.size for name, each in chosen.items()}
            whole = replace(binding, dims={**binding.dims, **sizes})
            bound = self._fitting(whole)
            if bound is None:
                continue
            fitting = _Fitting(chosen, whole, bound)
            for each in dict.fromkeys((self._grown(fitting, graph), fitting)):
                found = self._result(
                    dims=tuple(
                        FoundSize(name, own.size, _shown(places[name]), own.reason, own.is_guess)
                        for name, own in each.chosen.items()
                    ),
                    inputs=tuple(values),
                )
                if self.trials is None:
                    return found
                not_run = self._started(self.trials)
                if not_run is not None:
                    return replace(found, not_run=not_run)
                failure = self.trials.run(each.binding, each.bound)
                if failure is None:
                    return replace(found, has_run=True)
                self.last_error = str(failure)
        return None

    def _grown(self, fitting: _Fitting, graph: Graph) -> _Fitting:
        """Return larger guesses if an output has one element now, but several with larger ones."""
        # A model with such an output does almost no work, for example a pitch detector on 64
        # samples.
        guessed = [name for name, each in fitting.chosen.items() if each.is_guess]
        small = _small_axes(graph, fitting.bound.graph)
        if not guessed or not small:
            return fitting
        for factor in _FACTORS:
            if self.clock() >= self.deadline:
                break
            larger = self._times(fitting, guessed, factor)
            axis = None if larger is None else _longest(larger.bound.graph, small)
            if larger is None or axis is None:
                continue
            if len(guessed) > 1:
                return larger.because(axis, fitting.chosen)
            # The signal should fill the number of windows that is usual with known strides.
            wanted = self._times(fitting, guessed, factor * max(1, WINDOWS // axis.length))
            filled = None if wanted is None else _longest(wanted.bound.graph, small)
            if wanted is None or filled is None:
                return larger.because(axis, fitting.chosen)
            return wanted.because(filled, fitting.chosen)
        return fitting

    def _times(self, fitting: _Fitting, names: Sequence[str], factor: int) -> _Fitting | None:
        chosen = {
            name: replace(each, size=factor * each.size) if name in names else each
            for name, each in fitting.chosen.items()
        }
        dims = {**fitting.binding.dims, **{name: each.size for name, each in chosen.items()}}
        binding = replace(fitting.binding, dims=dims)
        bound = self._fitting(binding)
        # A misfit of the larger choice does not concern the choice that fits.
        self.misfit = None
        return None if bound is None else _Fitting(chosen, binding, bound)

    def _choices(self, dims: Sequence[OpenDim]) -> Iterator[Mapping[str, Candidate]]:
        seen = set()
        for each in choices(dims):
            waiting = deque([each])
            while waiting:
                chosen = waiting.popleft()
                sizes = tuple(candidate.size for candidate in chosen.values())
                if sizes not in seen:
                    seen.add(sizes)
                    yield chosen
                    if self.misfit is not None:
                        waiting.extend(choices_told(self.misfit, dims, chosen))

    def _open_graph(self, binding: Binding) -> Graph:
        rules = self.extensions.operators.shape_rules
        return load_model(self.file, replace(binding, leaves_open=True), rules).graph

    def _fitting(self, binding: Binding) -> BoundModel | None:
        self.misfit = None
        try:
            bound = load_model(self.file, binding, self.extensions.operators.shape_rules)
        except (BindingError, ModelError) as error:
            self.last_error = error.message
            self.misfit = error if isinstance(error, MisfitError) else None
            return None
        self.last_error = bound.notes[0] if bound.notes else self.last_error
        return None if bound.notes else bound

    def _started(self, trials: Trials) -> str | None:
        """Start a worker outside of the budget, and return the reason if that fails."""
        begun = self.clock()
        try:
            trials.start()
        except ModelPerfError as error:
            return str(error)
        self.deadline += self.clock() - begun
        return None

    def _result(self, **found: Any) -> FoundSizes:  # noqa: ANN401  # fields of the record
        batch = find_batch(self.inputs)
        return FoundSizes(model=self.file.name, batch=batch, tried=self.tried, **found)


def _small_axes(graph: Graph, bound: Graph) -> Sequence[tuple[str, int]]:
    known = {tensor.name: tensor.shape for tensor in bound.outputs}
    return [
        (tensor.name, axis)
        for tensor in graph.outputs
        for axis, (dim, size) in enumerate(
            zip(tensor.shape or (), known.get(tensor.name) or (), strict=False)
        )
        if dim is None and size is not None and size <= 1
    ]


def _longest(graph: Graph, axes: Sequence[tuple[str, int]]) -> _OutputAxis | None:
    shapes = {tensor.name: tensor.shape or () for tensor in graph.outputs}
    found = [_OutputAxis(name, axis, shapes[name][axis] or 0) for name, axis in axes]
    longest = max(found, key=lambda each: each.length)
    return longest if longest.length > 1 else None


def _shown(places: Places) -> tuple[str, ...]:
    return tuple(f"{printable(name)}[{axis}]" for name, axis in places)


GUESSED = "The work that is measured depends on a guessed size: give that of your data."


def render_advice(found: FoundSizes, paste: str) -> str:
    """Return the text to paste, with the reason for each of its sizes."""
    lead = "One inference ran with these sizes" if found.has_run else "These sizes fit by shapes"
    why = f" (no inference was tried: {found.not_run})" if found.not_run else ""
    pasted = "\n".join(f"  {line}" for line in paste.splitlines())
    reasons = "\n".join(reason_lines(found))
    return f"{lead}{why}; give your own if you know them:\n\n{pasted}\n\n{reasons}"


def render_command(found: FoundSizes, typed: Sequence[str]) -> str:
    """Return the typed command with the found sizes: `modelperf profile m.onnx --dim seq=64`.

    `typed` are its words without the program.
    """
    return " ".join(["modelperf", *map(shell_word, with_sizes(found, typed))])


def with_sizes(found: FoundSizes, typed: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command, with the found sizes in place of the given ones."""
    names = found.sizes.keys()
    kept: list[str] = []
    words = iter(typed)
    for word in words:
        option, equals, value = word.partition("=")
        if word == "--dim":
            value = next(words, "")
        elif option != "--dim" or not equals:
            kept.append(word)
            continue
        if not any(value.startswith(f"{name}=") for name in names):
            kept += ["--dim", value]
    dims = (word for each in found.dims for word in ("--dim", f"{each.name}={each.size}"))
    inputs = (word for text in found.input_texts for word in ("--input", text))
    # Options must precede a `--`.
    end = kept.index("--") if "--" in kept else len(kept)
    return (*kept[:end], *dims, *inputs, *kept[end:])


def render_table(found: FoundSizes, path: str) -> str:
    """Return the table for the model at a path below the root, to paste into `pyproject.toml`."""
    return "\n".join(
        [f"[tool.modelperf.models.{quoted_text(path_key(path))}]", *table_lines(found)]
    )


def table_lines(found: FoundSizes) -> Iterator[str]:
    """Yield the keys of the table of a model: `dims` and `inputs`, unless these are empty."""
    if found.dims:
        sizes = ", ".join(f"{toml_key(each.name)} = {each.size}" for each in found.dims)
        yield f"dims = {{{sizes}}}"
    if found.inputs:
        yield f"inputs = [{', '.join(map(quoted_text, found.input_texts))}]"


def render_arguments(found: FoundSizes) -> str:
    """Return the arguments of a marker or of the fixture: `dims={"seq": 64}`."""
    parts = []
    if found.dims:
        sizes = ", ".join(f"{quoted_text(each.name)}: {each.size}" for each in found.dims)
        parts.append(f"dims={{{sizes}}}")
    if found.inputs:
        parts.append(f"inputs=[{', '.join(map(quoted_text, found.input_texts))}]")
    return ", ".join(parts)


def reason_lines(found: FoundSizes) -> Iterator[str]:
    for size in found.dims:
        reason = f"a guess: {size.reason}" if size.is_guess else size.reason
        yield f"{printable(size.name)}={size.size} in {', '.join(size.places)}: {reason}"
    for given in found.inputs:
        yield f"{printable(given.text)}: {given.reason}"


# -- the sizes that help with an error about sizes


def sizes_for(error: ModelPerfError, *, runs: bool = True) -> FoundSizes | None:
    """Find sizes for the model of an error, or return None if the error is not about sizes.

    The sizes that the user gave are kept if others fit together with them. With `runs`, one
    inference runs on this machine.
    """
    asked = error.asked
    if not isinstance(asked, Asked) or asked.binding.phase is not None:
        return None
    operators = Operators()
    for op, rule in asked.shape_rules.items():
        operators.register(op, shapes=rule)
    extensions, setup = Extensions(operators), Setup() if runs else None
    try:
        found = find_sizes(asked.file, asked.binding, setup=setup, extensions=extensions)
        if not found.is_found and asked.binding.dims:
            free = replace(asked.binding, dims={})
            found = find_sizes(asked.file, free, setup=setup, extensions=extensions)
    except ModelPerfError:
        # The user needs to see the first error, not this one.
        return None
    return found if found.is_found or isinstance(error, OpenSizesError) else None
