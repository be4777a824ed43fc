"""How long to measure, and how precisely: the rules of docs/measuring.md."""

from __future__ import annotations

import math
import sys

from msgspec import Struct
from msgspec.structs import replace


class SamplingPolicy(Struct, frozen=True, kw_only=True):
    """The rules for how long to measure, and how precisely.

    Sampling stops when the interval of the median is within `precision` after `min_rounds` and
    `min_samples`, after `max_rounds`, or `max_seconds` after the first session was loaded. That
    load itself takes up to `load_share` of this time. Sampling also waits for each number of
    `tail_samples`, but no block is lengthened for a number that does not fit into the time left.
    With `stretch_seconds` a slow model gets up to that many seconds, if `stretch_rounds` take them.
    Before `min_seconds`, only the end of `max_seconds` stops it. A case that is still open after
    the `usual_share` of `max_rounds` is hard to decide, so the blocks of the remaining rounds
    become long enough to fill the time left, up to `max_filling_block`.

    A warm-up ends when the median of a window is at most `steadiness` below that of the window
    before. It is given up after `max_windows`, after `max_warmup_seconds` and two windows, or if
    one inference takes a quarter of the time left. It always goes on for `min_warmup_seconds`, but
    for at most half of the time left.

    Slow inferences vary less than fast ones, and the rest of a warm-up cancels in a pair. So a duet
    of a slow model has fewer inferences in a block and in a window than `min_block` and
    `min_window`, namely those that fit into `slow_block_seconds` and `slow_window_seconds`. If
    inferences vary by more than `steady_spread`, a few of them have no reliable median. A first
    inference that takes `warm_after_seconds` is the whole warm-up, unless it is slow only at the
    beginning.

    If `min_rounds` do not fit into `max_seconds`, the rule to stop is checked after
    `min_slow_rounds`, and until there are `min_rounds` no block takes longer than its preparation
    or its fewest inferences.

    A workload is measured in whole passes, of `pass_inferences` each, if the time allows.
    """

    max_seconds: float = 10.0
    load_share: float = 0.0
    min_seconds: float = 0.0
    stretch_seconds: float | None = None
    # An unchanged model passes after about 4 rounds; finding a small slowdown takes this many.
    stretch_rounds: int = 25
    precision: float = 0.01
    confidence: float = 0.95
    # The t quantile of fewer rounds makes any interval useless.
    min_rounds: int = 5
    min_slow_rounds: int = 5
    # If that many rounds are not enough, the machine is too noisy, and more rounds do not help.
    max_rounds: int = 100
    usual_share: float = 1.0
    # The samples that the 95th percentile needs, which is judged in addition to the median.
    min_samples: int = 130
    # The samples that rarer percentiles need.
    tail_samples: tuple[int, ...] = ()
    min_block: int = 12
    min_slow_block: int = 12
    slow_block_seconds: float = 0.03
    steady_spread: float = 0.03
    max_block: int = 400
    max_filling_block: int = 400
    # The time of a block, for each side, until rounds can be compared.
    block_seconds: float = 0.03
    # A window is long enough for many inferences of a fast model. A window of a slow model ends
    # after its first inference beyond the quarter of `max_warmup_seconds`.
    window_seconds: float = 0.005
    min_window: int = 5
    min_slow_window: int = 5
    slow_window_seconds: float = 0.0125
    warm_after_seconds: float = math.inf
    max_windows: int = 10
    max_warmup_seconds: float = 0.5
    min_warmup_seconds: float = 0.0
    steadiness: float = 0.02
    # Inferences of a profiled session for which `max_seconds` has time, and those of a slow model.
    min_layer_runs: int = 20
    min_slow_layer_runs: int = 3
    pass_inferences: int = 1

    def whole_passes(self, inferences: int) -> int:
        """Return the number of inferences, rounded up to whole passes of a workload."""
        return math.ceil(inferences / self.pass_inferences) * self.pass_inferences

    def fewest_in_block(self, seconds: float, spread: float = 0.0) -> int:
        """Return the fewest inferences in a block, at `seconds` each and with this `spread`."""
        if spread > self.steady_spread:
            return self.min_block
        wanted = math.ceil(self.slow_block_seconds / seconds)
        return max(min(wanted, self.min_block), self.min_slow_block)

    def fewest_in_window(self, seconds: float) -> int:
        """Return the fewest inferences in a window of a warm-up, if each takes `seconds`."""
        wanted = math.ceil(self.slow_window_seconds / seconds)
        return max(min(wanted, self.min_window), self.min_slow_window)


# The time limit of a slow model, if the user gave none.
STRETCH_SECONDS = 60.0
# Many short rounds decide a duet sooner than a few long ones; its rule decides when to stop.
DUET_POLICY = SamplingPolicy(
    min_rounds=4,
    max_rounds=35,
    usual_share=1 / 3,
    min_samples=0,
    min_slow_block=3,
    min_slow_window=1,
    # A turn this long takes a fifth of a round, with the parts that run next to both models.
    warm_after_seconds=0.25,
)


def deciding_limits(policy: SamplingPolicy, stretch_seconds: float | None) -> SamplingPolicy:
    """Return the policy for one side with limits.

    If a slow model is far from a limit, a few inferences of one round decide. Others get the time
    for the usual rounds, up to `stretch_seconds`.
    """
    return replace(
        policy,
        stretch_seconds=stretch_seconds,
        stretch_rounds=policy.min_rounds,
        min_slow_rounds=1,
        min_slow_block=DUET_POLICY.min_slow_block,
        warm_after_seconds=DUET_POLICY.warm_after_seconds,
    )


def filling_time(policy: SamplingPolicy) -> SamplingPolicy:
    """Return the policy for limits that more samples decide: an open limit uses all of the time."""
    return replace(policy, usual_share=DUET_POLICY.usual_share, max_filling_block=sys.maxsize)


def coarsened(policy: SamplingPolicy, precision: float) -> SamplingPolicy:
    """Return the policy for a figure that only has to reach `precision`, within a duet's rounds."""
    return replace(
        policy,
        precision=max(precision, policy.precision),
        max_rounds=min(DUET_POLICY.max_rounds, policy.max_rounds),
    )
