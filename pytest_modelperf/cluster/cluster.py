"""A cluster for the rest of the package: its machines, and the jobs and requests that it runs.

Requests are sent with digests in place of models.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.cluster.machines import PATIENCE_S, require_machines
from pytest_modelperf.cluster.models import read_content
from pytest_modelperf.cluster.places import parse_place
from pytest_modelperf.cluster.records import (
    ClusterStatus,
    Job,
    JobContext,
    Machine,
    ModelContent,
    NeededSoftware,
    OnChange,
    OnWarning,
    fitting_machines,
)
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.comparing.records import Comparison
from pytest_modelperf.comparing.request import CompareRequest
from pytest_modelperf.errors import ClusterError, MeasureError, ModelPerfError, UsageError
from pytest_modelperf.graph.model_file import ModelSource
from pytest_modelperf.profiler.hookspecs import load_extensions
from pytest_modelperf.profiler.inputs.dim_sizes import PairedSizes
from pytest_modelperf.profiler.model_request import ModelRun, SentRequest, SharedRequest
from pytest_modelperf.profiler.request import ProfileRequest

if TYPE_CHECKING:
    from pytest_modelperf.cluster.runner import Runner


class Cluster:
    """A connected cluster. Any thread may submit jobs to it."""

    def __init__(self, name: str, client: Any, runner: Runner) -> None:  # noqa: ANN401  # a Dask client
        self.name = name
        self._client = client
        self._runner = runner
        self._futures: set[Future[str]] = set()
        self._lock = threading.Lock()

    @property
    def machines(self) -> tuple[Machine, ...]:
        return self._runner.machines

    @property
    def status(self) -> ClusterStatus:
        return self._runner.status

    @property
    def is_gone(self) -> bool:
        """Whether the scheduler is gone, so that jobs can no longer end."""
        return self._runner.is_gone

    def require(
        self,
        wanted: Iterable[Collection[str]],
        engine: str | None = None,
        modules: Sequence[str] = (),
    ) -> None:
        """Raise ClusterError if a set of names matches no machine, or if software differs.

        `modules` have the hooks of extensions, and every machine needs to import them. A machine
        that joins later with other software gets no jobs.
        """
        demand = NeededSoftware(wanted=tuple(wanted), engine=engine, modules=tuple(modules))
        require_machines(self.machines, demand.wanted, self.name)
        self._client.sync(self._runner.demand, demand)

    def submit(self, job: Job) -> Future[str]:
        """Submit a job, and return a future of the text that its work returns.

        The future raises a ModelPerfError if the job fails. Cancelling it ends the job, at the
        latest after the current round.
        """
        loop = self._client.loop.asyncio_loop
        future = asyncio.run_coroutine_threadsafe(self._runner.carry_out(job), loop)
        with self._lock:
            self._futures.add(future)
        future.add_done_callback(self._forget)
        return future

    def cancel_all(self) -> None:
        with self._lock:
            futures = list(self._futures)
        for future in futures:
            future.cancel()

    def _forget(self, future: Future[str]) -> None:
        with self._lock:
            self._futures.discard(future)


@contextmanager
def open_cluster(
    text: str,
    on_change: OnChange = lambda _: None,
    *,
    on_warning: OnWarning = lambda _: None,
    timeout_s: float | None = None,
    patience_s: float = PATIENCE_S,
) -> Iterator[Cluster]:
    """Connect to the cluster at an address or in a scheduler file, or start `local:4` workers.

    Leaving the context cancels all unfinished jobs. `on_change` is called with the status of the
    jobs, in another thread. `on_warning` is called once for each reason not to use a machine. A
    job whose last machine has left waits `patience_s` for another.
    """
    place = parse_place(text)

    from pytest_modelperf.cluster.connection import connected

    with connected(place, timeout_s) as client:
        runner = client.sync(_make_runner, client, text, on_change, patience_s, on_warning)
        cluster = Cluster(text, client, runner)
        try:
            yield cluster
        finally:
            cluster.cancel_all()
            client.sync(runner.stop)


async def _make_runner(
    client: Any,  # noqa: ANN401  # a Dask client
    name: str,
    on_change: OnChange,
    patience_s: float,
    on_warning: OnWarning,
) -> Runner:
    from pytest_modelperf.cluster.runner import Runner

    runner = Runner(client, name, on_change, patience_s, on_warning)
    await runner.start()
    return runner


_Result = TypeVar("_Result")


class RequestText(Struct, frozen=True, kw_only=True):
    """A request to be sent: the name of its class, and its fields as JSON.

    `has_paired_sizes` is needed because JSON does not distinguish paired sizes from others.
    `plugins` are the modules of extensions.
    """

    kind: str
    text: str
    has_paired_sizes: bool
    plugins: tuple[str, ...]


def run_on_cluster(
    cluster: Cluster,
    request: SharedRequest[_Result],
    *,
    plugins: Sequence[str],
    machines: Sequence[str],
) -> _Result:
    """Run each part of a request on one of the machines, and return the whole result."""
    parts, read = request.split(load_extensions(plugins)), cache(read_content)
    jobs = [
        request_job(part, title, plugins=plugins, machines=machines, read=read)
        for title, part in parts.requests
    ]
    futures = [cluster.submit(job) for job in jobs]
    return parts.join([_result_or_error(future, parts.kind) for future in futures])


def _result_or_error(future: Future[str], kind: type[_Result]) -> _Result | ModelPerfError:
    try:
        return from_text(future.result(), kind)
    except (ClusterError, MeasureError) as error:
        return error


def duets_on_one_kind(
    cluster: Cluster, request: ProfileRequest, plugins: Sequence[str], machines: Sequence[str]
) -> Callable[[CompareRequest, object], Comparison]:
    """Return a function that runs each comparison of a search on the same kind of machine.

    Ratios from different kinds of machines cannot be combined.
    """
    kind = fitting_machines(cluster.machines, machines, max(request.cores))[0].key
    names = tuple(f"{name}+{kind}" for name in machines) or (kind,)

    def run_duet(duet: CompareRequest, _: object) -> Comparison:
        part = replace(duet, names_machine=True)
        job = request_job(part, "case 1 of 1", plugins=plugins, machines=names)
        job = replace(job, name=f"{job.models[-1].name} {job.name}")
        return from_text(cluster.submit(job).result(), Comparison)

    return run_duet


def request_job(
    request: SentRequest[Any],
    title: str,
    *,
    plugins: Sequence[str],
    machines: Sequence[str],
    read: Callable[[Any], ModelContent] = read_content,
) -> Job:
    """Make the job that runs a whole request on one of the machines.

    Raise UsageError for a function that makes inputs, which cannot be sent.
    """
    given = request.request.given
    if given is not None and given.function is not None:
        raise UsageError(
            f"{given.source} makes inputs here, and a cluster takes arrays: save what it returns "
            "with numpy.savez and give the .npz file."
        )
    contents: dict[str, ModelContent] = {}

    def digest_of(source: ModelSource) -> str:
        content = read(source)
        contents[content.digest] = content
        return content.digest

    kind = type(request)
    sent = RequestText(
        kind=f"{kind.__module__}:{kind.__qualname__}",
        text=to_text(_with_sources(request, digest_of)),
        has_paired_sizes=isinstance(request.request.dims, PairedSizes),
        plugins=tuple(plugins),
    )
    return Job(
        name=title,
        work=run_request,
        request=to_text(sent),
        models=tuple(contents.values()),
        machines=tuple(machines),
        cores=max(request.request.cores),
    )


def run_request(text: str, context: JobContext) -> str:
    """Run a request on this machine, as the work of a job, and return its result as JSON."""
    sent = from_text(text, RequestText)
    request = from_text(sent.text, resolve_name(sent.kind))
    request = _with_sources(request, context.paths.__getitem__)
    if sent.has_paired_sizes:
        paired = replace(request.request, dims=PairedSizes(request.request.dims))
        request = replace(request, request=paired)
    return to_text(request.run(load_extensions(sent.plugins), context.watch))


def _with_sources(request: Any, source_of: Callable[[Any], object]) -> Any:  # noqa: ANN401  # of any class
    def changed(value: object) -> object:
        if isinstance(value, ModelRun):
            return replace(value, source=source_of(value.source))
        return tuple(map(changed, value)) if isinstance(value, tuple) else value

    names = request.__struct_fields__
    return replace(request, **{name: changed(getattr(request, name)) for name in names})
