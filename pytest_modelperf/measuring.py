"""A model measured: every case of a request in a worker of its own, one after the other."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from pytest_modelperf.errors import MeasureError, TooFewCoresError, UsageError
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.kernels import read_plan
from pytest_modelperf.graph.load import BoundModel, declared_inputs, load_model
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, open_model
from pytest_modelperf.graph.observed import complete_model, needs_observation
from pytest_modelperf.graph.rewrite import external_files
from pytest_modelperf.graph.runnable import needs_copy, nodes_by_name, write_runnable
from pytest_modelperf.hookspecs import Extensions
from pytest_modelperf.measurements import Measurement, Progress
from pytest_modelperf.profiler.given_inputs import make_arguments, specs_of
from pytest_modelperf.profiler.inputs import make_inputs
from pytest_modelperf.profiler.layers import attribute
from pytest_modelperf.profiler.machine.cgroup import cgroup_folders
from pytest_modelperf.profiler.machine.describe import ROOT, cores_available
from pytest_modelperf.profiler.measure import (
    Rig,
    Setup,
    Subject,
    measure_rounds,
    observe_shapes,
    run_kernels,
    set_up,
    start_worker,
)
from pytest_modelperf.profiler.sampling import SamplingProgress
from pytest_modelperf.profiler.worker.gateway import ProcessWorker, is_local
from pytest_modelperf.profiler.worker.inline import work_inline
from pytest_modelperf.profiler.worker.lock import measuring_alone
from pytest_modelperf.records import Case, CaseProfile, ModelFacts, Outcome, Profile, StaticProfile
from pytest_modelperf.session import ProfileRequest, model_facts, on_this_machine, profile_bound
from pytest_modelperf.units import printable

Watch: TypeAlias = Callable[[Progress], None]


def measure_model(
    source: ModelSource,
    request: ProfileRequest,
    setup: Setup,
    extensions: Extensions | None = None,
    watch: Watch = lambda _: None,
) -> Profile:
    """The profile of every case of a model.

    A case that cannot be measured says why, and the next one is measured.
    """
    extensions = extensions or Extensions()
    file = open_model(source)
    models = [Model.bind(file, binding, request, extensions) for binding in request.bindings()]
    total = len(models) * len(request.cores)
    cases: list[CaseProfile] = []
    for model in models:
        measured: list[CaseProfile] = []
        for cores in request.cores:
            case = Case(model.bound.inputs.batch_size, cores, model.dims)
            place = Place(case, len(cases) + len(measured) + 1, total, watch)
            measured.append(_measure_case(model, setup, place))
        # What one run told of the shapes holds for every number of cores.
        cases.extend(replace(profile, counted=model.static) for profile in measured)
    return _on_its_machine(Profile(model_facts(file, reads_all=True), tuple(cases)))


def _on_its_machine(profile: Profile) -> Profile:
    """The profile with the machine that its cases ran on."""
    others = [case.measured.machine for case in profile.cases if case.measured is not None]
    machine = next((other for other in others if other is not None), None)
    return on_this_machine(profile) if machine is None else replace(profile, machine=machine)


@dataclass(frozen=True, slots=True)
class Place:
    """One case among those of a request, and who is watching."""

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
            )
        )

    def _place(self) -> dict[str, Any]:
        return {"case_id": self.case.id, "case_number": self.number, "cases": self.cases}


@dataclass(slots=True)
class Model:
    """A model at one set of dimensions; a run may complete what is known of it."""

    file: ModelFile
    binding: Binding
    request: ProfileRequest
    extensions: Extensions
    bound: BoundModel
    static: StaticProfile

    @classmethod
    def load(cls, source: ModelSource, request: ProfileRequest, extensions: Extensions) -> Model:
        """The first case of a request."""
        return cls.bind(open_model(source), next(request.bindings()), request, extensions)

    @classmethod
    def bind(
        cls, file: ModelFile, binding: Binding, request: ProfileRequest, extensions: Extensions
    ) -> Model:
        if request.given is not None:
            specs = specs_of(request.given, declared_inputs(file.proto), file.name)
            binding = replace(binding, inputs=(*binding.inputs, *specs))
        bound = load_model(file, binding, extensions.operators.shape_rules)
        static = profile_bound(bound, extensions.operators, sparsity=request.sparsity)
        return cls(file, binding, request, extensions, bound, static)

    @property
    def dims(self) -> tuple[tuple[str, int], ...]:
        return self.request.varying(self.binding)


def _measure_case(model: Model, setup: Setup, place: Place) -> CaseProfile:
    case = place.case
    try:
        with rigged(model, setup, place) as rig:
            measured = measure_rounds(rig, place.tell_round)
            measured = _with_layers(model, rig, measured, place)
    except TooFewCoresError as error:
        return CaseProfile(case, model.static, None, Outcome.SKIPPED, str(error))
    except MeasureError as error:
        return CaseProfile(case, model.static, None, Outcome.FAILED, str(error))
    return CaseProfile(case, model.static, measured)


@contextmanager
def rigged(model: Model, setup: Setup, place: Place) -> Iterator[Rig]:
    """A worker with its engine and its inputs, alone on this machine; it ends with the context."""
    _check_cores(place.case.cores, setup)
    with _alone(place), _started(setup, place.case.cores) as worker:
        place.tell("loading")
        subject = _subject(model, worker)
        try:
            yield set_up(worker, setup, place.case.cores, subject)
        except MeasureError as error:
            if not subject.notes:
                raise
            # A value that was made up may be what the model did not take.
            notes = "".join(f"\n{note}" for note in subject.notes)
            raise type(error)(f"{error}{notes}") from error


def _subject(model: Model, worker: ProcessWorker) -> Subject:
    """The user's own file wherever it can be run as it is."""
    bound, file, request = model.bound, model.file, model.request
    given = request.given
    made = {} if given is None else given.feeds(bound.graph, bound.inputs, file.name)
    feeds = make_inputs(bound.graph, bound.inputs, request.seed, made, file.name)
    batch_size = bound.inputs.batch_size
    if file.path is not None and not bound.inputs.rebound:
        beside = () if worker.is_local else sorted(external_files(bound))
        path = worker.send_model(file.path, beside)
        return Subject(model=path, batch_size=batch_size, feeds=feeds)
    copy = worker.folder / "model.onnx"
    write_runnable(bound, copy)
    folder = None if file.folder is None else str(file.folder.resolve())
    return Subject(
        model=worker.send_file(copy, copy.name), folder=folder, batch_size=batch_size, feeds=feeds
    )


