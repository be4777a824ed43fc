"""Decide which figures of a duet are judged, by which rule, and with which verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.baselines.records import StoredLatency
from pytest_modelperf.comparing.limits import MEMORY, Tolerances
from pytest_modelperf.comparing.records import MEDIAN, MEMBER, TOTAL, Measure, Metric, Verdict
from pytest_modelperf.comparing.time_limits import (
    COLD_ROUNDS,
    LIMIT_LOOKS,
    PASS_LEVEL,
    STARTS,
    LatencyLimit,
    MissLimit,
    StartFigure,
    TimeLimit,
    judge_limit,
)
from pytest_modelperf.profiler.measurements import DuetRound, Round
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.sampling.rounds import BlockPair
from pytest_modelperf.stats.decisions import (
    LOOKS,
    BudgetAnswer,
    Decision,
    RatioAnswer,
    RatioOfSides,
    plan_early_looks,
    plan_looks,
    rising_at_ratios,
    share_level,
)
from pytest_modelperf.stats.duet import (
    DuetRule,
    judge_duet,
    judge_once_a_round,
    looks_worse,
    once_a_round_looks_worse,
)
from pytest_modelperf.stats.estimates import PairedTurns, needed_samples, summarize
from pytest_modelperf.stats.mixtures import MixtureAnswer, judge_mixture, members_of
from pytest_modelperf.stats.parts import PartRound, PartsAnswer, judge_last, judge_whole_and_parts
from pytest_modelperf.stats.processes import judge_stored
from pytest_modelperf.stats.records import PERCENTS, Latency, rounds_within

# The chance that a whole run raises a false alarm, shared by all of its cases.
RUN_LEVEL = 0.01
# The median's share of the level of a case. The other figures share the rest.
_MEDIAN_SHARE = 0.9
_MEDIAN = 50.0
_VERDICTS = {
    RatioAnswer.WORSE: Verdict.REGRESSED,
    RatioAnswer.NOT_WORSE: Verdict.PASSED,
    RatioAnswer.BETTER: Verdict.IMPROVED,
    RatioAnswer.OPEN: Verdict.INCONCLUSIVE,
}


_NS_PER_MS = 1e6
# Figures besides percentiles that share the smaller part of the level: starts and memory.
_OTHER_FIGURES = len(STARTS) + 1


class Gate(Struct, frozen=True, kw_only=True):
    """The limits of a case: tolerances against the side before, and absolute limits.

    `level` is the chance of a false alarm from all ratios of one case together, and from each of
    its limits. `pass_level` is the chance that a ratio exactly at its tolerance passes. `rounds` is
    the largest number of rounds of a duet. With `judges_starts`, load, first inference, memory and
    size are judged, too, and `starts` names the times of a round that are judged. Without it, the
    latency has the whole level. `measure` says whether a duet runs even if the engine's plan is the
    same.
    """

    tolerances: Tolerances = field(default_factory=Tolerances)
    limits: tuple[TimeLimit, ...] = ()
    level: float = RUN_LEVEL
    pass_level: float = PASS_LEVEL
    rounds: int = LOOKS[-1]
    judges_starts: bool = True
    starts: tuple[str, ...] = tuple(STARTS)
    measure: Measure = Measure.ALWAYS

    def divided(self, cases: int) -> Gate:
        """Return the gate of one of this many cases, which share the level of a run."""
        return replace(self, level=share_level(cases, self.level))

    def of_case(self, case: Case) -> Gate:
        """Return the gate of a case, which may be a phase of a generation."""
        phase = None if case.phase is None else case.phase.phase
        return replace(self, tolerances=self.tolerances.of_phase(phase))

    @property
    def trusts_plans(self) -> bool:
        """Whether the same plan is enough. It says nothing about starts, memory or outputs."""
        others = any(self.tolerances.names(name) for name in (*STARTS, MEMORY))
        return self.measure is Measure.CHANGED and not others and self.tolerances.outputs is None

    @property
    def percents(self) -> tuple[float, ...]:
        return self.tolerances.percents

    @property
    def tolerance(self) -> float:
        return self.tolerances.of(_MEDIAN)

    @property
    def confidence(self) -> float:
        return self.rule(_MEDIAN).confidence

    @property
    def limit_level(self) -> float:
        """Error level of one interim check of a limit."""
        return self.level / (len(LIMIT_LOOKS) + 1)

    @property
    def samples_needed(self) -> tuple[int, ...]:
        """The samples that each awaited percentile needs of each side, the fewest first."""
        awaited = {*self.tolerances.awaited, *self._limited_percents, _MEDIAN}
        of_misses = (each.samples_needed for each in self.limits if isinstance(each, MissLimit))
        return tuple(sorted({*map(needed_samples, awaited), *of_misses}))

    @property
    def has_limits(self) -> bool:
        """Whether there are limits of the latency, which longer rounds decide sooner."""
        return any(isinstance(each, LatencyLimit | MissLimit) for each in self.limits)

    @property
    def _limited_percents(self) -> tuple[float, ...]:
        return tuple(each.percent for each in self.limits if isinstance(each, LatencyLimit))

    def rule(self, percent: float) -> DuetRule:
        return self._rule(self.tolerances.of(percent), self._level_of(percent))

    def figure_rule(self, name: str) -> DuetRule:
        """Return the rule of a figure that is not a percentile."""
        return self._rule(self.tolerances.of_figure(name), self._other_level)

    def _rule(self, tolerance: float, level: float) -> DuetRule:
        return DuetRule(
            tolerance=tolerance,
            level=level,
            pass_level=self.pass_level,
            looks=plan_looks(self.rounds),
        )

    @property
    def _main(self) -> tuple[float, ...]:
        """The percentiles that share the larger part of the level."""
        return (_MEDIAN,) if _MEDIAN in self.percents else self.percents

    @property
    def _others(self) -> int:
        """The number of figures that share the rest of the level, and that rarely raise alarms."""
        tails = len(self.percents) - len(self._main)
        return tails + _OTHER_FIGURES if self.judges_starts else tails

    @property
    def _other_level(self) -> float:
        return share_level(self._others, (1.0 - _MEDIAN_SHARE) * self.level)

    def _level_of(self, percent: float) -> float:
        if percent not in self._main:
            return self._other_level
        part = _MEDIAN_SHARE if self._others else 1.0
        return share_level(len(self._main), part * self.level)

    def is_decided(self, rounds: Sequence[DuetRound]) -> bool:
        """Whether no further round is needed.

        One figure that is worse decides the case. A tail or start that the user did not name is
        awaited only while it looks worse than allowed. Parts can decide earlier, but rounds go on
        until the median of the whole model is known, because reports show it.
        """
        if len(rounds) not in {*plan_early_looks(self.rounds), *LIMIT_LOOKS}:
            # Answers are only given at planned looks.
            return False
        pairs = block_pairs(rounds)
        if sum(len(after.times_ns) for _, after in pairs) < needed_samples(_MEDIAN):
            return False
        mixture = self.judge_members(pairs)
        answers = {p: _judge(rounds, self.rule(p), p).answer for p in self.percents}
        if mixture is not None:
            answers[_MEDIAN] = mixture.total.answer
        if RatioAnswer.WORSE in answers.values() or (mixture and mixture.shows_worse):
            return True
        judged = {name: STARTS[name] for name in self.starts} if self.judges_starts else {}
        starts = {name: _start_pairs(rounds, start) for name, start in judged.items()}
        rules = {name: self.figure_rule(name) for name in judged}
        tick_ns = _tick_ns(rounds)
        starting = {
            name: judge_once_a_round(starts[name], rules[name], len(rounds), tick_ns=tick_ns).answer
            for name in judged
        }
        if RatioAnswer.WORSE in starting.values():
            return True
        is_open = mixture is not None and mixture.looks_worse(self.tolerance)
        is_open = (
            is_open
            or any(
                answer is RatioAnswer.OPEN
                and (p in self.tolerances.awaited or looks_worse(pairs, self.rule(p), p))
                for p, answer in answers.items()
            )
            or any(
                answer is RatioAnswer.OPEN
                and (self.tolerances.names(n) or once_a_round_looks_worse(starts[n], rules[n]))
                for n, answer in starting.items()
            )
        )
        return not is_open and self.fits([each.after for each in rounds])

    def judge_members(
        self, pairs: Sequence[PairedTurns], *, is_last: bool = False
    ) -> MixtureAnswer | None:
        """Judge a workload by its members, if it is one and the median has a tolerance."""
        if _MEDIAN not in self.percents:
            return None
        return judge_mixture(pairs, self.rule(_MEDIAN), is_last=is_last)

    def fits(self, rounds: Sequence[Round]) -> bool:
        """Whether all limits are surely kept, or one is surely exceeded."""
        if self.limits and len(rounds) not in LIMIT_LOOKS:
            return False
        level, limited = self.limit_level, self._limited_percents
        answers = [judge_limit(limit, rounds, level, limited).answer for limit in self.limits]
        return BudgetAnswer.OVER in answers or BudgetAnswer.OPEN not in answers


def median_gate(tolerance: float, level: float, max_seconds: float) -> Gate:
    """Return a gate for the median alone, by which both wrong answers are equally bad."""
    return Gate(
        tolerances=Tolerances(shares=((_MEDIAN, tolerance),)),
        level=level,
        pass_level=level,
        rounds=rounds_within(max_seconds),
        judges_starts=False,
    )


def side_latencies(rounds: Sequence[DuetRound]) -> tuple[Latency, Latency]:
    before, after = (
        summarize([pair[side].times_ns for pair in block_pairs(rounds)], 1) for side in (0, 1)
    )
    return before, after


def answer_by_parts(rounds: Sequence[DuetRound], gate: Gate) -> PartsAnswer | None:
    """Return the answer of the parts that ran in each round, or None without parts."""
    return judge_last(part_rounds(rounds), gate.rule(_MEDIAN)) if has_parts(rounds) else None


def latency_metrics(rounds: Sequence[DuetRound], gate: Gate) -> tuple[Metric, ...]:
    """Return every percentile of the latency, in milliseconds. Those of the gate are judged."""
    return percentile_metrics(rounds, gate, side_latencies(rounds), answer_by_parts(rounds, gate))


def percentile_metrics(
    rounds: Sequence[DuetRound],
    gate: Gate,
    sides: tuple[Latency, Latency],
    parts: PartsAnswer | None,
) -> tuple[Metric, ...]:
    """Return the latency metrics of both sides. If parts ran, they answer for the median."""
    pairs = block_pairs(rounds)
    decisions = {
        percent: parts.median.decision
        if parts is not None and percent == _MEDIAN
        else judge_duet(pairs, gate.rule(percent), percent, is_last=True)
        for percent in PERCENTS
    }
    mixture = gate.judge_members(pairs, is_last=True)
    if members_of([before for before, _ in pairs]) is not None:
        # The median of a workload is that of one member or of none, so its change is only shown.
        of_all = decisions[_MEDIAN]
        decisions[_MEDIAN] = Decision(confidence=of_all.confidence, rounds=of_all.rounds)
    shown = _shown_percentiles(sides, decisions)
    median_ratio = decisions[_MEDIAN].ratio
    if parts is not None and median_ratio is not None:
        calm = RatioOfSides(parts.calm_ns, parts.calm_ns * median_ratio, median_ratio)
        shown = {**shown, _MEDIAN: calm}
    known = dict(zip(shown, rising_at_ratios(list(shown.values())), strict=True))
    metrics = []
    for percent, decision in decisions.items():
        old, new = (side.percentile(percent) for side in sides)
        values_ns = old.value_ns, new.value_ns
        if percent in known:
            values_ns = known[percent].before_ns, known[percent].after_ns
        metrics.append(_metric(old.name, values_ns, decision, gate, percent))
    if mixture is None:
        return tuple(metrics)
    unjudged = (replace(m, gated=m.gated and m.name != MEDIAN) for m in metrics)
    return (*_mixture_metrics(pairs, mixture, gate), *unjudged)


def _mixture_metrics(
    pairs: Sequence[PairedTurns], found: MixtureAnswer, gate: Gate
) -> Iterator[Metric]:
    members = members_of([before for before, _ in pairs])
    weights = () if members is None else members.weights
    medians = [
        _at_ratio((_ms(each.before_ns), _ms(each.after_ns)), each.decision)
        for each in found.members
    ]
    before = [each for each, _ in medians if each is not None]
    total_ms = None
    if len(before) == len(weights):
        total_ms = sum(weight * ms for weight, ms in zip(weights, before, strict=True))
    ratio = found.total.ratio
    after_ms = None if total_ms is None or ratio is None else total_ms * ratio
    awaited = _MEDIAN in gate.tolerances.awaited
    yield judged_metric(
        TOTAL, (total_ms, after_ms), found.total, gate.tolerance, is_awaited=awaited
    )
    for each, values in zip(found.members, medians, strict=True):
        yield judged_metric(
            f"{MEMBER}{each.name}", values, each.decision, gate.tolerance, is_awaited=False
        )


def _shown_percentiles(
    sides: tuple[Latency, Latency], decisions: Mapping[float, Decision]
) -> dict[float, RatioOfSides]:
    """Return the percentiles known on both sides, or nothing if a clock measured a time of 0."""
    found = {}
    for percent, decision in decisions.items():
        old_ns, new_ns = (side.percentile(percent).value_ns for side in sides)
        if old_ns == 0 or new_ns == 0:
            return {}
        if old_ns and new_ns:
            found[percent] = RatioOfSides(old_ns, new_ns, decision.ratio or new_ns / old_ns)
    return found


def start_metrics(rounds: Sequence[DuetRound], gate: Gate) -> tuple[Metric, ...]:
    """Return the times to load and of the first inference, in ms. One round decides nothing."""
    metrics = []
    for name in gate.starts:
        start = STARTS[name]
        pairs, rule = _start_pairs(rounds, start), gate.figure_rule(name)
        shown = pairs or [(start.of(each.before), start.of(each.after)) for each in rounds]
        decision = judge_once_a_round(
            pairs, rule, len(rounds), is_last=True, tick_ns=_tick_ns(rounds)
        )
        before, after = _at_ratio(
            (median(pair[0] for pair in shown), median(pair[1] for pair in shown)), decision
        )
        metrics.append(
            judged_metric(
                start.metric,
                (_ms(before), _ms(after)),
                decision,
                rule.tolerance,
                is_awaited=gate.tolerances.names(name),
            )
        )
    return tuple(metrics)


def _start_pairs(rounds: Sequence[DuetRound], start: StartFigure) -> list[tuple[int, int]]:
    return [(start.of(each.before), start.of(each.after)) for each in rounds[COLD_ROUNDS:]]


def _tick_ns(rounds: Sequence[DuetRound]) -> int:
    return max(block.tick_ns for pair in block_pairs(rounds) for block in pair)


def block_pairs(rounds: Sequence[DuetRound]) -> list[BlockPair]:
    return [(each.before.block, each.after.block) for each in rounds]


def _judge(rounds: Sequence[DuetRound], rule: DuetRule, percent: float) -> Decision:
    """Return the decision on a percentile so far. If changed parts ran, they decide the median."""
    if percent == _MEDIAN and has_parts(rounds):
        return judge_whole_and_parts(part_rounds(rounds), rule).decision
    return judge_duet(block_pairs(rounds), rule, percent)


def has_parts(rounds: Sequence[DuetRound]) -> bool:
    """Whether parts of the model ran in each round besides the whole model."""
    return bool(rounds) and all(
        each.before.block.parts and each.after.block.parts for each in rounds
    )


def part_rounds(rounds: Sequence[DuetRound]) -> list[PartRound]:
    """Return the rounds in which parts ran, in the form that the statistics take."""
    return [PartRound(pair, pair[0].parts, pair[1].parts) for pair in block_pairs(rounds)]


def stored_metrics(stored: StoredLatency, now: Latency, gate: Gate) -> tuple[Metric, ...]:
    """Return the percentiles of the gate, now and in the recorded processes."""
    metrics = []
    for percent in gate.percents:
        latest = now.percentile(percent)
        if latest.value_ns is None:
            # There are too few samples now, and the decision says how many are needed.
            needed = latest.needed
            decision = Decision(
                confidence=gate.confidence, rounds=now.rounds, samples_needed=needed
            )
        else:
            rule = gate.rule(percent)
            recorded = [process.percentile_ns(percent) for process in stored.processes]
            decision = judge_stored(recorded, latest.value_ns, rule.tolerance, rule.level)
        before_ns = stored.percentile_ns(percent)
        if decision.ratio is not None and latest.value_ns is not None:
            # The decision is about the typical process by logarithms, which is not the median.
            before_ns = latest.value_ns / decision.ratio
        values_ns = before_ns, latest.value_ns
        metrics.append(_metric(latest.name, values_ns, decision, gate, percent))
    return tuple(metrics)


def unjudged_metrics(now: Latency, gate: Gate) -> tuple[Metric, ...]:
    """Return the percentiles of the gate now, all undecided because no recorded times exist."""
    return tuple(
        Metric(
            f"latency_{latest.name}",
            None,
            _ms(latest.value_ns),
            Verdict.INCONCLUSIVE,
            awaited=percent in gate.tolerances.awaited,
            allowed=gate.tolerances.of(percent),
        )
        for percent in gate.percents
        for latest in (now.percentile(percent),)
    )


def stored_start_metrics(
    stored: StoredLatency, rounds: Sequence[Round], gate: Gate
) -> tuple[Metric, ...]:
    """Return the times to load and of the first inference, now and in the recorded processes.

    Each process gives the median of its rounds without the cold one, so a process of one round
    gives nothing.
    """
    metrics = []
    for name, start in STARTS.items():
        rule = gate.figure_rule(name)
        medians = [_start_median(start.stored(process)) for process in stored.processes]
        recorded = [each for each in medians if each is not None]
        latest = _start_median([start.of(made) for made in rounds])
        decision = (
            Decision(confidence=rule.confidence, rounds=len(rounds))
            if latest is None
            else judge_stored(recorded, latest, rule.tolerance, rule.level)
        )
        metrics.append(
            judged_metric(
                start.metric,
                (_ms(median(recorded)) if recorded else None, _ms(latest)),
                decision,
                rule.tolerance,
                is_awaited=gate.tolerances.names(name),
            )
        )
    return tuple(metrics)


def _start_median(times_ns: Sequence[int]) -> float | None:
    warm = times_ns[COLD_ROUNDS:]
    return median(warm) if warm else None


def _metric(
    name: str,
    values_ns: tuple[float | None, float | None],
    decision: Decision,
    gate: Gate,
    percent: float,
) -> Metric:
    return judged_metric(
        f"latency_{name}",
        (_ms(values_ns[0]), _ms(values_ns[1])),
        decision,
        gate.tolerances.of(percent),
        is_gated=percent in gate.percents,
        is_awaited=percent in gate.tolerances.awaited,
    )


def judged_metric(  # noqa: PLR0913  # a figure with all that a report says about it
    name: str,
    values: tuple[float | None, float | None],
    decision: Decision,
    allowed: float,
    *,
    is_gated: bool = True,
    is_awaited: bool,
) -> Metric:
    has_interval = decision.low is not None and decision.high is not None
    return Metric(
        name,
        *values,
        verdict=_VERDICTS[decision.answer],
        gated=is_gated,
        interval=(decision.low, decision.high) if has_interval else None,  # type: ignore[arg-type]  # both are set
        detectable=decision.detectable,
        allowed=allowed,
        measured_ratio=decision.ratio,
        awaited=is_awaited,
        confidence=decision.confidence,
        rounds_needed=decision.rounds_needed,
        samples_needed=decision.samples_needed,
    )


def _at_ratio(
    values: tuple[float | None, float | None], decision: Decision
) -> tuple[float | None, float | None]:
    """Return the figures nearest to these two that differ by the judged ratio.

    Other processes may have disturbed one side more. Typical figures of all rounds then show
    another change.
    """
    (before, after), ratio = values, decision.ratio
    if not before or not after or not ratio:
        return values
    middle = math.sqrt(before * after)
    return middle / math.sqrt(ratio), middle * math.sqrt(ratio)


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / _NS_PER_MS
