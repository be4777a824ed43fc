"""A history in the formats of other tools that keep or analyse series of benchmarks.

The values are those of the listing: ratios to the first point of a chain, or exact counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.history.page_data import name_case
from pytest_modelperf.history.records import (
    INTERVAL_QUANTILE,
    CaseHistory,
    History,
    HistoryMetric,
    HistoryPoint,
    shift_since,
)
from pytest_modelperf.report.document import dump_document
from pytest_modelperf.report.exports import BencherMetric, dump_bencher, render_rows
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

_UNITS: Mapping[HistoryMetric, str] = {
    HistoryMetric.P50: "x the first point",
    HistoryMetric.P95: "x the first point",
    HistoryMetric.MACS: "MACs",
    HistoryMetric.PARAMS: "params",
    HistoryMetric.WEIGHT_BYTES: "bytes",
    HistoryMetric.PEAK_ACTIVATION_BYTES: "bytes",
    HistoryMetric.SIZE_BYTES: "bytes",
}
# The most series that an error names.
_MOST_NAMED = 5


class ActionEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One benchmark as `customSmallerIsBetter` of github-action-benchmark reads it.

    `range` is the half width of the interval of `value`, and `extra` is shown next to a point.
    """

    name: str
    unit: str
    value: float
    range: str | None = None
    extra: str | None = None


def render_otava(history: History) -> str:
    """Return CSV for `otava analyze`: a row for each point of one series.

    Raise UsageError if there are several: Otava takes a file for each.
    """
    if len(history.cases) != 1:
        named = shorten_list([_describe_series(case) for case in history.cases], _MOST_NAMED)
        raise UsageError(
            f"--format otava writes one series, and {len(history.cases)} are listed"
            f"{f': {named}' if named else ''}. Name a model, and choose by --case and --machine."
        )
    (case,) = history.cases
    metric = history.metric
    rows = (
        (point.date.isoformat(), point.commit, point.verdict, _value(case, point, metric).value)
        for point in case.points
    )
    return render_rows(("time", "commit", "verdict", metric.value), rows)


def render_github_action(history: History) -> str:
    """Return the last point of each series as JSON for github-action-benchmark."""
    names = _names(history)
    pairs = zip(names, history.cases, strict=True)
    return dump_document([_entry(name, case, history.metric) for name, case in pairs])


def render_bencher(history: History) -> str:
    """Return the last point of each series in the Bencher Metric Format."""
    metric = history.metric
    measure = metric.value.replace("_", "-") if metric.is_exact else f"latency-{metric.value}-ratio"
    return dump_bencher(
        {
            name: {measure: _value(case, case.points[-1], metric)}
            for name, case in zip(_names(history), history.cases, strict=True)
        }
    )


FORMATS: Mapping[str, Callable[[History], str]] = {
    "otava": render_otava,
    "github-action-benchmark": render_github_action,
    "bencher": render_bencher,
}


def _entry(name: str, case: CaseHistory, metric: HistoryMetric) -> ActionEntry:
    last = case.points[-1]
    found = _value(case, last, metric)
    value, low, high = found.value, found.lower_value, found.upper_value
    width = None
    if low is not None and high is not None:
        width = f"± {max(high - value, value - low):.4f}"
    commit = "" if last.commit is None else f"\ncommit {printable(last.commit)}"
    extra = f"since {case.first.date.date()}\nverdict {printable(last.verdict)}{commit}"
    return ActionEntry(name=name, unit=_UNITS[metric], value=value, range=width, extra=extra)


def _value(case: CaseHistory, point: HistoryPoint, metric: HistoryMetric) -> BencherMetric:
    """Return the cost at one point with its interval. An exact count has no interval."""
    if metric.is_exact:
        return BencherMetric(value=round(math.exp(point.level)))
    shift = shift_since(case.first, point)
    low, high = shift.bounds(INTERVAL_QUANTILE)
    return BencherMetric(value=shift.ratio, lower_value=1.0 + low, upper_value=1.0 + high)


def _names(history: History) -> list[str]:
    """Return a name for each series, with its machine if there are several."""
    has_one_machine = len({case.machine for case in history.cases}) == 1
    return [*map(_name if has_one_machine else _describe_series, history.cases)]


def _describe_series(case: CaseHistory) -> str:
    return f"{_name(case)} {printable(case.machine)}"


def _name(case: CaseHistory) -> str:
    return printable(name_case(case))
