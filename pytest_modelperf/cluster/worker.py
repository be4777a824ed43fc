"""The command `modelperf worker`: a Dask worker that measures until it is stopped."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence

from distributed import Nanny
from distributed.comm.addressing import get_address_host, unparse_host_port
from distributed.utils import get_ip

from pytest_modelperf.cluster.connection import no_scheduler
from pytest_modelperf.cluster.nanny_variables import none_set
from pytest_modelperf.cluster.places import parse_place, scheduler_address
from pytest_modelperf.cluster.station import PRELOAD_MODULE, TAGS_VARIABLE, read_limit
from pytest_modelperf.errors import UsageError
from pytest_modelperf.systems.files import FILES
from pytest_modelperf.text.escaping import printable

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
    is_told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, is_told.set)
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
    ends = [asyncio.ensure_future(nanny.finished()), asyncio.ensure_future(is_told.wait())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    await nanny.close(timeout=_CLOSE_S)
    return is_told.is_set()
