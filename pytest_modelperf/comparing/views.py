"""The tables and charts of a comparison for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytest_modelperf.comparing.changes import LayerChange, LayerTypeChange
from pytest_modelperf.comparing.figures import metric_title
from pytest_modelperf.comparing.records import CaseComparison, Comparison, Metric
from pytest_modelperf.comparing.report import metric_sheet
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.profiler.shown.names import name_models
from pytest_modelperf.report.charts import MOST_BARS, BarChart, series_of
from pytest_modelperf.report.model import Report, Sheet
from pytest_modelperf.report.notebook import Views
from pytest_modelperf.report.tables import Cell

_PERCENT = 100.0
_LAYER_COLUMNS = (
    *("case", "id_before", "id_now", "name", "op_type", "before_ms", "now_ms"),
    *("change_ms", "change_low_ms", "change_high_ms", "before_macs", "now_macs"),
)
_TYPE_COLUMNS = (
    *("case", "op_type", "before_count", "now_count", "before_ms", "now_ms", "change_ms"),
    *("before_macs", "now_macs"),
)


def comparison_views(comparison: Comparison, report: Callable[[], Report]) -> Views:
    return Views(
        report=report,
        sheets={
            "metrics": lambda: metric_sheet(comparison),
            "layers": lambda: layer_sheet(comparison),
            "layer types": lambda: Sheet(_TYPE_COLUMNS, tuple(_type_rows(comparison))),
        },
        charts={
            "metrics": lambda: _metric_chart(comparison),
            "layers": lambda: _layer_chart(comparison),
            "layer types": lambda: _type_chart(comparison),
        },
    )


def layer_sheet(comparison: Comparison) -> Sheet:
    """Return all layers of both sides of all cases. One without a side has no figures there."""
    return Sheet(_LAYER_COLUMNS, tuple(_layer_rows(comparison)))


def _layer_rows(comparison: Comparison) -> Iterator[tuple[Cell, ...]]:
    for case in comparison.cases:
        for change in case.layers:
            before, after = change.before, change.after
            ids = (_id(before), _id(after))
            shift = (None, None, None)
            if change.time is not None:
                shift = (change.time.ns / 1e6, *(change.time.interval_ms or (None, None)))
            known = after or before
            op_type = None if known is None else known.qualified_op
            macs = (_macs(before), _macs(after))
            yield (case.id, *ids, _name(change), op_type, _ms(before), _ms(after), *shift, *macs)


def _type_rows(comparison: Comparison) -> Iterator[tuple[Cell, ...]]:
    for case in comparison.cases:
        for change in case.layer_types:
            sides = (change.before, change.after)
            counts = (0 if side is None else side.count for side in sides)
            times = (None if side is None else side.ms for side in sides)
            shift = None if change.time is None else change.time.ns / 1e6
            macs = (None if side is None else side.macs for side in sides)
            yield (case.id, change.op, *counts, *times, shift, *macs)


def _id(row: LayerRow | None) -> str | None:
    return None if row is None or row.static is None else row.static.id


def _ms(row: LayerRow | None) -> float | None:
    return None if row is None else row.ms


def _macs(row: LayerRow | None) -> int | None:
    return None if row is None or row.static is None else row.static.macs


def _name(change: LayerChange) -> str:
    row = change.after or change.before
    if row is None:
        return ""
    if row.static is not None:
        return row.static.name or row.static.id
    return row.qualified_op if row.time is None else row.time.kernel or row.qualified_op


# -- charts


def _metric_chart(comparison: Comparison) -> BarChart:
    """Return the change of each judged figure of each case, in percent with its interval."""
    found = [
        (case, metric)
        for case in comparison.cases
        for metric in case.metrics
        if metric.gated and metric.ratio is not None and metric.before != metric.after
    ]
    is_one = len(comparison.cases) == 1
    titles = [(case, metric_title(metric.name)) for case, metric in found]
    names = tuple(title if is_one else f"{case.id} {title}" for case, title in titles)
    bars = series_of("change", [metric for _, metric in found], _change, _change_interval)
    return BarChart(f"{_title(comparison)}, change", "%", names, (bars,))


def _change(metric: Metric) -> float | None:
    return None if metric.ratio is None else _PERCENT * (metric.ratio - 1)


def _change_interval(metric: Metric) -> tuple[float, float] | None:
    if metric.interval is None:
        return None
    low, high = (_PERCENT * (bound - 1) for bound in metric.interval)
    return low, high


def _layer_chart(comparison: Comparison) -> BarChart:
    """Return the layers that changed most in the case that changed most, before and now."""
    case = _worst_case(comparison)
    layers = sorted(case.layers, key=_moved)[:MOST_BARS]
    series = (
        series_of("before", layers, lambda change: _ms(change.before)),
        series_of("now", layers, lambda change: _ms(change.after)),
    )
    title = f"layers of {_title(comparison)} at {case.id}"
    return BarChart(title, "ms", tuple(map(_name, layers)), series)


def _type_chart(comparison: Comparison) -> BarChart:
    """Return the layer types of the case that changed most: times, or MACs if nothing ran."""
    case = _worst_case(comparison)
    has_times = any(side and side.ns for each in case.layer_types for side in _sides(each))
    unit = "ms" if has_times else "MACs"

    def amount(change: LayerTypeChange, place: int) -> float | None:
        side = _sides(change)[place]
        return None if side is None else side.ms if has_times else side.macs

    kinds = sorted(
        case.layer_types, key=lambda change: -max(amount(change, at) or 0.0 for at in (0, 1))
    )[:MOST_BARS]
    series = (
        series_of("before", kinds, lambda change: amount(change, 0)),
        series_of("now", kinds, lambda change: amount(change, 1)),
    )
    title = f"layer types of {_title(comparison)} at {case.id}"
    return BarChart(title, unit, tuple(change.op for change in kinds), series)


def _sides(change: LayerTypeChange) -> tuple[LayerType | None, LayerType | None]:
    return change.before, change.after


def _moved(change: LayerChange) -> float:
    """Return a sort key: the largest change first."""
    if change.time is not None:
        return -abs(change.time.ns)
    return -abs((_ms(change.after) or 0.0) - (_ms(change.before) or 0.0)) * 1e6


def _worst_case(comparison: Comparison) -> CaseComparison:
    def slowdown(case: CaseComparison) -> float:
        typical = case.typical
        return 0.0 if typical is None or typical.ratio is None else typical.ratio

    return max(comparison.cases, key=slowdown)


def _title(comparison: Comparison) -> str:
    return " → ".join(name_models((comparison.before, comparison.after)))
