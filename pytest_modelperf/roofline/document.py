"""A roofline as JSON: the peaks of the machine, and every layer beneath its roof."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.report.document import Json, ms, number
from pytest_modelperf.roofline.records import LayerRoof, Peaks, Roofline


def rooflines_to_json(rooflines: Mapping[str, Roofline]) -> dict[str, Json]:
    """Rooflines by the ids of their cases, for the document of a profile."""
    return {case_id: roofline_to_json(roofline) for case_id, roofline in rooflines.items()}


def roofline_to_json(roofline: Roofline | None) -> dict[str, Json] | None:
    if roofline is None:
        return None
    return {
        "peaks": peaks_to_json(roofline.peaks),
        "least_ms": ms(roofline.least_ns),
        "gain_ms": ms(roofline.gain_ns),
        "layers": [_layer(roof) for roof in roofline.layers],
        "unplaced": [
            {"reason": reason, "count": count} for reason, count in roofline.unplaced.items()
        ],
    }


def peaks_to_json(peaks: Peaks) -> dict[str, Json]:
    return {
        "machine": peaks.machine_key,
        "engine": peaks.engine,
        "version": peaks.version,
        "options": dict(peaks.options),
        "cores": peaks.cores,
        "measured": peaks.measured.isoformat(),
        "macs_per_second": dict(peaks.macs_per_second),
        "runs_as": dict(peaks.runs_as),
        "bytes_per_second": peaks.bytes_per_second,
        "bandwidths": [
            {"bytes": each.nbytes, "bytes_per_second": each.bytes_per_second}
            for each in peaks.bandwidths
        ],
        "balance": dict(peaks.balance),
    }


def _layer(roof: LayerRoof) -> dict[str, Json]:
    return {
        "id": roof.id,
        "op_type": roof.op_type,
        "ms": ms(roof.ns),
        "least_ms": ms(roof.least_ns),
        "gain_ms": ms(roof.gain_ns),
        "share": number(roof.share),
        "bound": roof.bound.value,
        "precision": roof.precision,
        "macs": roof.work.macs,
        "elementwise_ops": roof.work.elementwise_ops,
        "bytes_moved": roof.work.nbytes,
        "intensity": number(roof.intensity),
        "achieved_per_second": number(roof.achieved_per_second),
        "attainable_per_second": number(roof.attainable_per_second),
        "achieved_bytes_per_second": number(roof.achieved_bytes_per_second),
    }
