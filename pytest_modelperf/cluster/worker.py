"""A Dask worker that is a machine of ours, for as long as it is wanted: `modelperf worker`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence

from distributed import Nanny

from pytest_modelperf.cluster.places import parse_place
from pytest_modelperf.cluster.station import PRELOAD_MODULE, TAGS_VARIABLE
from pytest_modelperf.errors import ClusterError, UsageError
from pytest_modelperf.text.escaping import printable

_CLOSE_S = 10


def serve(cluster: str, tags: Sequence[str], on_start: Callable[[str], None]) -> None:
    """Measure for a cluster until SIGINT or SIGTERM comes, or the scheduler closes the worker.

    ClusterError where nobody answers. `on_start` is called with the address of the worker. It runs
    beside a nanny, which starts it again when it crashes.
    """
    place = parse_place(cluster)
    if place.local_workers is not None:
        raise UsageError(f"{cluster} starts its own workers: give the address of a scheduler.")
    wrong = [tag for tag in tags if not tag.strip() or "," in tag]
    if wrong:
        raise UsageError(f"a tag is a word without a comma, not {printable(wrong[0])!r}.")
    scheduler: dict[str, object] = {"scheduler_ip": place.address}
    if place.scheduler_file is not None:
        scheduler = {"scheduler_file": str(place.scheduler_file)}
    asyncio.run(_serve(cluster, scheduler, tags, on_start))


async def _serve(
    cluster: str,
    scheduler: dict[str, object],
    tags: Sequence[str],
    on_start: Callable[[str], None],
) -> None:
    loop = asyncio.get_running_loop()
    is_told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, is_told.set)
    nanny = Nanny(
        **scheduler,
        nthreads=1,
        # A model is loaded by a process of its own, which Dask does not watch.
        memory_limit=None,
        preload=[PRELOAD_MODULE],
        env={TAGS_VARIABLE: ",".join(tags)},
        dashboard=False,
    )
    try:
        await nanny
    except (OSError, TimeoutError, RuntimeError) as error:
        await nanny.close(timeout=_CLOSE_S)
        raise ClusterError(
            f"no Dask scheduler answers at {printable(cluster)}: {printable(str(error))}. Start "
            "one with `dask scheduler` and give the address that it prints."
        ) from error
    on_start(str(nanny.worker_address))
    ends = [asyncio.ensure_future(nanny.finished()), asyncio.ensure_future(is_told.wait())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    await nanny.close(timeout=_CLOSE_S)
