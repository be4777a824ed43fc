"""A trace as a report for each face: its inferences, its operators, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from pytest_modelperf.profiler.measurements import provider_name
from pytest_modelperf.profiler.shown.tables.cases import format_percentile
from pytest_modelperf.report.charts import MOST_BARS, BarChart, BarSeries
from pytest_modelperf.report.model import (
    Line,
    On,
    Paragraph,
    Report,
    ReportBlock,
    Rows,
    Section,
    Sheet,
    Tone,
    lines_of,
)
from pytest_modelperf.report.notebook import Views
from pytest_modelperf.report.tables import Column, FilledColumn, Table, table_of
from pytest_modelperf.stats.records import Percentile
from pytest_modelperf.text.units import UNKNOWN, format_bytes, format_ms, format_share
from pytest_modelperf.text.words import count_of
from pytest_modelperf.tracing.page_data import TracePage
from pytest_modelperf.tracing.records import Event
from pytest_modelperf.tracing.totals import (
    Grouping,
    InferenceTimes,
    OperatorTime,
    Order,
    TraceSummarizer,
    TraceSummary,
)

_NS_PER_MS = 1e6
_MEDIAN = 50.0
_OF_SELF = "times are without what ran inside of a Loop, an If or a Scan"
_COLUMNS = ("trace", "name", "type", "provider", "precision", "calls", "total_ms", "share",
            "mean_ms", "min_ms", "max_ms", "layer", "fused")  # fmt: skip


class TraceView(Struct, frozen=True):
    """The grouping of a trace's operators, and how many of them to show (None: all)."""

    grouping: Grouping
    top: int | None


def trace_report(
    summaries: Sequence[TraceSummary],
    notes: Sequence[str],
    view: TraceView,
    page: TracePage | None = None,
) -> Report:
    """Return a section for each process or session that ran something.

    A page has the timeline of the spans in `page`, too.
    """
    sections = [
        Section(title=_describe(summary), blocks=tuple(_blocks(summary, view)))
        for summary in summaries
    ]
    is_single = len(sections) == 1
    return Report(
        title=f"{page.name}: trace" if page is not None and page.name else "trace",
        subject=sections[0].title if is_single else "",
        opening=tuple(Line(text=_answer(summary), on=On.PAGE) for summary in summaries),
        blocks=sections[0].blocks if is_single else tuple(sections),
        closing=(*lines_of(notes, "note", Tone.UNSURE), *_timeline_lines(page)),
        sheet=Sheet(_COLUMNS, tuple(_sheet_rows(summaries))),
        drawn=None if page is None else page.drawn(),
    )


def _timeline_lines(page: TracePage | None) -> Iterator[Line]:
    if page is not None and page.left_out:
        text = f"the timeline leaves out the last {count_of(page.left_out, 'span')} of the file"
        yield Line(text=text, word="note", tone=Tone.UNSURE, on=On.PAGE)


def _describe(summary: TraceSummary) -> str:
    """Return a title: `squeezenet.onnx  2,640 runs of operators  peak memory 12.00 MiB`."""
    calls = sum(time.calls for time in summary.operators)
    facts = [summary.name or "a trace", f"{count_of(calls, 'run')} of operators"]
    if summary.peak_bytes is not None:
        facts.append(f"peak memory {format_bytes(summary.peak_bytes)}")
    return "  ".join(facts)


def _answer(summary: TraceSummary) -> str:
    """Return `net.onnx: inference 23.45 ms, the median of 15; most time in n1 (Conv), 15.3 %`."""
    facts = [
        f"{group.name} {format_ms(group.median_ns)} ms, the median of {group.latency.samples:,}"
        for group in summary.inferences[:1]
    ]
    if summary.operators:
        most = max(summary.operators, key=lambda time: time.total_ns)
        kind = f" ({most.op_type})" if most.op_type and most.op_type != most.name else ""
        share = format_share(most.total_ns, summary.operator_ns)
        facts.append(f"most time in {most.name or '(none)'}{kind}, {share}")
    return f"{summary.name or 'a trace'}: {'; '.join(facts) or 'nothing ran'}"


def _blocks(summary: TraceSummary, view: TraceView) -> Iterator[ReportBlock]:
    if summary.inferences:
        yield Rows(_inference_table(summary))
    else:
        text = "the trace has no complete inference"
        yield Paragraph((Line(text=text, tone=Tone.UNSURE),))
    if summary.operators:
        yield Rows(_operator_table(summary, view))


def _inference_table(summary: TraceSummary) -> Table:
    """Make two rows for each name: all inferences, and all but the first, often slower, one."""
    groups = summary.inferences
    notes = []
    if any(each.value_ns is None for group in groups for each in _tails(group)):
        notes.append("(n): it takes n inferences to tell")
    if summary.between_ns is not None:
        share = format_share(summary.between_ns, summary.inference_ns)
        notes.append(f"{share} of their time is the runtime's, between the operators")
    return Table(
        "inferences",
        (
            Column("ms", is_text=True, is_repeated=True),
            Column("count"),
            *map(Column, ("min", "mean", "median")),
            *(Column(percentile.name) for percentile in _tails(groups[0])),
            Column("max"),
        ),
        tuple(map(_inference_row, groups)),
        caption="\n".join(notes),
    )


