"""The common steps of measuring: start a worker, set it up, complete the model, read its outputs.

A measurement runs alone on this machine, in a worker that ends with it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from pytest_modelperf.errors import MeasureError, ModelError, TooFewCoresError
from pytest_modelperf.graph.copies import nodes_by_name, write_runnable, write_watched_model
from pytest_modelperf.graph.plans.plan import read_plan
from pytest_modelperf.graph.structure import PlanGraph
from pytest_modelperf.profiler.layers import attribute
from pytest_modelperf.profiler.machine.describe import (
    ROOT,
    cgroup_folders,
    cores_available,
    describe_machine,
)
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import (
    WAITING,
    KernelRun,
    Measurement,
    Progress,
    devices_of,
)
from pytest_modelperf.profiler.prepare import Model, Pair, PreparedModel, complete
from pytest_modelperf.profiler.records import Case, CaseProfile, ModelFacts
from pytest_modelperf.profiler.request import model_facts
from pytest_modelperf.profiler.sampling.kernels import Profiled, observe_shapes, run_kernels
from pytest_modelperf.profiler.sampling.loop import SamplingProgress
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, Workload, set_up, start_worker
from pytest_modelperf.profiler.shown.facts import noise_of
from pytest_modelperf.profiler.worker.client import ProcessWorker
from pytest_modelperf.profiler.worker.endings import writing_for_worker
from pytest_modelperf.profiler.worker.gateway import is_local
from pytest_modelperf.profiler.worker.lock import measuring_alone

Watch: TypeAlias = Callable[[Progress], None]
StartRig: TypeAlias = Callable[[PreparedModel, Setup, "CasePlace"], AbstractContextManager[Rig]]


class Stopwatch:
    """A watch that passes progress on, and measures time without waits for other measurements."""

    def __init__(self, watch: Watch, clock: Callable[[], float] = time.monotonic) -> None:
        self._watch = watch
        self._clock = clock
        self._begun = clock()
        self._waited = 0.0
        self._waits_since: float | None = None

    @property
    def seconds(self) -> float:
        return self._clock() - self._begun - self._waited

    def __call__(self, progress: Progress) -> None:
        now = self._clock()
        if self._waits_since is not None:
            self._waited += now - self._waits_since
        self._waits_since = now if progress.is_waiting else None
        self._watch(progress)


class CasePlace(Struct, frozen=True):
    """One case among the cases of a request, and the watch that gets its progress."""

    case: Case
    number: int
    cases: int
    watch: Watch

    def tell(self, step: str) -> None:
        self.watch(Progress(**self._place(), step=step))

    def tell_round(self, at: SamplingProgress) -> None:
        self.watch(Progress(**self._place(), **asdict(at)))

    def _place(self) -> dict[str, Any]:
        return {"case_id": self.case.id, "case_number": self.number, "cases": self.cases}


def read_facts(model: Model, cases: int, watch: Watch) -> ModelFacts:
    """Return the facts of a model's files. Reading them is shown as a step of the first case."""
    place = CasePlace(model.case(model.request.cores[0]), 1, cases, watch)
    return model_facts(model.file, reads_all=True, tell=place.tell)


@contextmanager
def started_rig(model: PreparedModel, setup: Setup, place: CasePlace) -> Iterator[Rig]:
    """Yield a rig in a worker of its own, alone on this machine. It ends with the context."""
    check_cores(place.case.cores, setup)
    with unchanged(model), alone_at(place), rig_of(model, setup, place) as rig:
        yield rig


@contextmanager
def rig_of(model: PreparedModel, setup: Setup, place: CasePlace) -> Iterator[Rig]:
    with start_on(setup, place.case.cores) as worker:
        place.tell("loading")
        workload = make_workload(model, worker)
        with adding_notes(workload.notes):
            yield set_up(worker, setup, place.case.cores, workload)


@contextmanager
def unchanged(*models: Model) -> Iterator[None]:
    """Raise ChangedModelError if a file of these models changes before the context ends."""
    # Each session reads the files again, and one report must not mix two models.
    for model in models:
        # From now on the external files belong to the model. Reading a missing one is an error.
        with suppress(ModelError):
            model.file.beside()

    def check() -> None:
        for model in models:
            model.file.require_unchanged()

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
    """Add to an error which values were made up: the model may have rejected one of them."""
    try:
        yield
    except MeasureError as error:
        error.details = (*error.details, *notes)
        raise


