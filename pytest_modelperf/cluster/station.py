"""The station of a Dask worker: its machine, the models that it receives, and its jobs.

Dask's nanny sets variables for its worker that make glibc return memory immediately, and numeric
libraries use one thread. The measured models would inherit them, and their latency would differ
from that without a cluster.
"""

from __future__ import annotations

import asyncio
import os
import platform
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import dask
import distributed  # noqa: F401  # it adds its settings to those of Dask
from distributed import get_worker
from msgspec import Struct, field

from pytest_modelperf import errors
from pytest_modelperf.cluster.models import (
    DEFAULT_LIMIT_BYTES,
    LIMIT_VARIABLE,
    IncomingModel,
    ModelCache,
    has_content,
)
from pytest_modelperf.cluster.records import (
    AnsweredRemedy,
    JobAnswer,
    JobContext,
    JobOrder,
    Machine,
    Message,
    ModelContent,
    Work,
)
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.comparing.since_recorded import with_builds
from pytest_modelperf.errors import ClusterError, MeasureError, ModelPerfError, Remedy
from pytest_modelperf.files.store import FOLDER_VARIABLE, user_cache_folder
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.version import __version__

_SETTING = "distributed.nanny.pre-spawn-environ"


def none_set() -> AbstractContextManager[object]:
    """Return a context in which new nannies set none of these variables."""
    context: AbstractContextManager[object] = dask.config.set({_SETTING: {}})
    return context


def remove_set(
    worker: Any,  # noqa: ANN401  # a Dask worker
    environment: MutableMapping[str, str] = os.environ,
) -> None:
    """Remove the variables that a nanny has set for this worker, if it has one."""
    if worker.nanny is None:
        return
    for name, value in dask.config.get(_SETTING, {}).items():
        if environment.get(name) == str(value):
            del environment[name]


# Each job takes all of this resource, so that a machine measures one case at a time.
RESOURCE = "modelperf"
# The module that turns a Dask worker into a machine, for the option `--preload`.
PRELOAD_MODULE = f"{__package__}.preload"
TAGS_VARIABLE = "MODELPERF_TAGS"
# After this time without a piece, the transfer of a model is given up.
SILENCE_S = 120.0
_NAME = "modelperf"
_WATCHES = ("profile", "profile-cycle")


class _Arrival(Struct):
    model: IncomingModel
    is_over: threading.Event = field(default_factory=threading.Event)
    has_moved: threading.Event = field(default_factory=threading.Event)
    error: str | None = None


