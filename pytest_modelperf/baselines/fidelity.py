"""Whether a twin may stand for its model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from pytest_modelperf.baselines.records import FIDELITY, FIDELITY_CONFIDENCE, Fidelity
from pytest_modelperf.files.documents import rounded
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY
from pytest_modelperf.stats.estimates import duet_ratio
from pytest_modelperf.stats.looks import plan_early_looks
from pytest_modelperf.stats.records import Ratio

# Other programs can make a duet too noisy to show anything, so it is tried this many times.
TRIES = 3
# The rounds of the first try after which a twin may be shown to be near or far. Each look has a
# chance of its own to err, so a later try has one, at its end, and a higher confidence.
_LOOKS = plan_early_looks(DUET_POLICY.max_rounds)
_LATER_CONFIDENCE = 0.995


class Evidence(Struct, frozen=True):
    """The rounds that a twin is judged by, and the confidence of their interval."""

    rounds: Sequence[DuetRound]
    confidence: float = FIDELITY_CONFIDENCE

    @property
    def ratio(self) -> Ratio:
        pairs = [(each.before.block, each.after.block) for each in self.rounds]
        return duet_ratio(pairs, self.confidence)

    @property
    def is_shown(self) -> bool:
        """Whether the twin is shown to be near or far."""
        ratio = self.ratio
        return is_near(ratio) or is_far(ratio)


class FidelityGate(Struct, frozen=True):
    """When a twin that is in doubt is trusted: it must be shown to run like its model.

    It gets as many rounds as any duet, and no more samples a side than these bring anyway. It has
    no limits: it is held against its model alone. `earlier` are the rounds of the tries before.
    """

    rounds: int = DUET_POLICY.max_rounds
    samples_needed: tuple[int, ...] = (DUET_POLICY.min_samples,)
    has_limits: bool = False
    earlier: tuple[DuetRound, ...] = ()

    def is_decided(self, rounds: Sequence[DuetRound]) -> bool:
        """Whether the twin is shown to be near or far; it is looked for after some rounds only."""
        return not self.earlier and len(rounds) in _LOOKS and self.weigh(rounds).is_shown

    def weigh(self, rounds: Sequence[DuetRound]) -> Evidence:
        """These rounds with the earlier ones, or alone if the earlier ones were noisier."""
        if not self.earlier:
            return Evidence(rounds)
        whole, own = (
            Evidence(each, _LATER_CONFIDENCE) for each in ((*self.earlier, *rounds), rounds)
        )
        return min(whole, own, key=lambda evidence: _width(evidence.ratio))


def try_again(
    rounds: Sequence[DuetRound], take: Callable[[FidelityGate], Sequence[DuetRound]]
) -> Evidence:
    """What these rounds show, and further tries as long as the twin is neither near nor far."""
    evidence = Evidence(rounds)
    earlier = tuple(rounds)
    for _ in range(1, TRIES):
        if evidence.is_shown:
            break
        gate = FidelityGate(earlier=earlier)
        taken = take(gate)
        evidence = gate.weigh(taken)
        earlier += tuple(taken)
    return evidence


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


def judge_twin(evidence: Evidence, doubt: str, *, has_same_plan: bool | None) -> Fidelity:
    """Whether the second side, the twin, may stand for the first.

    `doubt` is the reason why that has to be shown: the engine makes another plan of it or tells
    none, or its work depends on data.
    """
    ratio = evidence.ratio
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
        rounds=len(evidence.rounds),
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


def _width(ratio: Ratio) -> float:
    low, high = ratio.interval or (-math.inf, math.inf)
    return high - low
