"""Which figures of a duet are judged, by which rule, and what the rule says of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pytest_modelperf.baseline_records import Fidelity, StoredLatency
from pytest_modelperf.decisions import Answer, Decision, Fit
from pytest_modelperf.limits import Tolerances
from pytest_modelperf.measurements import PERCENTS, Block, DuetRound, Latency, Ratio
from pytest_modelperf.stats import (
    LOOKS,
    DuetRule,
    duet_ratio,
    judge_duet,
    judge_percentile,
    judge_stored,
    needed_samples,
    plan_looks,
    share_level,
    summarize,
)
from pytest_modelperf.verdicts import Metric, Verdict

BlockPair: TypeAlias = tuple[Block, Block]

# The chance that a whole run raises a false alarm.
RUN_LEVEL = 0.01
# What the usual looks are planned for. Ten times as many rounds tell a third of the change.
_USUAL_SECONDS = 10.0
_MOST_ROUNDS = 10 * LOOKS[-1]
# After how many rounds it is asked whether a limit is kept; once more after the last of all.
_LIMIT_LOOKS = plan_looks(100)

_VERDICTS = {
    Answer.WORSE: Verdict.REGRESSED,
    Answer.NOT_WORSE: Verdict.PASSED,
    Answer.BETTER: Verdict.IMPROVED,
    Answer.OPEN: Verdict.INCONCLUSIVE,
}


def rounds_within(max_seconds: float) -> int:
    """The most rounds of a duet: as many more as there is more time than usual."""
    return min(_MOST_ROUNDS, max(LOOKS[-1], round(LOOKS[-1] * max_seconds / _USUAL_SECONDS)))


@dataclass(frozen=True, slots=True)
class LatencyLimit:
    """The most that a percentile of the latency may be."""

    percent: float
    ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a case must keep to: tolerances against what was before, and limits of its own.

    `level` is the chance of a false alarm of one judged figure, `rounds` the most of a duet.
    """

    tolerances: Tolerances = field(default_factory=Tolerances)
    limits: tuple[LatencyLimit, ...] = ()
    level: float = RUN_LEVEL
    rounds: int = LOOKS[-1]

    def divided(self, cases: int) -> Gate:
        """The gate of one of so many cases: the level of a run is shared by all of its figures."""
        return replace(self, level=share_level(cases * len(self.percents), self.level))

    @property
    def percents(self) -> tuple[float, ...]:
        return self.tolerances.percents

    @property
    def tolerance(self) -> float:
        return self.tolerances.of(50.0)

    @property
    def confidence(self) -> float:
        return self.rule(50.0).confidence

    @property
    def limit_level(self) -> float:
        """That of one look at a limit: it may be looked at as often as a ratio is."""
        return self.level / (len(_LIMIT_LOOKS) + 1)

    @property
    def samples_needed(self) -> int:
        """How many a side the percentiles take that are judged."""
        return needed_samples(max(*self.percents, *(limit.percent for limit in self.limits), 50.0))

    def rule(self, percent: float) -> DuetRule:
        tolerance = self.tolerances.of(percent)
        return DuetRule(tolerance=tolerance, level=self.level, looks=plan_looks(self.rounds))

    def is_decided(self, pairs: Sequence[BlockPair]) -> bool:
        """Whether no further round is needed: one that is worse decides for all."""
        if len(pairs) not in {*plan_looks(self.rounds), *_LIMIT_LOOKS}:
            # Nothing is answered between two looks.
            return False
        times = [(before.times_ns, after.times_ns) for before, after in pairs]
        answers = [judge_duet(times, self.rule(p), p).answer for p in self.percents]
        if Answer.WORSE in answers:
            return True
        return Answer.OPEN not in answers and self.fits([after for _, after in times])

    def fits(self, rounds: Sequence[Sequence[int]]) -> bool:
        """Whether it is known of each limit if it is kept: one that is not decides for all."""
        if self.limits and len(rounds) not in _LIMIT_LOOKS:
            return False
        answers = [
            judge_percentile(rounds, limit.percent, limit.ns, self.limit_level).answer
            for limit in self.limits
        ]
        return Fit.OVER in answers or Fit.OPEN not in answers


