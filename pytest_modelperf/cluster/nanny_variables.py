"""The variables that Dask's nanny sets for its worker, which would reach the models measured there.

They tell glibc to give memory back at once, and numeric libraries to use one thread, so a model
would take another time than without a cluster.
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
    """Nannies that are made in this context set none of them."""
    context: AbstractContextManager[object] = dask.config.set({_SETTING: {}})
    return context


def remove_set(
    worker: Any,  # noqa: ANN401  # a Dask worker
    environment: MutableMapping[str, str] = os.environ,
) -> None:
    """Remove those that somebody else's nanny has set for this worker."""
    if worker.nanny is None:
        return
    for name, value in dask.config.get(_SETTING, {}).items():
        if environment.get(name) == str(value):
            del environment[name]
