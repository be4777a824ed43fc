"""The connection to a scheduler: of a Dask client, of local workers, and of a machine."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

import distributed
import tornado.ioloop
from distributed import Nanny
from distributed.comm.addressing import get_address_host, unparse_host_port
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.utils import get_ip
from distributed.versions import VersionMismatchWarning
from tornado.iostream import BaseIOStream

from pytest_modelperf.cluster.places import ClusterPlace, parse_place, scheduler_address
from pytest_modelperf.cluster.station import PRELOAD_MODULE, TAGS_VARIABLE, none_set, read_limit
from pytest_modelperf.errors import ClusterError, UsageError
from pytest_modelperf.systems.files import FILES
from pytest_modelperf.text.escaping import printable

_LOCAL_START_S = 60.0


@contextmanager
def connected(place: ClusterPlace, timeout_s: float | None = None) -> Iterator[Any]:
    """Yield a Dask client, or raise ClusterError if no scheduler answers.

    All processes are ended on exit. Without a timeout, the one in Dask's configuration applies.
    """
    with ExitStack() as stack:
        scheduler: dict[str, object] = {"address": place.address}
        if place.scheduler_file is not None:
            scheduler = {"scheduler_file": str(place.scheduler_file)}
        if place.local_workers is not None:
            scheduler = {"address": stack.enter_context(_local_workers(place.local_workers))}
        loop = stack.enter_context(_running_loop())
        client = stack.enter_context(_client({**scheduler, "loop": loop}, place, timeout_s))
        if place.local_workers is not None:
            try:
                client.wait_for_workers(place.local_workers, timeout=_LOCAL_START_S)
            except asyncio.TimeoutError as error:
                raise no_local_workers(place.local_workers, error) from error
        else:
            versions = client.sync(client.scheduler.versions)
            require_our_python(str(versions["host"]["python"]), place)
        client.register_plugin(_no_second_run())
        yield client


@contextmanager
def _running_loop() -> Iterator[tornado.ioloop.IOLoop]:
    """Run an event loop in a thread of its own.

    Dask would start one too. But Dask never ends it if a client cannot connect, and waits for it
    while it holds a lock that the garbage collector may need in that very thread.
    """
    running: Future[tuple[tornado.ioloop.IOLoop, asyncio.Event]] = Future()

    async def run() -> None:
        stopped = asyncio.Event()
        loop = tornado.ioloop.IOLoop.current()
        running.set_result((loop, stopped))
        await stopped.wait()
        await _cancel_others()
        _close_streams(loop)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="cluster", daemon=True)
    thread.start()
    loop, stopped = running.result()
    try:
        yield loop
    finally:
        loop.add_callback(stopped.set)
        thread.join()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _close_streams(loop: tornado.ioloop.IOLoop) -> None:
    """Close the sockets of connections that were cancelled while connecting.

    With Python 3.10, tornado leaves them open until its next loop collects this one as garbage.
    """
    for _, handler in list(loop.handlers.values()):  # type: ignore[attr-defined]  # asyncio's has
        stream = getattr(handler, "__self__", None)
        if isinstance(stream, BaseIOStream):
            stream.close()


@contextmanager
def _local_workers(count: int) -> Iterator[Any]:
    """Start workers on this machine. The machine's lock makes them measure in turn."""
    # Check the limit now. Dask would only log a wrong one, and start workers without a station.
    read_limit()
    # Their nannies run in this process, and would set the variables here too.
    try:
        with none_set():
            cluster = distributed.LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                # A separate process loads the model, and Dask does not watch its memory.
                memory_limit=None,
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                preload=[PRELOAD_MODULE],
                silence_logs=logging.CRITICAL,
            )
    except (OSError, RuntimeError, asyncio.TimeoutError) as error:
        raise no_local_workers(count, error) from error
    with cluster:
        yield cluster


@contextmanager
def _client(
    scheduler: dict[str, object], place: ClusterPlace, timeout_s: float | None
) -> Iterator[Any]:
    # Made without __init__, to close it here if it cannot connect. The garbage collector would
    # close it without its loop.
    client = distributed.Client.__new__(distributed.Client)
    try:
        with warnings.catch_warnings():
            # We compare the versions that matter ourselves.
            warnings.simplefilter("ignore", VersionMismatchWarning)
            if timeout_s is not None:
                scheduler = {**scheduler, "timeout": timeout_s}
            client.__init__(**scheduler, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError, KeyError) as error:
        client.close()
        shown = str(place.address or place.scheduler_file or "local workers")
        raise no_scheduler(shown, error) from error
    with client:
        yield client


