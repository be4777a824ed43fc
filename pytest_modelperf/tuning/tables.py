"""The tables of a tuning: all that was tried, and what the winner costs beside the baseline."""

from __future__ import annotations

from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.stats.race import Standing
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes, format_ms
from pytest_modelperf.tuning.records import Tried, TunedCase

REFUSED, FAILED, UNSEEN = "not the same", "not possible", "not tried"
# The least width of a name in a table that is cut.
_LEAST_NAME = 24
_NS_PER_MS = 1e6


def format_speedup(ratio: Ratio | None) -> str:
    """`x1.31`; empty without one."""
    if ratio is None:
        return ""
    return f"x{ratio.value:.2f}" if ratio.value < 99.5 else f"x{ratio.value:.0f}"


def format_interval(ratio: Ratio | None) -> str:
    """`1.25 … 1.37`; empty without one."""
    interval = None if ratio is None else ratio.interval
    return "" if interval is None else "{:.2f} … {:.2f}".format(*interval)


def word_of(tried: Tried) -> str:
    """The answer for a set of options, in one or two words."""
    if tried.failure is not None:
        return FAILED
    if tried.standing is None:
        return UNSEEN
    if tried.has_other_outputs:
        return REFUSED
    return tried.standing.value


def tried_table(case: TunedCase, least_gain: float) -> Table:
    """A row for each set of options, the fastest first; those that did not run are last."""
    gain = f"{100 * least_gain:g} %"
    caption = (
        f"faster, slower: shown, by more than {gain}; no gain: shown to gain less than {gain}; "
        "open: neither is shown"
    )
    table = table_of(
        "options tried",
        ordered(case),
        (Column("options", is_name=True, least=_LEAST_NAME), lambda tried: printable(tried.name)),
        (Column("speedup"), lambda tried: format_speedup(tried.speedup)),
        (Column("interval"), lambda tried: format_interval(tried.speedup)),
        (Column("rounds", rank=1), lambda tried: str(tried.rounds or "")),
        (Column("", is_text=True), word_of),
        caption=caption,
    )
    return drop_blank_columns(table)


def ordered(case: TunedCase) -> list[Tried]:
    """The fastest first; those that did not run are last."""
    return sorted(
        case.tried, key=lambda each: -1.0 if each.speedup is None else each.speedup.value
    )[::-1]


def tried_styles(case: TunedCase) -> list[str]:
    """The colour of each row of `tried_table`."""
    styles = {
        Standing.FASTER.value: "green",
        Standing.SLOWER.value: "red",
        REFUSED: "red",
    }
    winner = None if case.winner is None else case.winner.name
    return [
        "bold green" if each.name == winner else styles.get(word_of(each), "")
        for each in ordered(case)
    ]


def cost_table(case: TunedCase) -> Table | None:
    """The costs of the baseline and of the winner; None if nothing was measured."""
    sides, names = [case.baseline], ["now"]
    if case.winner_costs is not None:
        sides, names = [*sides, case.winner_costs], [*names, "best"]
    figures = (
        ("p50 ms", *(format_ms_of(costs.p50_ms) for costs in sides)),
        ("load ms", *(format_ms_of(costs.load_ms) for costs in sides)),
        ("memory", *(_format_memory(costs.memory_bytes) for costs in sides)),
    )
    rows = tuple(row for row in figures if any(row[1:]))
    columns = (Column("", is_text=True), *map(Column, names))
    return Table("", columns, rows) if rows else None


def _format_memory(size: int | None) -> str:
    return "" if size is None else format_bytes(size)


def format_ms_of(ms: float | None) -> str:
    """Milliseconds; empty where they are not known."""
    return "" if ms is None else format_ms(ms * _NS_PER_MS)
