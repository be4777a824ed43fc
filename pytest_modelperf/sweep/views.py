"""The tables and charts of a sweep for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Callable

from pytest_modelperf.comparing.views import comparison_views
from pytest_modelperf.profiler.shown.model_names import name_models
from pytest_modelperf.profiler.shown.views import profile_views
from pytest_modelperf.report.charts import BarChart, BarSeries
from pytest_modelperf.report.model import Report
from pytest_modelperf.report.notebook import Views
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.sweep.records import Sweep, SweepPoint
from pytest_modelperf.sweep.report import configuration_sheet


def sweep_views(sweep: Sweep, report: Callable[[], Report]) -> Views:
    """Return the views. The `report` depends on the words of the interface.

    The layers are those at the best configuration.
    """
    best = Views(report, {}, {})
    if sweep.profile is not None:
        best = profile_views(sweep.profile, report)
    elif sweep.comparison is not None:
        best = comparison_views(sweep.comparison, report)
    return Views(
        report=report,
        sheets={"configurations": lambda: configuration_sheet(sweep), **best.sheets},
        charts={
            "configurations": lambda: _chart(sweep, "items/s", _throughput),
            "latency": lambda: _chart(sweep, "ms", _latency),
            **best.charts,
        },
    )


def _chart(sweep: Sweep, unit: str, read: Callable[[SweepPoint], Ratio | None]) -> BarChart:
    """Return a bar for each configuration and side."""
    sides = [{point.id: point for point in side.points} for side in sweep.sides]
    ids = tuple(dict.fromkeys(config_id for side in sides for config_id in side))
    names = name_models([side.model for side in sweep.sides])
    series = []
    for name, points in zip(names, sides, strict=True):
        found = [read(points[each]) if each in points else None for each in ids]
        amounts = tuple(None if ratio is None else ratio.value for ratio in found)
        intervals = tuple(None if ratio is None else ratio.interval for ratio in found)
        series.append(BarSeries(name, amounts, intervals))
    return BarChart(f"configurations of {' → '.join(names)}", unit, ids, tuple(series))


def _throughput(point: SweepPoint) -> Ratio | None:
    return point.throughput


def _latency(point: SweepPoint) -> Ratio | None:
    if point.p50_ms is None:
        return None
    return Ratio(point.p50_ms, *(point.latency_interval_ms or (None, None)))
