"""Parts that several tables of a comparison share."""

from __future__ import annotations

from pytest_modelperf.comparing.records import LayerTypeChange
from pytest_modelperf.report.tables import Table, select_columns

# The mark of a row that explains much.
MARK = "<"
INTERVAL = "interval"


def without_column(table: Table, title: str) -> Table:
    columns = enumerate(table.columns)
    return select_columns(table, [index for index, column in columns if column.title != title])


def layer_counts(change: LayerTypeChange) -> str:
    """`3`, or `3 -> 4`."""
    before = change.before.count if change.before else 0
    after = change.after.count if change.after else 0
    return str(after) if before == after else f"{before} -> {after}"
