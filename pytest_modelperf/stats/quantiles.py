"""Quantiles by scipy's special functions.

`scipy.stats` has them too, but takes a second to import, while the special functions take a quarter
of a second. scipy imports these at first use, so a run that only counts does not import them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


def load_quantiles() -> None:
    """Import scipy's functions now, and not between two rounds."""
    binomial_chance(0, 1, 0.5)


def t_quantile(share: float, freedom: npt.ArrayLike) -> Any:  # noqa: ANN401  # in the shape of `freedom`
    """Return the quantile of Student's t for this share."""
    return scipy.special.stdtrit(freedom, share)


def t_critical(level: float, freedom: npt.ArrayLike) -> Any:  # noqa: ANN401  # the same
    """Return what Student's t exceeds with this chance, exactly even for small chances."""
    return -scipy.special.stdtrit(freedom, level)


def tolerance_factor(share: float, level: float, count: int) -> float:
    """Return how many standard deviations above the mean a one-sided tolerance bound is.

    At least this share of the population is below the bound, except with the chance `level`. The
    factor is a quantile of the noncentral t.
    """
    noncentral = scipy.special.ndtri(share) * math.sqrt(count)
    return float(scipy.special.nctdtrit(count - 1, noncentral, 1.0 - level)) / math.sqrt(count)


def beta_quantile(share: float, a: float, b: float) -> float:
    return float(scipy.special.betaincinv(a, b, share))


def binomial_chance(most: int, count: int, share: float) -> float:
    """Return the chance of at most `most` hits."""
    return float(scipy.special.bdtr(most, count, share))


def standard_error(values: Floats) -> Any:  # noqa: ANN401  # one for each row
    """Return the standard error of the mean, along the last axis."""
    return values.std(axis=-1, ddof=1) / math.sqrt(values.shape[-1])
