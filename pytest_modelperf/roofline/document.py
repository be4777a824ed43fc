"""A roofline as JSON: the peaks of the machine, and every layer beneath its roof.

The types have the keys of the document in their order. Keys with a default are computed from
others: a reader computes them again, and they may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pytest_modelperf.files.documents import (
    ContradictionError,
    Count,
    Number,
    shortened,
)
from pytest_modelperf.report.document import Json, copy_fields, ms
from pytest_modelperf.roofline.records import Bound, LayerRoof, Peaks, Roofline, Work

_NS_PER_MS = 1e6


class PeaksJson(Peaks, frozen=True, kw_only=True):
    """The peaks of an engine on a machine, with what follows from them."""

    bytes_per_second: float | None = None  # type: ignore[assignment]  # a property of the record
    balance: Mapping[str, float] = {}


class LayerRoofJson(Struct, frozen=True, kw_only=True):
    """A layer beneath its roof: its times in ms, and its work as keys of their own."""

    id: str
    op_type: str
    ms: Number | None
    least_ms: Number
    gain_ms: float | None = None
    gain_interval_ms: tuple[float, float] | None = None
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
    gain_interval_ms: tuple[float, float] | None = None
    layers: tuple[LayerRoofJson, ...]
    unplaced: tuple[UnplacedJson, ...]


def rooflines_to_json(rooflines: Mapping[str, Roofline]) -> dict[str, Json]:
    """Rooflines by the ids of their cases, for the document of a profile."""
    return {case_id: roofline_to_json(roofline) for case_id, roofline in rooflines.items()}


def roofline_to_json(roofline: Roofline) -> RooflineJson:
    return RooflineJson(
        peaks=copy_fields(PeaksJson, roofline.peaks),
        least_ms=ms(roofline.least_ns),
        gain_ms=ms(roofline.gain_ns),
        gain_interval_ms=_interval_ms(roofline.gain_interval_ns),
        layers=tuple(map(_layer, roofline.layers)),
        unplaced=tuple(
            UnplacedJson(reason=reason, count=count) for reason, count in roofline.unplaced.items()
        ),
    )


def _layer(roof: LayerRoof) -> LayerRoofJson:
    return copy_fields(
        LayerRoofJson,
        roof,
        ms=ms(roof.ns),
        least_ms=ms(roof.least_ns),
        gain_ms=ms(roof.gain_ns),
        gain_interval_ms=_interval_ms(roof.gain_interval_ns),
        half_width_ms=ms(roof.half_width_ns),
        macs=roof.work.macs,
        elementwise_ops=roof.work.elementwise_ops,
        bytes_moved=roof.work.nbytes,
    )


def _interval_ms(interval_ns: tuple[float, float] | None) -> tuple[float, float] | None:
    if interval_ns is None:
        return None
    low_ns, high_ns = interval_ns
    return low_ns / _NS_PER_MS, high_ns / _NS_PER_MS


def read_roofline(found: RooflineJson, names: Mapping[str, str]) -> Roofline:
    """The roofline of a case whose layers have these names, by their ids."""
    for index, roof in enumerate(found.layers):
        if roof.id not in names:
            problem = f'there is no layer "{shortened(roof.id)}"'
            raise ContradictionError(f"layers[{index}].id", problem)
    return Roofline(
        peaks=copy_fields(Peaks, found.peaks),
        layers=tuple(_read_layer(roof, names[roof.id]) for roof in found.layers),
        unplaced={each.reason: each.count for each in found.unplaced},
    )


def _read_layer(roof: LayerRoofJson, name: str) -> LayerRoof:
    work = Work(macs=roof.macs, elementwise_ops=roof.elementwise_ops, nbytes=roof.bytes_moved)
    return copy_fields(
        LayerRoof,
        roof,
        name=name,
        work=work,
        least_ns=roof.least_ms * _NS_PER_MS,
        ns=None if roof.ms is None else roof.ms * _NS_PER_MS,
        half_width_ns=None if roof.half_width_ms is None else roof.half_width_ms * _NS_PER_MS,
    )
