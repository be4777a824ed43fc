"""Measure the cases of a model, one after the other in workers of their own, and its memory."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import ChangedModelError, MeasureError, Remedy, UsageError
from pytest_modelperf.graph.model_file import ModelSource, open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.inputs.given import make_arguments
from pytest_modelperf.profiler.inputs.mixture import Arrivals
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    Timed,
    Watch,
    alone_at,
    check_cores,
    make_workload,
    read_facts,
    see_shapes_if_told,
    start_on,
    started_rig,
    time_layers,
)
from pytest_modelperf.profiler.prepare import Model, PreparedModel, prepare
from pytest_modelperf.profiler.records import Case, CaseProfile, ModelFacts, Outcome, Profile
from pytest_modelperf.profiler.request import ProfileRequest, on_this_machine
from pytest_modelperf.profiler.sampling.loop import SamplingProgress
from pytest_modelperf.profiler.sampling.rounds import IsEnough
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, Workload, measure_rounds, set_up
from pytest_modelperf.profiler.worker.gateway import is_this_python
from pytest_modelperf.text.escaping import printable

# Inferences after loading. The first allocates buffers, and a second one shows what is kept.
_INFERENCES = 2
# Less cannot be distinguished from the pages that the runtime takes on its own.
LEAST_BYTES = 1 << 20
_FIND_OUT = "as its memory was asked for"


def measure_model(
    source: ModelSource,
    request: ProfileRequest,
    setup: Setup,
    extensions: Extensions | None = None,
    watch: Watch = lambda _: None,
) -> Profile:
    """Measure every case of a model. The profile of one that cannot be measured has the reason."""
    extensions = extensions or Extensions()
    file = open_model(source)
    models = Model.of_request(file, request, extensions)
    total = len(models) * len(request.cores)
    facts = read_facts(models[0], total, watch)
    cases: list[CaseProfile] = []
    for model in models:
        measured: list[CaseProfile] = []
        try:
            known = prepare(model)
        except ChangedModelError as error:
            # The earlier cases were measured when the model was still the same.
            spoiled = map(model.case, request.cores)
            cases += [_not_measured(model, case, error, setup) for case in spoiled]
            continue
        for cores in request.cores:
            place = CasePlace(model.case(cores), len(cases) + len(measured) + 1, total, watch)
            found = measure_case(known, setup, place, arrivals=request.arrivals)
            measured.append(found.profile)
            known = found.model
        # The shapes that one run saw hold for every number of cores.
        cases.extend(replace(profile, counted=known.static) for profile in measured)
    return _on_its_machine(Profile(facts, tuple(cases)))


def _on_its_machine(profile: Profile) -> Profile:
    others = [case.measured.machine for case in profile.cases if case.measured is not None]
    machine = next((other for other in others if other is not None), None)
    return on_this_machine(profile) if machine is None else replace(profile, machine=machine)


class MeasuredCase(Struct, frozen=True):
    """The profile of a case, and the model with the shapes that its run showed."""

    profile: CaseProfile
    model: PreparedModel


def measure_case(  # noqa: PLR0913  # of what, how, for whom, until when
    model: PreparedModel,
    setup: Setup,
    place: CasePlace,
    *,
    takes_layers: bool = True,
    is_enough: IsEnough | None = None,
    arrivals: Arrivals | None = None,
) -> MeasuredCase:
    """Measure one case in one worker. If that fails, its profile has the reason."""
    case = place.case
    try:
        with started_rig(model, setup, place) as rig:
            arriving = rig
            if arrivals is not None:
                every_ns = None if arrivals.every_ms is None else round(arrivals.every_ms * 1e6)
                arriving = replace(rig, every_ns=every_ns, streams=arrivals.streams)
            measured = measure_rounds(arriving, place.tell_round, is_enough=is_enough)
            if takes_layers:
                plain = Timed(model, measured)
                (found,) = time_layers([(plain, rig)], undisturbed=True, tell=place.tell)
            else:
                found = Timed(see_shapes_if_told(model, rig), measured)
    except MeasureError as error:
        return MeasuredCase(_not_measured(model, case, error, setup), model)
    return MeasuredCase(found.profile(case), found.model)


def _not_measured(model: Model, case: Case, error: MeasureError, setup: Setup) -> CaseProfile:
    reason = error.worded(setup.wording)
    return CaseProfile(case, model.static, None, Outcome.of(error), reason)


class UnknownMemoryError(MeasureError):
    """The system does not report how much memory a process takes."""


def measure_footprint(model: PreparedModel, setup: Setup, place: CasePlace) -> int:
    """Return the bytes that loading a model and some inferences take, in a process of their own.

    The memory before the model is loaded is left out: the interpreter, numpy, the engine and the
    inputs. Raise UnknownMemoryError if the system does not report memory.
    """
    with start_on(setup, place.case.cores) as worker:
        rig = set_up(worker, setup, place.case.cores, make_workload(model, worker))
        before = worker.ask("memory", _FIND_OUT)
        resting = before["rss_bytes"] or before["peak_rss_bytes"]
        rig.open()
        # The state of a generation is largest at its end. Each member of a workload runs once.
        inferences = max(_INFERENCES, rig.workload.pass_inferences)
        rig.go_to_step(-inferences)
        rig.step = _FIND_OUT
        for _ in range(inferences):
            rig.take(1, round(setup.limit_s * 1e9))
        peak = worker.ask("memory", _FIND_OUT)["peak_rss_bytes"]
    if peak is None or resting is None:
        raise UnknownMemoryError("this system does not report how much memory a process takes.")
    return max(int(peak) - int(resting), LEAST_BYTES)


def measure_function(
    function: Callable[..., Any] | str,
    request: ProfileRequest,
    setup: Setup,
    watch: Watch = lambda _: None,
    is_enough: IsEnough | None = None,
) -> Profile:
    """Measure a Python function, and return its profile, which has only its latency.

    A function that is named as `module:function` is imported by a process of its own. A function
    object runs in this process, as it is, including all that a test has set up or replaced. Another
    interpreter imports it by its name. The inputs of the request are its keyword arguments. Unless
    the request asks for cores, it may use all that this machine has.
    """
    name = function if isinstance(function, str) else importable_name(function)
    shown = name or str(getattr(function, "__qualname__", type(function).__name__))
    is_here = not isinstance(function, str) and is_this_python(setup.spec)
    if request.dims:
        raise UsageError(
            f"{printable(shown)} is a function, which has no named dimensions.",
            Remedy("Leave {dims} out."),
        )
    if request.generations:
        raise UsageError(
            f"{printable(shown)} is a function, which hands on no state.",
            Remedy("Leave the lengths of a generation out, or give an ONNX model."),
        )
    if name is None and not is_here:
        raise UsageError(
            f"{printable(shown)} exists only in this process, and cannot run through the gateway "
            f"{printable(setup.spec)!r}: define it at the top of a module that is installed there, "
            "or leave out the gateway."
        )
    sizes = [1 if size is None else size for size in request.batch_sizes]
    found: list[tuple[CaseProfile, str | None]] = []
    for size, cores in itertools.product(sizes, request.cores):
        place = CasePlace(Case(size, cores), len(found) + 1, len(sizes) * len(request.cores), watch)
        feeds = make_arguments(request.inputs, request.seed, request.given)
        model = function if is_here or name is None else name
        workload = Workload(model=model, batch_size=size, feeds=feeds)
        pinned_to = cores if request.has_cores else 0
        found.append(_measure_function_case(workload, pinned_to, setup, place, is_enough))
    file = next((file for _, file in found if file is not None), None)
    facts = ModelFacts.named(shown, function_file=file)
    return _on_its_machine(Profile(facts, tuple(profile for profile, _ in found)))


def _measure_function_case(
    workload: Workload, cores: int, setup: Setup, place: CasePlace, is_enough: IsEnough | None
) -> tuple[CaseProfile, str | None]:
    from pytest_modelperf.profiler.worker.inline import work_inline

    case, file = place.case, None
    is_named = isinstance(workload.model, str)
    try:
        check_cores(cores, setup)
        with alone_at(place), start_on(setup, cores) if is_named else work_inline(cores) as worker:
            place.tell("loading")
            rig = set_up(worker, setup, cores, workload)
            try:
                measured = _measure_rounds(rig, place, is_enough)
            finally:
                file = rig.function_file
    except MeasureError as error:
        reason = error.worded(setup.wording)
        return CaseProfile(case, None, None, Outcome.of(error), reason), file
    notes = (*measured.notes, *(() if cores else (_ALL_CORES,)), *(() if is_named else (_HERE,)))
    return CaseProfile(case, None, replace(measured, notes=notes)), file


def _measure_rounds(rig: Rig, place: CasePlace, is_enough: IsEnough | None) -> Measurement:
    """Measure a function. Import its module first, so that the first round is not slower."""
    from pytest_modelperf.profiler.worker.inline import InlineWorker

    (load,) = rig.open()
    rig.close()
    if isinstance(rig.worker, InlineWorker):
        host = rig.worker.host

        def tell_round(at: SamplingProgress) -> None:
            host.run(partial(place.tell_round, at))

        # In this process, the calls are made near the frames of the caller.
        measured = host.serve(partial(measure_rounds, rig, tell_round, is_enough=is_enough))
    else:
        measured = measure_rounds(rig, place.tell_round, is_enough=is_enough)
    first, *others = measured.rounds
    starts = None if first.starts is None else replace(first.starts, load_ns=load.begun_ns)
    first = replace(first, load_ns=load.duration_ns, starts=starts)
    return replace(measured, rounds=(first, *others))


_HERE = "the function ran in this process, with all that was set up here"
_ALL_CORES = "no number of cores was asked for, so the function was not pinned to processors"


def importable_name(function: Callable[..., Any]) -> str | None:
    """Return `module:function` if that names this same function, or None."""
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
