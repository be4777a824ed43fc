"""Running jobs: each waits for its turn, is submitted to Dask, and runs again if it is lost.

All of this runs in the event loop of the Dask client, so it needs no locks.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from distributed import CancelledError, KilledWorker
from msgspec import Struct

from pytest_modelperf.cluster.machines import (
    JobTurns,
    describe_station,
    find_missing_modules,
    no_machine,
    read_machines,
    require_equal_versions,
    require_modules,
)
from pytest_modelperf.cluster.models import Sender
from pytest_modelperf.cluster.records import (
    ClusterStatus,
    Job,
    JobAnswer,
    JobOrder,
    Machine,
    Message,
    NeededSoftware,
    OnChange,
    OnWarning,
    RunningJob,
    fitting_machines,
)
from pytest_modelperf.cluster.station import RESOURCE, error_of, name_of_work, run_job
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.comparing.since_recorded import with_builds
from pytest_modelperf.errors import (
    ClusterError,
    EngineError,
    EngineOptionError,
    MeasureError,
    ModelPerfError,
)
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.version import __version__
from pytest_modelperf.text.words import shorten_list

# A job runs on a second machine if the first is lost, but not on a third.
_MOST_LOSSES = 2
# A machine may also be lost while a job only waits there, and the job is not the cause.
_MOST_TRIES = 6
# How often a machine that joined is asked for its description.
_MOST_ASKED = 3
# The most machines that one message names.
_MOST_NAMED = 10
# The time before the user is warned of a silent machine. Dask decides when it is lost.
_QUIET_S = 10.0
_SILENT = (
    "a worker of {} does not say what machine it is. The run waits until it answers, or Dask "
    "considers it lost, after `distributed.scheduler.worker-ttl`: end it if it hangs."
)
# Dask announces there which workers join and leave.
_SCHEDULER_TOPIC = "all"
# How long to wait for an event of our own to come back, and how many to send.
_HEARD_S = 0.05
_MOST_SENT = 40
# The time limit for the last messages to machines.
_STOP_S = 10.0


class _MachineLostError(Exception):
    """The machine of a job is lost. Without an address, all machines for the job have left."""

    def __init__(self, address: str | None, *, has_begun: bool = False) -> None:
        super().__init__(address)
        self.address = address
        self.has_begun = has_begun


class _RefusedError(Exception):
    """A machine that cannot run the engine of a job, or does not accept its options."""

    def __init__(self, address: str, error: ModelPerfError) -> None:
        super().__init__(address)
        self.address = address
        self.error = error


class _Running(Struct):
    """A job that was submitted to Dask. `address` is None until the job has begun."""

    job: Job
    allowed: Sequence[str]
    address: str | None = None
    progress: Progress | None = None
    answer: asyncio.Future[str] | None = None
    is_stranded: bool = False


class Runner:
    """The jobs of one client of a cluster, and the machines that it knows."""

    def __init__(
        self,
        client: Any,  # noqa: ANN401  # a Dask client
        cluster: str,
        on_change: OnChange,
        patience_s: float,
        on_warning: OnWarning = lambda _: None,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._on_change = on_change
        self._on_warning = on_warning
        self._warned: set[str] = set()
        self._topic = f"modelperf-{client.id}"
        self._numbers = itertools.count(1)
        self._machines: dict[str, Machine] = {}
        self._demands: list[NeededSoftware] = []
        # The addresses of machines that left: one may leave while it is asked for its description.
        self._left: set[str] = set()
        # Includes machines that are gone, because messages name them.
        self._known: dict[str, Machine] = {}
        self._running: dict[str, _Running] = {}
        self._submitted = self._ended = 0
        self._sender = Sender(client)
        self._turns = JobTurns(self._describe_lack, patience_s)
        self._background: set[asyncio.Task[None]] = set()
        self._jobs: set[asyncio.Task[Any] | None] = set()
        self._gone: ClusterError | None = None

    @property
    def machines(self) -> tuple[Machine, ...]:
        return tuple(self._machines.values())

    @property
    def is_gone(self) -> bool:
        """Whether the scheduler has vanished, so that no job can end any more."""
        return self._gone is not None

    @property
    def status(self) -> ClusterStatus:
        # Copied first, because other threads call this while jobs come and go.
        jobs = tuple(self._running.values())
        running = tuple(
            RunningJob(each.job.name, self._known[each.address], each.progress)
            for each in jobs
            if each.address in self._known
        )
        waiting = self._submitted - self._ended - len(running)
        return ClusterStatus(waiting, self._ended, running)

    async def start(self) -> None:
        """Find the machines, and subscribe to news of those that join and leave."""
        self._client.subscribe_topic(_SCHEDULER_TOPIC, self._on_scheduler_event)
        self._client.subscribe_topic(self._topic, self._on_message)
        await self._hear_scheduler()
        await self._find_machines(None)

    async def _hear_scheduler(self) -> None:
        """Wait until the scheduler reports new machines to this client.

        It never reports machines that joined before. It receives subscriptions in order, without
        confirming them. So when an event of our own comes back, all of them are active. After two
        seconds without one, the wait ends.
        """
        is_heard, own = asyncio.Event(), f"{self._topic}-heard"
        self._client.subscribe_topic(own, lambda _: is_heard.set())
        for _ in range(_MOST_SENT):
            await self._client.log_event(own, "")
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(is_heard.wait(), _HEARD_S)
                break
        self._client.unsubscribe_topic(own)

    async def demand(self, demand: NeededSoftware) -> None:
        """Raise ClusterError for a machine with other software. Later ones get no jobs."""
        # Append it first, because a machine may join while the others answer.
        self._demands.append(demand)
        await self._require(demand, self.machines)

    async def _require(self, demand: NeededSoftware, machines: Sequence[Machine]) -> None:
        used = [machine for machine in machines if demand.concerns(machine)]
        ours = with_builds(describe_machine().packages)
        require_equal_versions(used, ours, demand.engine)
        if used and demand.modules:
            addresses = [machine.address for machine in used]
            answers = await self._client.run(
                find_missing_modules, demand.modules, workers=addresses, on_error="ignore"
            )
            require_modules(used, answers)

    async def stop(self) -> None:
        """Wait for background tasks and cancelled jobs to send their last messages, then stop."""
        left = [*self._background, *(task for task in self._jobs if task is not None)]
        if left:
            await asyncio.wait(left, timeout=_STOP_S)
        self._turns.end(ClusterError("the cluster was closed."))
        for topic in (_SCHEDULER_TOPIC, self._topic):
            self._client.unsubscribe_topic(topic)
        for task in self._background:
            task.cancel()

    async def carry_out(self, job: Job) -> str:
        """Run a job and return its text, or raise MeasureError if its machines are lost."""
        self._submitted += 1
        task = asyncio.current_task()
        self._jobs.add(task)
        try:
            return await self._carry_out(job)
        finally:
            self._jobs.discard(task)
            self._ended += 1
            self._report_status()

    async def _carry_out(self, job: Job) -> str:
        lost: list[str] = []
        for _ in range(_MOST_TRIES):
            async with self._turns.turn(job.machines, job.cores):
                try:
                    return await self._run_where_able(job, lost)
                except _MachineLostError as error:
                    if error.address is not None:
                        self._forget_machine(error.address)
                        if error.has_begun:
                            lost.append(error.address)
            if len(lost) == _MOST_LOSSES:
                break
        raise MeasureError(self._describe_loss(job, lost))

    async def _run_where_able(self, job: Job, lost: Sequence[str]) -> str:
        """Try to run a job once. A machine that cannot run its engine leaves it to the others."""
        refusals: dict[str, ModelPerfError] = {}
        allowed = self._allowed(job, lost)
        while True:
            try:
                text = await self._run(job, allowed)
            except _RefusedError as refused:  # noqa: PERF203  # a job takes seconds
                refusals[refused.address] = refused.error
                allowed = [each for each in self._allowed(job, lost) if each not in refusals]
                if not allowed:
                    raise self._with_machines(refused.error, refusals) from refused
            else:
                for address, error in refusals.items():
                    self._warn(f"{self._label_of(address)} left its cases to others: {error}")
                return text

    async def _run(self, job: Job, allowed: Sequence[str]) -> str:
        if self._gone is not None:
            raise self._gone
        if not allowed:
            # All machines left after the job got its turn. Dask would take any machine.
            raise _MachineLostError(None)
        key = f"modelperf-{self._client.id}-{next(self._numbers)}"
        running = self._running[key] = _Running(job, allowed)
        try:
            return await self._answer(running, key)
        finally:
            del self._running[key]

    async def _answer(self, running: _Running, key: str) -> str:
        job = running.job
        order = JobOrder(
            key=key,
            topic=self._topic,
            work=name_of_work(job.work),
            request=job.request,
            models=job.models,
            version=__version__,
        )
        future = self._client.submit(
            *task_of(order), key=key, pure=False, resources={RESOURCE: 1}, workers=running.allowed
        )
        running.answer = asyncio.ensure_future(_answer_of(future))
        try:
            answer = from_text(await running.answer, JobAnswer)
        except KilledWorker as error:
            lost = error.last_worker.address
            raise _MachineLostError(lost, has_begun=running.address == lost) from error
        except CancelledError as error:
            raise self._without_scheduler() from error
        except asyncio.CancelledError:
            await _unless_gone(self._cancel(future, key))
            if running.is_stranded:
                raise _MachineLostError(None) from None
            raise
        finally:
            future.release()
        if answer.text is not None:
            return answer.text
        failure = error_of(answer)
        if isinstance(failure, EngineError | EngineOptionError) and running.address in self._known:
            raise _RefusedError(running.address, failure)
        raise failure

    def _allowed(self, job: Job, lost: Sequence[str]) -> list[str]:
        """Return the addresses where a job may run.

        After a loss, it goes to another machine, or to the same one if there is no other. Even a
        job for any machine gets addresses: without them, Dask would move a waiting job to a machine
        that joins later, which may have other software.
        """
        fitting = fitting_machines(self._machines.values(), job.machines, job.cores)
        lost_hosts = {self._known[address].host for address in lost}
        others = [m for m in fitting if m.host not in lost_hosts]
        return [m.address for m in others or fitting]

    async def _cancel(self, future: Any, key: str) -> None:  # noqa: ANN401  # a Dask future
        address = self._running[key].address
        await future.cancel()
        if address is not None:
            # Dask cannot stop a thread, so the job ends itself when it next reports progress.
            await self._sender.ask(address, "modelperf_cancel", key=key)

    # -- messages from machines and the scheduler

    def _on_message(self, event: tuple[float, str]) -> None:
        message = from_text(event[1], Message)
        running = self._running.get(message.key)
        if running is None:
            # It began before it received the message that cancels it.
            self._begin(self._sender.ask(message.address, "modelperf_cancel", key=message.key))
            return
        running.address = message.address
        if message.needs is not None:
            model = next(m for m in running.job.models if m.digest == message.needs)
            self._begin(self._sender.send(model, message.address, message.key))
        elif message.progress is not None:
            running.progress = message.progress
        self._report_status()

    def _on_scheduler_event(self, event: tuple[float, Any]) -> None:
        news = event[1]
        action = news.get("action") if isinstance(news, dict) else None
        if action == "add-worker":
            self._left.discard(news["worker"])
            self._begin(self._find_machines([news["worker"]]))
        elif action == "remove-worker" and "worker" in news:
            self._left.add(news["worker"])
            self._forget_machine(news["worker"], has_left=bool(news.get("expected")))

    async def _find_machines(self, addresses: list[str] | None, tries: int = _MOST_ASKED) -> None:
        loop = asyncio.get_running_loop()
        warning = loop.call_later(_QUIET_S, self._warn, _SILENT.format(printable(self._cluster)))
        try:
            answers = await self._client.run(describe_station, workers=addresses, on_error="return")
        finally:
            warning.cancel()
        # A busy network may lose an answer, so ask that machine again.
        silent = [each for each, answer in answers.items() if isinstance(answer, OSError)]
        for address in silent if tries > 1 else ():
            self._begin(self._find_machines([address], tries - 1))
        for machine in read_machines(answers):
            # At the start there are no demands yet, so this concerns only machines that join later.
            for demand in self._demands:
                await self._require(demand, [machine])
            if machine.address not in self._left:
                self._machines[machine.address] = self._known[machine.address] = machine
        self._turns.set_machines(self.machines)
        self._report_status()

    def _forget_machine(self, address: str, *, has_left: bool = False) -> None:
        """Forget a lost machine. Dask ends its jobs, unless the machine was closed properly."""
        self._machines.pop(address, None)
        for running in self._running.values():
            # A job that has not begun may have reached Dask after the machine was gone.
            if has_left or running.address != address:
                self._free_if_stranded(running)
        self._turns.set_machines(self.machines)
        self._report_status()

    def _free_if_stranded(self, running: _Running) -> None:
        """Take back a job that Dask would keep until a machine with the same address joins."""
        if self._machines.keys().isdisjoint(running.allowed) and running.answer is not None:
            running.is_stranded = True
            running.answer.cancel()

    def _begin(self, coroutine: Any) -> None:  # noqa: ANN401  # a coroutine of any kind
        """Start a background task, and keep a reference so that it is not garbage-collected."""
        task = asyncio.ensure_future(self._warning_of_misfits(coroutine))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _warning_of_misfits(self, coroutine: Any) -> None:  # noqa: ANN401  # likewise
        try:
            await _unless_gone(coroutine)
        except ClusterError as error:
            self._warn(f"a machine that joined gets no jobs: {error} Then start its worker again.")

    # -- what is reported

    def _warn(self, text: str) -> None:
        """Warn the user once per text, because a crashing worker joins again and again."""
        if text not in self._warned:
            self._warned.add(text)
            self._on_warning(text)

    def _without_scheduler(self) -> ClusterError:
        """Make the error of a job that the scheduler lost. If the scheduler is gone, end all."""
        error = ClusterError(
            f"the scheduler at {printable(self._cluster)} is gone. What ended before is kept; "
            "start it again and run the rest."
        )
        if self._client.status != "running":
            self._gone = error
            self._turns.end(error)
        return error

    def _report_status(self) -> None:
        self._on_change(self.status)

    def _describe_lack(self, names: Sequence[str]) -> ModelPerfError:
        return ClusterError(no_machine(self.machines, names, self._cluster))

    def _label_of(self, address: str) -> str:
        return printable(self._known[address].label)

    def _with_machines(
        self, error: ModelPerfError, refusals: Mapping[str, ModelPerfError]
    ) -> ModelPerfError:
        """Add the machines that refused a job to the error, with the other errors they gave."""
        labels = shorten_list(sorted(map(self._label_of, refusals)), _MOST_NAMED)
        others = {str(each): address for address, each in refusals.items()}
        del others[str(error)]
        error.details = (
            *error.details,
            f"Every machine that may run it was asked: {labels}.",
            *(f"{self._label_of(address)} said: {text}" for text, address in others.items()),
        )
        return error

    def _describe_loss(self, job: Job, lost: Sequence[str]) -> str:
        labels = " and then ".join(map(self._label_of, lost))
        names = labels or "each machine that it waited on"
        return (
            f"{printable(job.name)} was not measured: {names} was lost while it ran. A model that "
            "takes all memory of a machine can do that; look at the log of the Dask worker there."
        )


def task_of(order: JobOrder) -> tuple[Callable[..., Any], str, dict[str, str]]:
    """Return the function that Dask runs on a machine, and its arguments.

    The scheduler reads the tasks that pass through it, and may lack this package, so a task must
    not refer to this package. A task must not contain code, because code of another version of
    Python can crash a machine.
    """
    module = run_job.__module__
    return eval, f"__import__({module!r}, fromlist=['']).run_job(order)", {"order": to_text(order)}


async def _answer_of(future: Any) -> str:  # noqa: ANN401  # a Dask future
    answer: str = await future
    return answer


async def _unless_gone(coroutine: Any) -> None:  # noqa: ANN401  # a coroutine of any kind
    """Await a coroutine, and ignore that its receiver is gone, because the jobs notice that."""
    with suppress(OSError):
        await coroutine
