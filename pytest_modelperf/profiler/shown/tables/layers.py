"""The table of layers, of a static profile or a measured one: which columns, which rows."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.profiler.records import CaseProfile, LayerRow
from pytest_modelperf.profiler.shown.tables.layer_columns import (
    ALL_COLUMNS,
    DEFAULT_COLUMNS,
    MEASURED_COLUMNS,
    TIME_COLUMNS,
    LayerColumn,
    LayerContext,
    find_columns,
    sort_layers,
)
from pytest_modelperf.profiler.shown.tables.static import shared_params_line
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.words import count_of

# Operators are told apart by their beginnings: columns are dropped before these are cut.
_LEAST = {"type": 12}
# Columns that are shown by default if there is room. Beside times, the rate tells of the MACs.
_SPARE, _SPARE_WITH_TIMES = ("output",), ("macs", "output")


class LayerView(Struct, frozen=True):
    """Which layers a report shows: the columns, their order, how many, and how to see all."""

    columns: Sequence[str] = DEFAULT_COLUMNS
    sort: str | None = None
    top: int | None = None
    for_all: str = "--top 0 shows all"


def layer_table(case: CaseProfile, view: LayerView) -> Table:
    """A row per layer: in graph order, or sorted, or the `top` ones of the sorted."""
    has_times = case.has_layer_times
    chosen = find_columns(_column_names(case, view, has_times=has_times))
    context = LayerContext.of(case)
    layers: Sequence[LayerRow] = case.layers
    sort = _order(view.sort, has_times=has_times)
    if sort is not None:
        layers = sort_layers(layers, sort)
    shown = layers if view.top is None else layers[: view.top]
    hidden = len(layers) - len(shown)
    noun = "more row" if has_times else "more layer"
    columns = [column for _, column in chosen]
    notes = [f"{count_of(hidden, noun)}: {view.for_all}" if hidden else ""]
    if case.counted is not None and "params" in dict(chosen):
        notes.append(shared_params_line(case.counted))
    is_default = tuple(view.columns) in {DEFAULT_COLUMNS, MEASURED_COLUMNS}
    spare = _SPARE_WITH_TIMES if has_times else _SPARE
    return Table(
        "by layer, in graph order" if sort is None else f"by layer, sorted by {sort}",
        tuple(
            Column(
                column.title,
                column.is_text,
                column.is_name,
                _LEAST.get(name),
                rank=int(is_default and name in spare),
                is_order=name == sort,
            )
            for name, column in chosen
        ),
        tuple(tuple(column.cell(row, context) for column in columns) for row in shown),
        _total(columns, context),
        "\n".join(filter(None, notes)),
    )


def _order(sort: str | None, *, has_times: bool) -> str | None:
    """The column to sort by: MACs in place of times if there are none."""
    if sort is None:
        return None
    return "macs" if sort in TIME_COLUMNS and not has_times else sort


def _column_names(case: CaseProfile, view: LayerView, *, has_times: bool) -> tuple[str, ...]:
    """The columns of the view, without those that the case cannot fill.

    By default, columns that are only worth showing if they vary are added.
    """
    names = tuple(view.columns)
    if not has_times:
        kept = tuple(name for name in names if name not in TIME_COLUMNS)
        return kept if kept and names != MEASURED_COLUMNS else DEFAULT_COLUMNS
    if names != MEASURED_COLUMNS:
        return names
    extra = [name for name in ("provider", "precision") if _varies(case, name)]
    place = names.index("fused")
    return (*names[:place], *extra, *names[place:])


def _varies(case: CaseProfile, name: str) -> bool:
    """Whether layers with MACs differ in a column that usually has one value."""
    read = ALL_COLUMNS[name].read
    values = {
        read(row) for row in case.layers if row.ns is not None and row.static and row.static.macs
    }
    return len(values - {None}) > 1


def _total(columns: Sequence[LayerColumn], context: LayerContext) -> tuple[str, ...]:
    cells = [
        "" if column.total is None else column.show(column.total(context.case), context)
        for column in columns
    ]
    if columns and columns[0].holds_text:
        cells[0] = "total"
    return tuple(cells)
