"""Parts that several tables of a comparison share."""

from __future__ import annotations

from pytest_modelperf.comparing.records import LayerTypeChange
from pytest_modelperf.report.tables import Table, select_columns

# The mark of a row that explains much.
MARK = "<"
INTERVAL = "interval"


def without_intervals(table: Table) -> Table:
    """The table for a narrow terminal."""
    return select_columns(
        table, [i for i, column in enumerate(table.columns) if column.title != INTERVAL]
    )


def narrower_tables(table: Table, *titles: str) -> tuple[Table, ...]:
    """The table, without the column of the first of these titles, of the first two, and so on."""
    found = [table]
    for title in titles:
        columns = enumerate(found[-1].columns)
        kept = [index for index, column in columns if column.title != title]
        found.append(select_columns(found[-1], kept))
    return tuple(found)


def layer_counts(change: LayerTypeChange) -> str:
    """`3`, or `3 -> 4`."""
    before = change.before.count if change.before else 0
    after = change.after.count if change.after else 0
    return str(after) if before == after else f"{before} -> {after}"