def _inference_row(group: InferenceTimes) -> tuple[str, ...]:
    latency = group.latency
    return (
        group.name,
        f"{latency.samples:,}",
        *map(format_ms, (latency.min_ns, latency.mean_ns, group.median_ns)),
        *map(format_percentile, _tails(group)),
        format_ms(latency.max_ns),
    )


def _tails(group: InferenceTimes) -> list[Percentile]:
    """Return the percentiles above the median."""
    return [each for each in group.latency.percentiles if each.percent > _MEDIAN]


def _operator_table(summary: TraceSummary, view: TraceView) -> Table:
    """Make a row for each operator, type or layer, in the order of the summary."""
    whole_ns = summary.operator_ns
    shown = summary.operators[: view.top]
    others = summary.operators[len(shown) :]
    # A typical inference runs each operator once.
    is_single = all(time.calls == 1 for time in summary.operators)
    types: tuple[FilledColumn[OperatorTime], ...] = (
        (Column("type", is_text=True), lambda time: time.op_type or UNKNOWN),
    )
    calls: tuple[FilledColumn[OperatorTime], ...] = (
        (Column("calls"), lambda time: f"{time.calls:,}"),
    )
    of_each_call: tuple[FilledColumn[OperatorTime], ...] = (
        (Column("mean ms"), lambda time: format_ms(time.mean_ns)),
        (Column("min"), lambda time: format_ms(time.min_ns)),
        (Column("max"), lambda time: format_ms(time.max_ns)),
    )
    notes = [_OF_SELF]
    if others:
        rest_ns = sum(time.total_ns for time in others)
        took = f"{format_ms(rest_ns)} ms, {format_share(rest_ns, whole_ns)}"
        notes.append(f"{len(others):,} more took {took}; --top 0 shows all")
    return table_of(
        f"by {view.grouping.value}",
        shown,
        (Column(view.grouping.value, is_name=True), lambda time: time.name or "(none)"),
        *(types if view.grouping is not Grouping.TYPE else ()),
        *(calls if not is_single else ()),
        (Column("ms" if is_single else "total ms"), lambda time: format_ms(time.total_ns)),
        (Column("share", has_bars=True), lambda time: format_share(time.total_ns, whole_ns)),
        *(of_each_call if not is_single else ()),
        (Column("precision", is_text=True), lambda time: time.precision or ""),
        (Column("provider", is_text=True), lambda time: provider_name(time.provider or "")),
        caption="\n".join(notes),
    )


def _sheet_rows(summaries: Sequence[TraceSummary]) -> Iterator[tuple[str | float | None, ...]]:
    """Yield a row for each operator, type or layer, in plain numbers."""
    for summary in summaries:
        whole_ns = summary.operator_ns
        for time in summary.operators:
            yield (
                *(summary.name, time.name, time.op_type, time.provider, time.precision, time.calls),
                time.total_ns / _NS_PER_MS,
                time.total_ns / whole_ns if whole_ns else 0.0,
                *(ns / _NS_PER_MS for ns in (time.mean_ns, time.min_ns, time.max_ns)),
                time.layer,
                ", ".join(time.fused) or None,
            )


# -- for notebooks and scripts


_TITLES = {
    Grouping.TYPE: "operator types",
    Grouping.OPERATOR: "operators",
    Grouping.LAYER: "layers",
}


def trace_views(
    name: str, events: Callable[[], Iterable[Event]], notes: Callable[[], Sequence[str]]
) -> Views:
    """Return the views of a trace, which reads its events for each of them."""
    charts = {title: partial(_chart, events, by) for by, title in _TITLES.items()}
    return Views(report=lambda: _report(name, events(), notes()), charts=charts)


def _report(name: str, events: Iterable[Event], notes: Sequence[str]) -> Report:
    page, summarizer = TracePage(name), TraceSummarizer(Grouping.TYPE)
    for event in events:
        page.add(event)
        summarizer.add(event)
    summaries = summarizer.finish(Order.TOTAL)
    missing = () if summaries else ("nothing was recorded",)
    all_notes = (*missing, *notes, *summarizer.notes())
    return trace_report(summaries, all_notes, TraceView(Grouping.TYPE, None), page)


def _chart(events: Callable[[], Iterable[Event]], by: Grouping) -> BarChart:
    """Return the self time of the longest operators, types or layers, a colour for each session."""
    summarizer = TraceSummarizer(by)
    for event in events():
        summarizer.add(event)
    totals = [(summary, _times(summary)) for summary in summarizer.finish(Order.TOTAL)]
    known = dict.fromkeys(name for _, found in totals for name in found)
    most = {name: max(found.get(name, 0.0) for _, found in totals) for name in known}
    names = sorted(known, key=lambda name: -most[name])[:MOST_BARS]
    series = tuple(
        BarSeries(summary.name or "a trace", tuple(map(found.get, names)))
        for summary, found in totals
    )
    shown = tuple(name or "(none)" for name in names)
    return BarChart(f"{_TITLES[by]} of the trace", "ms", shown, series)


def _times(summary: TraceSummary) -> Mapping[str, float]:
    """Return the milliseconds of each name. Operators of two types may have the same name."""
    times: Counter[str] = Counter()
    for operator in summary.operators:
        times[operator.name] += operator.total_ns
    return {name: ns / 1e6 for name, ns in times.items()}