class Station:
    """The state of this package in a Dask worker: its machine, and stored and arriving models."""

    def __init__(self, worker: Any, machine: Machine, cache: ModelCache) -> None:  # noqa: ANN401  # a Dask worker, which has no types
        self.machine = machine
        self._worker = worker
        self._cache = cache
        self._arrivals: dict[str, _Arrival] = {}
        self._cancelled: set[str] = set()

    def install(self) -> None:
        """Add the station to its worker, which accepts jobs from then on."""
        self._worker.extensions[_NAME] = self
        self._worker.handlers["modelperf_put"] = self.put
        self._worker.handlers["modelperf_end"] = self.end
        self._worker.handlers["modelperf_cancel"] = self.cancel
        for resources in (
            self._worker.state.total_resources,
            self._worker.state.available_resources,
        ):
            resources[RESOURCE] = 1.0
        # Dask would profile its own threads 100 times a second, even while a case is measured.
        for name in _WATCHES:
            watch = self._worker.periodic_callbacks.pop(name, None)
            if watch is not None:
                watch.stop()

    def send(self, topic: str, message: Message) -> None:
        self._worker.log_event(topic, to_text(message))

    def is_cancelled(self, key: str) -> bool:
        return key in self._cancelled

    def forget(self, key: str) -> None:
        """Forget that a job was cancelled, once it has ended."""
        self._cancelled.discard(key)

    @contextmanager
    def having(self, content: ModelContent, key: str, topic: str) -> Iterator[Path]:
        """Yield the path of a model on this machine, either the client's own or in the cache."""
        path = Path(content.path)
        if has_content(path, content):
            yield path
            return
        with self._cache.using(content) as kept:
            if kept is not None:
                yield kept
                return
        self._receive(content, key, topic)
        with self._cache.using(content) as kept:
            if kept is None:
                raise MeasureError(
                    f"{printable(content.name)} was removed from the cache of models of "
                    f"{self.machine.label} before it was used: set {LIMIT_VARIABLE} to more bytes."
                )
            yield kept

    def _receive(self, content: ModelContent, key: str, topic: str) -> None:
        try:
            self._await(_Arrival(self._cache.receive(content)), key, topic)
        except OSError as error:
            raise MeasureError(
                f"{self.machine.label} cannot keep models: {printable(str(error))}. Make room "
                f"there, or set {FOLDER_VARIABLE} to another folder."
            ) from error

    def _await(self, arrival: _Arrival, key: str, topic: str) -> None:
        content = arrival.model.content
        self._arrivals[key] = arrival
        try:
            address = self.machine.address
            self.send(topic, Message(key=key, address=address, needs=content.digest))
            while not arrival.is_over.is_set():
                if not arrival.has_moved.wait(SILENCE_S):
                    arrival.error = f"no piece of it came within {SILENCE_S:.0f} s"
                    break
                arrival.has_moved.clear()
            if arrival.error is not None:
                raise MeasureError(
                    f"{printable(content.name)} did not arrive at {self.machine.label}: "
                    f"{arrival.error}."
                )
            arrival.model.keep()
        finally:
            del self._arrivals[key]
            arrival.model.drop()

    async def put(self, key: str, name: str, offset: int, data: bytes) -> str | None:
        """Write a piece of a model that a job waits for. Return an error text if that fails."""
        arrival = self._arrivals.get(key)
        if arrival is None:
            return "no job waits for it any more"
        try:
            await asyncio.to_thread(arrival.model.write, name, offset, data)
        except (OSError, MeasureError) as error:
            return str(error)
        arrival.has_moved.set()
        return None

    async def end(self, key: str, error: str | None) -> None:
        """End the transfer of a model. If it is incomplete, `error` says why."""
        arrival = self._arrivals.get(key)
        if arrival is not None:
            arrival.error = error
            arrival.is_over.set()
            arrival.has_moved.set()

    async def cancel(self, key: str) -> None:
        """Make a job end when it next reports progress."""
        self._cancelled.add(key)
        await self.end(key, "the job was cancelled")


