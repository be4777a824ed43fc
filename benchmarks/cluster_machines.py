"""Machines that only pretend to measure: many Dask workers in one process, for `cluster.py`.

python benchmarks/cluster_machines.py SCHEDULER_FILE COUNT
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack

from pytest_modelperf.cluster.records import JobContext
from pytest_modelperf.cluster.station import PRELOAD_MODULE

# About what the outcome of a case takes as text.
RESULT_BYTES = 4000


def pretend(request: str, context: JobContext) -> str:  # noqa: ARG001  # a work's
    """Takes as long as the request says, as a case does that an engine runs elsewhere."""
    seconds = float(json.loads(request)["seconds"])
    time.sleep(seconds)
    return json.dumps({"seconds": seconds, "rest": "x" * RESULT_BYTES})


async def serve(scheduler_file: str, count: int) -> None:
    """So many machines, until the scheduler closes them."""
    from distributed import Worker

    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(
                Worker(
                    scheduler_file=scheduler_file,
                    nthreads=1,
                    memory_limit=None,
                    dashboard=False,
                    dashboard_address=":0",
                    preload=[PRELOAD_MODULE],
                )
            )
            for _ in range(count)
        ]
        await asyncio.gather(*(worker.finished() for worker in workers))


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
