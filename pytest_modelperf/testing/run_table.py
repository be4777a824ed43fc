"""The table of a test run: one line for each case."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from pytest_modelperf.comparing.figures import (
    LATENCY,
    format_change,
    format_figure,
    format_interval,
    metric_title,
)
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.comparing.verdict_lines import decided_by
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
_FAILURES = frozenset({Verdict.REGRESSED, Verdict.OVER_BUDGET})


def outcome_table(
    outcomes: Sequence[CaseOutcome],
    names: Sequence[str],
    show_verdict: Callable[[CaseOutcome], str] | None = None,
) -> Table:
    """A line for each case; columns that have nothing to show are left out.

    The verdict shows the figure that decided it, if that is not the median.
    """
    rows = tuple(
        _row(outcome, name, (show_verdict or _verdict)(outcome))
        for outcome, name in zip(outcomes, names, strict=True)
    )
    return drop_blank_columns(Table("", _COLUMNS, rows))


def fitting_table(outcomes: Sequence[CaseOutcome], names: Sequence[str], width: int) -> Table:
    """The table with as many columns as leave names and verdicts whole, or else tell them apart."""
    # The interval of the median gives way to another figure that failed.
    has_failed = any(o.verdict in _FAILURES and decided_by(o.comparison) for o in outcomes)
    whole = _narrower(
        outcome_table(outcomes, names), {*_SPARE, "interval"} if has_failed else _SPARE
    )
    named, plain = (
        _narrower(outcome_table(outcomes, names, show_verdict), _SPARE)
        for show_verdict in (_named_verdict, _word)
    )
    candidates = (
        *((table, table_width) for table in whole),
        *((table, table_width) for table in named),
        *((table, least_width) for table in named),
        *((table, least_width) for table in plain),
    )
    fitting = (table for table, width_of in candidates if width_of(table) <= width)
    return next(fitting, candidates[-1][0])


def _narrower(table: Table, spare: Container[str]) -> list[Table]:
    """The table, and without the columns that may give way, one after the other."""
    fewest = sum(column.title not in spare for column in table.columns)
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


def _word(outcome: CaseOutcome) -> str:
    return outcome.word


def _verdict(outcome: CaseOutcome) -> str:
    """`regressed (load +260.0 %)`: the verdict with the figure that decided it."""
    figure = decided_by(outcome.comparison)
    return f"{outcome.word} ({figure})" if figure else outcome.word


def _named_verdict(outcome: CaseOutcome) -> str:
    """`regressed (p95)`."""
    case = outcome.comparison
    if not decided_by(case):
        return outcome.word
    return f"{outcome.word} ({metric_title(case.deciding[0].name).removesuffix(' latency')})"
