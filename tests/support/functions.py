"""Functions to measure, in a module that another process can import."""

from __future__ import annotations

import inspect
import os

import numpy as np
import numpy.typing as npt

# The frames of `depth`, of the function that calls it, and of what calls that in a worker.
SHALLOW = 9


def work() -> float:
    return float(np.arange(1000.0).sum())


def add(x: npt.NDArray[np.float32], y: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return x + y


def fail() -> None:
    raise RuntimeError("no luck today")


def depth() -> int:
    """How many frames there are, this one included."""
    return len(inspect.stack(0))


def require_shallow() -> None:
    """Fail if it is called from deep below the program, which a worker's `-c` begins."""
    if depth() > SHALLOW:
        raise RuntimeError(
            "\n".join(f"{frame.filename}: {frame.function}" for frame in inspect.stack(0))
        )


def require_all_processors() -> None:
    if len(os.sched_getaffinity(0)) < len(os.sched_getaffinity(os.getppid())):
        raise RuntimeError("it was pinned")
