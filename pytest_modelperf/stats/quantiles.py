"""Quantiles by scipy's special functions.

`scipy.stats` has them too, but takes a second to import, and the special functions a quarter of a
second. scipy imports these at the first use, so counting does not pay for them.
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
    """Makes scipy import its functions now, and not between two rounds."""
    binomial_chance(0, 1, 0.5)


def t_quantile(share: float, freedom: npt.ArrayLike) -> Any:  # noqa: ANN401  # as many as `freedom` has
    """The quantile of Student's t for this share."""
    return scipy.special.stdtrit(freedom, share)


def t_critical(level: float, freedom: npt.ArrayLike) -> Any:  # noqa: ANN401  # the same
    """The value that Student's t exceeds with this chance; exact for small chances too."""
    return -scipy.special.stdtrit(freedom, level)


def tolerance_factor(share: float, level: float, count: int) -> float:
    """How many standard deviations above the mean a one-sided tolerance bound lies.

    At least this share of the population is below the bound, except with the chance `level`. The
    factor is a quantile of the noncentral t.
    """
    noncentral = scipy.special.ndtri(share) * math.sqrt(count)
    return float(scipy.special.nctdtrit(count - 1, noncentral, 1.0 - level)) / math.sqrt(count)


def beta_quantile(share: float, a: float, b: float) -> float:
    return float(scipy.special.betaincinv(a, b, share))


def binomial_chance(most: int, count: int, share: float) -> float:
    """The chance of at most this many hits."""
    return float(scipy.special.bdtr(most, count, share))


def standard_error(values: Floats) -> Any:  # noqa: ANN401  # one for each row
    """The standard error of the mean, along the last axis."""
    return values.std(axis=-1, ddof=1) / math.sqrt(values.shape[-1])
