"""One case of a profile on a machine of a cluster, and the profile of all of them together."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.cluster.records import Job, JobContext, ModelContent
from pytest_modelperf.cluster.requests import (
    CaseRequest,
    SetupRequest,
    load_plugins,
    split_request,
)
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.measuring import measure_model
from pytest_modelperf.profiler.records import CaseProfile, ModelFacts, Profile
from pytest_modelperf.profiler.request import ProfileRequest, model_facts
from pytest_modelperf.profiler.rig import Setup


class ProfileOrder(Struct, frozen=True, kw_only=True):
    """One case to profile. The model is named by its digest, and plugins by their modules."""

    model: str
    case: CaseRequest
    setup: SetupRequest
    plugins: tuple[str, ...] = ()


def profile_jobs(
    content: ModelContent,
    request: ProfileRequest,
    setup: Setup,
    *,
    plugins: Sequence[str] = (),
    machines: Sequence[str] = (),
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
                    setup=SetupRequest.of(setup),
                    plugins=tuple(plugins),
                )
            ),
            models=(content,),
            machines=tuple(machines),
        )
        for case in split_request(request)
    )


def profile_case(request: str, context: JobContext) -> str:
    """The profile of one case, measured here: the work of a job."""
    order = from_text(request, ProfileOrder)
    extensions = load_plugins(order.plugins)
    profile = measure_model(
        context.paths[order.model],
        order.case.to_request(),
        order.setup.to_setup(extensions),
        extensions,
        context.watch,
    )
    cases = tuple(_with_machine(case, profile) for case in profile.cases)
    return to_text(replace(profile, cases=cases))


def read_profile(content: ModelContent, texts: Sequence[str]) -> Profile:
    """The profile of a model whose cases came as the texts of jobs; its file is the one here."""
    profiles = [from_text(text, Profile) for text in texts]
    cases = tuple(case for profile in profiles for case in profile.cases)
    machine = next((profile.machine for profile in profiles), None)
    return Profile(_facts(content), cases, machine)


def _facts(content: ModelContent) -> ModelFacts:
    return replace(model_facts(open_model(content.path)), sha256=content.digest)


def _with_machine(case: CaseProfile, profile: Profile) -> CaseProfile:
    """The case with the machine that it ran on: others of the profile may run elsewhere."""
    if case.measured is None or case.measured.machine is not None:
        return case
    return replace(case, measured=replace(case.measured, machine=profile.machine))


def _label(case: CaseRequest) -> str:
    """Near to the id of the case, which needs the model's own batch size."""
    batch = "" if case.batch_size is None else f"b{case.batch_size}-"
    return "-".join([f"{batch}c{case.cores}", *(f"{n}{s}" for n, s in case.dims.items())])
