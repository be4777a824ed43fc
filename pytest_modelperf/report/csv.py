"""CSV files without a cell that a spreadsheet takes for a formula."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from io import StringIO

from pytest_modelperf.report.model import Report, Rows, Section, Sheet
from pytest_modelperf.report.tables import Cell
from pytest_modelperf.text.escaping import printable

# Spreadsheets run a cell that starts with one of these as a formula; some take wide ones, too.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render_csv(report: Report) -> str:
    """The sheet of a report; without one its first table, with the cells that it shows."""
    sheet = report.sheet or _first_table(report)
    return render_rows(sheet.columns, sheet.rows)


def _first_table(report: Report) -> Sheet:
    blocks = [*report.blocks]
    for block in blocks:
        if isinstance(block, Rows):
            titles = tuple(column.title for column in block.table.columns)
            return Sheet(titles, block.table.rows)
        if isinstance(block, Section):
            blocks += block.blocks
    return Sheet((), ())


def render_rows(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A file with a line of titles and these rows."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(_plain_cell, row) for row in rows)
    return file.getvalue()


def _plain_cell(value: Cell) -> Cell:
    """Text that no spreadsheet takes for a formula; an unknown value is an empty cell."""
    if isinstance(value, str):
        text = printable(value)
        return f"'{text}" if text.startswith(_FORMULA) else text
    return "" if value is None else value
