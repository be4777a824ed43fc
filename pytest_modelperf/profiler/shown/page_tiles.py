"""The figures of a profiled case in large type: latency, throughput, counts, memory, noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.records import CaseProfile, Outcome
from pytest_modelperf.profiler.shown.conditions import WANTED_HALF_WIDTH, noise_of
from pytest_modelperf.report.model import CaseTiles, Choice, Tile, Tone
from pytest_modelperf.stats.records import Latency
from pytest_modelperf.text.units import format_bytes, format_count, format_ms, format_rate, percent


def profile_tiles(cases: Sequence[CaseProfile]) -> tuple[CaseTiles, ...]:
    """The tiles of each case; none for a case of which nothing is known."""
    tiles = (CaseTiles(Choice(0, place), tuple(_tiles(case))) for place, case in enumerate(cases))
    return tuple(each for each in tiles if each.tiles)


def _tiles(case: CaseProfile) -> Iterator[Tile]:
    if case.outcome is Outcome.FAILED:
        yield Tile("latency", "failed", "not measured", Tone.BAD)
    if case.measured is not None:
        yield _median(case.measured.latency)
        rate = format_rate(case.measured.latency.items_per_second)
        yield Tile("items a second", rate, f"batch {case.case.batch_size}")
    static = case.counted
    if static is not None:
        least = "at least " if static.coverage < 1 else ""
        yield Tile("MACs", format_count(static.macs), least.strip())
        yield Tile("params", format_count(static.params), format_bytes(static.weight_bytes))
    if case.measured is not None and case.measured.peak_rss_bytes is not None:
        yield Tile("peak memory", format_bytes(case.measured.peak_rss_bytes), "of the process")
    elif static is not None and static.peak_activation_bytes is not None:
        yield Tile("peak activations", format_bytes(static.peak_activation_bytes))
    if case.measured is not None:
        yield _noise(case.measured)


def _median(latency: Latency) -> Tile:
    median = latency.percentile(50.0)
    note = "no interval: too few rounds"
    if median.low_ns is not None and median.high_ns is not None:
        bounds = f"{format_ms(median.low_ns)} … {format_ms(median.high_ns)}"
        note = f"{bounds}, {100 * latency.confidence:.4g} % interval"
    return Tile("p50 latency", f"{format_ms(median.value_ns)} ms", note)


def _noise(measured: Measurement) -> Tile:
    """Whether the machine disturbed the measurement, or the interval is wider than it should be."""
    found = noise_of(measured)
    if found:
        return Tile("noise", "noisy", "; ".join(found), Tone.UNSURE)
    width = measured.latency.percentile(50.0).half_width
    if width is None:
        return Tile("noise", "unknown", "too few rounds for an interval", Tone.UNSURE)
    is_wide = width > WANTED_HALF_WIDTH
    tone = Tone.UNSURE if is_wide else Tone.GOOD
    return Tile("noise", "uneven" if is_wide else "quiet", f"p50 ± {percent(width)}", tone)
