"""The common steps of all measurements of a model: start a worker, set it up, complete the model.

A measurement runs alone on this machine, in a worker that ends with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError, ModelError, TooFewCoresError
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.chance import find_chance
from pytest_modelperf.graph.kernels import read_plan
from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.model_file import (
    ModelFile,
    ModelSource,
    external_files,
    open_model,
)
from pytest_modelperf.graph.observed import complete_model, needs_observation
from pytest_modelperf.graph.runnable import needs_copy, nodes_by_name, write_runnable
from pytest_modelperf.graph.seen_file import SeenFile
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.inputs.generation_steps import make_steps
from pytest_modelperf.profiler.inputs.given import describe_given
from pytest_modelperf.profiler.inputs.given_phase import PhaseGiven, divide_given
from pytest_modelperf.profiler.inputs.made import make_inputs
from pytest_modelperf.profiler.layers import attribute
from pytest_modelperf.profiler.machine.cgroup import cgroup_folders
from pytest_modelperf.profiler.machine.describe import ROOT, cores_available, describe_machine
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import WAITING, KernelRun, Measurement, Progress
from pytest_modelperf.profiler.records import Case, ModelFacts, StoredInputs
from pytest_modelperf.profiler.request import (
    ProfileRequest,
    given_dims,
    model_facts,
    profile_bound,
    with_given,
)
from pytest_modelperf.profiler.sampling.loop import SamplingProgress
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import (
    Rig,
    Workload,
    observe_shapes,
    set_up,
    start_worker,
)
from pytest_modelperf.profiler.shown.conditions import noise_of
from pytest_modelperf.profiler.worker.gateway import ProcessWorker, is_local
from pytest_modelperf.profiler.worker.lock import measuring_alone

Watch: TypeAlias = Callable[[Progress], None]


class CasePlace(Struct, frozen=True):
    """One case among the cases of a request, and whoever watches its progress."""

    case: Case
    number: int
    cases: int
    watch: Watch

    def tell(self, step: str) -> None:
        self.watch(Progress(**self._place(), step=step))

    def tell_round(self, at: SamplingProgress) -> None:
        self.watch(
            Progress(
                **self._place(),
                step=at.step,
                round=at.round,
                estimate_ns=at.estimate_ns,
                half_width=at.half_width,
                seconds_left=at.seconds_left,
                least_seconds=at.least_seconds,
            )
        )

    def _place(self) -> dict[str, Any]:
        return {"case_id": self.case.id, "case_number": self.number, "cases": self.cases}


class Model(Struct, frozen=True):
    """A model at one set of dimensions, and what is known of it so far."""

    file: ModelFile
    binding: Binding
    request: ProfileRequest
    extensions: Extensions
    bound: BoundModel
    static: StaticProfile

    @classmethod
    def load(cls, source: ModelSource, request: ProfileRequest, extensions: Extensions) -> Model:
        """The first case of a request."""
        file = open_model(source)
        return cls.bind(file, request.bindings_of(file)[0], request, extensions)

    @classmethod
    def bind(
        cls, file: ModelFile, binding: Binding, request: ProfileRequest, extensions: Extensions
    ) -> Model:
        binding = with_given(binding, request, file)
        bound = load_model(file, binding, extensions.operators.shape_rules)
        static = profile_bound(bound, extensions.operators, sparsity=request.sparsity)
        return cls(file, binding, request, extensions, bound, static)

    def given_inputs(self) -> StoredInputs:
        """The inputs that the user gave, by which two runs of a model are the same."""
        return describe_given(self.binding.inputs, self.given_feeds().steps, self.request.seed)

    def given_feeds(self) -> PhaseGiven:
        """The given inputs of the inference that is repeated, and of the steps of a generation."""
        given, bound = self.request.given, self.bound
        if given is None:
            return PhaseGiven({}, {})
        if bound.phase is not None:
            return divide_given(given, bound, bound.phase, self.file.name)
        feeds = given.feeds(bound.graph, bound.inputs, self.file.name)
        return PhaseGiven(feeds, feeds)

    @property
    def dims(self) -> tuple[tuple[str, int], ...]:
        """The dimensions that tell the cases of the request apart."""
        return self.request.varying(self.binding)

    def case(self, cores: int) -> Case:
        """The case of this model on so many cores."""
        return Case(
            self.bound.inputs.batch_size,
            cores,
            self.dims,
            given_dims=given_dims(self.binding),
            phase=self.binding.phase,
        )


def read_facts(model: Model, cases: int, watch: Watch) -> ModelFacts:
    """The facts of a model's files; reading them is shown as a step of the first case."""
    place = CasePlace(model.case(model.request.cores[0]), 1, cases, watch)
    return model_facts(model.file, reads_all=True, tell=place.tell)


@contextmanager
def started_rig(model: Model, setup: Setup, place: CasePlace) -> Iterator[Rig]:
    """A rig in a worker of its own, alone on this machine; it ends with the context."""
    check_cores(place.case.cores, setup)
    with unchanged(model), alone_at(place), start_on(setup, place.case.cores) as worker:
        place.tell("loading")
        workload = make_workload(model, worker)
        with adding_notes(workload.notes):
            yield set_up(worker, setup, place.case.cores, workload)


