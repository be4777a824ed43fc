"""The tables and charts of a what-if for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_modelperf.report.charts import MOST_BARS, BarChart, BarSeries, series_of
from pytest_modelperf.report.model import Report, Sheet
from pytest_modelperf.report.notebook import Views
from pytest_modelperf.whatif.records import Level, WhatIf
from pytest_modelperf.whatif.report import level_sheet

_ROW = "row"


def whatif_views(whatif: WhatIf, report: Callable[[], Report]) -> Views:
    """Return the views. The `report` depends on the words of the interface."""
    return Views(
        report=report,
        sheets={
            "levels": lambda: _rows(whatif, "model"),
            "layers": lambda: _rows(whatif, "layer"),
            "layer types": lambda: _rows(whatif, "layer type"),
        },
        charts={
            "levels": lambda: _level_chart(whatif),
            "layers": lambda: _time_chart(whatif, "layers", lambda level: level.layers),
            "layer types": lambda: _time_chart(
                whatif, "layer types", lambda level: level.layer_types
            ),
        },
    )


def _rows(whatif: WhatIf, kind: str) -> Sheet:
    """Return the rows of one kind, without the columns that are empty in all of them."""
    sheet = level_sheet(whatif)
    at = sheet.columns.index(_ROW)
    rows = [row for row in sheet.rows if row[at] == kind]
    kept = [
        place
        for place, name in enumerate(sheet.columns)
        if name != _ROW and any(row[place] is not None for row in rows)
    ]
    names = tuple(sheet.columns[place] for place in kept)
    return Sheet(names, tuple(tuple(row[place] for place in kept) for row in rows))


def _level_chart(whatif: WhatIf) -> BarChart:
    """Return the speedup of each variant and estimate in each case."""
    found = [(case, level) for case in whatif.cases for level in case.levels[1:]]
    is_one = len(whatif.cases) == 1
    names = tuple(each.title if is_one else f"{case.id} {each.title}" for case, each in found)
    bars = series_of("speedup", [level for _, level in found], _speedup, _interval)
    return BarChart(f"variants of {whatif.model.name}", "times as fast", names, (bars,))


def _speedup(level: Level) -> float | None:
    return None if level.speedup is None else level.speedup.value


def _interval(level: Level) -> tuple[float, float] | None:
    return None if level.speedup is None else level.speedup.interval


def _time_chart(
    whatif: WhatIf, what: str, read: Callable[[Level], Mapping[str, float | None]]
) -> BarChart:
    """Return the longest times in the first case, with a series for each level."""
    case = whatif.cases[0]
    base = read(case.unchanged)
    longest = sorted(base, key=lambda name: -(base[name] or 0.0))[:MOST_BARS]
    known = {row.static.id: row.static.name for row in case.layers if row.static is not None}
    series = tuple(
        BarSeries(level.title, tuple(read(level).get(name) for name in longest))
        for level in case.levels
    )
    names = tuple(known.get(name) or name for name in longest)
    return BarChart(f"{what} of {whatif.model.name} at {case.id}", "ms", names, series)
