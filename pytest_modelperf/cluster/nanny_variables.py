"""The environment variables that Dask's nanny sets for its worker.

They make glibc return memory at once, and numeric libraries use one thread. The models that are
measured there would inherit them, and their latency would differ from that without a cluster.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from contextlib import AbstractContextManager
from typing import Any

import dask
import distributed  # noqa: F401  # it adds its settings to those of Dask

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
