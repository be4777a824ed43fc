"""Versions whose times are known, and who judges them without running anything."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from pytest_modelperf.bisect.records import Judged, Version
from pytest_modelperf.bisect.request import gate_for
from pytest_modelperf.bisect.search import Question
from pytest_modelperf.comparing.gates import latency_metrics
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.measurements import Block, DuetRound, Noise, Round
from pytest_modelperf.profiler.sampling.setup import Setup

_TURNS = 9
_WIDTH = 0.005


def make_versions(count: int) -> tuple[Version, ...]:
    return tuple(Version(f"1.{number}", f"engine 1.{number}") for number in range(count))


@dataclass(frozen=True)
class Traits:
    """The names of versions that give no answer.

    Those in `failing` cannot be measured. Those in `open_first` show nothing at the first attempt,
    and those in `open_always` never do.
    """

    failing: Collection[str] = ()
    open_first: Collection[str] = ()
    open_always: Collection[str] = ()


@dataclass
class TableJudge:
    """Answers by the times of versions, in milliseconds, and keeps what it was asked."""

    versions: Sequence[Version]
    times: Sequence[float]
    traits: Traits = field(default_factory=Traits)
    asked: list[Question] = field(default_factory=list)

    def __call__(self, question: Question) -> Judged:
        self.asked.append(question)
        for name in (question.good.name, question.other.name):
            if name in self.traits.failing:
                raise MeasureError(f"there is no wheel of {name}")
        before, after = self.time_of(question.good), self.time_of(question.other)
        ratio = after / before
        name = question.other.name
        verdict = _verdict(ratio, question.allowed)
        is_first = name in self.traits.open_first and not question.attempt
        if is_first or name in self.traits.open_always:
            verdict = Verdict.INCONCLUSIVE
        return Judged(
            verdict,
            Metric(
                "latency_p50",
                before,
                after,
                verdict,
                interval=(ratio * (1 - _WIDTH), ratio * (1 + _WIDTH)),
                allowed=question.allowed,
                measured_ratio=ratio,
                confidence=1 - 2 * question.level,
            ),
        )

    def time_of(self, version: Version) -> float:
        return self.times[self.versions.index(version)]


@dataclass
class NoisyJudge:
    """Answers by simulated rounds, which differ as sessions do: the rule is the real one."""

    versions: Sequence[Version]
    times: Sequence[float]
    random: np.random.Generator
    spread: float = 0.01
    most_rounds: int = 35

    def __call__(self, question: Question) -> Judged:
        before, after = (
            self.times[self.versions.index(each)] for each in (question.good, question.other)
        )
        most = self.most_rounds * (4 if question.attempt else 1)
        gate = replace(gate_for(question, Setup()), rounds=most)
        rounds: list[DuetRound] = []
        while len(rounds) < most:
            rounds.append(DuetRound(before=self._round(before), after=self._round(after)))
            if gate.is_decided(rounds):
                break
        metric = latency_metrics(rounds, gate)[0]
        return Judged(metric.verdict, metric)

    def _round(self, time_ms: float) -> Round:
        session = self.random.standard_normal() * self.spread
        noise = self.random.standard_normal(_TURNS) * self.spread + session
        times = (1e6 * time_ms * np.exp(noise)).astype(int)
        block = Block(times_ns=tuple(times.tolist()), noise=Noise(wall_ns=1))
        return Round(load_ns=1, first_ns=1, warmup_runs=1, is_steady=True, block=block)


def _verdict(ratio: float, allowed: float) -> Verdict:
    if ratio > 1 + allowed:
        return Verdict.REGRESSED
    return Verdict.IMPROVED if ratio < 1 / (1 + allowed) else Verdict.PASSED
