"""A cluster as the rest of the program uses it: its machines, and the jobs it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pytest_modelperf.cluster.machines import require_machines
from pytest_modelperf.cluster.places import parse_place
from pytest_modelperf.cluster.records import (
    ClusterStatus,
    Job,
    Machine,
    NeededSoftware,
    OnChange,
    OnWarning,
)
from pytest_modelperf.cluster.turns import PATIENCE_S

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
        """The machines that are available now."""
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
        """Cancel all jobs that have not ended."""
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
