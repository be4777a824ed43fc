"""Workloads of differing inferences: the time of one pass, and that of each member.

A pass runs each member as often as its weight. A slower member that is rare hardly moves the median
of all inferences, and a member that takes most of the time decides alone. So a pass is judged by
its whole time, each member by its own inferences, and both share the error levels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.stats.decisions import Decision, RatioAnswer, share_level
from pytest_modelperf.stats.duet import DuetRule, judge_duet
from pytest_modelperf.stats.estimates import (
    MEDIAN,
    PairedTurns,
    bounded_exp,
    estimate_percentile,
    logs,
    needed_samples,
    typical_interval,
)
from pytest_modelperf.stats.records import Members, Percentile, Turns

# The share of the error level for the time of a pass. The members have the rest.
_PASS_SHARE = 0.5


class MemberLatency(Struct, frozen=True, kw_only=True):
    """The median time of a workload's member, its weight, and its share of the time of a pass."""

    name: str
    weight: int
    p50: Percentile
    share: float


class MixtureLatency(Struct, frozen=True, kw_only=True):
    """The time of one pass of a workload, with its interval, and that of each member."""

    total_ns: float
    low_ns: float | None
    high_ns: float | None
    members: tuple[MemberLatency, ...]

    @property
    def inferences(self) -> int:
        return sum(member.weight for member in self.members)

    @property
    def mean(self) -> Percentile:
        """The time of a pass divided by its inferences."""
        found = Percentile(percent=MEDIAN, needed=needed_samples(MEDIAN), value_ns=self.total_ns)
        found = replace(found, low_ns=self.low_ns, high_ns=self.high_ns)
        return found.scaled(1.0 / self.inferences)


def summarize_mixture(rounds: Sequence[Turns], confidence: float) -> MixtureLatency | None:
    """Summarize a workload, or return None if it is not one or if a member has not run yet."""
    members = members_of(rounds)
    if members is None:
        return None
    own = [[each.of_member(place) for each in rounds] for place in range(len(members))]
    times = [[turns.times_ns for turns in each if turns.times_ns] for each in own]
    if not all(times):
        return None
    medians = [float(np.median(np.concatenate(each))) for each in times]
    total_ns = sum(w * ns for w, ns in zip(members.weights, medians, strict=True))
    low_ns = high_ns = None
    if len(rounds) > 1:
        passes = [_pass_ns(each, members, medians) for each in rounds]
        # Disturbed rounds move the mean of the passes, so only the width of its interval is used.
        centre = bounded_exp(float(logs(passes).mean()))
        low_ns, high_ns = (
            total_ns * bound / centre for bound in typical_interval(passes, confidence)
        )
    return MixtureLatency(
        total_ns=total_ns,
        low_ns=low_ns,
        high_ns=high_ns,
        members=tuple(
            MemberLatency(
                name=name,
                weight=weight,
                p50=estimate_percentile(each, MEDIAN, confidence),
                share=weight * ns / total_ns if total_ns else 0.0,
            )
            for name, weight, each, ns in zip(
                members.names, members.weights, times, medians, strict=True
            )
        ),
    )


def members_of(rounds: Sequence[Turns]) -> Members | None:
    """Return the members of a workload, or None if this is not one."""
    mix = rounds[0].mix if rounds else None
    return None if mix is None else mix.members


def _pass_ns(turns: Turns, members: Members, usual_ns: Sequence[float]) -> float:
    """Return the time of a pass in one round. A member that did not run has its usual time."""
    found = [turns.of_member(place).times_ns for place in range(len(members))]
    medians = [
        float(np.median(times)) if times else usual
        for times, usual in zip(found, usual_ns, strict=True)
    ]
    return sum(w * ns for w, ns in zip(members.weights, medians, strict=True))


class MemberAnswer(Struct, frozen=True):
    """The decision on one member, and its median times on both sides, in nanoseconds."""

    name: str
    decision: Decision
    before_ns: float | None
    after_ns: float | None


class MixtureAnswer(Struct, frozen=True):
    """The decisions on a workload: on the time of a pass, and on each member."""

    total: Decision
    members: tuple[MemberAnswer, ...]

    @property
    def shows_worse(self) -> bool:
        """Whether the pass or a member takes longer than allowed."""
        found = (self.total, *(each.decision for each in self.members))
        return any(each.answer is RatioAnswer.WORSE for each in found)

    def looks_worse(self, tolerance: float) -> bool:
        """Whether an open member seems to take longer than allowed."""
        return any(
            each.decision.is_open and (each.decision.ratio or 0.0) > 1.0 + tolerance
            for each in self.members
        )


def judge_mixture(
    pairs: Sequence[PairedTurns], rule: DuetRule, *, is_last: bool = False
) -> MixtureAnswer | None:
    """Judge a workload by the rounds so far, or return None if this is not one."""
    members = members_of([before for before, _ in pairs])
    if members is None:
        return None
    level = rule.level * _PASS_SHARE
    whole = replace(rule, level=level)
    each = replace(rule, level=share_level(len(members), rule.level - level))
    return MixtureAnswer(
        judge_duet(pairs, whole, is_last=is_last),
        tuple(
            _judge_member(pairs, name, place, each, is_last=is_last)
            for place, name in enumerate(members.names)
        ),
    )


def _judge_member(
    pairs: Sequence[PairedTurns], name: str, place: int, rule: DuetRule, *, is_last: bool
) -> MemberAnswer:
    found = [(before.of_member(place), after.of_member(place)) for before, after in pairs]
    own = [pair for pair in found if pair[0].times_ns]
    if not own:
        return MemberAnswer(name, Decision(confidence=rule.confidence, rounds=0), None, None)
    before, after = (
        float(np.median(np.concatenate([pair[side].times_ns for pair in own]))) for side in (0, 1)
    )
    return MemberAnswer(name, judge_duet(own, rule, is_last=is_last), before, after)
