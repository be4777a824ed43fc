"""Files for other programs: CSV for spreadsheets, and the JSON of Bencher.

A document of Bencher is an object of benchmarks, and each of these an object of measures. Bencher
makes a slug of each name, so the names here are slugs:
https://bencher.dev/docs/reference/bencher-metric-format
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO

from msgspec import Struct

from pytest_modelperf.report.document import dump_document
from pytest_modelperf.report.model import Report, Rows, Section, Sheet
from pytest_modelperf.report.tables import Cell
from pytest_modelperf.text.escaping import printable

# Spreadsheets run a cell that starts with one of these as a formula; some accept the wide forms,
# too.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render_csv(report: Report) -> str:
    """Render the sheet of a report, or else the cells of its first table as they are shown."""
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
    """Return the text of a CSV file with a line of titles and these rows."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(_plain_cell, row) for row in rows)
    return file.getvalue()


def _plain_cell(value: Cell) -> Cell:
    """Keep a text from being read as a formula. An unknown value makes an empty cell."""
    if isinstance(value, str):
        text = printable(value)
        return f"'{text}" if text.startswith(_FORMULA) else text
    return "" if value is None else value


# Bencher does not accept longer names of benchmarks.
_MOST_CHARACTERS = 1024


class BencherMetric(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One figure with the bounds of its interval, if it has one."""

    value: float
    lower_value: float | None = None
    upper_value: float | None = None


def dump_bencher(benchmarks: Mapping[str, Mapping[str, BencherMetric]]) -> str:
    """Return the document of all benchmarks that have measures, by the names of both."""
    return dump_document(
        {printable(name)[:_MOST_CHARACTERS]: each for name, each in benchmarks.items() if each}
    )
