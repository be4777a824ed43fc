"""The quantiles that are asked for, by scipy's special functions.

`scipy.stats` has them too. It takes a second to import, though, and the special functions a quarter
of one. scipy imports them when the first is named, and who only counts names none.
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
    """Have scipy import them now, and not between two rounds: the first that is asked does."""
    binomial_chance(0, 1, 0.5)


def t_quantile(share: float, freedom: npt.ArrayLike) -> Any:  # noqa: ANN401  # as many as `freedom` has
    """What a variable of Student's t stays below with this chance."""
    return scipy.special.stdtrit(freedom, share)


def t_critical(level: float, freedom: npt.ArrayLike) -> Any:  # noqa: ANN401  # the same
    """What it exceeds with this chance; of a small one no digit is lost."""
    return -scipy.special.stdtrit(freedom, level)


def tolerance_factor(share: float, level: float, count: int) -> float:
    """So many deviations above their mean lies this share of all, as so many values tell.

    It errs with the chance `level`. The bound is a quantile of the noncentral t.
    """
    noncentral = scipy.special.ndtri(share) * math.sqrt(count)
    return float(scipy.special.nctdtrit(count - 1, noncentral, 1.0 - level)) / math.sqrt(count)


def beta_quantile(share: float, a: float, b: float) -> float:
    return float(scipy.special.betaincinv(a, b, share))


def binomial_chance(most: int, count: int, share: float) -> float:
    """That of at most so many hits."""
    return float(scipy.special.bdtr(most, count, share))


def standard_error(values: Floats) -> Any:  # noqa: ANN401  # one for each row
    """That of the mean, along the last axis."""
    return values.std(axis=-1, ddof=1) / math.sqrt(values.shape[-1])
