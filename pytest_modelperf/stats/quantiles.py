"""The quantiles that are asked for, by scipy's special functions.

`scipy.stats` has them too. It takes a second to import, though, and whoever profiles a model needs
nothing else of it: the tests of a duet import it when they are about to be asked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


def t_quantile(share: float, freedom: npt.ArrayLike) -> Any:  # noqa: ANN401  # as many as `freedom` has
    """What a variable of Student's t stays below with this chance."""
    return special.stdtrit(freedom, share)


def t_critical(level: float, freedom: npt.ArrayLike) -> Any:  # noqa: ANN401  # the same
    """What it exceeds with this chance; of a small one no digit is lost."""
    return -special.stdtrit(freedom, level)


def beta_quantile(share: float, a: float, b: float) -> float:
    return float(special.betaincinv(a, b, share))


def binomial_chance(most: int, count: int, share: float) -> float:
    """That of at most so many hits."""
    return float(special.bdtr(most, count, share))


def standard_error(values: Floats) -> Any:  # noqa: ANN401  # one for each row
    """That of the mean, along the last axis."""
    return values.std(axis=-1, ddof=1) / math.sqrt(values.shape[-1])
