"""One case of a profile on a machine of a cluster, and the profile of all of them together."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.cluster.cluster import Cluster
from pytest_modelperf.cluster.contents import read_content
from pytest_modelperf.cluster.records import Job, JobContext, ModelContent
from pytest_modelperf.cluster.requests import split_request
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.errors import ClusterError, MeasureError
from pytest_modelperf.profiler.hookspecs import load_extensions
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measured_cases import measure_model
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.records import CaseProfile, Outcome, Profile
from pytest_modelperf.profiler.request import ProfileRequest, profile_model, with_phases_of
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.shown.conditions import describe_machine_line


class ProfileOrder(Struct, frozen=True, kw_only=True):
    """One case to profile. The model is named by its digest, and plugins by their modules."""

    model: str
    case: ProfileRequest
    setup: Setup
    plugins: tuple[str, ...]


def profile_jobs(
    content: ModelContent,
    request: ProfileRequest,
    setup: Setup,
    *,
    plugins: Sequence[str],
    machines: Sequence[str],
) -> tuple[Job, ...]:
    """A job for each case of a request, in the order of its profile."""
    return tuple(
        Job(
            name=f"{content.name} {_label(case)}",
            work=profile_case,
            request=to_text(
                ProfileOrder(
                    model=content.digest,
                    case=case,
                    setup=setup,
                    plugins=tuple(plugins),
                )
            ),
            models=(content,),
            machines=tuple(machines),
            cores=max(case.cores),
        )
        for case in split_request(request)
    )


def profile_case(request: str, context: JobContext) -> str:
    """The profile of one case, measured here: the work of a job."""
    order = from_text(request, ProfileOrder)
    extensions = load_extensions(order.plugins)
    profile = measure_model(
        context.paths[order.model],
        order.case,
        order.setup,
        extensions,
        context.watch,
    )
    cases = tuple(_with_machine(case, profile) for case in profile.cases)
    return to_text(replace(profile, cases=cases))


def profile_on_cluster(  # noqa: PLR0913  # a model, what of it, how it is measured, and where
    cluster: Cluster,
    path: str | os.PathLike[str],
    request: ProfileRequest,
    setup: Setup,
    *,
    plugins: Sequence[str],
    machines: Sequence[str],
) -> Profile:
    """The profile of every case of a model, each on one of the machines.

    A case that no machine measured has its reason. A wrong request or model raises an error.
    """
    content = read_content(path)
    counted = profile_model(path, request, load_extensions(plugins).operators)
    request = with_phases_of(request, (each.case for each in counted.cases))
    jobs = profile_jobs(content, request, setup, plugins=plugins, machines=machines)
    futures = [cluster.submit(job) for job in jobs]
    cases: list[CaseProfile] = []
    found: MachineFacts | None = None
    for case, future in zip(counted.cases, futures, strict=True):
        try:
            profile = from_text(future.result(), Profile)
        except (ClusterError, MeasureError) as error:
            reason = error.worded(setup.wording)
            cases.append(replace(case, outcome=Outcome.FAILED, reason=reason))
            continue
        cases.extend(profile.cases)
        found = found or profile.machine
    model = replace(counted.model, sha256=content.digest)
    return Profile(model, tuple(_with_places(cases)), found)


def _with_machine(case: CaseProfile, profile: Profile) -> CaseProfile:
    """The case with the machine that it ran on: others of the profile may run elsewhere."""
    if case.measured is None or case.measured.machine is not None:
        return case
    return replace(case, measured=replace(case.measured, machine=profile.machine))


def _with_places(cases: Sequence[CaseProfile]) -> list[CaseProfile]:
    """The cases with a note of the machine of each, if they ran on machines of several kinds."""
    machines = [None if case.measured is None else case.measured.machine for case in cases]
    if len({machine.key for machine in machines if machine is not None}) < 2:
        return list(cases)
    return [
        case
        if case.measured is None or machine is None
        else replace(case, measured=_with_note(case.measured, machine))
        for case, machine in zip(cases, machines, strict=True)
    ]


def _with_note(measured: Measurement, machine: MachineFacts) -> Measurement:
    return replace(measured, notes=(*measured.notes, f"run on {describe_machine_line(machine)}"))


def _label(case: ProfileRequest) -> str:
    """Near to the id of the case, which needs the model's own batch size."""
    (binding,), (cores,) = case.bindings(), case.cores
    batch = "" if binding.batch_size is None else f"b{binding.batch_size}-"
    parts = [f"{batch}c{cores}", *(f"{n}{s}" for n, s in binding.dims.items())]
    return "-".join(parts if binding.phase is None else [*parts, binding.phase.id])
