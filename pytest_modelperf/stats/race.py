"""The race of many candidates against one baseline, and the results for the fastest.

In each duet of a race the candidate is the first side and the baseline the second, so that the
ratio is the speedup of the candidate, and "worse" means that the baseline is slower.
`docs/tuning.md` describes the rule.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.stats.decisions import Decision, RatioAnswer, plan_looks, share_level
from pytest_modelperf.stats.duet import DuetRule
from pytest_modelperf.stats.records import USUAL_ROUNDS

# The stages that share the level: single options, combinations, the last contest, confirmations.
_STAGES = 4
# The most candidates that are confirmed, one after the other.
MOST_CONFIRMED = 2
# The most candidates that are compared with the simplest of the fastest ones.
MOST_IN_CONTEST = 3
# The fewest rounds after which an open candidate that looks faster is worth a confirmation.
_FEWEST_PROMISING = 3


class Standing(enum.Enum):
    """The result of a candidate. `ALIKE` means that its gain is too small to matter."""

    FASTER = "faster"
    SLOWER = "slower"
    ALIKE = "no gain"
    OPEN = "open"


_STANDINGS = {
    RatioAnswer.WORSE: Standing.FASTER,
    RatioAnswer.BETTER: Standing.SLOWER,
    RatioAnswer.NOT_WORSE: Standing.ALIKE,
    RatioAnswer.OPEN: Standing.OPEN,
}


class RaceRule(Struct, frozen=True, kw_only=True):
    """The error levels of a whole race, and the least gain that matters.

    `level` bounds the chance that any candidate without a gain is called faster, or one without a
    loss slower. `pass_level` bounds the chance that any candidate that gains more than `least_gain`
    is called alike. All candidates of all stages share both. `rounds` is the most for each.
    """

    least_gain: float = 0.02
    level: float = 0.01
    pass_level: float = 0.05
    rounds: int = USUAL_ROUNDS

    def of_stage(self, candidates: int) -> DuetRule:
        """Return the rule for each of this many candidates that race together."""
        return DuetRule(
            tolerance=self.least_gain,
            level=share_level(candidates, self.level / _STAGES),
            pass_level=share_level(candidates, self.pass_level / _STAGES),
            looks=plan_looks(self.rounds),
        )

    @property
    def of_confirmation(self) -> DuetRule:
        """The rule for fresh rounds of a winner. Any gain that they show counts."""
        return replace(self.of_stage(MOST_CONFIRMED), tolerance=0.0)


def standing_of(decision: Decision) -> Standing:
    return _STANDINGS[decision.answer]


class Contest(Struct, frozen=True):
    """The places of the candidates that may be the fastest: the simplest one, and the others.

    The others are worth their options only if they are shown faster than the simplest one.
    """

    simplest: int
    others: tuple[int, ...] = ()


def find_contest(decisions: Sequence[Decision | None], sizes: Sequence[int]) -> Contest | None:
    """Find the candidates that may be the fastest, or return None if none is shown faster.

    Their intervals overlap with that of the best. `sizes` are the numbers of options that
    candidates set. A candidate without a decision did not run.
    """
    faster = {
        place: decision
        for place, decision in enumerate(decisions)
        if decision is not None and standing_of(decision) is Standing.FASTER
    }
    if not faster:
        return None
    ratios = {place: decision.ratio or 0.0 for place, decision in faster.items()}
    best = max(faster, key=lambda place: ratios[place])
    low = faster[best].low or 0.0
    near = [place for place, each in faster.items() if each.high is None or each.high >= low]
    simplest = min(near, key=lambda place: (sizes[place], -ratios[place]))
    others = sorted(set(near) - {simplest}, key=lambda place: -ratios[place])
    return Contest(simplest, tuple(others[:MOST_IN_CONTEST]))


def find_promising(decisions: Sequence[Decision | None]) -> tuple[int, ...]:
    """Return the places of open candidates that look faster, the fastest first."""
    open_ones = {
        place: decision.ratio
        for place, decision in enumerate(decisions)
        if decision is not None and _is_promising(decision)
    }
    return tuple(sorted(open_ones, key=lambda place: -(open_ones[place] or 0.0)))


def has_contender(decisions: Sequence[Decision | None]) -> bool:
    """Whether a candidate is shown faster, or looks faster after enough rounds."""
    is_shown = any(each is not None and standing_of(each) is Standing.FASTER for each in decisions)
    return is_shown or bool(find_promising(decisions))


def _is_promising(decision: Decision) -> bool:
    is_likely = (decision.ratio or 0.0) > 1.0
    return decision.is_open and decision.rounds >= _FEWEST_PROMISING and is_likely


def detectable_gain(decisions: Sequence[Decision | None]) -> float | None:
    """Return the gain that each open candidate would show in nine of ten races, if known."""
    found = [each.detectable for each in decisions if each is not None and each.is_open]
    known = [gain for gain in found if gain is not None and math.isfinite(gain)]
    return max(known) if known and len(known) == len(found) else None


def most_gain(decisions: Sequence[Decision | None]) -> float | None:
    """Return an upper bound on the gains of all candidates, or None if one has no bound."""
    highs = [each.high for each in decisions if each is not None]
    known = [high for high in highs if high is not None]
    if not known or len(known) < len(highs):
        return None
    return max(0.0, max(known) - 1.0)
