"""The tables of a static profile, and the table of layers of any profile."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.profiler.counting.records import LayerType, StaticProfile
from pytest_modelperf.profiler.records import CaseProfile, ModelFacts
from pytest_modelperf.profiler.rows import LayerRow
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
from pytest_modelperf.report.tables import Column, Table, table_of
from pytest_modelperf.text.units import format_bytes, format_count, format_share
from pytest_modelperf.text.words import count_of


def describe_model(model: ModelFacts) -> str:
    """Return a line on the model: name, size, operator sets and producer.

    For a function it is the name and the file.
    """
    if model.function_file is not None:
        return f"{model.name}: a function from {model.function_file}"
    opsets = ", ".join(
        f"{'opset' if domain == 'ai.onnx' else domain} {number}"
        for domain, number in model.opsets.items()
    )
    parts = (model.described_size, opsets, model.producer)
    facts = ", ".join(part for part in parts if part)
    return f"{model.name}: {facts}" if facts else model.name


def summary_table(case: CaseProfile) -> Table:
    static = case.static
    # A sum that leaves something out is marked as a lower bound.
    least = "at least " if static.coverage < 1 else ""
    rows = [
        ("batch size", str(case.case.batch_size), ""),
        ("MACs", least + format_count(static.macs), _inputs_note(case)),
        (
            "elementwise ops",
            least + format_count(static.elementwise_ops),
            "an exp counts 32, an add 1",
        ),
        ("FLOPs", least + format_count(static.flops), "2 x MACs + elementwise"),
        (
            "backward MACs",
            least + format_count(static.backward_macs),
            f"{format_share(static.backward_macs, static.macs)} of the MACs, in one training step",
        ),
        ("params", format_count(static.params), format_bytes(static.weight_bytes)),
        (
            "activations",
            ("" if static.knows_activations else "at least ")
            + format_bytes(static.activation_bytes),
            f"peak {format_bytes(static.peak_activation_bytes)}",
        ),
        ("layers", str(len(static.layers)), f"{format_share(static.coverage, 1.0)} counted"),
    ]
    if static.effective_macs is not None:
        share = format_share(static.effective_macs, static.macs)
        note = f"{share} of the MACs meet a weight that is not zero"
        rows.insert(2, ("effective MACs", least + format_count(static.effective_macs), note))
    columns = (Column("", is_text=True), Column(""), Column("", is_text=True))
    return Table("", columns, tuple(rows))


def _inputs_note(case: CaseProfile) -> str:
    return ", ".join(f"{name}={size}" for name, size in case.case.dims)


def costliest_first(static: StaticProfile) -> list[LayerType]:
    """Return the layer types, the one with the most FLOPs first."""
    return sorted(
        static.layer_types.values(), key=lambda kind: (-(kind.flops or 0), kind.qualified_op)
    )


def layer_type_table(static: StaticProfile) -> Table:
    """Return a table with a row per operator, the one with the most FLOPs first."""
    total = (
        "total",
        str(len(static.layers)),
        format_count(static.macs),
        format_count(static.elementwise_ops),
        format_count(static.flops),
        "",
        format_count(static.params),
        format_bytes(static.activation_bytes),
    )
    return table_of(
        "by layer type",
        costliest_first(static),
        (Column("layer type", is_name=True), lambda kind: kind.qualified_op),
        (Column("count"), lambda kind: str(kind.count)),
        (Column("MACs"), lambda kind: format_count(kind.macs)),
        # The first column to drop if space is short, because it follows from its neighbours.
        (Column("elementwise", rank=1), lambda kind: format_count(kind.elementwise_ops)),
        (Column("FLOPs"), lambda kind: format_count(kind.flops)),
        (Column("FLOPs %", has_bars=True), lambda kind: format_share(kind.flops, static.flops)),
        (Column("params"), lambda kind: format_count(kind.params)),
        (Column("outputs"), lambda kind: format_bytes(kind.output_bytes)),
        total=total,
        caption=shared_params_line(static),
    )


def shared_params_line(static: StaticProfile) -> str:
    """Explain why the params of the layers add up to more than the total, if they do."""
    if static.layer_params <= static.params:
        return ""
    return (
        f"params: the layers add up to {format_count(static.layer_params)}, the model has "
        f"{format_count(static.params)}: a weight that layers share counts once in the total"
    )


def uncounted_table(static: StaticProfile) -> Table | None:
    """Return the layers that the sums leave out, with the reasons, or None if there are none."""
    if not static.uncounted:
        return None
    return table_of(
        "",
        sorted(static.uncounted, key=lambda u: (-u.count, u.qualified_op)),
        (Column("not counted", is_name=True), lambda u: u.qualified_op),
        (Column("count"), lambda u: str(u.count)),
        (Column("share of layers"), lambda u: format_share(u.count, len(static.layers))),
        (Column("because", is_text=True), lambda u: u.reason),
    )


# -- the table of layers, of a static profile or a measured one


# Operators differ at the start of their names, so columns are dropped before these are cut further.
_LEAST = {"type": 12}
# Columns that are shown by default if there is space. Next to times, the rate replaces the
# MACs.
_SPARE, _SPARE_WITH_TIMES = ("output",), ("macs", "output")
# Columns after the default ones, for a terminal that has room for them.
_EXTRAS, _EXTRAS_WITH_TIMES = ("weights", "input"), ("params", "memory", "input")
_SHARES = ("ms%", "flops%")


class LayerView(Struct, frozen=True):
    """The layers that a report shows: columns, order, number, and hints on how to see more."""

    columns: Sequence[str] = DEFAULT_COLUMNS
    sort: str | None = None
    top: int | None = None
    for_all: str = "--top 0 shows all"
    for_details: str = "-v shows the percentiles, counts and layers of each case"


def layer_table(case: CaseProfile, view: LayerView) -> Table:
    """Return a row per layer, in graph order or sorted.

    With `top`, only that many rows are kept.
    """
    has_times = case.has_layer_times
    is_default = tuple(view.columns) in {DEFAULT_COLUMNS, MEASURED_COLUMNS}
    extras = (_EXTRAS_WITH_TIMES if has_times else _EXTRAS) if is_default else ()
    chosen = find_columns((*_column_names(case, view, has_times=has_times), *extras))
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
    spare = _SPARE_WITH_TIMES if has_times else _SPARE
    return Table(
        "by layer, in graph order" if sort is None else f"by layer, sorted by {sort}",
        tuple(
            Column(
                column.title,
                column.is_text,
                column.is_name,
                _LEAST.get(name),
                rank=2 if name in extras else int(is_default and name in spare),
                is_order=name == sort,
                is_extra=name in extras,
                has_bars=name in _SHARES,
            )
            for name, column in chosen
        ),
        tuple(tuple(column.cell(row, context) for column in columns) for row in shown),
        _total(columns, context),
        "\n".join(filter(None, notes)),
    )


def _order(sort: str | None, *, has_times: bool) -> str | None:
    """Return the column to sort by, which is MACs instead of times if there are none."""
    if sort is None:
        return None
    return "macs" if sort in TIME_COLUMNS and not has_times else sort


def _column_names(case: CaseProfile, view: LayerView, *, has_times: bool) -> tuple[str, ...]:
    """Return the columns of the view, without those that the case cannot fill.

    The default columns get those in addition that are only worth showing if they vary.
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