def read_tags(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    tags = [tag.strip() for tag in environment.get(TAGS_VARIABLE, "").split(",")]
    return tuple(dict.fromkeys(tag for tag in tags if tag))


def read_limit(environment: Mapping[str, str] = os.environ) -> int:
    """Read the limit of the model cache, or raise ClusterError if it is not a number of bytes."""
    limit = environment.get(LIMIT_VARIABLE, "")
    if limit and not limit.isdecimal():
        raise ClusterError(f"{LIMIT_VARIABLE} is a number of bytes, not {printable(limit)!r}.")
    return int(limit or DEFAULT_LIMIT_BYTES)


def make_station(worker: Any, environment: Mapping[str, str] = os.environ) -> Station:  # noqa: ANN401  # a Dask worker
    """Make the station of a Dask worker, or raise ClusterError if it has several threads."""
    if worker.state.nthreads != 1:
        raise ClusterError(
            f"this Dask worker has {worker.state.nthreads} threads, and a machine measures one "
            "case at a time: start it with --nthreads 1, once on each machine."
        )
    facts = describe_machine()
    machine = Machine(
        # Behind a router, its public address differs from the one that it listens at.
        address=worker.contact_address or worker.address,
        host=platform.node() or worker.address,
        key=facts.key,
        tags=read_tags(environment),
        versions=with_builds(facts.packages),
        cores=facts.usable_cores,
    )
    folder = user_cache_folder(environment) / "models"
    return Station(worker, machine, ModelCache(folder, read_limit(environment)))


def station_of(worker: Any) -> Station | None:  # noqa: ANN401  # a Dask worker
    """Return the station of a Dask worker, or None if it was started without one."""
    found = worker.extensions.get(_NAME)
    return found if isinstance(found, Station) else None


# -- a job on the machine that carries it out


# People cannot read progress faster than this.
_BETWEEN_MESSAGES_S = 0.5


# The error classes that can be made from a message alone.
_KINDS: Mapping[str | None, type[ModelPerfError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type)
    and issubclass(kind, ModelPerfError)
    and kind.__init__ is ModelPerfError.__init__
}


class _Cancelled(Exception):  # noqa: N818  # not an error: the client no longer waits for the job
    pass


def run_job(order: str) -> str:
    """Run an order and return the answer, both as JSON. Errors are returned as answers too."""
    job = from_text(order, JobOrder)
    station = station_of(get_worker())
    if station is None:
        return _failed(ClusterError("a Dask worker without our preload module was given a job."))
    try:
        return to_text(JobAnswer(text=_carry_out(job, station)))
    except ModelPerfError as error:
        return _failed(error)
    except _Cancelled:
        return _failed(MeasureError("the job was cancelled."))
    except Exception:  # noqa: BLE001  # a fault ends one job and says where it was
        return _failed(
            MeasureError(f"a fault on {station.machine.label}:\n{traceback.format_exc()}")
        )
    finally:
        station.forget(job.key)


def name_of_work(work: Work) -> str:
    """Return the name under which a machine finds a function."""
    name = f"{work.__module__}:{work.__qualname__}"
    if "<" in name:
        raise ValueError(f"{name} is not a top-level function of a module")
    return name


def _carry_out(order: JobOrder, station: Station) -> str:
    machine = station.machine
    if station.is_cancelled(order.key):
        raise _Cancelled
    if order.version != __version__:
        raise ClusterError(
            f"{machine.label} has pytest-modelperf {__version__}, and this is {order.version}: "
            "install the same version on both."
        )
    station.send(order.topic, Message(key=order.key, address=machine.address))
    with ExitStack() as stack:
        paths = {
            model.digest: stack.enter_context(station.having(model, order.key, order.topic))
            for model in order.models
        }
        work: Work = resolve_name(order.work)
        return work(order.request, JobContext(paths, _Watch(order, station)))


class _Watch:
    """The callback that reports the progress of a job, and ends it if it was cancelled."""

    def __init__(self, order: JobOrder, station: Station) -> None:
        self._order = order
        self._station = station
        self._sent = float("-inf")

    def __call__(self, progress: Progress) -> None:
        order, station = self._order, self._station
        if station.is_cancelled(order.key):
            raise _Cancelled
        now = time.monotonic()
        if now - self._sent >= _BETWEEN_MESSAGES_S:
            self._sent = now
            address = station.machine.address
            station.send(order.topic, Message(key=order.key, address=address, progress=progress))


def _failed(error: ModelPerfError) -> str:
    remedy = error.remedy
    return to_text(
        JobAnswer(
            error=type(error).__name__,
            message=error.message,
            details=error.details,
            remedy=None
            if remedy is None
            else AnsweredRemedy(text=remedy.text, dims=remedy.dims, values=remedy.values),
        )
    )


def error_of(answer: JobAnswer) -> ModelPerfError:
    """Return the error in an answer, with the class that it had on the machine."""
    given = answer.remedy
    remedy = None if given is None else Remedy(given.text, dims=given.dims, **given.values)
    error = _KINDS.get(answer.error, MeasureError)(answer.message, remedy)
    error.details = answer.details
    return error
