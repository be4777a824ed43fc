"""Tune a case of a model: race sets of options against the baseline, and confirm the winner.

Single options race first, then combinations of those that helped. Among sets that cannot be
distinguished from the fastest, one with more options must be shown faster than the one with the
fewest. The winner is confirmed on fresh rounds. These alone decide whether it is called better.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct, field

from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.comparing.figures import describe_outputs
from pytest_modelperf.comparing.gates import block_pairs
from pytest_modelperf.comparing.output_changes import compare_outputs, judge_outputs
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.measurements import DuetRound, EngineFacts
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.budgets import judge_percentile
from pytest_modelperf.stats.decisions import BudgetAnswer, Decision, RatioAnswer
from pytest_modelperf.stats.duet import DuetRule, judge_duet
from pytest_modelperf.stats.race import (
    MOST_CONFIRMED,
    Contest,
    RaceRule,
    Standing,
    detectable_gain,
    find_contest,
    find_promising,
    has_contender,
    most_gain,
)
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.tuning.candidates import combined_sets
from pytest_modelperf.tuning.race import Lane, Outputs, Visit, costs_of, run_race
from pytest_modelperf.tuning.records import (
    Confirmation,
    OptionSet,
    SideCosts,
    Tried,
    TunedCase,
    TuningLimits,
)
from pytest_modelperf.tuning.report import (
    OUTPUTS_VARY,
    describe_latency_refusal,
    describe_memory_refusal,
    describe_uncompared,
    describe_unseen,
    find_warnings,
)

# How far outputs may differ, unless the user gives another share.
OUTPUTS_TOLERANCE = 0.001
# The share of the time after which each stage ends. Time that one leaves is for the next. The
# single options go on until one can be confirmed, because later stages would have nothing to do.
_SINGLE_END, _COMBINED_END, _CONTEST_END = 0.55, 0.7, 0.8
# A confirmation gets at least this share of the time.
_LEAST_SHARE = 0.1
_MEDIAN = 50.0
_LATENCY_LEVEL = 0.01


class TuningTerms(Struct, frozen=True):
    """The limits of a recommended set of options, and the rule by which it is found."""

    limits: TuningLimits = TuningLimits()
    outputs_tolerance: float = OUTPUTS_TOLERANCE
    rule: RaceRule = RaceRule()


class Countdown:
    """The seconds until a share of the time of a case is over."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._begun = clock()

    def __call__(self, share: float = 1.0) -> float:
        return self._begun + share * self._seconds - self._clock()

    def at_least(self, share: float) -> float:
        """Return the remaining time, or this share of the whole if that is more."""
        return max(self(), share * self._seconds)


class TuningBench(Protocol):
    """The source of rounds for a case. On real workers that is `Duets`."""

    setup: Setup
    place: CasePlace
    against: OptionSet
    facts: dict[str, EngineFacts]
    outputs: dict[str, Outputs | None]

    def visit(self, visit: Visit) -> Sequence[DuetRound]:
        """Take rounds of a set of options and of the set it is compared with."""
        ...

    def confirm(self, winner: OptionSet, rule: DuetRule, seconds: float) -> Sequence[DuetRound]:
        """Take fresh rounds of a winner and the baseline."""
        ...

    def read_again(self) -> Outputs | None:
        """Return the outputs of the baseline once more."""
        ...

    def memory_of(self, option_set: OptionSet) -> int | None:
        """Return the bytes that a model takes with these options, or None if unknown."""
        ...


