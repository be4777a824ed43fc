"""Which figures of a duet are judged, by which rule, and what the rule says of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pytest_modelperf.baseline_records import Fidelity, StoredLatency
from pytest_modelperf.decisions import Answer, Decision
from pytest_modelperf.measurements import PERCENTS, Block, DuetRound, Latency, Ratio
from pytest_modelperf.stats import (
    DuetRule,
    duet_ratio,
    judge_duet,
    judge_stored,
    share_level,
    summarize,
)
from pytest_modelperf.verdicts import Metric, Verdict

BlockPair: TypeAlias = tuple[Block, Block]

DEFAULT_TOLERANCE = 0.03
# The chance that a whole run raises a false alarm.
RUN_LEVEL = 0.01

_VERDICTS = {
    Answer.WORSE: Verdict.REGRESSED,
    Answer.NOT_WORSE: Verdict.PASSED,
    Answer.BETTER: Verdict.IMPROVED,
    Answer.OPEN: Verdict.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a comparison allows: a tolerance for each percentile that is judged.

    `level` is the chance of a false alarm of one of them.
    """

    tolerance: float = DEFAULT_TOLERANCE
    percents: tuple[float, ...] = (50.0, 95.0)
    level: float = RUN_LEVEL

    def divided(self, cases: int) -> Gate:
        """The gate of one of so many cases: the level of a run is shared by all of its metrics."""
        return replace(self, level=share_level(cases * len(self.percents), self.level))

    @property
    def rule(self) -> DuetRule:
        return DuetRule(tolerance=self.tolerance, level=self.level)

    def is_decided(self, pairs: Sequence[BlockPair]) -> bool:
        """Whether no further round is needed: one that is worse decides for all."""
        times = [(before.times_ns, after.times_ns) for before, after in pairs]
        answers = [judge_duet(times, self.rule, percent).answer for percent in self.percents]
        return Answer.WORSE in answers or Answer.OPEN not in answers


def latency_metrics(rounds: Sequence[DuetRound], gate: Gate) -> tuple[Metric, ...]:
    """Every percentile of the latency, in milliseconds; those of the gate are judged."""
    pairs = [(each.before.times_ns, each.after.times_ns) for each in rounds]
    before, after = (summarize([pair[side] for pair in pairs], 1) for side in (0, 1))
    metrics = []
    for percent in PERCENTS:
        old, new = before.percentile(percent), after.percentile(percent)
        decision = judge_duet(pairs, gate.rule, percent, is_last=True)
        metrics.append(
            _metric(
                f"latency_{old.name}",
                (_ms(old.value_ns), _ms(new.value_ns)),
                decision,
                gate,
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
                confidence=gate.rule.confidence,
                rounds=now.rounds,
                samples_needed=latest.needed,
            )
            if latest.value_ns is None
            else judge_stored(recorded, latest.value_ns, gate.tolerance, gate.level)
        )
        values = (_ms(stored.percentile_ns(percent)), _ms(latest.value_ns))
        name = f"latency_{latest.name}"
        metrics.append(_metric(name, values, decision, gate, is_gated=True))
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
    gate: Gate,
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
        allowed=gate.tolerance,
        measured_ratio=decision.ratio,
    )


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