def no_scheduler(place: str, error: Exception) -> ClusterError:
    # Dask raises one error for many tries. The first error in the chain has the common cause.
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    reason = printable(str(cause) or type(cause).__name__)
    return ClusterError(
        f"no Dask scheduler answers at {printable(place)}: {reason}. Start one with "
        "`dask scheduler` and give the address that it prints. For tls:// set "
        "distributed.comm.tls.ca-file, client.cert and client.key in Dask's configuration."
    )


def no_local_workers(count: int, error: Exception) -> ClusterError:
    reason = printable(str(error).rstrip(".") or type(error).__name__)
    return ClusterError(
        f"the workers of local:{count} could not be started: {reason}. They measure in turn, so "
        "fewer are as fast: give local:1, or allow more open files and processes, as `ulimit "
        "-n` and `ulimit -u` show them."
    )


def require_our_python(theirs: str, place: ClusterPlace) -> None:
    """Raise ClusterError for a scheduler that runs another version of Python.

    The client sends it code, and code of another version can crash it.
    """
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = ".".join(theirs.split(".")[:2])
    if found != ours:
        shown = printable(str(place.address or place.scheduler_file))
        raise ClusterError(
            f"the scheduler at {shown} runs Python {printable(found)}, and this is Python {ours}: "
            "start it with the same version, as in a virtual environment of its own."
        )


def _no_second_run() -> SchedulerPlugin:
    """Return a plugin that ends the tasks of a lost worker immediately.

    Dask would try three more workers, but the client decides where each job runs next. The class
    is defined inside the function so that it is sent by value, because the scheduler may lack this
    package.
    """

    class NoSecondRun(SchedulerPlugin):  # type: ignore[misc]  # it has no types
        name = "modelperf"
        idempotent = True

        def update_graph(self, scheduler: Any, *, tasks: Any, **_: Any) -> None:  # noqa: ANN401  # Dask's own
            for key in tasks:
                if str(key).startswith("modelperf-"):
                    scheduler.tasks[key].suspicious = scheduler.allowed_failures

    return NoSecondRun()


# -- a machine that measures for clients


_CLOSE_S = 10


def serve(
    cluster: str, tags: Sequence[str], host: str | None, on_start: Callable[[str], None]
) -> bool:
    """Measure for a cluster, and return whether SIGINT or SIGTERM ended the worker.

    Otherwise, the scheduler has closed the worker or is gone. Raise ClusterError if no scheduler
    answers. Without `tags`, those in MODELPERF_TAGS apply. `host` is the address of this machine
    to listen at, or None for the one that leads to the scheduler. `on_start` is called with the
    address of the worker. A nanny starts the worker again if it crashes.
    """
    if not FILES.moves_open_files:
        raise UsageError(
            "a machine of a cluster runs Linux or macOS; this system can ask a cluster, and lacks "
            "the locks and signals that serving one needs."
        )
    scheduler = scheduler_address(parse_place(cluster, may_be_local=False))
    wrong = [tag for tag in tags if not tag.strip() or "," in tag]
    if wrong:
        raise UsageError(f"a tag is a word without a comma, not {printable(wrong[0])!r}.")
    if host is None:
        host = _way_to(scheduler)
    else:
        _require_own(host)
    # Check the limit now. Dask would only log a wrong one, and run a worker without a station.
    read_limit()
    return asyncio.run(_serve(scheduler, tags, host, on_start))


def _way_to(scheduler: str) -> str:
    try:
        found: str = get_ip(get_address_host(scheduler))
    except ValueError as error:
        raise UsageError(
            f"{printable(scheduler)} is not the address of a scheduler: {printable(str(error))}."
        ) from error
    return found


def _require_own(host: str) -> None:
    """Raise UsageError if this machine cannot listen at an address."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as tried:
            tried.bind(address)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"this machine cannot listen at {printable(host)}: {printable(str(error))}. Give one "
            "of its own addresses, as `ip address` lists them."
        ) from error


async def _serve(
    scheduler: str, tags: Sequence[str], host: str, on_start: Callable[[str], None]
) -> bool:
    loop = asyncio.get_running_loop()
    is_signalled = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, is_signalled.set)
    with none_set():
        nanny = Nanny(
            scheduler,
            # By default, Dask binds the nanny to one interface, and its worker to all of them.
            host=unparse_host_port(host),
            nthreads=1,
            # A separate process loads the model, and Dask does not watch its memory.
            memory_limit=None,
            preload=[PRELOAD_MODULE],
            env={TAGS_VARIABLE: ",".join(tags)} if tags else {},
            dashboard=False,
        )
    try:
        await nanny
    except (OSError, TimeoutError, RuntimeError) as error:
        await nanny.close(timeout=_CLOSE_S)
        raise no_scheduler(scheduler, error) from error
    on_start(str(nanny.worker_address))
    ends = [asyncio.ensure_future(nanny.finished()), asyncio.ensure_future(is_signalled.wait())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    await nanny.close(timeout=_CLOSE_S)
    return is_signalled.is_set()