def tune_case(
    duets: TuningBench, sets: Sequence[OptionSet], terms: TuningTerms, left: Countdown
) -> TunedCase:
    """Run all stages of one case, as far as time allows."""
    run = _CaseRun(duets, terms, left)
    lanes = run.race(sets, _SINGLE_END, 1.0 - _LEAST_SHARE)
    if not any(lane.rounds for lane in lanes):
        raise next(
            (lane.error for lane in lanes if isinstance(lane.error, MeasureError)),
            MeasureError(_first_reason(lanes, duets.setup)),
        )
    helped = run.faster(lanes)
    combined = combined_sets([lane.option_set for lane in helped])
    if combined and left(_COMBINED_END) > 0.0:
        lanes += run.race(combined, _COMBINED_END)
    leading = run.find_leader(lanes)
    run.confirm_first([lanes[place] for place in leading.order])
    if terms.limits.memory_bytes is not None:
        # The report says whether the baseline keeps the limit.
        run.memory_of(OptionSet({}))
    baseline = costs_of([each for lane in lanes for each in lane.rounds], 1, run.memory.get(""))
    return run.sum_up(lanes, leading, baseline)


def _first_reason(lanes: Sequence[Lane], setup: Setup) -> str:
    errors = [lane.error for lane in lanes if lane.error is not None]
    return errors[0].worded(setup.wording) if errors else "there was no time for a single round."


class Leading(Struct, frozen=True):
    """The places to confirm, in order, and those equal to the first one."""

    order: tuple[int, ...]
    equals: tuple[int, ...] = ()


