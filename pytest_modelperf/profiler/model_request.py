"""A request to measure a model, and the base of all requests that a cluster can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measured_cases import measure_model
from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.records import CaseProfile, Outcome, Profile
from pytest_modelperf.profiler.request import ProfileRequest, profile_model, with_phases_of
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.shown.facts import describe_machine_line

if TYPE_CHECKING:
    from pytest_modelperf.graph.model_file import ModelSource
else:
    # It is sent to a machine as a digest, and msgspec does not read a union of several classes.
    ModelSource = Any

_Result = TypeVar("_Result")
_Answer_co = TypeVar("_Answer_co", covariant=True)


class ModelRun(Struct, frozen=True):
    """A model, and how it runs.

    With `requirements`, it runs in an environment of the machine that has these packages.
    """

    source: ModelSource
    setup: Setup = field(default_factory=Setup)
    requirements: tuple[str, ...] = ()


class SentRequest(Protocol[_Answer_co]):
    """A request that runs here, or is sent to another machine.

    The models in its fields are each a `ModelRun`, or a tuple of these.
    """

    @property
    def request(self) -> ProfileRequest: ...

    def run(self, extensions: Extensions, watch: Watch) -> _Answer_co:
        """Return the result, measured on this machine."""


class SharedRequest(SentRequest[_Result], Protocol[_Result]):
    """A request that several machines can run."""

    def split(self, extensions: Extensions) -> Parts[_Result]:
        """Return the parts. Raise UsageError or ModelError if no machine can run the request."""


class Parts(Struct, Generic[_Result], frozen=True):
    """The parts of a request with their titles, each for one machine.

    `kind` is the class of their results. `join` combines these results, or the errors in their
    places, into the result of the request.
    """

    requests: tuple[tuple[str, SentRequest[_Result]], ...]
    kind: type[_Result]
    join: Callable[[Sequence[_Result | ModelPerfError]], _Result]


def only_result(found: Sequence[_Result | ModelPerfError]) -> _Result:
    """Return the result of a request with a single part, or raise the error in its place."""
    (result,) = found
    if isinstance(result, ModelPerfError):
        raise result
    return result


def telling(watch: Watch) -> Callable[[str], None]:
    """Return a function that reports a step before the measuring."""

    def report(step: str) -> None:
        watch(Progress(case_id="", case_number=0, cases=0, step=step))

    return report


class MeasureRequest(Struct, frozen=True):
    """A request to measure every case of a model.

    With `names_machine`, each case keeps the machine that it ran on, as a part of a request.
    """

    model: ModelRun
    request: ProfileRequest
    names_machine: bool = False

    def run(self, extensions: Extensions, watch: Watch = lambda _: None) -> Profile:
        model = self.model
        profile = measure_model(model.source, self.request, model.setup, extensions, watch)
        if not self.names_machine:
            return profile
        return replace(profile, cases=tuple(_with_machine(case, profile) for case in profile.cases))

    def split(self, extensions: Extensions) -> Parts[Profile]:
        """Return one part for each case. The joined profile shows why a case was not measured."""
        sha256 = open_model(self.model.source).sha256()
        counted = profile_model(self.model.source, self.request, extensions.operators)
        counted = replace(counted, model=replace(counted.model, sha256=sha256))
        request = with_phases_of(self.request, (each.case for each in counted.cases))
        parts = [replace(self, request=case, names_machine=True) for case in request.split()]
        titles = [f"{counted.model.name} {case_label(part.request)}" for part in parts]
        titled = tuple(zip(titles, parts, strict=True))
        return Parts(titled, Profile, partial(self._join, counted))

    def _join(self, counted: Profile, found: Sequence[Profile | ModelPerfError]) -> Profile:
        cases: list[CaseProfile] = []
        for case, each in zip(counted.cases, found, strict=True):
            if isinstance(each, ModelPerfError):
                reason = each.worded(self.model.setup.wording)
                cases.append(replace(case, outcome=Outcome.FAILED, reason=reason))
            else:
                cases.extend(each.cases)
        machines = (each.machine for each in found if isinstance(each, Profile))
        return Profile(counted.model, _with_places(cases), next(filter(None, machines), None))


def _with_machine(case: CaseProfile, profile: Profile) -> CaseProfile:
    if case.measured is None or case.measured.machine is not None:
        return case
    return replace(case, measured=replace(case.measured, machine=profile.machine))


def _with_places(cases: Sequence[CaseProfile]) -> tuple[CaseProfile, ...]:
    """Add a note of the machine to each case, if they ran on machines of several kinds."""
    machines = [case.measured.machine for case in cases if case.measured is not None]
    if len({machine.key for machine in machines if machine is not None}) < 2:
        return tuple(cases)
    return tuple(map(_with_place, cases))


def _with_place(case: CaseProfile) -> CaseProfile:
    measured = case.measured
    if measured is None or measured.machine is None:
        return case
    notes = (*measured.notes, f"run on {describe_machine_line(measured.machine)}")
    return replace(case, measured=replace(measured, notes=notes))


def case_label(case: ProfileRequest) -> str:
    """Return a label like the id of the only case, but without the model's own batch size."""
    (binding,), (cores,) = case.bindings(), case.cores
    batch = "" if binding.batch_size is None else f"b{binding.batch_size}-"
    parts = [f"{batch}c{cores}", *(f"{n}{s}" for n, s in binding.dims.items())]
    return "-".join(parts if binding.phase is None else [*parts, binding.phase.id])
