"""The module that turns a plain Dask worker into a machine that measures.

    dask worker ADDRESS --nthreads 1 --preload pytest_modelperf.cluster.preload

The environment variable MODELPERF_TAGS sets its tags: `MODELPERF_TAGS=board,quiet`.
"""

from __future__ import annotations

from typing import Any

from pytest_modelperf.cluster.station import make_station, remove_set


def dask_setup(worker: Any) -> None:  # noqa: ANN401  # a Dask worker, which has no types
    """Install the station. Dask calls this before the worker joins its scheduler."""
    make_station(worker).install()
    remove_set(worker)
