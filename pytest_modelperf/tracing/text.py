"""Renders the totals of a trace for a terminal: inferences, operators, notes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.profiler.measurements import provider_name
from pytest_modelperf.profiler.shown.tables.measured import format_percentile
from pytest_modelperf.report.page import Page, TextStyle
from pytest_modelperf.report.tables import Column, Table, transpose_table
from pytest_modelperf.stats.records import Percentile
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import UNKNOWN, format_bytes, format_ms, format_share
from pytest_modelperf.text.words import count_of
from pytest_modelperf.tracing.totals import Grouping, InferenceTimes, OperatorTime, TraceSummary

_TITLES = {Grouping.OPERATOR: "operator", Grouping.TYPE: "type", Grouping.LAYER: "layer"}
_NO_NAME = "(none)"
_MEDIAN = 50.0
_FIGURES = ("calls", "total ms", "share", "mean ms", "min", "max")
_OF_SELF = "times are without what ran inside of a Loop, an If or a Scan"


class TraceView(Struct, frozen=True):
    """How to show a trace: the grouping of its operators, and how many to show (None: all)."""

    grouping: Grouping
    top: int | None


def render_trace(
    summaries: Sequence[TraceSummary], notes: Sequence[str], view: TraceView, style: TextStyle
) -> str:
    page = Page(style)
    for index, summary in enumerate(summaries):
        if index:
            page.line("")
        _write_summary(page, summary, view)
    if notes:
        page.line("")
    for note in notes:
        page.sentence(f"note: {printable(note)}", style="yellow")
    return page.text()


def _write_summary(page: Page, summary: TraceSummary, view: TraceView) -> None:
    calls = sum(time.calls for time in summary.operators)
    facts = [printable(summary.name or "a trace"), f"{count_of(calls, 'run')} of operators"]
    if summary.peak_bytes is not None:
        facts.append(f"peak memory {format_bytes(summary.peak_bytes)}")
    page.item("  ".join(facts), style="bold")
    if summary.inferences:
        table = inference_table(summary.inferences)
        page.table(table, transpose_table(table), table)
    else:
        page.line("")
        page.sentence("the trace has no inference from its start to its end", style="yellow")
    if summary.between_ns is not None:
        share = format_share(summary.between_ns, summary.inference_ns)
        page.sentence(f"{share} of their time is the runtime's, between the operators", style="dim")
    if summary.operators:
        page.table(operator_table(summary, view))


def inference_table(groups: Sequence[InferenceTimes]) -> Table:
    """For each name, a row for all inferences and one without the first, which is often slower."""
    percents = [percentile.name for percentile in _tails(groups[0])]
    columns = (
        Column("ms", is_text=True),
        Column("count"),
        *(Column(title) for title in ("min", "mean", "median", *percents, "max")),
    )
    rows = tuple(_inference_row(group) for group in groups)
    lacks = any(p.value_ns is None for group in groups for p in _tails(group))
    caption = "(n): it takes n inferences to tell" if lacks else ""
    return Table("inferences", columns, rows, None, caption)


def _inference_row(group: InferenceTimes) -> tuple[str, ...]:
    latency = group.latency
    return (
        printable(group.name),
        f"{latency.samples:,}",
        format_ms(latency.min_ns),
        format_ms(latency.mean_ns),
        format_ms(group.median_ns),
        *map(format_percentile, _tails(group)),
        format_ms(latency.max_ns),
    )


def _tails(group: InferenceTimes) -> list[Percentile]:
    """The percentiles beyond the median."""
    return [each for each in group.latency.percentiles if each.percent > _MEDIAN]


def operator_table(summary: TraceSummary, view: TraceView) -> Table:
    """A row for each operator, type or layer, in the order of the summary."""
    has_type = view.grouping is not Grouping.TYPE
    title = _TITLES[view.grouping]
    # A typical inference runs each operator once.
    is_single = all(time.calls == 1 for time in summary.operators)
    figures = ("ms", "share") if is_single else _FIGURES
    columns = (
        Column(title, is_text=True, is_name=True),
        *((Column("type", is_text=True),) if has_type else ()),
        *map(Column, figures),
        Column("precision", is_text=True),
        Column("provider", is_text=True),
    )
    shown = summary.operators[: view.top]
    whole_ns = summary.operator_ns
    rows = tuple(
        _operator_row(time, whole_ns, has_type=has_type, is_single=is_single) for time in shown
    )
    left_out = len(summary.operators) - len(shown)
    rest_ns = sum(time.total_ns for time in summary.operators[len(shown) :])
    caption = _OF_SELF
    if left_out:
        took = f"{format_ms(rest_ns)} ms, {format_share(rest_ns, whole_ns)}"
        caption += f"\n{left_out:,} more took {took}; --top 0 shows all"
    return Table(f"by {title}", columns, rows, None, caption)


def _operator_row(
    time: OperatorTime, whole_ns: int, *, has_type: bool, is_single: bool
) -> tuple[str, ...]:
    total = format_ms(time.total_ns), format_share(time.total_ns, whole_ns)
    each = format_ms(time.mean_ns), format_ms(time.min_ns), format_ms(time.max_ns)
    return (
        printable(time.name) or _NO_NAME,
        *((printable(time.op_type or UNKNOWN),) if has_type else ()),
        *(total if is_single else (f"{time.calls:,}", *total, *each)),
        printable(time.precision or ""),
        provider_name(time.provider or ""),
    )
