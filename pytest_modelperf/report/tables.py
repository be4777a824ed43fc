"""Tables with columns, rows and a total, and how to fit them to a width."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.text.words import count_of, cut_end, cut_names, display_width

T = TypeVar("T")
Cell: TypeAlias = "str | int | float | None"

# The least widths of a text and of a name that is cut, unless its column sets another.
MIN_TEXT = 8
MIN_NAME = 14


class Column(Struct, frozen=True):
    """A column of a table: its title, and how it is shown.

    Numbers are aligned right, and only text may be cut to fit. Names are text, too: a cut name
    keeps the part in which it differs, and other text loses its end. No text is cut below `least`.
    Columns with a rank are dropped silently, before any text is cut, and the largest rank goes
    first; one with a rank below 0 is dropped only if cutting texts is not enough. A page shows
    verdicts as pills. `is_order` means that the rows are sorted by this column. A table with
    repeated columns that is too wide for a terminal is split, and each part has these columns. An
    extra column is only for a terminal that has room for it. Such a terminal also draws bars next
    to the first column that has them.
    """

    title: str
    is_text: bool = False
    is_name: bool = False
    least: int | None = None
    rank: int = 0
    is_verdict: bool = False
    is_order: bool = False
    is_repeated: bool = False
    is_extra: bool = False
    has_bars: bool = False

    @property
    def holds_text(self) -> bool:
        return self.is_text or self.is_name

    @property
    def narrowest(self) -> int:
        """The width below which its texts are not cut. A title is never cut."""
        least = self.least
        if least is None:
            least = MIN_NAME if self.is_name else MIN_TEXT
        return max(least, display_width(self.title))


class Table(Struct, frozen=True):
    """A table whose cells are already formatted."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    total: tuple[str, ...] | None = None
    caption: str = ""


# A column with the function that makes its cells from records.
FilledColumn: TypeAlias = tuple[Column, Callable[[T], str]]


def table_of(
    title: str,
    records: Iterable[T],
    *columns: FilledColumn[T],
    total: tuple[str, ...] | None = None,
    caption: str = "",
) -> Table:
    """Make a table with a row for each record. Each column comes with a function for its cells."""
    return Table(
        title,
        tuple(column for column, _ in columns),
        tuple(tuple(show(record) for _, show in columns) for record in records),
        total,
        caption,
    )


# Blanks between two columns.
GAP = 2
# The number at the start of a cell, with the prefix of its unit.
_FIGURE = re.compile(r"x?([0-9]+(?:\.[0-9]+)?) ?([kMGT]?)")
_FACTORS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# The least and the largest width of the bars next to a column of figures.
_SHORTEST_BAR, _LONGEST_BAR = 20, 40
_FEWEST_BARS = 2
BAR = "█"


def column_widths(table: Table) -> tuple[int, ...]:
    lines: list[Sequence[str]] = [[column.title for column in table.columns], *table.rows]
    if table.total is not None:
        lines.append(table.total)
    return tuple(max(map(display_width, cells)) for cells in zip(*lines, strict=True))


def table_width(table: Table) -> int:
    widths = column_widths(table)
    return sum(widths) + GAP * (len(widths) - 1)


def least_width(table: Table) -> int:
    """Return the width of the table with every text cut as far as possible."""
    widths = column_widths(table)
    least = [
        min(width, column.narrowest) if column.holds_text else width
        for width, column in zip(widths, table.columns, strict=True)
    ]
    return sum(least) + GAP * (len(least) - 1)


def map_texts(table: Table, change: Callable[[str], str]) -> Table:
    """Change each text of the table, and each line of its caption."""
    return Table(
        change(table.title),
        tuple(replace(column, title=change(column.title)) for column in table.columns),
        tuple(tuple(map(change, row)) for row in table.rows),
        None if table.total is None else tuple(map(change, table.total)),
        "\n".join(map(change, table.caption.splitlines())),
    )


def map_figures(table: Table, change: Callable[[str], str]) -> Table:
    """Change each text of the table and its caption that is not a name."""

    def changed(cells: Sequence[str]) -> tuple[str, ...]:
        pairs = zip(table.columns, cells, strict=True)
        return tuple(cell if column.is_name else change(cell) for column, cell in pairs)

    return replace(
        table,
        rows=tuple(map(changed, table.rows)),
        total=None if table.total is None else changed(table.total),
        caption=change(table.caption),
    )


def select_columns(table: Table, indexes: Iterable[int]) -> Table:
    """Return the table with only these columns, and a caption that explains only these."""
    kept = list(indexes)
    columns = tuple(table.columns[index] for index in kept)
    legends = tuple(f"{column.title}: " for column in {*table.columns} - {*columns})
    lines = [line for line in table.caption.splitlines() if not line.startswith(legends)]
    return replace(
        table,
        columns=columns,
        rows=tuple(tuple(row[index] for index in kept) for row in table.rows),
        total=None if table.total is None else tuple(table.total[index] for index in kept),
        caption="\n".join(lines),
    )


def drop_blank_columns(table: Table) -> Table:
    """Remove the columns that are empty in all rows and in the total, except the first column."""
    lines = [*table.rows, *([] if table.total is None else [table.total])]
    after_first = range(1, len(table.columns))
    return select_columns(table, [0, *(at for at in after_first if any(row[at] for row in lines))])


def without_extras(table: Table) -> Table:
    """Return the table without the columns that are only for a terminal with room."""
    columns = enumerate(table.columns)
    return select_columns(table, [at for at, column in columns if not column.is_extra])