def make_workload(model: PreparedModel, worker: ProcessWorker, side: str = "") -> Workload:
    """Return the file that a worker runs: the user's own, or a copy named by `side` if needed."""
    bound, file = model.bound, model.file
    folder = None
    if file.path is not None and not model.runs_as_copy:
        path = worker.send_model(file.path, model.beside, f"model{side}")
    else:
        copy = worker.folder / f"model{side}.onnx"
        with writing_for_worker("as the model was written"):
            write_runnable(bound, copy)
        path = worker.send_file(copy, copy.name)
        folder = None if file.folder is None else str(file.folder.resolve())
    return Workload(
        model=path,
        folder=folder,
        batch_size=bound.inputs.batch_size,
        feeds=model.feeds,
        steps=model.steps,
    )


class Timed(Struct, frozen=True):
    """A model with the shapes that a run saw, its measurement, and the plan if it was profiled."""

    model: PreparedModel
    measured: Measurement
    plan: PlanGraph | None = None

    def profile(self, case: Case) -> CaseProfile:
        return CaseProfile(case, self.model.static, self.measured)


def time_layers(
    sides: Sequence[tuple[Timed, Rig]],
    *,
    undisturbed: bool,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Timed]:
    """Return the sides of one worker with layer times if the engine has them.

    The runs of the sides take turns. A failure becomes a note: the latency that was measured before
    stays valid. For `undisturbed` see `add_layer_times`.
    """
    models, rigs = [side.model for side, _ in sides], [rig for _, rig in sides]
    runs: Sequence[KernelRun | None] = [None] * len(sides)
    notes: tuple[str, ...] = ()
    try:
        named = [name_nodes(model, rig) for model, rig in zip(models, rigs, strict=True)]
        tell("looking at shapes")
        models = [see_shapes(*each) for each in zip(models, rigs, named, strict=True)]
        tell("timing layers")
        profiled = [
            Profiled(rig, copy, len(model.static.layers), model.static.weight_bytes)
            for model, rig, copy in zip(models, rigs, named, strict=True)
        ]
        runs = run_kernels(profiled) or runs
    except MeasureError as error:
        notes = (f"no layer times: {error.worded(rigs[0].setup.wording)}",)
    found = []
    for (side, _), model, run in zip(sides, models, runs, strict=True):
        measured = replace(side.measured, notes=(*side.measured.notes, *notes))
        if run is None:
            found.append(Timed(model, measured))
            continue
        plan = None if run.plan is None else read_plan(run.plan)
        measured = add_layer_times(model, measured, run, plan, undisturbed=undisturbed)
        found.append(Timed(model, measured, plan))
    return found


def name_nodes(model: PreparedModel, rig: Rig) -> Path | None:
    """Write a copy of the model with unique names of its nodes, unless it needs none."""
    if not model.needs_names:
        return None
    named = rig.worker.folder / f"named{rig.side}.onnx"
    with writing_for_worker("as a copy of the model was written"):
        write_runnable(model.bound, named)
    return named


def add_layer_times(
    model: Model,
    measured: Measurement,
    run: KernelRun,
    plan: PlanGraph | None,
    *,
    undisturbed: bool = False,
) -> Measurement:
    """Return the measurement with layer times from the kernels of profiled sessions.

    With `undisturbed`, they are the times without other processes. If these disturbed the
    measurement, the time that it waited for a processor is a row of its own.
    """
    waits = undisturbed and bool(noise_of(measured))
    median_ns = _repeated_ns(model, measured)
    names = nodes_by_name(model.bound)
    graph, layers = model.bound.graph, model.static.layers
    found = attribute(run, plan, graph, layers, median_ns, names, waits=waits)
    devices = devices_of(run.kernels)
    note = (
        f"layers on {devices} have the time that it takes to start them, not to run them: what "
        "still runs when the last one has started is runtime overhead"
    )
    peaks = [p for p in (measured.engine_peak_bytes, run.engine_peak_bytes) if p is not None]
    return replace(
        measured,
        layer_times=found.times,
        kernels=found.kernels,
        engine_peak_bytes=max(peaks, default=None),
        notes=(*measured.notes, note) if devices else measured.notes,
    )


def _repeated_ns(model: Model, measured: Measurement) -> float:
    """Return the median of the inference that a profiled session repeats: the largest member."""
    mixture = model.request.mixture
    if mixture is None:
        return measured.latency.median_ns
    place = mixture.members.index(mixture.largest)
    own = [made.block.of_member(place).times_ns for made in measured.rounds]
    return statistics.median([ns for times in own for ns in times] or [measured.latency.median_ns])


def see_shapes(model: PreparedModel, rig: Rig, named: Path | None) -> PreparedModel:
    """Return the model with the shapes that a run shows, or unchanged if it shows none."""
    observed = observe_shapes(rig, named) if model.is_open else None
    return model if observed is None else complete(model, observed)


