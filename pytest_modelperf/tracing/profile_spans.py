"""The rounds of a measurement and the times of its layers, as spans on a clock.

Rounds are placed at the times when they ran. If these were not kept, rounds and their parts follow
each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from pytest_modelperf.profiler.measurements import Measurement, Round
from pytest_modelperf.profiler.records import CaseProfile, LayerRow
from pytest_modelperf.text.units import format_shape
from pytest_modelperf.tracing.records import FIRST_INFERENCE, Argument, Category, Span

_NS_PER_MS = 1e6


class RoundSpans(Struct, frozen=True):
    """A round and its parts: load, first inference, warm-up, and inferences."""

    whole: Span
    parts: tuple[Span, ...]


class PlacedRow(Struct, frozen=True):
    """A row of layer times, with its start and end in the typical inference."""

    row: LayerRow
    start_ns: int
    end_ns: int


def find_start_ns(measurement: Measurement) -> int | None:
    """When the first round began; None unless all rounds have start times that agree."""
    ends_ns = 0
    for made in measurement.rounds:
        for start_ns, end_ns in _part_times(made):
            if start_ns is None or end_ns is None or not ends_ns <= start_ns <= end_ns:
                return None
            ends_ns = end_ns
    return measurement.rounds[0].begun_ns


def _part_times(made: Round) -> Iterator[tuple[int | None, int | None]]:
    """The start and end of each part of a round."""
    starts = made.starts
    if starts is None or made.block.starts_ns is None:
        yield None, None
        return
    yield starts.load_ns, starts.load_ns + made.load_ns
    yield starts.first_ns, starts.first_ns + made.first_ns
    if starts.warmup_ns is not None:
        yield starts.warmup_ns, starts.warmup_end_ns
    times = zip(made.block.starts_ns, made.times_ns, strict=True)
    yield from ((start_ns, start_ns + time_ns) for start_ns, time_ns in times)


def round_spans(measurement: Measurement, zero_ns: int, merged: int = 1) -> Iterator[RoundSpans]:
    """The rounds on a clock that begins at `zero_ns`; `merged` inferences in a row are one span."""
    is_placed = find_start_ns(measurement) is not None
    now_ns = 0
    for number, made in enumerate(measurement.rounds, 1):
        parts = (
            _parts_in_place(made, merged, zero_ns) if is_placed else _parts(made, merged, now_ns)
        )
        start_ns, now_ns = parts[0].start_ns, parts[-1].end_ns
        facts: dict[str, Argument] = {
            "warmup_runs": made.warmup_runs,
            "is_steady": made.is_steady,
            "timed_runs": len(made.times_ns),
        }
        whole = make_span(f"round {number}", Category.ROUND, start_ns, now_ns - start_ns, facts)
        yield RoundSpans(whole, tuple(parts))


def _parts(made: Round, merged: int, start_ns: int) -> list[Span]:
    """The parts of a round, each starting where the one before ends."""
    block_ns = start_ns + made.load_ns + made.first_ns
    starts_ns = tuple(accumulate(made.times_ns, initial=block_ns))
    return [
        make_span("load", Category.LOAD, start_ns, made.load_ns),
        make_span(FIRST_INFERENCE, Category.INFERENCE, start_ns + made.load_ns, made.first_ns),
        *_inferences(starts_ns[:-1], made.times_ns, merged),
    ]


def _parts_in_place(made: Round, merged: int, zero_ns: int) -> list[Span]:
    """The parts of a round at the times when they ran."""
    starts, starts_ns = made.starts, made.block.starts_ns
    assert starts is not None, "the caller looked"  # noqa: S101  # for mypy
    assert starts_ns is not None, "the caller looked"  # noqa: S101  # for mypy
    parts = [
        make_span("load", Category.LOAD, starts.load_ns - zero_ns, made.load_ns),
        make_span(FIRST_INFERENCE, Category.INFERENCE, starts.first_ns - zero_ns, made.first_ns),
    ]
    if starts.warmup_ns is not None and starts.warmup_end_ns is not None:
        warmup_ns = starts.warmup_end_ns - starts.warmup_ns
        runs: dict[str, Argument] = {"runs": made.warmup_runs}
        begun_ns = starts.warmup_ns - zero_ns
        parts.append(make_span("warm-up", Category.LABEL, begun_ns, warmup_ns, runs))
    placed_ns = [start_ns - zero_ns for start_ns in starts_ns]
    return [*parts, *_inferences(placed_ns, made.times_ns, merged)]


def _inferences(starts_ns: Sequence[int], times_ns: Sequence[int], merged: int) -> Iterator[Span]:
    for first in range(0, len(times_ns), merged):
        group = times_ns[first : first + merged]
        start_ns, last = starts_ns[first], first + len(group) - 1
        if len(group) == 1:
            yield make_span("inference", Category.INFERENCE, start_ns, group[0])
            continue
        arguments: dict[str, Argument] = {
            "runs": len(group),
            "shortest_ms": min(group) / _NS_PER_MS,
            "longest_ms": max(group) / _NS_PER_MS,
        }
        name = f"{len(group)} inferences"
        duration_ns = starts_ns[last] + times_ns[last] - start_ns
        yield make_span(name, Category.INFERENCE, start_ns, duration_ns, arguments)


def place_rows(case: CaseProfile, start_ns: int) -> tuple[PlacedRow, ...]:
    """The rows that have a time, one after another. The rest beside all kernels can be below 0."""
    rows = [(row, row.ns) for row in case.layers if row.ns is not None and 0 <= row.ns < math.inf]
    # Bounds are rounded, because thousands of rounded durations would drift from their sum.
    bounds_ns = [start_ns + round(ns) for ns in accumulate((ns for _, ns in rows), initial=0.0)]
    return tuple(
        PlacedRow(row, begun_ns, end_ns)
        for (row, _), (begun_ns, end_ns) in zip(rows, pairwise(bounds_ns), strict=True)
    )


def category_of(row: LayerRow) -> Category:
    is_overhead = row.time is not None and row.time.kind.is_outside_kernels
    return Category.OVERHEAD if is_overhead else Category.OPERATOR


def row_facts(row: LayerRow) -> dict[str, Argument]:
    """The facts of a row for its span."""
    layer, time = row.static, row.time
    facts: dict[str, Argument] = {"precision": row.precision}
    if time is not None:
        facts |= {"kernel": time.kernel or None, "provider": time.provider}
    if layer is not None:
        for name, shape in (
            ("input_shape", layer.input_shape),
            ("output_shape", layer.output_shape),
        ):
            facts[name] = None if shape is None else format_shape(shape)
        facts |= {"macs": layer.macs, "params": layer.params}
    return facts


def make_span(
    name: str,
    category: Category,
    start_ns: int,
    duration_ns: int,
    arguments: Mapping[str, Argument] | None = None,
) -> Span:
    return Span(
        name=name,
        category=category,
        start_ns=start_ns,
        duration_ns=duration_ns,
        arguments=arguments or {},
    )
