"""A roofline as JSON: the peaks of the machine, and every layer beneath its roof.

The types have the keys of the document in their order. Keys with a default are computed from
others: a reader computes them again, and they may be missing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

from pytest_modelperf.files.documents import (
    MAX_INTEGER,
    ContradictionError,
    Count,
    Number,
    Positive,
    shortened,
)
from pytest_modelperf.report.document import Json, ms, number
from pytest_modelperf.roofline.records import Bandwidth, Bound, LayerRoof, Peaks, Roofline, Work

_NS_PER_MS = 1e6

# Every peak ever measured is above one a second, and something is divided by each.
Rate: TypeAlias = Annotated[float, Meta(ge=1, le=MAX_INTEGER)]


class BandwidthJson(Struct, frozen=True, kw_only=True):
    """The bandwidth at one size."""

    nbytes: Positive = field(name="bytes")
    bytes_per_second: Rate


class PeaksJson(Struct, frozen=True, kw_only=True):
    """The peaks of an engine on a machine."""

    machine: str
    engine: str
    version: str | None
    options: Mapping[str, str]
    cores: Positive
    measured: dt.date
    macs_per_second: Mapping[str, Rate]
    runs_as: Mapping[str, str]
    bytes_per_second: float | None = None
    bandwidths: Annotated[tuple[BandwidthJson, ...], Meta(min_length=1)]
    balance: Mapping[str, float] = {}


class LayerRoofJson(Struct, frozen=True, kw_only=True):
    """A layer beneath its roof."""

    id: str
    op_type: str
    ms: Number | None
    least_ms: Number
    gain_ms: float | None = None
    half_width_ms: float | None
    share: float | None = None
    bound: Bound
    precision: str | None
    macs: Count
    elementwise_ops: Count
    bytes_moved: Count
    intensity: float | None = None
    achieved_per_second: float | None = None
    attainable_per_second: float | None = None
    achieved_bytes_per_second: float | None = None


class UnplacedJson(Struct, frozen=True, kw_only=True):
    """The number of layers that have no roof for one reason."""

    reason: str
    count: Count


class RooflineJson(Struct, frozen=True, kw_only=True):
    """A roofline."""

    peaks: PeaksJson
    least_ms: float | None = None
    gain_ms: float | None = None
    layers: tuple[LayerRoofJson, ...]
    unplaced: tuple[UnplacedJson, ...]


def rooflines_to_json(rooflines: Mapping[str, Roofline]) -> dict[str, Json]:
    """Rooflines by the ids of their cases, for the document of a profile."""
    return {case_id: roofline_to_json(roofline) for case_id, roofline in rooflines.items()}


def roofline_to_json(roofline: Roofline) -> RooflineJson:
    return RooflineJson(
        peaks=peaks_to_json(roofline.peaks),
        least_ms=ms(roofline.least_ns),
        gain_ms=ms(roofline.gain_ns),
        layers=tuple(map(_layer, roofline.layers)),
        unplaced=tuple(
            UnplacedJson(reason=reason, count=count) for reason, count in roofline.unplaced.items()
        ),
    )


def peaks_to_json(peaks: Peaks) -> PeaksJson:
    return PeaksJson(
        machine=peaks.machine_key,
        engine=peaks.engine,
        version=peaks.version,
        options=dict(peaks.options),
        cores=peaks.cores,
        measured=peaks.measured,
        macs_per_second=dict(peaks.macs_per_second),
        runs_as=dict(peaks.runs_as),
        bytes_per_second=peaks.bytes_per_second,
        bandwidths=tuple(
            BandwidthJson(nbytes=each.nbytes, bytes_per_second=each.bytes_per_second)
            for each in peaks.bandwidths
        ),
        balance=dict(peaks.balance),
    )


def _layer(roof: LayerRoof) -> LayerRoofJson:
    return LayerRoofJson(
        id=roof.id,
        op_type=roof.op_type,
        ms=ms(roof.ns),
        least_ms=roof.least_ns / _NS_PER_MS,
        gain_ms=ms(roof.gain_ns),
        half_width_ms=ms(roof.half_width_ns),
        share=number(roof.share),
        bound=roof.bound,
        precision=roof.precision,
        macs=roof.work.macs,
        elementwise_ops=roof.work.elementwise_ops,
        bytes_moved=roof.work.nbytes,
        intensity=number(roof.intensity),
        achieved_per_second=number(roof.achieved_per_second),
        attainable_per_second=number(roof.attainable_per_second),
        achieved_bytes_per_second=number(roof.achieved_bytes_per_second),
    )


def read_roofline(found: RooflineJson, names: Mapping[str, str]) -> Roofline:
    """The roofline of a case whose layers have these names, by their ids."""
    for index, roof in enumerate(found.layers):
        if roof.id not in names:
            problem = f'there is no layer "{shortened(roof.id)}"'
            raise ContradictionError(f"layers[{index}].id", problem)
    return Roofline(
        peaks=read_peaks(found.peaks),
        layers=tuple(_read_layer(roof, names[roof.id]) for roof in found.layers),
        unplaced={each.reason: each.count for each in found.unplaced},
    )


def read_peaks(found: PeaksJson) -> Peaks:
    return Peaks(
        machine_key=found.machine,
        engine=found.engine,
        version=found.version,
        options=found.options,
        cores=found.cores,
        macs_per_second=found.macs_per_second,
        runs_as=found.runs_as,
        bandwidths=tuple(
            Bandwidth(each.nbytes, each.bytes_per_second) for each in found.bandwidths
        ),
        measured=found.measured,
    )


def _read_layer(roof: LayerRoofJson, name: str) -> LayerRoof:
    work = Work(macs=roof.macs, elementwise_ops=roof.elementwise_ops, nbytes=roof.bytes_moved)
    return LayerRoof(
        id=roof.id,
        name=name,
        op_type=roof.op_type,
        work=work,
        precision=roof.precision,
        least_ns=roof.least_ms * _NS_PER_MS,
        bound=roof.bound,
        ns=None if roof.ms is None else roof.ms * _NS_PER_MS,
        half_width_ns=None if roof.half_width_ms is None else roof.half_width_ms * _NS_PER_MS,
    )
