"""One case of two models, with all that judges it, and what the rounds of its duet decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import StoredCase, StoredLatency, StoredStatic
from pytest_modelperf.comparing.gates import (
    Gate,
    answer_by_parts,
    block_pairs,
    percentile_metrics,
    side_latencies,
    start_metrics,
)
from pytest_modelperf.comparing.records import MEDIAN, TOTAL, CaseComparison, How, Metric, Verdict
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import DuetRound, Measurement, SideRun
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.prepare import Model, Pair, PairOf
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.request import (
    ProfileRequest,
    request_of_each,
    require_equal_batches,
    require_equal_phases,
)
from pytest_modelperf.stats.duet import typical_ratio_of_modes
from pytest_modelperf.stats.parts import PartsAnswer
from pytest_modelperf.stats.records import Latency, Percentile, spread_of_round


class JudgedCase(Struct, frozen=True):
    """A case with its comparison and, if it ran, with what was measured.

    `profile` is of the new model, and `before` of the other side of a duet. `observed` are the
    counts that an earlier run of the same case completed, if it did not run now. `pair` has the
    shapes seen in a run, and is None if nothing ran.
    """

    comparison: CaseComparison
    profile: CaseProfile | None = None
    before: Measurement | None = None
    observed: StoredStatic | None = None
    pair: Pair | None = None


def with_failure(
    counted: CaseComparison, failure: str, side: Literal["before", "after"] | None
) -> CaseComparison:
    """Return the counts of a case in which a side failed."""
    whose = {"before": "the model before: ", "after": "the model now: ", None: ""}[side]
    return replace(counted, failure=f"{whose}{failure}", failed_side=side)


def without_gains(failed: CaseComparison) -> CaseComparison:
    """Return a failed case without its improvements: a model that does not run saves nothing."""
    return replace(failed, metrics=left_open(failed.metrics, Verdict.IMPROVED))


def left_open(metrics: Sequence[Metric], verdict: Verdict) -> tuple[Metric, ...]:
    """Return the metrics, those with this verdict made inconclusive."""
    return tuple(
        replace(each, verdict=Verdict.INCONCLUSIVE) if each.verdict is verdict else each
        for each in metrics
    )


def side_run(
    measured: Measurement | None, metrics: Sequence[Metric] = (), *, is_before: bool = False
) -> SideRun | None:
    """Return the profile of a side that ran, whose percentiles are those of the metrics."""
    if measured is None:
        return None
    shown_ms = {m.name: m.before if is_before else m.after for m in metrics if m.limit is None}
    percentiles = (
        _moved(percentile, shown_ms.get(f"latency_{percentile.name}"))
        for percentile in measured.latency.percentiles
    )
    return SideRun(
        engine=measured.engine,
        latency=replace(measured.latency, percentiles=tuple(percentiles)),
        rounds=tuple(spread_of_round(made.times_ns) for made in measured.rounds),
        load_ms=measured.load_ms,
        first_inference_ms=measured.first_inference_ms,
    )


def _moved(percentile: Percentile, shown_ms: float | None) -> Percentile:
    """Return the percentile at another value, with its interval around it."""
    if not percentile.value_ns or shown_ms is None:
        return percentile
    return percentile.scaled(shown_ms * 1e6 / percentile.value_ns)


class PairedCase(Struct, frozen=True):
    """A case of a pair: the side before, the gate that judges it, and its place among all cases."""

    pair: Pair
    before: Side
    gate: Gate
    place: CasePlace

    @property
    def id(self) -> str:
        return self.place.case.id

    @property
    def stored(self) -> StoredCase | None:
        """The case as the baseline stores it, or None if no baseline has it."""
        return None if self.before.baseline is None else self.before.baseline.case(self.id)

    @property
    def recorded(self) -> StoredLatency | None:
        """The latency of the stored case on this kind of machine."""
        return self.before.recorded(self.id)


def bind_pairs(
    before: Side, after: Side, request: ProfileRequest, extensions: Extensions
) -> list[PairOf[Model]]:
    """Bind both models to each set of dimensions of the request."""
    files = open_model(before.source), open_model(after.source)
    requests = request_of_each(request, files)
    require_equal_phases(files, requests)
    models = [
        [Model.bind(file, binding, own, extensions) for binding in own.bindings_of(file)]
        for file, own in zip(files, requests, strict=True)
    ]
    require_equal_batches(files, [[m.bound.inputs.batch_size for m in side] for side in models])
    return [PairOf(old, new, before.setup, after.setup) for old, new in zip(*models, strict=True)]


class JudgedRounds(Struct, frozen=True):
    """The answers of a finished duet.

    `metrics` are the latency and, if the gate judges them, the starts. `before` is the latency of
    the first side. `parts` are the answers of the parts, if some ran besides the whole model.
    `typical` is the ratio of the typical pair of inferences, if these come in modes that decide the
    median.
    """

    metrics: tuple[Metric, ...]
    before: Latency
    parts: PartsAnswer | None
    typical: float | None

    @property
    def p50(self) -> Metric:
        """The median or, for a workload, the time of a pass, which takes its place."""
        return next(metric for metric in self.metrics if metric.name in {MEDIAN, TOTAL})

    def with_median(self, median: Metric) -> JudgedRounds:
        """Return the same answers with another one for the median."""
        metrics = tuple(median if each is self.p50 else each for each in self.metrics)
        return replace(self, metrics=metrics)

    @property
    def how(self) -> How:
        """What the median was judged by."""
        return How.DUET if self.parts is None or not self.parts.median.is_by_parts else How.PARTS


def judge_rounds(rounds: Sequence[DuetRound], gate: Gate) -> JudgedRounds:
    """Judge all rounds of a finished duet by its gate."""
    pairs, sides = block_pairs(rounds), side_latencies(rounds)
    parts = answer_by_parts(rounds, gate)
    metrics = percentile_metrics(rounds, gate, sides, parts)
    if gate.judges_starts:
        metrics = (*metrics, *start_metrics(rounds, gate))
    typical = None
    if parts is None:
        typical = typical_ratio_of_modes(pairs, gate.tolerance, gate.confidence)
    return JudgedRounds(metrics, sides[0], parts, typical)
