"""The parts that several documents share: a model, a machine, an engine, a latency, a layer.

Each type has the keys of the document in their order. Keys with a default are computed from
others: a reader computes them again, and they may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Generic, TypeAlias, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from pytest_modelperf.files.documents import (
    Confidence,
    Count,
    DurationMs,
    Figure,
    SignedMs,
)
from pytest_modelperf.profiler.counting.records import LayerType, Sparsity
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts, RowKind
from pytest_modelperf.profiler.records import LayerRow
from pytest_modelperf.report.document import copy_fields, ms
from pytest_modelperf.stats.records import PERCENTS, Latency

S = TypeVar("S", bound=Struct)
T = TypeVar("T")

ShapeJson: TypeAlias = tuple[Count | None, ...]
# The sum of many counts can need more than 64 bits.
Sum: TypeAlias = Annotated[int, Meta(ge=0)]


class MachineJson(MachineFacts, frozen=True):
    """A machine, with its key first: positional fields come before the others."""

    stored_key: str = field(name="key", default="")


class EngineJson(Struct, frozen=True):
    """An engine; all null where nothing ran."""

    name: str | None
    version: str | None
    python: str | None
    options: Mapping[str, str] | None
    providers: tuple[str, ...] | None


class ByPercentile(Struct, Generic[T], frozen=True):
    """A value for each percentile."""

    p50_ms: T
    p90_ms: T
    p95_ms: T
    p97_ms: T
    p99_ms: T
    p999_ms: T = field(name="p99.9_ms")


class IntervalsJson(ByPercentile[tuple[DurationMs, DurationMs] | None], frozen=True):
    """The interval of each percentile; null where one round says nothing of it."""


class NeededSamplesJson(ByPercentile[Count], frozen=True):
    """The number of samples that each percentile needs."""


class LatencyJson(ByPercentile[DurationMs | None], frozen=True, kw_only=True):
    """A latency; all null where nothing ran."""

    min_ms: DurationMs | None
    max_ms: DurationMs | None
    mean_ms: DurationMs | None
    samples: Count | None
    rounds: Count | None
    items_per_second: Figure | None = None
    confidence: Confidence | None
    intervals_ms: IntervalsJson | None
    needed: NeededSamplesJson | None


class LayerTypeJson(Struct, frozen=True, kw_only=True):
    """All layers of one operator; of a time that belongs to no layer, only the time."""

    op_type: str
    domain: str | None = None
    count: Count | None = None
    ms: Figure | None = None
    share: Figure | None = None
    macs: Sum | None = None
    elementwise_ops: Sum | None = None
    backward_macs: Sum | None = None
    params: Sum | None = None
    weight_bytes: Sum | None = None
    output_bytes: Sum | None = None


class SparsityJson(Sparsity, frozen=True, kw_only=True):
    """The zeros of a weight, with their share."""

    ratio: Figure | None = None  # type: ignore[assignment]  # a property of the record


class LayerJson(Struct, frozen=True, kw_only=True):
    """A layer with its time; of a time that belongs to no layer, only the time."""

    kind: RowKind
    id: str | None
    name: str | None
    op_type: str
    domain: str | None
    weight: str | None
    provider: str | None
    precision: str | None
    ms: SignedMs | None
    interval_ms: tuple[SignedMs, SignedMs] | None
    macs: Count | None
    elementwise_ops: Count | None
    backward_macs: Count | None
    effective_macs: Count | None
    params: Count | None
    weight_bytes: Count | None
    output_bytes: Count | None
    input_shape: ShapeJson | None
    output_shape: ShapeJson | None
    repeats: Count | None
    sparsity: SparsityJson | None
    kernel: str | None
    fused: tuple[str, ...]
    runs_in: str | None


class TotalsJson(Struct, frozen=True, kw_only=True):
    """The totals of a static profile; all null where there is no graph."""

    macs: Sum | None
    elementwise_ops: Sum | None = None
    flops: Sum | None = None
    backward_macs: Sum | None = None
    effective_macs: Sum | None = None
    params: Count | None
    weight_bytes: Count | None
    activation_bytes: Sum | None = None
    peak_activation_bytes: Count | None


def all_null(kind: type[S]) -> S:
    """An object whose values are all null."""
    return kind(**dict.fromkeys(kind.__struct_fields__))


def machine_to_json(machine: MachineFacts | None) -> MachineJson | None:
    return None if machine is None else copy_fields(MachineJson, machine, stored_key=machine.key)


def engine_to_json(engine: EngineFacts | None) -> EngineJson:
    return all_null(EngineJson) if engine is None else copy_fields(EngineJson, engine)


def latency_to_json(latency: Latency | None) -> LatencyJson:
    if latency is None:
        return all_null(LatencyJson)
    found = {percentile.percent: percentile for percentile in latency.percentiles}
    ordered = [found[percent] for percent in PERCENTS]
    return copy_fields(
        LatencyJson,
        latency,
        intervals_ms=IntervalsJson(*(_interval_ms(each.low_ns, each.high_ns) for each in ordered)),
        needed=NeededSamplesJson(*(percentile.needed for percentile in ordered)),
    )


def _interval_ms(low_ns: float | None, high_ns: float | None) -> tuple[float, float] | None:
    low, high = ms(low_ns), ms(high_ns)
    return None if low is None or high is None else (low, high)


def layer_type_to_json(kind: LayerType) -> LayerTypeJson:
    if kind.count:
        return copy_fields(LayerTypeJson, kind)
    # A time that belongs to no layer has none of the figures of the graph.
    return LayerTypeJson(op_type=kind.op_type, ms=kind.ms, share=kind.share)


def layer_to_json(row: LayerRow) -> LayerJson:
    """A layer with its time; or a time that belongs to none, with null for what a layer has."""
    layer, time = row.static, row.time
    interval_ms = None
    if time is not None and time.half_width_ns is not None:
        interval_ms = _interval_ms(time.ns - time.half_width_ns, time.ns + time.half_width_ns)
    timed = {
        "kind": RowKind.LAYER if layer is not None or time is None else time.kind,
        "provider": None if time is None else time.provider,
        "precision": row.precision,
        "ms": ms(row.ns),
        "interval_ms": interval_ms,
        "kernel": None if time is None else time.kernel or None,
        "fused": tuple(other.id for other in row.fused),
        "runs_in": row.runs_in,
    }
    if layer is None:
        return replace(all_null(LayerJson), op_type=row.qualified_op, **timed)
    zeros = layer.sparsity
    sparsity = None if zeros is None else copy_fields(SparsityJson, zeros)
    return copy_fields(LayerJson, layer, sparsity=sparsity, **timed)
