"""Whether a twin may stand for its model."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.baselines.records import Fidelity
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.sampling_policy import DUET_POLICY
from pytest_modelperf.stats.estimates import duet_ratio
from pytest_modelperf.stats.records import Ratio

# How much a twin may differ from its model, and the confidence of the intervals that decide.
FIDELITY = 0.02
_FIDELITY_CONFIDENCE = 0.95
# A twin with the plan of its model is trusted if it was not shown to differ after these rounds.
_FIDELITY_ROUNDS = 9


class FidelityGate(Struct, frozen=True):
    """When a twin is trusted to run like its model.

    A twin of which the engine makes the same plan is trusted unless it is shown to differ. `doubt`
    is the reason why another twin must be shown to be near: its work depends on data, or the engine
    does not reveal its plan.
    """

    doubt: str | None = None

    @property
    def rounds(self) -> int:
        """The most rounds: as many as any duet."""
        return DUET_POLICY.max_rounds

    @property
    def samples_needed(self) -> tuple[int, ...]:
        """Samples a side: no more than the rounds bring anyway."""
        return (DUET_POLICY.min_samples,)

    def is_decided(self, rounds: Sequence[DuetRound]) -> bool:
        """Whether the twin is shown near or far, or had enough rounds to be shown far."""
        ratio = _ratio_of(rounds)
        if _is_near(ratio) or _is_far(ratio):
            return True
        return self.doubt is None and len(rounds) >= _FIDELITY_ROUNDS

    def judge(
        self, rounds: Sequence[DuetRound], plan_difference: str | None, *, knows_plans: bool
    ) -> Fidelity:
        """Whether the second side, the twin, may stand for the first.

        There are no rounds where the same plan was answer enough.
        """
        ratio = _ratio_of(rounds) if rounds else None
        reason = None
        if plan_difference is not None:
            reason = (
                f"the engine makes another plan of the twin than of the model: {plan_difference}"
            )
        elif ratio is None:
            reason = None
        elif _is_far(ratio):
            reason = (
                f"the twin was shown to run more than {100 * FIDELITY:g} % "
                f"{'slower' if ratio.value > 1.0 else 'faster'} than the model"
            )
        elif self.doubt is not None and not _is_near(ratio):
            reason = (
                f"the twin was not shown to run within {100 * FIDELITY:g} % of the model, and "
                f"{self.doubt}"
            )
        return Fidelity(
            ratio=ratio,
            rounds=len(rounds),
            is_trusted=reason is None,
            reason=reason,
            has_same_plan=plan_difference is None if knows_plans else None,
        )


def _ratio_of(rounds: Sequence[DuetRound]) -> Ratio:
    pairs = [(each.before.block, each.after.block) for each in rounds]
    return duet_ratio(pairs, _FIDELITY_CONFIDENCE)


def _is_near(ratio: Ratio) -> bool:
    if ratio.low is None or ratio.high is None:
        return False
    return ratio.low >= 1.0 - FIDELITY and ratio.high <= 1.0 + FIDELITY


def _is_far(ratio: Ratio) -> bool:
    if ratio.low is None or ratio.high is None:
        return False
    return ratio.low > 1.0 + FIDELITY or ratio.high < 1.0 - FIDELITY
