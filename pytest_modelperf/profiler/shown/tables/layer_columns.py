"""The columns that a table of layers can have: their titles, values and texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.counting.records import StaticLayer, StaticProfile
from pytest_modelperf.profiler.measurements import LayerTime, provider_name
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.report.tables import Cell
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import (
    format_bytes,
    format_count,
    format_ms,
    format_rate,
    format_shape,
    format_share,
    percent,
    table_decimals,
)
from pytest_modelperf.text.words import suggestion

# The most operators that a cell lists of the layers in one kernel; the others are counted.
_MAX_LISTED = 3


class LayerContext(Struct, frozen=True):
    """The case of a table of layers, and the totals from which its cells compute shares."""

    case: CaseProfile
    total_ns: float | None = None
    layers: Mapping[str, StaticLayer] = field(default_factory=dict)
    # Cached, because each total is a sum over all layers, and the row of each layer needs it.
    totals: dict[Total, Cell] = field(default_factory=dict)

    @classmethod
    def of(cls, case: CaseProfile) -> LayerContext:
        layers = () if case.counted is None else case.counted.layers
        return cls(case, layer_total_ns(case), {layer.id: layer for layer in layers})

    def total(self, of: Total) -> Cell:
        """Return the figure of the whole case in this column."""
        if of not in self.totals:
            self.totals[of] = of(self.case)
        return self.totals[of]


Reader: TypeAlias = Callable[[LayerRow], Cell]
Formatter: TypeAlias = Callable[[Cell, LayerContext], str]
Total: TypeAlias = Callable[[CaseProfile], Cell]


class LayerColumn(Struct, frozen=True):
    """One column of a table of layers.

    `read` returns the plain value, for CSV and sorting, and `show` turns it into text. If the text
    needs more than that value, `describe` makes it from the whole row.
    """

    title: str
    read: Reader
    show: Formatter
    total: Total | None = None
    is_text: bool = False
    is_name: bool = False
    describe: Callable[[LayerRow, LayerContext], str] | None = None

    @property
    def holds_text(self) -> bool:
        return self.is_text or self.is_name

    def cell(self, row: LayerRow, context: LayerContext) -> str:
        """Return the text of this column for a row, which is blank if the row has no value."""
        if self.describe is not None:
            return self.describe(row, context)
        value = self.read(row)
        return "" if value is None and row.static is None else self.show(value, context)


def find_columns(names: Sequence[str]) -> tuple[tuple[str, LayerColumn], ...]:
    """Return the named columns.

    Raises UsageError, which lists all columns, if one is unknown.
    """
    unknown = [name for name in names if name not in ALL_COLUMNS]
    if unknown:
        raise UsageError(
            f"there is no column {printable(unknown[0])!r}.{suggestion(unknown[0], ALL_COLUMNS)} "
            f"There are: {', '.join(ALL_COLUMNS)}."
        )
    return tuple((name, ALL_COLUMNS[name]) for name in names)


def sort_layers(layers: Sequence[LayerRow], name: str) -> tuple[LayerRow, ...]:
    """Return the layers sorted by one column.

    Texts are in ascending order and numbers in descending order, with unknown ones last.
    """
    column = dict(find_columns([name]))[name]
    if column.holds_text:
        return tuple(sorted(layers, key=lambda layer: str(column.read(layer) or "")))
    return tuple(sorted(layers, key=lambda layer: _descending(column.read(layer))))


def layer_total_ns(case: CaseProfile) -> float | None:
    """Return the sum of the times of all rows, or None if no row has one."""
    times = [row.ns for row in case.layers if row.ns is not None]
    return sum(times) if times else None


def _descending(value: Cell) -> tuple[bool, float]:
    return (value is None, -value if isinstance(value, (int, float)) else 0)


# -- of the graph


def _of(read: Callable[[StaticLayer], Cell]) -> Reader:
    return lambda row: None if row.static is None else read(row.static)


def _all(total: Callable[[StaticProfile], int | None]) -> Total:
    return lambda case: None if case.counted is None else total(case.counted)


def _text(value: Cell, _: LayerContext) -> str:
    return "" if value is None else str(value)


def _count(value: Cell, _: LayerContext) -> str:
    return format_count(value if isinstance(value, int) else None)


def _bytes(value: Cell, _: LayerContext) -> str:
    return format_bytes(value if isinstance(value, int) else None)


def _if_known(show: Callable[[float, LayerContext], str]) -> Formatter:
    """Return a formatter of numbers that leaves unknown ones blank."""
    return lambda value, context: "" if value is None else show(float(value), context)


def _share_of(total: Total) -> Formatter:
    def show(value: Cell, context: LayerContext) -> str:
        whole = context.total(total)
        return format_share(
            value if isinstance(value, int) else None, whole if isinstance(whole, int) else None
        )

    return show


def _of_sparsity(name: str) -> Reader:
    def read(layer: StaticLayer) -> Cell:
        if layer.sparsity is None:
            return None
        value = getattr(layer.sparsity, name)
        return f"{value[0]}:{value[1]}" if isinstance(value, tuple) else value

    return _of(read)


def _name(row: LayerRow) -> Cell:
    if row.static is not None:
        return row.static.name or row.static.id
    if row.time is None or row.time.kind.is_outside_kernels:
        return "(no kernel)"
    return row.time.kernel


_ratio = _if_known(lambda share, _: format_share(share, 1.0))
_macs = _all(lambda p: p.macs)
_flops = _all(lambda p: p.flops)
_backward = _all(lambda p: p.backward_macs)
_params = _all(lambda p: p.params)
_ops = _all(lambda p: p.macs + p.elementwise_ops)
_memory = _all(lambda p: p.weight_bytes + p.activation_bytes)

# Columns from the graph alone.
LAYER_COLUMNS: Mapping[str, LayerColumn] = {
    "name": LayerColumn("name", _name, _text, is_name=True),
    "id": LayerColumn("layer id", _of(lambda x: x.id), _text, is_name=True),
    "type": LayerColumn("type", lambda row: row.qualified_op, _text, is_name=True),
    "weight": LayerColumn("weight", _of(lambda x: x.weight), _text, is_name=True),
    "precision": LayerColumn("precision", lambda row: row.precision, _text, is_text=True),
    "macs": LayerColumn("MACs", _of(lambda x: x.macs), _count, _macs),
    "macs%": LayerColumn("MACs %", _of(lambda x: x.macs), _share_of(_macs), _macs),
    "elementwise": LayerColumn(
        "elementwise", _of(lambda x: x.elementwise_ops), _count, _all(lambda p: p.elementwise_ops)
    ),
    "ops": LayerColumn("MACs + elementwise", _of(lambda x: x.total_ops), _count, _ops),
    "ops%": LayerColumn("ops %", _of(lambda x: x.total_ops), _share_of(_ops), _ops),
    "flops": LayerColumn("FLOPs", _of(lambda x: x.flops), _count, _flops),
    "flops%": LayerColumn("FLOPs %", _of(lambda x: x.flops), _share_of(_flops), _flops),
    "backward": LayerColumn("backward MACs", _of(lambda x: x.backward_macs), _count, _backward),
    "backward%": LayerColumn(
        "backward %", _of(lambda x: x.backward_macs), _share_of(_backward), _backward
    ),
    "params": LayerColumn("params", _of(lambda x: x.params), _count, _params),
    "params%": LayerColumn("params %", _of(lambda x: x.params), _share_of(_params), _params),
    "memory": LayerColumn("memory", _of(lambda x: x.memory_bytes), _bytes, _memory),
    "memory%": LayerColumn("memory %", _of(lambda x: x.memory_bytes), _share_of(_memory), _memory),
    "weights": LayerColumn(
        "weights", _of(lambda x: x.weight_bytes), _bytes, _all(lambda p: p.weight_bytes)
    ),
    "outputs": LayerColumn(
        "outputs", _of(lambda x: x.output_bytes), _bytes, _all(lambda p: p.activation_bytes)
    ),
    "input": LayerColumn("input", _of(lambda x: format_shape(x.input_shape)), _text, is_text=True),
    "output": LayerColumn(
        "output", _of(lambda x: format_shape(x.output_shape)), _text, is_text=True
    ),
    "repeats": LayerColumn("repeats", _of(lambda x: x.repeats), _count),
    "sparsity": LayerColumn("sparsity", _of_sparsity("ratio"), _ratio),
    "pattern": LayerColumn("pattern", _of_sparsity("pattern"), _text, is_text=True),
    "block-sparsity": LayerColumn("block sparsity", _of_sparsity("block_ratio"), _ratio),
    "n:m": LayerColumn("N:M", _of_sparsity("n_of_m"), _text, is_text=True),
    "effective-macs": LayerColumn(
        "effective MACs",
        _of(lambda x: x.effective_macs),
        lambda value, context: "" if value is None else _count(value, context),
        _all(lambda p: p.effective_macs),
    ),
}


# -- of a run


def _of_time(read: Callable[[LayerTime], Cell]) -> Reader:
    return lambda row: None if row.time is None else read(row.time)


def _half_width_ms(row: LayerRow) -> Cell:
    ns = None if row.time is None else row.time.half_width_ns
    return None if ns is None else ns / 1e6


def _relative_half_width(row: LayerRow, _: LayerContext) -> str:
    return "" if row.half_width is None else percent(row.half_width)


def _total_ms(case: CaseProfile) -> Cell:
    total = layer_total_ns(case)
    return None if total is None else total / 1e6


def _total_rate(case: CaseProfile) -> Cell:
    total = layer_total_ns(case)
    macs = 0 if case.counted is None else case.counted.macs
    return macs / total if macs and total else None


def _provider(value: Cell, _: LayerContext) -> str:
    return "" if value is None else provider_name(str(value))


def _fused(row: LayerRow, context: LayerContext) -> str:
    """Return the operators that share the layer's kernel, or the layer whose kernel runs it."""
    if row.runs_in is not None and row.time is None:
        return f"in {_name_of(row.runs_in, context)}"
    counts = Counter(layer.qualified_op for layer in row.fused)
    parts = [op if count == 1 else f"{count} {op}" for op, count in counts.items()]
    more = len(parts) - _MAX_LISTED
    shown = [*parts[:_MAX_LISTED], *([f"{more} more"] if more > 0 else [])]
    return f"+ {', '.join(shown)}" if shown else ""