class _CaseRun(Struct):
    duets: TuningBench
    terms: TuningTerms
    left: Countdown
    choose: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311  # only an order
    confirmations: list[Confirmation] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int | None] = field(default_factory=dict)
    costs: tuple[SideCosts, SideCosts] | None = None
    winner: OptionSet | None = None
    notes: list[str] = field(default_factory=list)
    _varies: bool | None = None

    def race(
        self, sets: Sequence[OptionSet], end: float, end_without: float | None = None
    ) -> list[Lane]:
        """Race until this share of the time, or `end_without` if none can be confirmed by then."""
        rule = self.terms.rule.of_stage(len(sets))

        def left_seconds(lanes: Sequence[Lane]) -> float:
            if end_without is None or has_contender([lane.decision for lane in lanes]):
                return self.left(end)
            return self.left(end_without)

        return run_race(sets, self.duets.visit, rule, left_seconds, self.choose)

    def faster(self, lanes: Sequence[Lane]) -> list[Lane]:
        found = [
            lane
            for lane in lanes
            if lane.standing is Standing.FASTER and self.refusal_of(lane) is None
        ]
        return sorted(found, key=_ratio_of, reverse=True)

    def find_leader(self, lanes: Sequence[Lane]) -> Leading:
        """Return the sets to confirm. More options lead only if shown faster than fewer."""
        decisions = [None if self.refusal_of(lane) else lane.decision for lane in lanes]
        contest = find_contest(decisions, [len(lane.option_set.options) for lane in lanes])
        if contest is None:
            return Leading(find_promising(decisions))
        met = self._meet(lanes, contest)
        faster = {place: lane for place, lane in met.items() if lane.standing is Standing.FASTER}
        first = max(faster, key=lambda place: _ratio_of(faster[place]), default=contest.simplest)
        low = _low_of(faster[first]) if faster else 0.0
        equals = (
            [place for place in faster if place != first and _high_of(faster[place]) >= low]
            if faster
            # Against the simplest, an interval below 1 shows that a candidate is slower.
            else [
                place for place in contest.others if place not in met or _high_of(met[place]) >= 1.0
            ]
        )
        places = {id(lane): place for place, lane in enumerate(lanes)}
        rest = [places[id(lane)] for lane in self.faster(lanes)]
        return Leading(tuple(dict.fromkeys((first, *rest))), tuple(equals))

    def _meet(self, lanes: Sequence[Lane], contest: Contest) -> dict[int, Lane]:
        """Race the others of a contest against the simplest. Return none without time."""
        if not contest.others or self.left(_CONTEST_END) <= 0.0:
            return {}
        self.duets.against = lanes[contest.simplest].option_set
        try:
            met = self.race([lanes[place].option_set for place in contest.others], _CONTEST_END)
        finally:
            self.duets.against = OptionSet({})
        return dict(zip(contest.others, met, strict=True))

    # -- reasons against a recommendation

    def refusal_of(self, lane: Lane) -> str | None:
        """Return the reason from its race why this set cannot be recommended, if any."""
        name, limits = lane.option_set.name, self.terms.limits
        if name not in self.refusals:
            outputs = self.outputs_of(lane.option_set)
            if outputs is not None and outputs.verdict is Verdict.REGRESSED:
                self.refusals[name] = f"its {describe_outputs(outputs)}"
            elif limits.latency_ms is not None and lane.rounds:
                answer = _judge_latency(lane.rounds, limits.latency_ms)
                if answer is BudgetAnswer.OVER:
                    self.refusals[name] = describe_latency_refusal(limits.latency_ms)
        return self.refusals.get(name)

    def outputs_of(self, option_set: OptionSet) -> Metric | None:
        """Judge the difference of the outputs from the baseline's, or return None without both."""
        changes = self.output_changes_of(option_set)
        return judge_outputs(changes, self.terms.outputs_tolerance) if changes else None

    def output_changes_of(self, option_set: OptionSet) -> tuple[OutputChange, ...]:
        base, own = (self.duets.outputs.get(name) for name in ("", option_set.name))
        if base is None or own is None:
            return ()
        changes = compare_outputs(base, own)
        is_other = judge_outputs(changes, self.terms.outputs_tolerance).verdict is Verdict.REGRESSED
        return () if is_other and self.outputs_vary() else changes

    def outputs_vary(self) -> bool:
        if self._varies is None:
            base, again = self.duets.outputs[""], None
            try:
                again = self.duets.read_again()
            except MeasureError as error:
                # The case keeps what its race found.
                reason = error.worded(self.duets.setup.wording)
                self.notes.append(f"the outputs of the baseline were not read again: {reason}")
            changes = () if base is None or again is None else compare_outputs(base, again)
            metric = judge_outputs(changes, self.terms.outputs_tolerance)
            self._varies = metric.verdict is Verdict.REGRESSED
            if self._varies:
                self.notes.append(OUTPUTS_VARY)
        return self._varies

    # -- the confirmation

    def confirm_first(self, contenders: Sequence[Lane]) -> None:
        """Confirm the contenders in their order, until one is shown faster and keeps the limits."""
        for lane in contenders:
            if self.winner is not None or len(self.confirmations) == MOST_CONFIRMED:
                return
            if not self._keeps_memory(lane.option_set):
                continue
            self._confirm(lane.option_set)

    def _keeps_memory(self, option_set: OptionSet) -> bool:
        limit = self.terms.limits.memory_bytes
        if limit is None:
            return True
        taken = self.memory_of(option_set)
        if taken is not None and taken <= limit:
            return True
        self.refusals[option_set.name] = describe_memory_refusal(taken, limit)
        return False

    def memory_of(self, option_set: OptionSet) -> int | None:
        name = option_set.name
        if name not in self.memory:
            try:
                self.memory[name] = self.duets.memory_of(option_set)
            except MeasureError as error:
                # The case keeps what its race found, and only this figure is missing.
                self.memory[name] = None
                reason = error.worded(self.duets.setup.wording)
                self.notes.append(
                    f"the memory of {name or 'the baseline'} was not measured: {reason}"
                )
        return self.memory[name]

    def _confirm(self, option_set: OptionSet) -> None:
        rule = self.terms.rule.of_confirmation
        try:
            rounds = self.duets.confirm(option_set, rule, self.left.at_least(_LEAST_SHARE))
        except MeasureError as error:
            reason = error.worded(self.duets.setup.wording)
            self.notes.append(f"{option_set.name} was not confirmed: {reason}")
            return
        decision = judge_duet(block_pairs(rounds), rule, is_last=True)
        limit_ms, refusal = self.terms.limits.latency_ms, None
        if limit_ms is not None and _judge_latency(rounds, limit_ms) is not BudgetAnswer.WITHIN:
            refusal = describe_latency_refusal(limit_ms)
            self.refusals[option_set.name] = refusal
        is_shown = decision.answer is RatioAnswer.WORSE
        self.confirmations.append(
            Confirmation(
                name=option_set.name,
                is_shown=is_shown,
                speedup=_speedup_of(decision),
                rounds=len(rounds),
                detectable=decision.detectable,
                refusal=refusal,
            )
        )
        if is_shown and refusal is None:
            self.winner = option_set
            own, base = (self.memory_of(each) for each in (option_set, OptionSet({})))
            self.costs = costs_of(rounds, 0, own), costs_of(rounds, 1, base)

    # -- the result

    def sum_up(self, lanes: Sequence[Lane], leading: Leading, baseline: SideCosts) -> TunedCase:
        duets, winner = self.duets, self.winner
        tried = tuple(self._tried(lane) for lane in lanes)
        decisions = [
            None if each.refusal or each.failure else lane.decision
            for each, lane in zip(tried, lanes, strict=True)
        ]
        unseen = [each.name for each in tried if each.standing is None and each.failure is None]
        is_first = bool(leading.order) and lanes[leading.order[0]].option_set is winner
        return TunedCase(
            case=duets.place.case,
            given=duets.setup.options,
            tried=tried,
            baseline=baseline if self.costs is None else self.costs[1],
            winner=winner,
            winner_costs=None if self.costs is None else self.costs[0],
            winner_engine=None if winner is None else duets.facts.get(winner.name),
            equals=tuple(lanes[place].option_set.name for place in leading.equals)
            if is_first
            else (),
            confirmations=tuple(self.confirmations),
            most_gain=most_gain(decisions),
            detectable=detectable_gain(decisions),
            notes=(
                *self.notes,
                *self._uncompared(),
                *find_warnings({} if winner is None else winner.options),
                *describe_unseen(unseen, duets.setup.wording),
            ),
        )

    def _uncompared(self) -> Iterator[str]:
        if self.winner is None or self._varies:
            return
        outputs = self.outputs_of(self.winner)
        if outputs is None or outputs.verdict is not Verdict.PASSED:
            changes = self.output_changes_of(self.winner)
            reasons = (change.difference for change in changes if change.difference is not None)
            reason = next(reasons, "the engine does not return the outputs of a model")
            yield describe_uncompared(self.winner.name, reason)

    def _tried(self, lane: Lane) -> Tried:
        decision = lane.decision
        error = None if lane.error is None else lane.error.worded(self.duets.setup.wording)
        return Tried(
            option_set=lane.option_set,
            standing=None if error else lane.standing,
            speedup=None if decision is None or error else _speedup_of(decision),
            rounds=len(lane.rounds),
            outputs=self.outputs_of(lane.option_set),
            output_changes=self.output_changes_of(lane.option_set),
            refusal=self.refusal_of(lane),
            failure=error,
        )


def _judge_latency(rounds: Sequence[DuetRound], limit_ms: float) -> BudgetAnswer:
    times = [each.before.times_ns for each in rounds]
    return judge_percentile(times, _MEDIAN, limit_ms * 1e6, _LATENCY_LEVEL).answer


def _speedup_of(decision: Decision) -> Ratio | None:
    if decision.ratio is None:
        return None
    return Ratio(decision.ratio, decision.low, decision.high)


def _ratio_of(lane: Lane) -> float:
    return 0.0 if lane.decision is None else lane.decision.ratio or 0.0


def _low_of(lane: Lane) -> float:
    return 0.0 if lane.decision is None else lane.decision.low or 0.0


def _high_of(lane: Lane) -> float:
    high = None if lane.decision is None else lane.decision.high
    return float("inf") if high is None else high
