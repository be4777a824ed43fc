"""Whether a twin may stand for its model."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.baselines.records import FIDELITY, FIDELITY_CONFIDENCE, Fidelity
from pytest_modelperf.files.documents import rounded
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY
from pytest_modelperf.stats.estimates import duet_ratio
from pytest_modelperf.stats.looks import plan_early_looks
from pytest_modelperf.stats.records import Ratio

# The rounds after which a twin may be shown to be near or far.
_LOOKS = plan_early_looks(DUET_POLICY.max_rounds)


class FidelityGate(Struct, frozen=True):
    """When a twin that is in doubt is trusted: it must be shown to run like its model.

    It gets as many rounds as any duet, and no more samples a side than these bring anyway. It has
    no limits: it is held against its model alone.
    """

    rounds: int = DUET_POLICY.max_rounds
    samples_needed: tuple[int, ...] = (DUET_POLICY.min_samples,)
    has_limits: bool = False

    def is_decided(self, rounds: Sequence[DuetRound]) -> bool:
        """Whether the twin is shown to be near or far, which is looked for after some rounds only.

        Each look has a chance of its own to err.
        """
        if len(rounds) not in _LOOKS:
            return False
        ratio = _ratio_of(rounds)
        return is_near(ratio) or is_far(ratio)


def trust_by_plan() -> Fidelity:
    """A twin of which the engine makes the plan of its model: nothing had to run."""
    return Fidelity(
        ratio=None, interval=None, rounds=0, is_trusted=True, reason=None, has_same_plan=True
    )


def lack_twin(problem: str) -> Fidelity:
    """A twin that could not be made; `problem` says why."""
    return Fidelity(
        ratio=None,
        interval=None,
        rounds=0,
        is_trusted=False,
        reason=f"no twin could be made: {problem.removesuffix('.')}",
        has_same_plan=None,
    )


def judge_twin(rounds: Sequence[DuetRound], doubt: str, *, has_same_plan: bool | None) -> Fidelity:
    """Whether the second side, the twin, may stand for the first.

    `doubt` is the reason why that has to be shown: the engine makes another plan of it or tells
    none, or its work depends on data.
    """
    ratio = _ratio_of(rounds)
    reason = None
    if is_far(ratio):
        reason = (
            f"the twin was shown to run more than {100 * FIDELITY:g} % "
            f"{'slower' if ratio.value > 1.0 else 'faster'} than the model; {doubt}"
        )
    elif not is_near(ratio):
        reason = (
            f"the twin was not shown to run within {100 * FIDELITY:g} % of the model, and {doubt}"
        )
    interval = ratio.interval
    return Fidelity(
        ratio=rounded(ratio.value),
        interval=None if interval is None else (rounded(interval[0]), rounded(interval[1])),
        rounds=len(rounds),
        is_trusted=reason is None,
        reason=reason,
        has_same_plan=has_same_plan,
    )


def is_near(ratio: Ratio) -> bool:
    """Whether a twin was shown to run as fast as its model."""
    low, high = ratio.interval or (-math.inf, math.inf)
    return low >= 1.0 - FIDELITY and high <= 1.0 + FIDELITY


def is_far(ratio: Ratio) -> bool:
    """Whether a twin was shown to run faster or slower than its model."""
    low, high = ratio.interval or (-math.inf, math.inf)
    return low > 1.0 + FIDELITY or high < 1.0 - FIDELITY


def _ratio_of(rounds: Sequence[DuetRound]) -> Ratio:
    pairs = [(each.before.block, each.after.block) for each in rounds]
    return duet_ratio(pairs, FIDELITY_CONFIDENCE)
