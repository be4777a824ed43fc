"""A bisect whose duets run on machines of one kind of a cluster, each duet on one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from msgspec.structs import replace

from pytest_modelperf.bisect.records import Version
from pytest_modelperf.bisect.search import Question
from pytest_modelperf.bisect.version_duets import (
    BisectRequest,
    CompareVersions,
    OpenSide,
    details_of,
    gate_for,
    setup_at,
    telling,
)
from pytest_modelperf.cluster.cluster import Cluster
from pytest_modelperf.cluster.comparing import ClusterSide, comparison_jobs
from pytest_modelperf.cluster.contents import read_content
from pytest_modelperf.cluster.records import fitting_machines
from pytest_modelperf.cluster.wire import from_text
from pytest_modelperf.comparing.records import Comparison
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.sampling.setup import Setup

# The side of a version; its files, which are sent, last as long as the context.
OpenClusterSide: TypeAlias = Callable[
    [Version, Callable[[str], None]], AbstractContextManager[ClusterSide]
]


def compare_versions_on_cluster(
    cluster: Cluster,
    asked: BisectRequest,
    open_side: OpenClusterSide,
    *,
    plugins: Sequence[str],
    machines: Sequence[str],
) -> CompareVersions:
    """Compares two versions by a duet on a machine, and all of them on one kind of machine.

    Ratios of different kinds of machines are no answers to one question.
    """
    kind = fitting_machines(cluster.machines, machines, max(asked.request.cores))[0].key
    names = tuple(f"{name}+{kind}" for name in machines) or (kind,)

    def compare(question: Question, watch: Watch) -> Comparison:
        tell = telling(watch)
        with open_side(question.good, tell) as good, open_side(question.other, tell) as other:
            before, after = (
                replace(side, setup=setup_at(side.setup, question.attempt))
                for side in (good, other)
            )
            (job,) = comparison_jobs(
                before,
                after,
                asked.request,
                gate_for(question, after.setup),
                details=details_of(question),
                plugins=plugins,
                machines=names,
            )
            return from_text(cluster.submit(job).result(), Comparison)

    return compare


def releases_on_cluster(model: str, package: str, setup: Setup) -> OpenClusterSide:
    """The model on a release of its engine, in an environment that the machine makes."""
    content = read_content(model)

    @contextmanager
    def open_side(version: Version, tell: Callable[[str], None]) -> Iterator[ClusterSide]:  # noqa: ARG001  # as all
        yield ClusterSide(content, setup, (f"{package}=={version.name}",))

    return open_side


def commits_on_cluster(open_here: OpenSide) -> OpenClusterSide:
    """The model as it was in a commit, taken from git here and sent."""

    @contextmanager
    def open_side(version: Version, tell: Callable[[str], None]) -> Iterator[ClusterSide]:
        with open_here(version, tell) as side:
            yield ClusterSide(read_content(side.source), side.setup)

    return open_side
