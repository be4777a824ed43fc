"""The columns that a table of layers can have: how each is called, computed and shown."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pytest_modelperf.errors import UsageError
from pytest_modelperf.records import StaticLayer, StaticProfile
from pytest_modelperf.report.tables import Cell
from pytest_modelperf.units import format_bytes, format_count, format_shape, format_share, printable

Reader: TypeAlias = Callable[[StaticLayer], Cell]
Formatter: TypeAlias = Callable[[Cell, StaticProfile], str]
Total: TypeAlias = Callable[[StaticProfile], Cell]


@dataclass(frozen=True, slots=True)
class LayerColumn:
    """One column: `read` gives its plain value (for CSV and sorting), `show` the text of it."""

    title: str
    read: Reader
    show: Formatter
    total: Total | None = None
    is_text: bool = False
    is_name: bool = False
    needs_weights: bool = False


def find_columns(names: Sequence[str]) -> tuple[tuple[str, LayerColumn], ...]:
    """The named columns; UsageError lists those that there are."""
    unknown = [name for name in names if name not in LAYER_COLUMNS]
    if unknown:
        near = difflib.get_close_matches(unknown[0], list(LAYER_COLUMNS), 1)
        raise UsageError(
            f"there is no column {printable(unknown[0])!r}."
            + (f" Did you mean {near[0]!r}?" if near else "")
            + f" There are: {', '.join(LAYER_COLUMNS)}."
        )
    return tuple((name, LAYER_COLUMNS[name]) for name in names)


def sort_layers(layers: Sequence[StaticLayer], name: str) -> tuple[StaticLayer, ...]:
    """The layers by one column: text ascending, numbers from the largest, unknown ones last."""
    column = dict(find_columns([name]))[name]
    if column.is_text:
        return tuple(sorted(layers, key=lambda layer: str(column.read(layer) or "")))
    return tuple(sorted(layers, key=lambda layer: _descending(column.read(layer))))


def _descending(value: Cell) -> tuple[bool, float]:
    return (value is None, -float(value) if isinstance(value, (int, float)) else 0.0)


def _text(value: Cell, _: StaticProfile) -> str:
    return "" if value is None else printable(str(value))


def _count(value: Cell, _: StaticProfile) -> str:
    return format_count(value if isinstance(value, int) else None)


def _bytes(value: Cell, _: StaticProfile) -> str:
    return format_bytes(value if isinstance(value, int) else None)


def _ratio(value: Cell, _: StaticProfile) -> str:
    return "" if value is None else format_share(float(value), 1.0)


def _optional_count(value: Cell, profile: StaticProfile) -> str:
    return "" if value is None else _count(value, profile)


def _share_of(total: Total) -> Formatter:
    def show(value: Cell, profile: StaticProfile) -> str:
        whole = total(profile)
        return format_share(
            value if isinstance(value, int) else None, whole if isinstance(whole, int) else None
        )

    return show


def _of_sparsity(field: str) -> Reader:
    def read(layer: StaticLayer) -> Cell:
        if layer.sparsity is None:
            return None
        value = getattr(layer.sparsity, field)
        return f"{value[0]}:{value[1]}" if isinstance(value, tuple) else value

    return read


def _memory(profile: StaticProfile) -> int:
    return profile.weight_bytes + profile.activation_bytes


def _ops(profile: StaticProfile) -> int:
    return profile.macs + profile.elementwise_ops


LAYER_COLUMNS: Mapping[str, LayerColumn] = {
    "name": LayerColumn("name", lambda x: x.name or x.id, _text, is_text=True, is_name=True),
    "id": LayerColumn("layer id", lambda x: x.id, _text, is_text=True, is_name=True),
    "type": LayerColumn("type", lambda x: x.qualified_op, _text, is_text=True, is_name=True),
    "weight": LayerColumn("weight", lambda x: x.weight, _text, is_text=True, is_name=True),
    "precision": LayerColumn("precision", lambda x: x.precision, _text, is_text=True),
    "macs": LayerColumn("MACs", lambda x: x.macs, _count, lambda p: p.macs),
    "macs%": LayerColumn("MACs %", lambda x: x.macs, _share_of(lambda p: p.macs), lambda p: p.macs),
    "elementwise": LayerColumn(
        "elementwise", lambda x: x.elementwise_ops, _count, lambda p: p.elementwise_ops
    ),
    "ops": LayerColumn("MACs + elementwise", lambda x: x.total_ops, _count, _ops),
    "ops%": LayerColumn("ops %", lambda x: x.total_ops, _share_of(_ops), _ops),
    "flops": LayerColumn("FLOPs", lambda x: x.flops, _count, lambda p: p.flops),
    "flops%": LayerColumn(
        "FLOPs %", lambda x: x.flops, _share_of(lambda p: p.flops), lambda p: p.flops
    ),
    "backward": LayerColumn(
        "backward MACs", lambda x: x.backward_macs, _count, lambda p: p.backward_macs
    ),
    "params": LayerColumn("params", lambda x: x.params, _count, lambda p: p.params),
    "params%": LayerColumn(
        "params %", lambda x: x.params, _share_of(lambda p: p.params), lambda p: p.params
    ),
    "memory": LayerColumn("memory", lambda x: x.memory_bytes, _bytes, _memory),
    "memory%": LayerColumn("memory %", lambda x: x.memory_bytes, _share_of(_memory), _memory),
    "weights": LayerColumn("weights", lambda x: x.weight_bytes, _bytes, lambda p: p.weight_bytes),
    "outputs": LayerColumn(
        "outputs", lambda x: x.output_bytes, _bytes, lambda p: p.activation_bytes
    ),
    "input": LayerColumn("input", lambda x: format_shape(x.input_shape), _text, is_text=True),
    "output": LayerColumn("output", lambda x: format_shape(x.output_shape), _text, is_text=True),
    "repeats": LayerColumn("repeats", lambda x: x.repeats, _count),
    "sparsity": LayerColumn("sparsity", _of_sparsity("ratio"), _ratio, needs_weights=True),
    "pattern": LayerColumn(
        "pattern", _of_sparsity("pattern"), _text, is_text=True, needs_weights=True
    ),
    "block-sparsity": LayerColumn(
        "block sparsity", _of_sparsity("block_ratio"), _ratio, needs_weights=True
    ),
    "n:m": LayerColumn("N:M", _of_sparsity("n_of_m"), _text, is_text=True, needs_weights=True),
    "effective-macs": LayerColumn(
        "effective MACs",
        lambda x: x.effective_macs,
        _optional_count,
        lambda p: p.effective_macs,
        needs_weights=True,
    ),
}

DEFAULT_COLUMNS = ("name", "type", "macs", "macs%", "params", "memory", "output")
SPARSITY_COLUMNS = ("sparsity", "pattern", "block-sparsity", "n:m", "effective-macs")
