"""Tables that are fitted to a width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.report.tables import (
    GAP,
    MIN_TEXT,
    Column,
    Table,
    fit_table,
    least_width,
    split_table,
    with_bars,
)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(0, 200))
def test_the_widest_texts_are_narrowed_first_until_all_fit(lengths: list[int], more: int) -> None:
    gaps = GAP * (len(lengths) - 1)
    least = sum(min(length, MIN_TEXT) for length in lengths)
    columns = tuple(Column("", is_text=True) for _ in lengths)
    table = Table("", columns, (tuple("x" * length for length in lengths),))
    (row,) = fit_table(table, least + gaps + more).rows
    assert list(map(len, row)) == _narrowed(lengths, least + more)


def _narrowed(lengths: list[int], width: int) -> list[int]:
    """The slow way: one column after the other loses one character."""
    widths = list(lengths)
    while sum(widths) > width:
        widest = max(range(len(widths)), key=lambda at: widths[at])
        widths[widest] -= 1
    return widths


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(40, 200))
def test_each_part_of_a_split_table_fits_and_has_the_repeated_columns(
    lengths: list[int], width: int
) -> None:
    columns = (Column("name", is_repeated=True), *(Column(str(at)) for at in range(len(lengths))))
    row = ("row", *("x" * length for length in lengths))
    parts = split_table(Table("title", columns, (row,), row, "caption"), width)
    assert all(least_width(part) <= width for part in parts)
    assert all(part.columns[0].title == "name" for part in parts)
    assert ("row", *(cell for part in parts for cell in part.rows[0][1:])) == row
    assert [part.title for part in parts] == ["title", *[""] * (len(parts) - 1)]
    assert [part.caption for part in parts] == [*[""] * (len(parts) - 1), "caption"]


@pytest.mark.parametrize(
    ("cells", "lengths"),
    [
        (("74 %", "37 %", "-3 %", ""), (40, 20, 0, 0)),
        (("x2.00", "x0.50", "?"), (40, 10, 0)),
        (("1.200 k ± 1.0 %", "600.0 ± >100 %"), (40, 20)),
    ],
)
def test_a_bar_is_as_long_as_the_figure_at_the_start_of_its_cell(
    cells: tuple[str, ...], lengths: tuple[int, ...]
) -> None:
    drawn = with_bars(_with_bars_for(*cells), 100)
    assert [len(row[2]) for row in drawn.rows] == [*lengths]


def test_a_single_figure_and_a_narrow_terminal_have_no_bars() -> None:
    for cells, width in ((("x1.40", "?"), 100), (("x1.40", "x1.20"), 30)):
        table = _with_bars_for(*cells)
        assert with_bars(table, width) == table


def _with_bars_for(*cells: str) -> Table:
    columns = (Column("name", is_name=True), Column("figure", has_bars=True), Column("after"))
    return Table("", columns, tuple(("net", cell, "1") for cell in cells))
