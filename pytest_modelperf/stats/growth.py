"""How much memory grows with each inference, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_modelperf.stats.quantiles import standard_error, t_critical
from pytest_modelperf.stats.records import Growth

# The allocator of Linux asks for 128 KiB more than it needs: mallopt(3), M_TOP_PAD.
_STEP_BYTES = 132 << 10


def growth_of(sizes: Sequence[int], block: int, level: float) -> Growth:
    """The growth, from the memory after each block of so many inferences.

    A leak of a few bytes grows the memory by steps, when the allocator asks for more. So the figure
    is the mean of what the blocks add, and not the median, which is 0; its interval is that of the
    t test, with the error `level` at each end. A single jump has a wide interval. If the memory
    goes up and down around one size, what the blocks add varies more than the mean of it, so the
    interval is too wide rather than too narrow. Less than a step of the allocator may be hidden, so
    both ends are that much further out.
    """
    added = np.diff(np.array(sizes, dtype=np.float64)) / block
    centre = float(added.mean())
    half = float(t_critical(level, len(added) - 1) * standard_error(added))
    half += _STEP_BYTES / (block * len(added))
    return Growth(
        inferences=block * len(added),
        bytes_per_inference=centre,
        low=centre - half,
        high=centre + half,
        confidence=1.0 - 2.0 * level,
    )