def see_shapes_if_told(model: PreparedModel, rig: Rig) -> PreparedModel:
    """Call `see_shapes` without timing layers. If the engine fails, the model is unchanged."""
    if model.is_open:
        with suppress(MeasureError):
            return see_shapes(model, rig, name_nodes(model, rig))
    return model


def check_cores(cores: int, setup: Setup) -> None:
    """Raise TooFewCoresError if this machine has fewer. A worker elsewhere checks by itself."""
    if is_local(setup.spec):
        limit = cores_available()
        if limit.cores is not None and cores > limit.cores:
            raise TooFewCoresError.of(cores, limit.cores, limit.reason)


@contextmanager
def alone_at(place: CasePlace) -> Iterator[None]:
    """Keep other measurements off this machine for as long as this case takes."""
    with measuring_alone(lambda holder: place.tell(f"{WAITING} {holder}")):
        place.tell("starting")
        yield


def machine_of(setup: Setup) -> MachineFacts:
    """Return the machine that cases run on. Raise MeasureError if it cannot be reached."""
    if is_local(setup.spec):
        return describe_machine()
    with start_on(setup, 1) as worker:
        return worker.machine or describe_machine()


def start_on(setup: Setup, cores: int) -> ProcessWorker:
    """Return a worker, not started yet, with the files in which this machine counts throttling."""
    stats = [str(folder / "cpu.stat") for folder in cgroup_folders(ROOT)]
    return start_worker(setup, cores, stats)


def variant_options(
    worker: ProcessWorker, setup: Setup, kind: str, value: str | float
) -> Mapping[str, str] | None:
    """Return the engine options that make a worker run a model in another way, or None without any.

    `kind` is `precision` or `sparsity`, and `value` a precision, such as `bf16`, or the share of
    the weights that is zero. If the engine or the machine of the worker cannot do it, a UsageError
    lists what they can do.
    """
    worker.use_engine(setup.engine, setup.options)
    found: Mapping[str, str] | None = worker.ask(
        "variant_options",
        f"as the options for its {kind} were asked for",
        kind=kind,
        value=value,
        options=dict(setup.options),
    )
    return found


# The limit on all outputs of a model together, because sending more would take too long.
MAX_BYTES = 64 << 20

# The type, shape and bits of an output; the bits are None if it was too large.
Sent: TypeAlias = "tuple[str, tuple[int, ...], bytes | None]"
# Runs a model once with these tensors as additional outputs, and returns them.
ReadTensors: TypeAlias = Callable[[Sequence[str]], Mapping[str, Sent]]

_WATCHED = "watched.onnx"


def read_outputs(rig: Rig, names: Sequence[str] | None = None) -> Mapping[str, Sent] | None:
    """Open a session and return its outputs, or those in `names`, if the engine can return them."""
    rig.open()
    found: Mapping[str, Sent] | None = rig.worker.ask(
        "outputs",
        "as its outputs were read",
        side=rig.side,
        max_bytes=MAX_BYTES,
        feed=rig.still_feed,
        names=None if names is None else list(names),
    )
    # Not in a `finally`: after an error, the worker may have ended or be too busy to answer.
    rig.close()
    return found


def run_for_outputs(
    model: PreparedModel, setup: Setup, place: CasePlace
) -> Mapping[str, Sent] | None:
    """Return the outputs of one inference, or None if the engine cannot return them."""
    with started_rig(model, setup, place) as rig:
        return read_outputs(rig)


@contextmanager
def reading_tensors(pair: Pair, place: CasePlace) -> Iterator[tuple[ReadTensors, ReadTensors]]:
    """Yield readers of the tensors inside both models, while nothing else is measured here."""
    with (
        alone_at(place),
        rig_of(pair.before, pair.before_setup, place) as old,
        rig_of(pair.after, pair.after_setup, place) as new,
    ):
        yield _reader(pair.before, old), _reader(pair.after, new)


def _reader(model: PreparedModel, rig: Rig) -> ReadTensors:
    def read(names: Sequence[str]) -> Mapping[str, Sent]:
        path = rig.worker.folder / _WATCHED
        with writing_for_worker("as a copy of the model was written"):
            write_watched_model(model.bound, names, path)
        sent = rig.worker.send_file(path, _WATCHED)
        folder = rig.workload.folder or str(Path(str(rig.workload.model)).parent)
        watched = replace(rig, workload=replace(rig.workload, model=sent, folder=folder))
        return read_outputs(watched, names) or {}

    return read
