"""What a page says first of a case: the figures that decided, and what makes most of the change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pytest_modelperf.comparing.figures import (
    format_after,
    format_allowed,
    format_change,
    format_interval,
    format_value,
    is_sampled,
    metric_title,
)
from pytest_modelperf.comparing.records import CaseComparison, Metric
from pytest_modelperf.comparing.tables import (
    TONES,
    has_times,
    layer_difference_table,
    layer_type_change_table,
    layers_that_explain,
    main_type_difference_table,
    shown_metrics,
    shows_graphs,
    stage_table,
)
from pytest_modelperf.errors import Wording
from pytest_modelperf.report.model import Bar, Bars, ReportBlock, Rows, Tone
from pytest_modelperf.report.tables import Table, select_columns

# The word for a judged figure that is open but not awaited by the verdict.
_UNDECIDED = "not decided"
# The number of parts of a change that fit on the first screen of a phone.
_MAX_PARTS = 3
# The columns of these parts, of which the last ones may scroll on a phone.
_KEPT = ("layer", "type", "layer type", "stage", "MACs change", "change", "explains", "interval")
# The longest bar leaves room for the interval of a figure that is hardly known.
_MOST_ROOM = 1.5


def figure_bars(case: CaseComparison) -> Bars:
    """Return each judged figure before and now, without counts that did not change."""
    judged = [metric for metric in shown_metrics(case) if metric.gated and _may_differ(metric)]
    bars = (_bar(metric) for metric in judged)
    return Bars(bars=tuple(bar for bar in bars if bar is not None))


def _may_differ(metric: Metric) -> bool:
    return metric.limit is not None or is_sampled(metric.name) or metric.before != metric.after


def _bar(metric: Metric) -> Bar | None:
    """Return the figure as bars, or None if it is unknown or cannot be a length."""
    after = metric.after
    if metric.limit is not None:
        before, interval = None, metric.after_interval
        allowed: float | None = metric.limit
    else:
        before = metric.before
        interval = _scaled(metric.interval, before)
        allowed = _most_allowed(metric)
    known = [value for value in (before, after) if value is not None]
    if after is None or not all(0 <= value < math.inf for value in known) or not max(known):
        return None
    whole = max(*known, allowed or 0.0)
    if interval is not None:
        whole = max(whole, min(interval[1], _MOST_ROOM * whole))
    within = None
    if interval is not None:
        within = (max(interval[0], 0.0) / whole, min(interval[1] / whole, 1.0))
    notes = (format_change(metric), format_interval(metric), _allowed(metric))
    return Bar(
        title=metric_title(metric.name),
        word=metric.verdict.value if metric.decides else _UNDECIDED,
        note=", ".join(filter(None, notes)),
        texts=("" if before is None else format_value(metric, before), format_after(metric)),
        lengths=(None if before is None else before / whole, after / whole),
        interval=within,
        allowed=None if allowed is None else allowed / whole,
        tone=TONES[metric.verdict.value] if metric.decides else Tone.PLAIN,
    )


def _most_allowed(metric: Metric) -> float | None:
    if metric.before is None or not metric.allowed:
        return None
    return metric.before * (1 + metric.allowed)


def _scaled(ratios: tuple[float, float] | None, before: float | None) -> tuple[float, float] | None:
    return None if ratios is None or before is None else (ratios[0] * before, ratios[1] * before)


def _allowed(metric: Metric) -> str:
    allowed = format_allowed(metric)
    return f"allowed {allowed}" if allowed else ""


def main_parts(case: CaseComparison, wording: Wording) -> Iterator[ReportBlock]:
    """Yield the parts that make most of the change: layers, stages, or types of layers."""
    table = _parts_table(case, wording)
    if table is not None:
        places = {column.title: at for at, column in enumerate(table.columns)}
        kept = [places[title] for title in _KEPT if title in places]
        yield Rows(_first_rows(select_columns(table, kept)))


def _parts_table(case: CaseComparison, wording: Wording) -> Table | None:
    if has_times(case) and layers_that_explain(case):
        return layer_difference_table(case, wording)
    if case.stages:
        return stage_table(case)
    if has_times(case):
        return main_type_difference_table(case, _MAX_PARTS)
    return layer_type_change_table(case, _MAX_PARTS) if shows_graphs(case) else None


def _first_rows(table: Table) -> Table:
    rows: Sequence[tuple[str, ...]] = table.rows[:_MAX_PARTS]
    return replace(table, rows=tuple(rows), total=None, caption="")