def _runs_in(row: LayerRow, context: LayerContext) -> str:
    return "" if row.runs_in is None else _name_of(row.runs_in, context)


def _name_of(layer_id: str, context: LayerContext) -> str:
    layer = context.layers.get(layer_id)
    return layer_id if layer is None else layer.name or layer_id


_ms = _if_known(lambda ms, case: format_ms(1e6 * ms, table_decimals(case.total_ns)))
_share_of_latency = _if_known(lambda ns, case: format_share(ns, case.total_ns))
_rate = _if_known(lambda rate, _: format_rate(rate))

# Columns that need layer times.
TIME_COLUMNS: Mapping[str, LayerColumn] = {
    "ms": LayerColumn("ms", lambda row: row.ms, _ms, _total_ms),
    "half-width": LayerColumn("±", _half_width_ms, _ms, describe=_relative_half_width),
    "ms%": LayerColumn("share", lambda row: row.ns, _share_of_latency, layer_total_ns),
    "gmacs": LayerColumn("GMAC/s", lambda row: row.gmacs_per_second, _rate, _total_rate),
    "provider": LayerColumn(
        "provider", _of_time(lambda time: time.provider), _provider, is_text=True
    ),
    "kernel": LayerColumn("kernel", _of_time(lambda time: time.kernel), _text, is_name=True),
    # Names of tensors may contain anything, even spaces and control characters.
    "fused": LayerColumn(
        "fused",
        lambda row: " ".join(layer.id for layer in row.fused) or None,
        _text,
        is_name=True,
        describe=_fused,
    ),
    "runs-in": LayerColumn(
        "runs in", lambda row: row.runs_in, _text, is_name=True, describe=_runs_in
    ),
}
ALL_COLUMNS: Mapping[str, LayerColumn] = {**LAYER_COLUMNS, **TIME_COLUMNS}

DEFAULT_COLUMNS = ("name", "type", "macs", "flops", "flops%", "params", "memory", "output")
MEASURED_COLUMNS = ("name", "type", "ms", "half-width", "ms%", "macs", "gmacs", "fused", "output")
SPARSITY_COLUMNS = ("sparsity", "pattern", "block-sparsity", "n:m", "effective-macs")
