"""The race of options, proven by simulation: nothing is called better that is not."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import scipy
from msgspec.structs import replace

from pytest_modelperf.stats.decisions import Decision, RatioAnswer
from pytest_modelperf.stats.duet import DuetRule, judge_sequence, plan_schedule
from pytest_modelperf.stats.race import (
    MOST_CONFIRMED,
    MOST_IN_CONTEST,
    Contest,
    RaceRule,
    detectable_gain,
    find_contest,
    find_promising,
    most_gain,
)
from tests.support.simulation import SETTINGS, round_medians, simulate_duets

Floats = npt.NDArray[np.float64]

RULE = RaceRule()
CANDIDATES, RACES = 12, 400
ROUNDS = 35


def medians(setting: str, seed: int) -> Floats:
    """The differences of the rounds of every candidate of every race: all are the baseline."""
    sides = simulate_duets(SETTINGS[setting], RACES * CANDIDATES, ROUNDS, turns=12, seed=seed)
    return round_medians(*sides)


def is_faster(values: Floats, rule: DuetRule) -> npt.NDArray[np.bool_]:
    """Which rows are shown to be faster: the first side is the candidate."""
    answer: npt.NDArray[np.int_] = judge_sequence(values, plan_schedule(rule), rule.margin).answer
    return answer > 0


@pytest.mark.parametrize("setting", ["quiet", "usual", "noisy", "two kinds"])
def test_a_race_of_equals_hardly_ever_has_a_winner_and_none_is_confirmed(setting: str) -> None:
    """The level holds for a whole race, and for the confirmation of whatever looks fastest."""
    values = medians(setting, seed=1)
    races = is_faster(values, RULE.of_stage(CANDIDATES)).reshape(RACES, CANDIDATES)
    most = float(scipy.stats.binom.ppf(0.999, RACES, RULE.level))
    assert np.count_nonzero(races.any(axis=1)) <= most
    # Even if each race had a winner by chance, fresh rounds would deny it.
    fresh = medians(setting, seed=2)[:RACES]
    confirmed = is_faster(fresh, RULE.of_confirmation)
    most = float(scipy.stats.binom.ppf(0.999, RACES, RULE.level / 2))
    assert np.count_nonzero(confirmed) <= most


@pytest.mark.parametrize(("setting", "share"), [("quiet", 1.0), ("usual", 0.99)])
def test_a_gain_of_a_tenth_is_found_and_confirmed(setting: str, share: float) -> None:
    gain = math.log(1.1)
    found = is_faster(medians(setting, seed=3)[:RACES] + gain, RULE.of_stage(CANDIDATES))
    confirmed = is_faster(medians(setting, seed=4)[:RACES] + gain, RULE.of_confirmation)
    assert np.mean(found & confirmed) >= share


def test_the_level_is_shared_by_all_stages_and_candidates() -> None:
    stages = [RULE.of_stage(count) for count in (CANDIDATES, 4, MOST_IN_CONTEST)]
    spent = CANDIDATES * stages[0].level + 4 * stages[1].level + MOST_IN_CONTEST * stages[2].level
    assert spent + MOST_CONFIRMED * RULE.of_confirmation.level == pytest.approx(RULE.level)


def decision(ratio: float, low: float, high: float, *, is_faster: bool = True) -> Decision:
    answer = RatioAnswer.WORSE if is_faster else RatioAnswer.OPEN
    return Decision(answer=answer, confidence=0.99, rounds=9, ratio=ratio, low=low, high=high)


def test_the_simplest_of_those_that_may_be_equal_comes_first() -> None:
    found = [
        decision(1.30, 1.20, 1.41),
        decision(1.32, 1.22, 1.43),
        decision(1.10, 1.05, 1.15),
        None,
        decision(1.5, 0.9, 2.5, is_faster=False),
    ]
    assert find_contest(found, [1, 2, 1, 1, 1]) == Contest(simplest=0, others=(1,))
    assert find_contest(found[2:], [1, 1, 1]) == Contest(simplest=0)
    assert find_contest(found[3:], [1, 1]) is None


def test_an_open_candidate_is_promising_after_some_rounds() -> None:
    unsure = Decision(answer=RatioAnswer.OPEN, confidence=0.99, rounds=1, ratio=2.0)
    near = decision(1.05, 0.97, 1.2, is_faster=False)
    slow = decision(0.95, 0.9, 1.01, is_faster=False)
    assert find_promising([slow, near, unsure, decision(1.2, 1.0, 1.5, is_faster=False)]) == (3, 1)


def test_no_gain_is_denied_that_some_rounds_would_allow() -> None:
    known = decision(1.0, 0.95, 1.04, is_faster=False)
    unsure = Decision(answer=RatioAnswer.OPEN, confidence=0.99, rounds=1, ratio=1.0)
    assert most_gain([known, None]) == pytest.approx(0.04)
    assert most_gain([decision(0.9, 0.85, 0.95, is_faster=False)]) == 0.0
    assert most_gain([known, unsure]) is None
    assert most_gain([None]) is None


def test_the_detectable_gain_is_that_of_the_least_sure_open_candidate() -> None:
    near, far = (
        Decision(answer=RatioAnswer.OPEN, confidence=0.99, rounds=5, ratio=1.0, detectable=gain)
        for gain in (0.04, 0.09)
    )
    unsure = Decision(answer=RatioAnswer.OPEN, confidence=0.99, rounds=1, ratio=1.0)
    decided = decision(1.2, 1.1, 1.3)
    assert detectable_gain([near, None, far]) == 0.09
    assert detectable_gain([near, unsure]) is None
    assert detectable_gain([near, replace(far, detectable=math.inf)]) is None
    assert detectable_gain([None]) is None
    assert detectable_gain([decided, near]) == 0.04