def _with_layers(model: Model, rig: Rig, measured: Measurement, place: Place) -> Measurement:
    """The measurement with the times of the layers, where the engine tells them."""
    try:
        named = None
        if needs_copy(model.bound):
            named = rig.worker.folder / "named.onnx"
            write_runnable(model.bound, named)
        if needs_observation(model.bound.graph):
            place.tell("looking at shapes")
            _complete(model, rig, named)
        place.tell("timing layers")
        run = run_kernels(rig, named, len(model.static.layers), model.static.weight_bytes)
    except MeasureError as error:
        # What was timed before stays true.
        return replace(measured, notes=(*measured.notes, f"no layer times: {error}"))
    if run is None:
        return measured
    plan = None if run.plan is None else read_plan(run.plan)
    median_ns = measured.latency.median_ns
    names = nodes_by_name(model.bound)
    times = attribute(run, plan, model.bound.graph, model.static.layers, median_ns, names)
    peaks = [p for p in (measured.engine_peak_bytes, run.engine_peak_bytes) if p is not None]
    return replace(measured, layer_times=times, engine_peak_bytes=max(peaks, default=None))


def _complete(model: Model, rig: Rig, named: Path | None) -> None:
    """Put into the static profile what only a run can tell."""
    observed = observe_shapes(rig, named)
    if observed is None:
        return
    operators = model.extensions.operators
    model.bound = complete_model(model.bound, observed, model.binding, operators.shape_rules)
    model.static = profile_bound(model.bound, operators, sparsity=model.request.sparsity)


def _check_cores(cores: int, setup: Setup) -> None:
    """Raise TooFewCoresError where this machine does not have so many; another one tells itself."""
    if is_local(setup.spec):
        limit = cores_available()
        if limit.cores is not None and cores > limit.cores:
            raise TooFewCoresError(f"it wants {cores} cores, but {limit.reason}")


@contextmanager
def _alone(place: Place) -> Iterator[None]:
    with measuring_alone(lambda: place.tell("waiting for another measurement to end")):
        place.tell("starting")
        yield


def _started(setup: Setup, cores: int) -> ProcessWorker:
    stats = [str(folder / "cpu.stat") for folder in cgroup_folders(ROOT, "cpu")]
    return start_worker(setup, cores, stats)


# -- functions


def measure_function(
    function: Callable[..., Any] | str,
    request: ProfileRequest,
    setup: Setup,
    watch: Watch = lambda _: None,
) -> Profile:
    """The profile of a Python function: its latency only.

    One that a worker can import, named as `module:function`, runs in a process of its own; one
    that exists only here, as a lambda does, in this process. The inputs of the request are its
    keyword arguments.
    """
    name = function if isinstance(function, str) else importable_name(function)
    shown = name or str(getattr(function, "__qualname__", type(function).__name__))
    if request.dims:
        raise UsageError(
            f"{printable(shown)} is a function, whose dimensions have no names: leave --dim out."
        )
    sizes = [1 if size is None else size for size in request.batch_sizes]
    cases: list[CaseProfile] = []
    for size, cores in itertools.product(sizes, request.cores):
        place = Place(Case(size, cores), len(cases) + 1, len(sizes) * len(request.cores), watch)
        feeds = make_arguments(request.inputs, request.seed, request.given)
        subject = Subject(model=name or function, batch_size=size, feeds=feeds)
        cases.append(_measure_function_case(subject, setup, place))
    return _on_its_machine(Profile(ModelFacts(shown, None, None, None), tuple(cases)))


def _measure_function_case(subject: Subject, setup: Setup, place: Place) -> CaseProfile:
    case = place.case
    is_importable = isinstance(subject.model, str)
    try:
        _check_cores(case.cores, setup)
        with _alone(place):
            started = _started(setup, case.cores) if is_importable else work_inline(case.cores)
            with started as worker:
                place.tell("loading")
                rig = set_up(worker, setup, case.cores, subject)
                measured = measure_rounds(rig, place.tell_round)
    except TooFewCoresError as error:
        return CaseProfile(case, None, None, Outcome.SKIPPED, str(error))
    except MeasureError as error:
        return CaseProfile(case, None, None, Outcome.FAILED, str(error))
    if not is_importable:
        measured = replace(measured, notes=(*measured.notes, _NOT_IMPORTABLE))
    return CaseProfile(case, None, measured)


_NOT_IMPORTABLE = "the function cannot be imported by another process, so it ran in this one"


def importable_name(function: Callable[..., Any]) -> str | None:
    """`module:function`, where that leads back to the very function; None elsewhere."""
    module = getattr(function, "__module__", None)
    path = getattr(function, "__qualname__", None)
    if not module or not path or module == "__main__":
        return None
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return f"{module}:{path}" if found is function else None
