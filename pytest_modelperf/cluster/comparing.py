"""Two models compared at one case, on one machine of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.cluster.records import Job, JobContext, ModelContent
from pytest_modelperf.cluster.requests import (
    CaseRequest,
    SetupRequest,
    load_plugins,
    split_request,
)
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.comparing.by_duet import Details, compare_models
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.records import Comparison
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.rig import Setup


class ComparedModel(Struct, frozen=True):
    """A side of a comparison: the model by its digest, and how it runs."""

    model: str
    setup: SetupRequest


class ComparisonOrder(Struct, frozen=True, kw_only=True):
    """One case to compare. The level of the gate is what this case has of that of the run."""

    before: ComparedModel
    after: ComparedModel
    case: CaseRequest
    gate: Gate
    details: Details = Details.ALWAYS
    plugins: tuple[str, ...] = ()


class ClusterSide(Struct, frozen=True):
    """A model that is compared, by its content, and how it runs."""

    content: ModelContent
    setup: Setup


def comparison_jobs(  # noqa: PLR0913  # two sides, what of them, by which rule, with what, where
    before: ClusterSide,
    after: ClusterSide,
    request: ProfileRequest,
    gate: Gate,
    *,
    plugins: Sequence[str] = (),
    machines: Sequence[str] = (),
) -> tuple[Job, ...]:
    """A job for each case of a request; all of them share the level of the gate."""
    cases = split_request(request)
    orders = [
        ComparisonOrder(
            before=ComparedModel(before.content.digest, SetupRequest.of(before.setup)),
            after=ComparedModel(after.content.digest, SetupRequest.of(after.setup)),
            case=case,
            gate=gate.divided(len(cases)),
            plugins=tuple(plugins),
        )
        for case in cases
    ]
    contents = {each.digest: each for each in (before.content, after.content)}
    return tuple(
        Job(
            name=f"{after.content.name} case {number} of {len(cases)}",
            work=compare_case_models,
            request=to_text(order),
            models=tuple(contents.values()),
            machines=tuple(machines),
        )
        for number, order in enumerate(orders, 1)
    )


def compare_case_models(request: str, context: JobContext) -> str:
    """The comparison of two models at one case, made here: the work of a job."""
    order = from_text(request, ComparisonOrder)
    extensions = load_plugins(order.plugins)
    before, after = (
        Side(context.paths[side.model], side.setup.to_setup(extensions))
        for side in (order.before, order.after)
    )
    comparison = compare_models(
        before,
        after,
        order.case.to_request(),
        order.gate,
        extensions,
        context.watch,
        order.details,
    )
    return to_text(comparison)


def read_comparison(text: str) -> Comparison:
    """The comparison of one case, from the text of its job."""
    return from_text(text, Comparison)
