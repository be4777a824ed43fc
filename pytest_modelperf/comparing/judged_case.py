"""One case that was judged, and what was measured of its sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import StoredStatic
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.profiler.measurements import Measurement, SideRun
from pytest_modelperf.profiler.prepare import Pair
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.stats.records import Percentile
from pytest_modelperf.stats.spread import spread_of_round


class JudgedCase(Struct, frozen=True):
    """A case with its comparison and with what was measured, where it ran.

    `profile` is of the new model, and `before` of the other side of a duet. `observed` are the
    counts that an earlier run of the same case completed, where none ran now. `pair` has the shapes
    that a run told; None where nothing ran.
    """

    comparison: CaseComparison
    profile: CaseProfile | None = None
    before: Measurement | None = None
    observed: StoredStatic | None = None
    pair: Pair | None = None


def with_failure(
    counted: CaseComparison, failure: str, side: Literal["before", "after"] | None
) -> CaseComparison:
    """Return the counts of a case of which a side failed."""
    whose = {"before": "the model before: ", "after": "the model now: ", None: ""}[side]
    return replace(counted, failure=f"{whose}{failure}", failed_side=side)


def without_gains(failed: CaseComparison) -> CaseComparison:
    """Return a failed case without its improvements: a model that does not run saves nothing."""
    metrics = tuple(
        replace(metric, verdict=Verdict.INCONCLUSIVE)
        if metric.verdict is Verdict.IMPROVED
        else metric
        for metric in failed.metrics
    )
    return replace(failed, metrics=metrics)


def side_run(
    measured: Measurement | None, metrics: Sequence[Metric] = (), *, is_before: bool = False
) -> SideRun | None:
    """The profile that a report shows of a side; None if the side did not run.

    Its percentiles are those of the metrics, so that both sides differ by what was judged.
    """
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
    """The percentile at another value, with its interval around it."""
    if not percentile.value_ns or shown_ms is None:
        return percentile
    return percentile.scaled(shown_ms * 1e6 / percentile.value_ns)
