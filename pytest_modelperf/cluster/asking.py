"""A what-if on one machine of a cluster, because its levels run in turn and are compared."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.cluster.cluster import Cluster
from pytest_modelperf.cluster.contents import read_content
from pytest_modelperf.cluster.records import Job, JobContext
from pytest_modelperf.cluster.requests import WholeRequest
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import load_extensions
from pytest_modelperf.profiler.request import ProfileRequest, model_facts
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.whatif.records import Variant, WhatIf
from pytest_modelperf.whatif.speedups import check_variants
from pytest_modelperf.whatif.variants import ask_what_if


class WhatIfOrder(Struct, frozen=True, kw_only=True):
    """A what-if of a model, which is named by its digest."""

    model: str
    request: WholeRequest
    setup: Setup
    variants: tuple[Variant, ...]
    estimates: tuple[float, ...]
    plugins: tuple[str, ...]


def ask_here(request: str, context: JobContext) -> str:
    """The what-if, with its variants made and measured here: the work of a job."""
    order = from_text(request, WhatIfOrder)
    extensions = load_extensions(order.plugins)
    found = ask_what_if(
        context.paths[order.model],
        order.request.to_request(),
        order.setup,
        order.variants,
        order.estimates,
        extensions,
        context.watch,
    )
    return to_text(found)


def ask_on_cluster(  # noqa: PLR0913  # a model, what of it, its variants, with what, and where
    cluster: Cluster,
    path: str | os.PathLike[str],
    request: ProfileRequest,
    setup: Setup,
    variants: Sequence[Variant],
    *,
    estimates: Sequence[float],
    plugins: Sequence[str],
    machines: Sequence[str],
) -> WhatIf:
    """Every variant of a model at every case, all of it on one of the machines."""
    check_variants(variants, estimates)
    file, content = open_model(path), read_content(path)
    order = WhatIfOrder(
        model=content.digest,
        request=WholeRequest.of(request),
        setup=setup,
        variants=tuple(variants),
        estimates=tuple(estimates),
        plugins=tuple(plugins),
    )
    job = Job(
        name=f"what-if of {content.name}",
        work=ask_here,
        request=to_text(order),
        models=(content,),
        machines=tuple(machines),
        cores=max(request.cores),
    )
    found = from_text(cluster.submit(job).result(), WhatIf)
    # The machine has it at another path.
    return replace(found, model=model_facts(file, reads_all=True))