def with_bars(table: Table, width: int) -> Table:
    """Draw bars after the first column that has them, if there is room in `width`.

    The longest bar is that of the largest figure. A single one would say nothing.
    """
    at = next((at for at, column in enumerate(table.columns, 1) if column.has_bars), None)
    length = min(width - table_width(table) - GAP, _LONGEST_BAR)
    if at is None or length < _SHORTEST_BAR:
        return table
    figures = [_figure_of(row[at - 1]) for row in table.rows]
    if sum(map(bool, figures)) < _FEWEST_BARS:
        return table
    most = max(figures)
    bars = [BAR * round(length * figure / most) for figure in figures]
    rows = zip(table.rows, bars, strict=True)
    return replace(
        table,
        columns=(*table.columns[:at], Column("", is_text=True), *table.columns[at:]),
        rows=tuple((*row[:at], bar, *row[at:]) for row, bar in rows),
        total=None if table.total is None else (*table.total[:at], "", *table.total[at:]),
    )


def _figure_of(cell: str) -> float:
    """Return the number of `12.3 %`, `x1.40` or `1.204 k ± 0.8 %`, or 0 for anything else."""
    found = _FIGURE.match(cell)
    return 0.0 if found is None else float(found[1]) * _FACTORS[found[2]]


def transpose_table(table: Table) -> Table:
    """Exchange rows and columns of a table without a total."""
    corner, *titles = (column.title for column in table.columns)
    columns = (Column(corner, is_text=True), *(Column(row[0]) for row in table.rows))
    cells = zip(*(row[1:] for row in table.rows), strict=True)
    rows = tuple((title, *row) for title, row in zip(titles, cells, strict=True))
    return Table(table.title, columns, rows, None, table.caption)


def split_table(table: Table, width: int) -> list[Table]:
    """Split a table that is too wide and has repeated columns into parts that fit the width.

    The first part has the title, the last one the caption. Any other table stays whole.
    """
    is_fixed = len({column.is_repeated for column in table.columns}) == 1
    if is_fixed or table_width(table) <= width:
        return [table]
    table = _without_ranked(table, width)
    repeated = [at for at, column in enumerate(table.columns) if column.is_repeated]
    bare = replace(table, title="", caption="")
    parts: list[list[int]] = []
    for at in range(len(table.columns)):
        if at in repeated:
            continue
        wider = sorted([*(parts[-1] if parts else repeated), at])
        if parts and least_width(select_columns(bare, wider)) <= width:
            parts[-1] = wider
        else:
            parts.append(sorted([*repeated, at]))
    tables = [select_columns(bare, part) for part in parts] or [bare]
    tables[0] = replace(tables[0], title=table.title)
    tables[-1] = replace(tables[-1], caption=table.caption)
    return tables


def fit_table(table: Table, width: int) -> Table:
    """Fit a table that is too wide into `width` columns of text.

    Columns that are blank or have a rank go first, then texts are cut, then the last columns are
    left out. The column that rows are sorted by is kept longest. Numbers are never cut. The caption
    says how many columns are left out, not counting those with a rank.
    """
    table = _without_ranked(table, width)
    kept = list(range(len(table.columns)))
    while True:
        widths = _shrunk(select_columns(table, kept), width)
        if len(kept) == 1 or sum(widths) + GAP * (len(kept) - 1) <= width:
            break
        others = [at for at in kept[1:] if not table.columns[at].is_order]
        kept.remove((others or kept)[-1])
    fitted = _cut(select_columns(table, kept), widths)
    hidden = len(table.columns) - len(kept)
    if not hidden:
        return fitted
    note = f"{count_of(hidden, 'column')} left out: a wider terminal shows all"
    return replace(fitted, caption="\n".join(part for part in (fitted.caption, note) if part))


def _without_ranked(table: Table, width: int) -> Table:
    """Remove blank columns if the table is too wide, then ranked ones until it fits.

    Of equal ranks, the last one goes first.
    """
    if table_width(table) <= width:
        return table
    table = drop_blank_columns(table)
    for width_of, is_early in ((table_width, True), (least_width, False)):
        while width_of(table) > width:
            ranks = [(column.rank, at) for at, column in enumerate(table.columns)]
            ranked = [each for each in ranks if (each[0] > 0 if is_early else each[0] < 0)]
            if not ranked:
                break
            _, gone = max(ranked)
            table = select_columns(table, [at for at in range(len(table.columns)) if at != gone])
    return table


def _shrunk(table: Table, width: int) -> list[int]:
    """Return the widths of the columns, with the widest texts narrowed as far as needed."""
    widths = list(column_widths(table))
    texts = [index for index, column in enumerate(table.columns) if column.holds_text]
    least = {index: table.columns[index].narrowest for index in texts}
    while (excess := sum(widths) + GAP * (len(widths) - 1) - width) > 0:
        long = [index for index in texts if widths[index] > least[index]]
        if not long:
            break
        most = max(widths[index] for index in long)
        widest = [index for index in long if widths[index] == most]
        # They shrink together, down to the width of the next narrower one, or until one of them
        # must not be cut further.
        bounds = [widths[index] for index in long if widths[index] < most]
        step = most - max(bounds + [least[index] for index in widest])
        share = min(step, excess // len(widest))
        for index in widest[: excess if share == 0 else None]:
            widths[index] -= max(share, 1)
    return widths


def _cut(table: Table, widths: Sequence[int]) -> Table:
    columns = zip(*table.rows, strict=True) if table.rows else [() for _ in table.columns]
    shown = [
        cut_names(cells, width) if column.is_name else {c: cut_end(c, width) for c in cells}
        for column, width, cells in zip(table.columns, widths, columns, strict=True)
    ]
    total = table.total
    return replace(
        table,
        rows=tuple(
            tuple(texts[cell] for texts, cell in zip(shown, row, strict=True)) for row in table.rows
        ),
        total=None if total is None else tuple(map(cut_end, total, widths)),
    )
