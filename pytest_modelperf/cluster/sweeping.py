"""A sweep on one machine of a cluster, because its configurations run in turn and are compared."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.cluster.cluster import Cluster
from pytest_modelperf.cluster.comparing import ClusterSide
from pytest_modelperf.cluster.contents import read_content
from pytest_modelperf.cluster.records import Job, JobContext
from pytest_modelperf.cluster.requests import WholeRequest
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import load_extensions
from pytest_modelperf.profiler.request import ProfileRequest, model_facts
from pytest_modelperf.sweep.configurations import sweep_models
from pytest_modelperf.sweep.records import Sweep
from pytest_modelperf.sweep.sides import SweepSource


class SweepOrder(Struct, frozen=True, kw_only=True):
    """A sweep of one model or two."""

    sides: tuple[ClusterSide, ...]
    request: WholeRequest
    streams: tuple[int, ...]
    threshold_ms: float | None
    plugins: tuple[str, ...]


def sweep_here(request: str, context: JobContext) -> str:
    """The sweep, measured here: the work of a job."""
    order = from_text(request, SweepOrder)
    extensions = load_extensions(order.plugins)
    sources = [SweepSource(context.paths[side.content.digest], side.setup) for side in order.sides]
    swept = sweep_models(
        sources,
        order.request.to_request(),
        order.streams,
        order.threshold_ms,
        extensions,
        context.watch,
    )
    return to_text(swept)


def sweep_on_cluster(  # noqa: PLR0913  # what to sweep, at which sizes, with what, and where
    cluster: Cluster,
    sources: Sequence[SweepSource],
    request: ProfileRequest,
    streams: Sequence[int],
    threshold_ms: float | None,
    *,
    plugins: Sequence[str],
    machines: Sequence[str],
) -> Sweep:
    """The sweep of one model or two, all of it on one of the machines."""
    files = [open_model(each.source) for each in sources]
    contents = [read_content(each.source) for each in sources]
    order = SweepOrder(
        sides=tuple(
            ClusterSide(content, each.setup)
            for content, each in zip(contents, sources, strict=True)
        ),
        request=WholeRequest.of(request),
        streams=tuple(streams),
        threshold_ms=threshold_ms,
        plugins=tuple(plugins),
    )
    job = Job(
        name=f"sweep of {contents[-1].name}",
        work=sweep_here,
        request=to_text(order),
        models=tuple({each.digest: each for each in contents}.values()),
        machines=tuple(machines),
        cores=max(request.cores),
    )
    swept = from_text(cluster.submit(job).result(), Sweep)
    # The machine has them at other paths.
    facts = [model_facts(file, reads_all=True) for file in files]
    sides = zip(swept.sides, facts, strict=True)
    profile, comparison = swept.profile, swept.comparison
    return replace(
        swept,
        sides=tuple(replace(side, model=own) for side, own in sides),
        profile=None if profile is None else replace(profile, model=facts[-1]),
        comparison=None
        if comparison is None
        else replace(comparison, before=facts[0], after=facts[-1]),
    )
