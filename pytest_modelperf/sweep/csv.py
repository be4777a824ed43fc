"""A sweep as CSV: a row for each side and configuration, with plain numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_modelperf.profiler.records import Case
from pytest_modelperf.report.csv import render_rows
from pytest_modelperf.report.tables import Cell
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.sweep.records import PointChange, Sweep, SweepPoint, SweetSpot
from pytest_modelperf.sweep.tables import LABELS
from pytest_modelperf.sweep.text import outcome_word

_NS_PER_MS = 1e6
_PERCENTS = (50.0, 95.0)

SWEEP_COLUMNS = (
    *("side", "model", "configuration", "batch_size", "cores", "streams", "dims"),
    *("outcome", "reason", "sweet_spot", "samples", "rounds"),
    *("p50_ms", "p50_low_ms", "p50_high_ms", "p95_ms", "p95_low_ms", "p95_high_ms"),
    *("items_per_second", "items_per_second_low", "items_per_second_high"),
    *("latency_ratio", "latency_ratio_low", "latency_ratio_high"),
    *("items_ratio", "items_ratio_low", "items_ratio_high"),
    *("phase", "prompt", "generate"),
)


def render_sweep_csv(sweep: Sweep) -> str:
    """All configurations of all sides, in the requested order; rows of B have ratios B over A."""
    return render_rows(SWEEP_COLUMNS, _rows(sweep))


def _rows(sweep: Sweep) -> Iterator[Sequence[Cell]]:
    changes = {change.id: change for change in sweep.changes}
    for label, side in zip(LABELS, sweep.sides, strict=False):
        for point in side.points:
            change = changes.get(point.id) if side is sweep.sides[-1] else None
            head = (label, side.model.name)
            yield (
                *(*head, *_point(point, side.spot), *_figures(point), *_ratios(change)),
                *_phase(point.configuration.case),
            )


def _point(point: SweepPoint, spot: SweetSpot) -> Sequence[Cell]:
    case = point.configuration.case
    dims = " ".join(f"{name}={size}" for name, size in case.dims)
    sizes = (case.batch_size, case.cores, point.configuration.streams, dims)
    return (point.id, *sizes, outcome_word(point), point.reason, spot.role(point.id))


def _phase(case: Case) -> Sequence[Cell]:
    phase = case.phase
    return (None,) * 3 if phase is None else (phase.phase.value, phase.prompt, phase.generate)


def _figures(point: SweepPoint) -> Sequence[Cell]:
    latency = point.latency
    cells: list[Cell] = [None, None] if latency is None else [latency.samples, latency.rounds]
    for percent in _PERCENTS:
        found = None if latency is None else latency.percentile(percent)
        bounds = (None,) * 3 if found is None else (found.value_ns, found.low_ns, found.high_ns)
        cells.extend(None if ns is None else ns / _NS_PER_MS for ns in bounds)
    return (*cells, *_ratio(point.throughput))


def _ratios(change: PointChange | None) -> Sequence[Cell]:
    if change is None:
        return (None,) * 6
    return (*_ratio(change.latency), *_ratio(change.throughput))


def _ratio(ratio: Ratio | None) -> Sequence[Cell]:
    return (None,) * 3 if ratio is None else (ratio.value, ratio.low, ratio.high)
