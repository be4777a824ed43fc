"""The figures of a comparison as tables: a row for each case, and a row for each metric."""

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
from pytest_modelperf.comparing.records import CaseComparison, Comparison, Metric
from pytest_modelperf.comparing.tables.cells import INTERVAL, without_column
from pytest_modelperf.comparing.verdict_lines import decided_by, verdict_word
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import display_width

# The least that is left of a metric's title.
_LEAST_TITLE = 11
# Titles for a table that is as wide as a terminal of 80 columns.
_SHORT_TITLES = {
    "first_inference_ms": "first run",
    "peak_activation_bytes": "peak activ.",
}
_LEAST_VERDICT = 12
# The word for a judged tail that is open and that the verdict does not wait for.
_NOT_SHOWN = "not shown"


def case_table(comparison: Comparison) -> Table:
    """A row for each case: its verdict, and the figure that decided or its median latency.

    Where nothing ran, that is its MACs.
    """
    columns = (
        Column("case", is_name=True, least=24),
        Column("verdict", is_text=True, least=_LEAST_VERDICT),
        Column(""),
        Column("before"),
        Column("now"),
        Column("change"),
        Column(INTERVAL),
    )
    return Table("", columns, tuple(_case_row(case) for case in comparison.cases))


def _case_row(case: CaseComparison) -> tuple[str, ...]:
    named = {metric.name: metric for metric in case.metrics}
    deciding = next(iter(case.deciding), None)
    metric = named.get(f"{LATENCY}p50") or deciding or named.get("macs")
    if decided_by(case):
        metric = deciding
    head = (printable(case.id), verdict_word(case))
    if metric is None:
        return (*head, "", "", "", "", "")
    return (*head, metric_title(metric.name), *_figures(metric), format_interval(metric))


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


def metric_tables(
    case: CaseComparison, metrics: Sequence[Metric] | None = None
) -> tuple[Table, Table, Table]:
    """All figures before and now, or these `metrics`, with their verdicts if they are judged.

    Two tables for narrow terminals follow: with short titles, and without intervals.

    Beside times, exact figures that decide nothing or that nobody named are left out where they are
    the same, and so is a tail that was not asked for and has too few samples. Columns without
    content are left out too.
    """
    shown = shown_metrics(case) if metrics is None else metrics
    titles = [metric_title(metric.name) for metric in shown]
    short = [_SHORT_TITLES.get(metric.name, metric_title(metric.name)) for metric in shown]
    longest = max(map(display_width, titles), default=0)
    return (
        _metric_table(case, shown, titles, least_title=longest),
        _metric_table(case, shown, short),
        without_column(_metric_table(case, shown, titles), INTERVAL),
    )


def _metric_table(
    case: CaseComparison,
    metrics: Sequence[Metric],
    titles: Sequence[str],
    *,
    least_title: int = _LEAST_TITLE,
) -> Table:
    has_before = any(metric.before is not None for metric in metrics)
    has_allowed = is_measured(case) or any(
        m.limit is not None or (m.gated and m.allowed and m.before != m.after) for m in metrics
    )
    columns = (
        Column("metric", is_text=True, least=least_title),
        Column("before"),
        Column("now"),
        Column("change"),
        Column(INTERVAL),
        Column("allowed"),
        Column("", is_text=True, least=_LEAST_VERDICT),
    )
    rows = tuple(
        (
            title,
            *_figures(metric, has_before=has_before),
            format_interval(metric),
            format_allowed(metric) if has_allowed and metric.gated else "",
            _verdict(metric),
        )
        for title, metric in zip(titles, metrics, strict=True)
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
