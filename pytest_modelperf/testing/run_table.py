"""The table of a test run: one line for each case."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.comparing.figures import (
    LATENCY,
    format_change,
    format_figure,
    format_interval,
    metric_title,
)
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.report.tables import (
    Column,
    Table,
    drop_blank_columns,
    least_width,
    select_columns,
    table_width,
)
from pytest_modelperf.testing.outcomes import CaseOutcome
from pytest_modelperf.text.units import format_count

# A shorter name of a case is hardly recognizable.
_LEAST_NAME = 24
# With the figure that decided it, if that has a short name.
_LEAST_VERDICT = len("inconclusive (p95)")
_P50 = f"{LATENCY}p50"
_P95 = f"{LATENCY}p95"
_COLUMNS = (
    Column("case", is_text=True, is_name=True, least=_LEAST_NAME),
    Column("verdict", is_text=True, least=_LEAST_VERDICT),
    Column("p50"),
    Column("change"),
    Column("interval"),
    Column("p95"),
    Column("MACs"),
    Column("params"),
)
# Columns that are dropped if there is little room, the last one first.
_SPARE = frozenset({"p95", "MACs", "params"})
_NOT_TOLD = frozenset({Verdict.PASSED, Verdict.NEW, Verdict.UNCHANGED})


def outcome_table(
    outcomes: Sequence[CaseOutcome], names: Sequence[str], *, tells_figure: bool = True
) -> Table:
    """A line for each case; columns that have nothing to show are left out.

    The verdict tells the figure that decided it, where that is not the median.
    """
    rows = tuple(
        _row(outcome, name, _verdict(outcome) if tells_figure else outcome.word)
        for outcome, name in zip(outcomes, names, strict=True)
    )
    return drop_blank_columns(Table("", _COLUMNS, rows))


def fitting_table(outcomes: Sequence[CaseOutcome], names: Sequence[str], width: int) -> Table:
    """The table with as many columns as leave names and verdicts whole, or else tell them apart."""
    whole = outcome_table(outcomes, names)
    plain = outcome_table(outcomes, names, tells_figure=False)
    candidates = (
        *((table, table_width) for table in _narrower(whole)),
        *((table, least_width) for table in _narrower(whole)),
        *((table, least_width) for table in _narrower(plain)),
    )
    fitting = (table for table, width_of in candidates if width_of(table) <= width)
    return next(fitting, candidates[-1][0])


def _narrower(table: Table) -> list[Table]:
    """The table, and without the columns that may give way, one after the other."""
    fewest = sum(column.title not in _SPARE for column in table.columns)
    counts = range(len(table.columns), fewest - 1, -1)
    return [select_columns(table, range(count)) for count in counts]


def _row(outcome: CaseOutcome, name: str, verdict: str) -> tuple[str, ...]:
    median = outcome.comparison.metric(_P50)
    latency, static = outcome.latency, outcome.static
    return (
        name,
        verdict,
        _latency(outcome, _P50, None if latency is None else latency.p50_ms),
        "" if median is None else format_change(median),
        "" if median is None else format_interval(median),
        _latency(outcome, _P95, None if latency is None else latency.p95_ms),
        "" if static is None else format_count(static.macs),
        "" if static is None else format_count(static.params),
    )


def _latency(outcome: CaseOutcome, name: str, measured_ms: float | None) -> str:
    known = [m.after for m in outcome.comparison.metrics if m.name == name]
    value = next((ms for ms in (*known, measured_ms) if ms is not None), None)
    return "" if value is None else format_figure(name, value)


def _verdict(outcome: CaseOutcome) -> str:
    case = outcome.comparison
    if case.has_failed or case.verdict in _NOT_TOLD:
        return outcome.word
    deciding = case.deciding
    if not deciding or any(m.name == _P50 for m in deciding):
        return outcome.word
    return f"{outcome.word} ({metric_title(deciding[0].name).removesuffix(' latency')})"
