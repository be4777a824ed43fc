"""The figures of a comparison as a table: a row for each metric."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.comparing.figures import (
    LATENCY,
    format_after,
    format_allowed,
    format_change,
    format_interval,
    format_value,
    is_sampled,
    is_time,
    metric_title,
)
from pytest_modelperf.comparing.records import CaseComparison, Metric
from pytest_modelperf.comparing.tables.cells import INTERVAL
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns
from pytest_modelperf.text.escaping import printable

# The least that is left of a metric's title.
_LEAST_TITLE = 11
_LEAST_VERDICT = 12
# The word for a judged tail that is open and that the verdict does not wait for.
_NOT_SHOWN = "not shown"


def _figures(metric: Metric, *, has_before: bool = True) -> tuple[str, str, str]:
    # A figure that is only held against a limit has no side before, and neither has a time of a
    # model that ran alone because its plan is the recorded one.
    ran_alone = is_time(metric.name) and metric.after is not None
    is_alone = metric.limit is not None or ran_alone or not has_before
    return (
        "" if metric.before is None and is_alone else format_value(metric, metric.before),
        format_after(metric),
        format_change(metric),
    )


def metric_table(case: CaseComparison, metrics: Sequence[Metric] | None = None) -> Table:
    """All figures before and now, or these `metrics`, with their verdicts if they are judged.

    If something ran, an exact figure that did not change is left out, unless the verdict waits for
    it, and so is a tail that was not asked for and has too few samples. Columns without content are
    left out, too.
    """
    shown = shown_metrics(case) if metrics is None else metrics
    has_before = any(metric.before is not None for metric in shown)
    has_allowed = is_measured(case) or any(
        m.limit is not None or (m.gated and m.allowed and m.before != m.after) for m in shown
    )
    columns = (
        Column("metric", is_text=True, least=_LEAST_TITLE),
        Column("of", is_text=True, rank=9),
        *map(Column, ("before", "now", "change")),
        Column(INTERVAL, rank=-1),
        Column("allowed"),
        Column("", is_text=True, least=_LEAST_VERDICT),
    )
    rows = tuple(
        (
            metric_title(metric.name),
            "" if metric.detail is None else printable(metric.detail),
            *_figures(metric, has_before=has_before),
            format_interval(metric),
            format_allowed(metric) if has_allowed and metric.gated else "",
            _verdict(metric),
        )
        for metric in shown
    )
    return drop_blank_columns(Table("", columns, rows))


def is_measured(case: CaseComparison) -> bool:
    """Whether something ran, or was to run."""
    is_timed = any(m.name.startswith(LATENCY) for m in case.metrics)
    return is_timed or case.rounds is not None


def shown_metrics(case: CaseComparison) -> Sequence[Metric]:
    """The figures with a row of their own in the table of all."""
    return tuple(m for m in case.metrics if _is_shown(m)) if is_measured(case) else case.metrics


def _is_shown(metric: Metric) -> bool:
    if metric.gated:
        is_same = metric.before == metric.after and not is_sampled(metric.name)
        return metric.awaited or (metric.after is not None and not is_same)
    return metric.interval is not None or metric.before != metric.after


def _verdict(metric: Metric) -> str:
    if metric.gated and metric.is_open and not metric.awaited:
        return _NOT_SHOWN
    return metric.verdict.value if metric.gated else ""
