"""Functions to measure, in a module that another process can import."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def work() -> float:
    return float(np.arange(1000.0).sum())


def add(x: npt.NDArray[np.float32], y: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return x + y


def fail() -> None:
    raise RuntimeError("no luck today")
