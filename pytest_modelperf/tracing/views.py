"""The charts and the page of a trace for notebooks and scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from pytest_modelperf.report.charts import MOST_BARS, BarChart, BarSeries
from pytest_modelperf.report.model import Report
from pytest_modelperf.report.notebook import Views
from pytest_modelperf.tracing.page_data import TracePage
from pytest_modelperf.tracing.records import Event
from pytest_modelperf.tracing.report import TraceView, trace_report
from pytest_modelperf.tracing.totals import Grouping, Order, TraceSummarizer, TraceSummary

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
