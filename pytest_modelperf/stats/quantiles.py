"""Quantiles by scipy's special functions.

`scipy.stats` has them too, but takes a second to import, while the special functions take a quarter
of a second. They are imported at first use, so a run that judges no times does not import them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


def load_quantiles() -> None:
    """Import scipy's functions now instead of between two rounds."""
    _special()


def _special() -> Any:  # noqa: ANN401  # scipy has no types
    from scipy import special

    return special


def t_quantile(share: float, freedom: npt.ArrayLike) -> Any:  # noqa: ANN401  # in the shape of `freedom`
    """Return the quantile of Student's t for this share."""
    return _special().stdtrit(freedom, share)


def t_critical(level: float, freedom: npt.ArrayLike) -> Any:  # noqa: ANN401  # the same
    """Return the value that Student's t exceeds with this chance, exact for small chances too."""
    return -_special().stdtrit(freedom, level)


def noncentral_t(chance: float, freedom: float, critical: float) -> float:
    """Return the noncentrality for which Student's t is below `critical` with this chance."""
    return float(_special().nctdtrinc(freedom, chance, critical))


def normal_quantile(share: float) -> float:
    return float(_special().ndtri(share))


def normal_chance(score: npt.ArrayLike) -> Any:  # noqa: ANN401  # in the shape of `score`
    """Return the chance that a standard normal figure is below the score."""
    return _special().ndtr(score)


def tolerance_factor(share: float, level: float, count: int) -> float:
    """Return how many standard deviations above the mean a one-sided tolerance bound is.

    At least this share of the population is below the bound, except with the chance `level`. The
    factor is a quantile of the noncentral t.
    """
    noncentral = normal_quantile(share) * math.sqrt(count)
    return float(_special().nctdtrit(count - 1, noncentral, 1.0 - level)) / math.sqrt(count)


def beta_quantile(share: float, a: float, b: float) -> float:
    return float(_special().betaincinv(a, b, share))


def standard_error(values: Floats) -> Any:  # noqa: ANN401  # one for each row
    """Return the standard error of the mean, along the last axis."""
    return values.std(axis=-1, ddof=1) / math.sqrt(values.shape[-1])
