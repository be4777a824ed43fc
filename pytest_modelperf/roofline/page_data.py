"""A roofline as the data that the script of a page draws, with its figures as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pytest_modelperf.profiler.shown.operator_kinds import kind_of
from pytest_modelperf.profiler.shown.page_latency import Entry
from pytest_modelperf.report.document import to_json
from pytest_modelperf.roofline.records import ROOFLINE, LayerRoof, Roofline
from pytest_modelperf.text.units import format_ms, format_rate, format_share, table_decimals

_GIGA = 1e9


def roofline_entry(roofline: Roofline, lines: Sequence[str], notes: Sequence[str]) -> Entry:
    """The keys are those of the JSON document, with the lines and notes of a text."""
    document: dict[str, Any] = to_json(ROOFLINE.of(roofline))
    decimals = table_decimals(_spent_ns(roofline))
    return {
        **document,
        "layers": [
            {
                **layer,
                "name": roof.name or roof.id,
                "kind": kind_of(roof.op_type),
                "text": _layer_lines(roof, decimals),
            }
            for layer, roof in zip(document["layers"], roofline.layers, strict=True)
        ],
        "tiles": list(_tiles(roofline, decimals)),
        "lines": lines,
        "notes": notes,
    }


def _spent_ns(roofline: Roofline) -> float:
    """The time of all layers; if nothing ran, each is at its roof."""
    return sum(roof.least_ns if roof.ns is None else roof.ns for roof in roofline.layers)


def _tiles(roofline: Roofline, decimals: int) -> Iterator[tuple[str, str, str]]:
    """A name, a value and a note: what there is to gain, and the peaks of the machine."""
    peaks, gain = roofline.peaks, roofline.gain_ns
    if gain is None:
        least = format_ms(roofline.least_ns, table_decimals(roofline.least_ns))
        yield "least time", f"{least} ms", "that these peaks allow"
    else:
        note = f"{format_share(gain, _spent_ns(roofline))} of the layers' time"
        if roofline.gain_interval_ns is not None:
            low, high = (format_ms(bound, decimals) for bound in roofline.gain_interval_ns)
            note += f", {low} … {high} ms"
        yield "to gain", f"{format_ms(gain, decimals)} ms", note
    for name, rate in peaks.macs_per_second.items():
        yield f"peak of {name}", f"{_giga(rate)} GMAC/s", ""
    best = max(each.bytes_per_second for each in peaks.bandwidths)
    in_cache = f"in cache {_giga(best)} GB/s" if best > peaks.bytes_per_second else ""
    yield "peak of memory", f"{_giga(peaks.bytes_per_second)} GB/s", in_cache


def _layer_lines(roof: LayerRoof, decimals: int) -> list[str]:
    """The lines about the point of a layer."""
    least, rate = format_ms(roof.least_ns, decimals), _giga(roof.attainable_per_second)
    name, bound = f"{roof.name or roof.id} ({roof.op_type})", f"{roof.bound.value} is the bound"
    if roof.ns is None:
        return [name, f"at least {least} ms, {rate} GMAC/s", bound]
    share = ">100 %" if roof.is_beyond else format_share(roof.share, 1.0)
    return [
        name,
        f"{format_ms(roof.ns, decimals)} ms, at the roof {least} ms",
        f"{_giga(roof.achieved_per_second)} of {rate} GMAC/s",
        f"{share} of its roof, {bound}",
    ]


def _giga(rate: float | None) -> str:
    return format_rate(None if rate is None else rate / _GIGA)