def latency_metrics(rounds: Sequence[DuetRound], gate: Gate) -> tuple[Metric, ...]:
    """Every percentile of the latency, in milliseconds; those of the gate are judged."""
    pairs = [(each.before.times_ns, each.after.times_ns) for each in rounds]
    before, after = (summarize([pair[side] for pair in pairs], 1) for side in (0, 1))
    metrics = []
    for percent in PERCENTS:
        old, new = before.percentile(percent), after.percentile(percent)
        decision = judge_duet(pairs, gate.rule(percent), percent, is_last=True)
        metrics.append(
            _metric(
                f"latency_{old.name}",
                (_ms(old.value_ns), _ms(new.value_ns)),
                decision,
                gate.tolerances.of(percent),
                is_gated=percent in gate.percents,
            )
        )
    return tuple(metrics)


def stored_metrics(stored: StoredLatency, now: Latency, gate: Gate) -> tuple[Metric, ...]:
    """The percentiles of the gate against those of the processes that were recorded."""
    metrics = []
    for percent in gate.percents:
        latest = now.percentile(percent)
        recorded = [process.percentile_ns(percent) for process in stored.processes]
        decision = (
            # Too few samples today: nothing is shown, and that is said.
            Decision(
                answer=Answer.OPEN,
                confidence=gate.confidence,
                rounds=now.rounds,
                samples_needed=latest.needed,
            )
            if latest.value_ns is None
            else judge_stored(recorded, latest.value_ns, gate.tolerances.of(percent), gate.level)
        )
        values = (_ms(stored.percentile_ns(percent)), _ms(latest.value_ns))
        name = f"latency_{latest.name}"
        metrics.append(_metric(name, values, decision, gate.tolerances.of(percent), is_gated=True))
    return tuple(metrics)


# How far a twin may be from the model that it stands for, and how surely it must not be farther.
FIDELITY = 0.01
_FIDELITY_CONFIDENCE = 0.95


def is_faithful(pairs: Sequence[BlockPair]) -> bool:
    """Whether it is known if a twin runs like its model: it is shown to, or shown not to."""
    ratio = duet_ratio([(a.times_ns, b.times_ns) for a, b in pairs], _FIDELITY_CONFIDENCE)
    if ratio.low is None or ratio.high is None:
        return False
    return _is_near(ratio) or ratio.low > 1.0 + FIDELITY or ratio.high < 1.0 - FIDELITY


def judge_fidelity(rounds: Sequence[DuetRound]) -> Fidelity:
    """Whether the second side, the twin, is shown to be as fast as the first."""
    times = [(each.before.times_ns, each.after.times_ns) for each in rounds]
    ratio = duet_ratio(times, _FIDELITY_CONFIDENCE)
    is_trusted = _is_near(ratio)
    reason = None
    if not is_trusted:
        reason = f"the twin was not shown to run within {100 * FIDELITY:g} % of the model"
    return Fidelity(ratio=ratio, rounds=len(rounds), is_trusted=is_trusted, reason=reason)


def _is_near(ratio: Ratio) -> bool:
    if ratio.low is None or ratio.high is None:
        return False
    return ratio.low >= 1.0 - FIDELITY and ratio.high <= 1.0 + FIDELITY


def _metric(
    name: str,
    values: tuple[float | None, float | None],
    decision: Decision,
    tolerance: float,
    *,
    is_gated: bool,
) -> Metric:
    has_interval = decision.low is not None and decision.high is not None
    return Metric(
        name,
        *values,
        verdict=_VERDICTS[decision.answer],
        gated=is_gated,
        interval=(decision.low, decision.high) if has_interval else None,  # type: ignore[arg-type]  # both are there
        detectable=decision.detectable,
        allowed=tolerance,
        measured_ratio=decision.ratio,
    )


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
