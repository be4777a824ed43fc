"""Cells of a CSV file that no spreadsheet takes for a formula."""

from __future__ import annotations

from pytest_modelperf.report.tables import Cell
from pytest_modelperf.text.escaping import printable

# Spreadsheets run a cell that starts with one of these as a formula; some take wide ones, too.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def plain_cell(value: Cell) -> Cell:
    """Text that no spreadsheet takes for a formula; an unknown value is an empty cell."""
    if isinstance(value, str):
        text = printable(value)
        return f"'{text}" if text.startswith(_FORMULA) else text
    return "" if value is None else value
