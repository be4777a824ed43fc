"""The table and the chart of a tuning for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Callable

from pytest_modelperf.report.charts import BarChart, series_of
from pytest_modelperf.report.model import Report
from pytest_modelperf.report.notebook import Views
from pytest_modelperf.tuning.records import Tried, Tuning
from pytest_modelperf.tuning.report import option_sheet


def tuning_views(tuning: Tuning, report: Callable[[], Report]) -> Views:
    return Views(
        report=report,
        sheets={"options": lambda: option_sheet(tuning)},
        charts={"options": lambda: _chart(tuning)},
    )


def _chart(tuning: Tuning) -> BarChart:
    """Return the speedup by each set of options in each case."""
    found = [(case, tried) for case in tuning.cases for tried in case.fastest_first]
    is_one = len(tuning.cases) == 1
    names = tuple(each.name if is_one else f"{case.id} {each.name}" for case, each in found)
    bars = series_of("speedup", [tried for _, tried in found], _speedup, _interval)
    return BarChart(f"options tried for {tuning.model.name}", "times as fast", names, (bars,))


def _speedup(tried: Tried) -> float | None:
    return None if tried.speedup is None else tried.speedup.value


def _interval(tried: Tried) -> tuple[float, float] | None:
    return None if tried.speedup is None else tried.speedup.interval
