"""Write a Chrome trace for Perfetto and chrome://tracing: a stream of events, or a profile.

The format:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import accumulate, pairwise
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.measurements import Measurement, Round
from pytest_modelperf.profiler.records import CaseProfile, Profile
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_shape
from pytest_modelperf.tracing.records import (
    FIRST_INFERENCE,
    TRACE_HEAD,
    Argument,
    Category,
    Counter,
    Event,
    Span,
    ThreadName,
)

_NS_PER_US = 1000.0
_NS_PER_MS = 1e6
# The most sets of arguments whose text is cached.
_MAX_KNOWN = 10_000
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class TextSink(Protocol):
    """An object that takes text."""

    def write(self, text: str, /) -> object: ...


class TraceWriter:
    """A writer of one event at a time, so that a trace may be larger than memory.

    Viewers sort events by their start. If two start together, they show the first as the outer one,
    so write a span before the spans inside it.
    """

    def __init__(self, stream: TextSink) -> None:
        self._stream = stream
        self._before = "\n"
        self._known: dict[int, tuple[Mapping[str, Argument], str]] = {}
        self._processes = 0
        self._threads = 0
        # One event per line, so that a search for an event finds its line.
        stream.write(TRACE_HEAD)

    def write(self, event: Event) -> None:
        """Add an event. Rows are shown in the order in which they are named."""
        if isinstance(event, Span):
            self._add_text(self._span(event))
        elif isinstance(event, Counter):
            self._add(_counter(event))
        elif event.thread is None:
            self._processes += 1
            self._describe("process_name", event.process, name=printable(event.name))
            self._describe("process_sort_index", event.process, sort_index=self._processes)
        else:
            self._threads += 1
            row = event.process, event.thread
            self._describe("thread_name", *row, name=printable(event.name))
            self._describe("thread_sort_index", *row, sort_index=self._threads)

    def label_process(self, process: int, label: str) -> None:
        self._describe("process_labels", process, labels=printable(label))

    def finish(self, about: Mapping[str, object]) -> None:
        """End the trace with notes for the reader: printable texts and JSON values."""
        notes = json.dumps(about, indent=1, allow_nan=False)
        self._stream.write(f'\n],\n"otherData":{notes}}}\n')

    def _describe(
        self, what: str, process: int, thread: int | None = None, **arguments: str | int
    ) -> None:
        of_thread = {} if thread is None else {"tid": thread}
        self._add({"name": what, "ph": "M", "pid": process, **of_thread, "args": arguments})

    def _span(self, span: Span) -> str:
        """Return the span as JSON, formatted by hand: a trace may have a million spans."""
        arguments = self._arguments(span.arguments)
        if span.pool:
            arguments += _encoded(span.pool)
        if span.operator_index is not None:
            arguments += f',"operator_index":{span.operator_index}'
        if span.self_ns is not None and span.self_ns != span.duration_ns:
            arguments += f',"self_ms":{span.self_ns / _NS_PER_MS}'
        name = _ENCODER.encode(printable(span.name))
        return (
            f'{{"name":{name},"cat":"{span.category.value}","ph":"X","pid":{span.process},'
            f'"tid":{span.thread},"ts":{_us(span.start_ns)},"dur":{_us(span.duration_ns)}'
            + (f',"args":{{{arguments.removeprefix(",")}}}}}' if arguments else "}")
        )

    def _arguments(self, arguments: Mapping[str, Argument]) -> str:
        """Return the arguments as text, cached because many spans share them."""
        known = self._known.get(id(arguments))
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            # The object is kept too, so that no other object gets its id.
            known = self._known[id(arguments)] = arguments, _encoded(arguments)
        return known[1]

    def _add(self, event: Mapping[str, object]) -> None:
        self._add_text(_ENCODER.encode(event))

    def _add_text(self, text: str) -> None:
        self._stream.write(self._before + text)
        self._before = ",\n"


def _encoded(arguments: Mapping[str, Argument]) -> str:
    values = {key: _safe(value) for key, value in arguments.items() if value is not None}
    return f",{_ENCODER.encode(values)[1:-1]}" if values else ""


def _counter(counter: Counter) -> dict[str, object]:
    return {
        "name": printable(counter.name),
        "ph": "C",
        "pid": counter.process,
        "ts": _us(counter.at_ns),
        "args": {printable(key): value for key, value in counter.values.items()},
    }


def _safe(value: Argument) -> Argument:
    if isinstance(value, str):
        return printable(value)
    # Numbers first: to check whether a value is a sequence takes long.
    if value is None or isinstance(value, int | float):
        return value
    return [printable(text) for text in value]


def _us(ns: int) -> float:
    """Return the time in microseconds, exact to the nanosecond.

    Older versions of Perfetto truncate: they read 1.001 us as 1000 ns. Then a round would end
    before its last inference, which would not be drawn. The next larger float is the same
    nanosecond in every version.
    """
    us = ns / _NS_PER_US
    return us if int(us * _NS_PER_US) == ns else math.nextafter(us, math.inf)


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
    """Return when the first round began, or None unless all rounds have consistent start times."""
    ends_ns = 0
    for made in measurement.rounds:
        for start_ns, end_ns in _part_times(made):
            if start_ns is None or end_ns is None or not ends_ns <= start_ns <= end_ns:
                return None
            ends_ns = end_ns
    return measurement.rounds[0].begun_ns


def _part_times(made: Round) -> Iterator[tuple[int | None, int | None]]:
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
    """Yield the rounds on a clock that begins at `zero_ns`.

    One span covers `merged` inferences in a row.
    """
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
    block_ns = start_ns + made.load_ns + made.first_ns
    starts_ns = tuple(accumulate(made.times_ns, initial=block_ns))
    return [
        make_span("load", Category.LOAD, start_ns, made.load_ns),
        make_span(FIRST_INFERENCE, Category.INFERENCE, start_ns + made.load_ns, made.first_ns),
        *_inferences(starts_ns[:-1], made.times_ns, merged),
    ]


def _parts_in_place(made: Round, merged: int, zero_ns: int) -> list[Span]:
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
    """Place the rows that have a time, one after another.

    Times below 0 are left out: the rest outside all kernels can be negative.
    """
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


# -- writes a profile as a Chrome trace: its cases on a time line


# The most inferences per case. With more, a viewer would draw megabytes on the same pixels.
MAX_INFERENCES = 10_000

_ABOUT_ROUNDS = (
    "They are shown where they ran. For inferences in a row the start of the first was measured, "
    "and for inferences in turn with another side the start of each."
)
_ABOUT_DURATIONS = (
    "Every duration was measured. When each began was not kept, so they are shown one after "
    "another; a warm-up has a count and no duration, and the time between rounds is not shown."
)
_ABOUT_LAYERS = (
    "Median times of a separate, profiled session, scaled to the median latency, in the order of "
    "the graph; times that belong to no layer are at the end."
)


def dump_trace(profile: Profile, others: Mapping[str, Measurement] | None = None) -> str:
    """Return the profile as the text of a trace. Cases that did not run are only named.

    `others` are the other sides of duets, by the ids of their cases.
    """
    text = StringIO()
    writer = TraceWriter(text)
    known = others or {}
    measured = [(case, case.measured) for case in profile.cases if case.measured is not None]
    shown = [*(made for _, made in measured), *known.values()]
    begun = [ns for ns in map(find_start_ns, shown) if ns is not None]
    zero_ns = min(begun, default=0)
    for number, (case, measurement) in enumerate(measured, 1):
        other = known.get(case.case.id)
        rows = [
            ("rounds", _round_spans(measurement, zero_ns)),
            ("rounds of the other side", () if other is None else _round_spans(other, zero_ns)),
            ("one inference", _layer_spans(case, measurement, zero_ns)),
        ]
        _write_case(writer, number, f"{profile.model.name} {case.case.id}", measurement, rows)
    writer.finish(_other_data(profile))
    return text.getvalue()


def _write_case(
    writer: TraceWriter,
    number: int,
    name: str,
    measurement: Measurement,
    rows: Iterable[tuple[str, Sequence[Span]]],
) -> None:
    engine = measurement.engine
    writer.write(ThreadName(name=name, process=number))
    label = engine.name if engine.version is None else f"{engine.name} {engine.version}"
    writer.label_process(number, label)
    # Perfetto takes the thread with the number of its process as the main thread, and 0 as the idle
    # thread, so these threads have other numbers.
    threads = [(10 * number + at, *row) for at, row in enumerate((x for x in rows if x[1]), 1)]
    for thread, row, _ in threads:
        writer.write(ThreadName(name=row, process=number, thread=thread))
    for thread, _, spans in threads:
        for span in spans:
            writer.write(replace(span, process=number, thread=thread))


def _other_data(profile: Profile) -> dict[str, object]:
    merged = {
        printable(
            case.case.id
        ): f"{count} inferences in a row are one span, from the first to the last of them"
        for case in profile.cases
        if case.measured is not None and (count := _merged(case.measured.rounds)) > 1
    }
    left_out = [
        {"case": printable(case.case.id), "why": printable(f"{case.outcome.value}: {case.reason}")}
        for case in profile.cases
        if case.measured is None
    ]
    measured = [case for case in profile.cases if case.measured is not None]
    without = [
        printable(case.case.id)
        for case in measured
        if case.measured is not None and find_start_ns(case.measured) is None
    ]
    known: dict[str, object | None] = {
        "schema": 1,
        "model": printable(profile.model.name),
        "sha256": profile.model.sha256,
        "machine": None if profile.machine is None else printable(profile.machine.key),
        "rounds": _ABOUT_DURATIONS if without else _ABOUT_ROUNDS,
        "without_starts": without if 0 < len(without) < len(measured) else None,
        "one inference": _ABOUT_LAYERS,
        "merged": merged or None,
        "left_out": left_out or None,
    }
    return {key: value for key, value in known.items() if value is not None}


# -- what was measured, as spans


def _round_spans(measurement: Measurement, zero_ns: int) -> tuple[Span, ...]:
    rounds = round_spans(measurement, zero_ns, _merged(measurement.rounds))
    return tuple(span for made in rounds for span in (made.whole, *made.parts))


def _merged(rounds: Sequence[Round]) -> int:
    """Return the number of consecutive inferences that one span covers."""
    return max(1, math.ceil(sum(len(made.times_ns) for made in rounds) / MAX_INFERENCES))


def _layer_spans(case: CaseProfile, measurement: Measurement, zero_ns: int) -> tuple[Span, ...]:
    """Return the typical inference and its layers, or nothing if no layer was timed."""
    begun_ns = find_start_ns(measurement)
    low_ns = 0 if begun_ns is None else begun_ns - zero_ns
    rows = place_rows(case, low_ns)
    if not rows:
        return ()
    latency = measurement.latency
    whole = make_span(
        "inference",
        Category.INFERENCE,
        low_ns,
        max(round(latency.median_ns), rows[-1].end_ns - low_ns),
        {
            "p50_ms": latency.p50_ms,
            "p95_ms": latency.p95_ms,
            "samples": latency.samples,
            "rounds": latency.rounds,
        },
    )
    return (whole, *map(_layer_span, rows))


def _layer_span(placed: PlacedRow) -> Span:
    row = placed.row
    arguments = row_facts(row)
    if row.static is None:
        name = str(arguments.get("kernel") or row.qualified_op)
        arguments["kind"] = row.qualified_op
    else:
        name = _name(row.static)
        arguments |= {
            "id": row.static.id or None,
            "op_type": row.qualified_op,
            "fused": [_describe(part) for part in row.fused] or None,
        }
    duration_ns = placed.end_ns - placed.start_ns
    return make_span(name, category_of(row), placed.start_ns, duration_ns, arguments)


def _name(layer: StaticLayer) -> str:
    return layer.name or layer.id or layer.qualified_op


def _describe(layer: StaticLayer) -> str:
    """Return the names to search for a fused layer, such as `relu_1 (Relu), id stem_out`."""
    text = f"{_name(layer)} ({layer.qualified_op})"
    return text if layer.id in {"", _name(layer)} else f"{text}, id {layer.id}"
