"""The race: rounds of each candidate beside the baseline, until all are decided or time is over.

What takes the rounds and what tells the time are functions, so nothing here knows an engine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from pytest_modelperf.comparing.gates import block_pairs
from pytest_modelperf.errors import MeasureError, UsageError
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.stats.decisions import Decision
from pytest_modelperf.stats.duet import DuetRule, judge_duet
from pytest_modelperf.stats.race import Standing, standing_of
from pytest_modelperf.tuning.records import OptionSet

# Options that an engine refuses end their own race, not that of the others.
_FAILURES = (MeasureError, UsageError)


class Visit(Struct, frozen=True):
    """The rounds that one set of options is to have next, and the seconds they may take.

    `number` counts the passes, in each of which every open set has one visit.
    """

    option_set: OptionSet
    rounds: int
    seconds: float
    number: int


TakeRounds: TypeAlias = Callable[[Visit], Sequence[DuetRound]]


class Lane(Struct):
    """One set of options in a race: its rounds so far, and what they show."""

    option_set: OptionSet
    rounds: list[DuetRound] = field(default_factory=list)
    decision: Decision | None = None
    error: MeasureError | UsageError | None = None

    @property
    def is_waiting(self) -> bool:
        return self.error is None and (self.decision is None or self.decision.is_open)

    @property
    def standing(self) -> Standing | None:
        """How it stands so far; None if no rounds of it were judged."""
        return None if self.decision is None else standing_of(self.decision)

    def judge(self, rule: DuetRule, *, is_last: bool = False) -> None:
        self.decision = judge_duet(block_pairs(self.rounds), rule, is_last=is_last)


LeftSeconds: TypeAlias = Callable[[Sequence[Lane]], float]


def run_race(
    option_sets: Sequence[OptionSet],
    take: TakeRounds,
    rule: DuetRule,
    left_seconds: LeftSeconds,
    choose: random.Random,
) -> list[Lane]:
    """Every set of options with its rounds and decision; one that time was too short for has none.

    All open sets get their rounds up to the next look, in random order, and whoever is decided
    leaves. In the first pass they come in the order given, and each gets its share of the time.
    """
    lanes = [Lane(option_set) for option_set in option_sets]
    waiting = list(lanes)
    for number, look in enumerate(sorted({*rule.looks, *rule.pass_looks})):
        if number:
            choose.shuffle(waiting)
        for place, lane in enumerate(waiting):
            seconds = left_seconds(lanes)
            if seconds <= 0.0:
                break
            wanted = look - len(lane.rounds)
            if wanted > 0:
                _visit(
                    lane,
                    Visit(lane.option_set, wanted, seconds / (len(waiting) - place), number),
                    take,
                )
            if lane.rounds and lane.error is None:
                lane.judge(rule)
        waiting = [lane for lane in waiting if lane.is_waiting]
        if not waiting or left_seconds(lanes) <= 0.0:
            break
    for lane in waiting:
        if lane.rounds:
            lane.judge(rule, is_last=True)
    return lanes


def _visit(lane: Lane, visit: Visit, take: TakeRounds) -> None:
    try:
        lane.rounds += take(visit)
    except _FAILURES as error:
        lane.error = error