@contextmanager
def unchanged(*models: Model) -> Iterator[None]:
    """Raises ChangedModelError if a file of these models changes before the context ends.

    Each session reads the files anew, and one report must not mix two models.
    """
    beside: list[SeenFile] = []
    for model in models:
        # A missing file is an error where it is read.
        with suppress(ModelError):
            beside += model.file.beside().values()

    def check() -> None:
        for model in models:
            model.file.require_unchanged()
        for file in beside:
            file.require_unchanged()

    check()
    try:
        yield
    except MeasureError:
        # A changed model explains any other error.
        check()
        raise
    check()


@contextmanager
def adding_notes(notes: Sequence[str]) -> Iterator[None]:
    """Add to an error which values were made up: the model may have refused one of them."""
    try:
        yield
    except MeasureError as error:
        error.details = (*error.details, *notes)
        raise


def make_workload(model: Model, worker: ProcessWorker, side: str = "") -> Workload:
    """What a worker runs: the user's own file if it can, else a copy named by `side`."""
    bound, file, request = model.bound, model.file, model.request
    # Checked first: an engine would read any file that the model names.
    beside = external_files(file)
    given = model.given_feeds()
    feeds = make_inputs(bound.graph, bound.inputs, request.seed, given.still, file.name)
    steps = None
    if bound.phase is not None:
        steps = make_steps(bound, bound.phase, request.seed, given.steps, file.name)
    folder = None
    if file.path is not None and not bound.inputs.rebound:
        path = worker.send_model(file.path, beside, f"model{side}")
    else:
        copy = worker.folder / f"model{side}.onnx"
        write_runnable(bound, copy)
        path = worker.send_file(copy, copy.name)
        folder = None if file.folder is None else str(file.folder.resolve())
    return Workload(
        model=path, folder=folder, batch_size=bound.inputs.batch_size, feeds=feeds, steps=steps
    )


def name_nodes(model: Model, rig: Rig) -> Path | None:
    """A copy of the model with a unique name for each node; None if it has such names."""
    if not needs_copy(model.bound):
        return None
    named = rig.worker.folder / f"named{rig.side}.onnx"
    write_runnable(model.bound, named)
    return named


def add_layer_times(
    model: Model, measured: Measurement, run: KernelRun, *, undisturbed: bool = False
) -> Measurement:
    """The measurement with the layer times that the kernels of profiled sessions give.

    With `undisturbed`, they are those without other processes even if these disturbed what was
    measured: what the latency waited for a processor is a row of its own then.
    """
    waits = undisturbed and bool(noise_of(measured))
    plan = None if run.plan is None else read_plan(run.plan)
    median_ns = measured.latency.median_ns
    names = nodes_by_name(model.bound)
    graph, layers = model.bound.graph, model.static.layers
    times = attribute(run, plan, graph, layers, median_ns, names, waits=waits)
    peaks = [p for p in (measured.engine_peak_bytes, run.engine_peak_bytes) if p is not None]
    return replace(measured, layer_times=times, engine_peak_bytes=max(peaks, default=None))


def complete(model: Model, rig: Rig, named: Path | None) -> Model:
    """The model with the shapes that a run tells; unchanged if complete or if no run tells."""
    if model.static.graph_alone is not None or not needs_observation(model.bound.graph):
        return model
    observed = observe_shapes(rig, named)
    return model if observed is None else _with_observed(model, observed)


def _with_observed(model: Model, observed: Sequence[Mapping[str, Any]]) -> Model:
    alone, chance = model.static, find_chance(model.bound.graph)
    operators = model.extensions.operators
    bound = complete_model(model.bound, observed, model.binding, operators.shape_rules)
    completed = profile_bound(bound, operators, sparsity=model.request.sparsity)
    notes = completed.notes
    if chance is not None:
        notes = (*notes, f"{chance} decides how much is computed: the next run may compute more")
    static = replace(
        completed,
        # The model stores the weights of a branch whether or not that runs.
        params=alone.params,
        weight_bytes=alone.weight_bytes,
        notes=notes,
        graph_alone=alone,
        chance=chance,
    )
    return replace(model, bound=bound, static=static)


def complete_if_told(model: Model, rig: Rig) -> Model:
    """`complete` where no layers are timed: if the engine fails, the model stays unchanged."""
    if needs_observation(model.bound.graph):
        with suppress(MeasureError):
            return complete(model, rig, name_nodes(model, rig))
    return model


def check_cores(cores: int, setup: Setup) -> None:
    """Raise TooFewCoresError if this machine has fewer; a worker elsewhere checks by itself."""
    if is_local(setup.spec):
        limit = cores_available()
        if limit.cores is not None and cores > limit.cores:
            raise TooFewCoresError.of(cores, limit.cores, limit.reason)


@contextmanager
def alone_at(place: CasePlace) -> Iterator[None]:
    """No other measurement on this machine for as long as this case takes."""
    with measuring_alone(lambda holder: place.tell(f"{WAITING} {holder}")):
        place.tell("starting")
        yield


def machine_of(setup: Setup) -> MachineFacts:
    """The machine that cases run on with a setup; MeasureError if it cannot be reached."""
    if is_local(setup.spec):
        return describe_machine()
    with start_on(setup, 1) as worker:
        return worker.machine or describe_machine()


def start_on(setup: Setup, cores: int) -> ProcessWorker:
    """A worker, not started yet, that knows where this machine counts its throttling."""
    stats = [str(folder / "cpu.stat") for folder in cgroup_folders(ROOT, "cpu")]
    return start_worker(setup, cores, stats)
