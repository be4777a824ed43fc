"""All that the rounds of a duet tell, judged once, after the last of them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.comparing.gates import (
    Gate,
    answer_by_parts,
    block_pairs,
    percentile_metrics,
    side_latencies,
    start_metrics,
)
from pytest_modelperf.comparing.records import MEDIAN, TOTAL, How, Metric
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.stats.duet import typical_ratio_of_modes
from pytest_modelperf.stats.parts import PartsAnswer
from pytest_modelperf.stats.records import Latency


class JudgedRounds(Struct, frozen=True):
    """The answers of a duet that is over.

    `metrics` are the latency and, where the gate judges them, the starts. `before` is the latency
    of the first side. `parts` are the answers where parts ran beside the whole. `typical` is the
    ratio of the typical pair of inferences if these come in modes that decide the median.
    """

    metrics: tuple[Metric, ...]
    before: Latency
    parts: PartsAnswer | None
    typical: float | None

    @property
    def p50(self) -> Metric:
        """The median, or the time of a pass of a workload, which takes its place."""
        return next(metric for metric in self.metrics if metric.name in {MEDIAN, TOTAL})

    @property
    def how(self) -> How:
        """By what the median was judged."""
        return How.DUET if self.parts is None or not self.parts.median.is_by_parts else How.PARTS


def judge_rounds(rounds: Sequence[DuetRound], gate: Gate) -> JudgedRounds:
    """The rounds of a duet, the last there are, judged by its gate."""
    pairs, sides = block_pairs(rounds), side_latencies(rounds)
    parts = answer_by_parts(rounds, gate)
    metrics = percentile_metrics(rounds, gate, sides, parts)
    if gate.judges_starts:
        metrics = (*metrics, *start_metrics(rounds, gate))
    typical = None
    if parts is None:
        typical = typical_ratio_of_modes(pairs, gate.tolerance, gate.confidence)
    return JudgedRounds(metrics, sides[0], parts, typical)
