"""A profile as a Chrome trace: its cases on a time line, as Perfetto and chrome://tracing show it.

A process per case, with two threads: its rounds, and one typical inference by layer. Of a round
only durations are kept, so its spans stand one after another, and so do rounds. The format:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise
from typing import TypeAlias

from pytest_modelperf.measurements import Measurement, Round, RowKind
from pytest_modelperf.records import CaseProfile, LayerRow, Profile, StaticLayer
from pytest_modelperf.units import format_shape, printable

# Of a case. More would be megabytes that a viewer draws on top of each other.
MAX_INFERENCES = 10_000

_NS_PER_US = 1000.0
_NS_PER_MS = 1e6
_ABOUT_ROUNDS = (
    "Every duration was measured. When each began was not kept, so they stand one after another; "
    "a warm-up has a count and no duration, and what was between rounds is not there."
)
_ABOUT_LAYERS = (
    "Median times of a separate, profiled session, scaled to the median latency, in the order of "
    "the graph; what belongs to no layer stands at the end."
)

Argument: TypeAlias = "bool | int | float | str | Sequence[str] | None"


class Category(enum.Enum):
    """What a span is of; a viewer can filter by it."""

    ROUND = "round"
    LOAD = "load"
    INFERENCE = "inference"
    OPERATOR = "operator"
    OVERHEAD = "overhead"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time on a thread, and what is known of it. None in `arguments` is left out."""

    name: str
    category: Category
    duration_ns: int
    start_ns: int = 0
    arguments: Mapping[str, Argument] = field(default_factory=dict)

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True)
class Thread:
    """A row of spans by their start, each before those inside of it."""

    name: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Process:
    """A group of rows."""

    name: str
    label: str
    threads: tuple[Thread, ...]


def dump_trace(profile: Profile) -> str:
    """The profile as the text of a trace. A case that did not run is only named."""
    measured = [(case, case.measured) for case in profile.cases if case.measured is not None]
    processes = [_process(profile, case, measurement) for case, measurement in measured]
    lines = ",\n".join(
        json.dumps(event, separators=(",", ":"), allow_nan=False)
        for pid, process in enumerate(processes, 1)
        for event in _events(process, pid)
    )
    notes = json.dumps(_other_data(profile), indent=1, allow_nan=False)
    # In this order for Perfetto, which reads as it goes: the unit before the events, and what
    # some of its versions skip the rest at behind them. An event a line, to be looked for.
    return f'{{"displayTimeUnit":"ms",\n"traceEvents":[\n{lines}\n],\n"otherData":{notes}}}\n'


def _other_data(profile: Profile) -> dict[str, object]:
    """What the trace is of, and what has to be known to read it."""
    merged = {
        printable(case.case.id): f"{count} inferences in a row are one span, as long as all of them"
        for case in profile.cases
        if case.measured is not None and (count := _merged(case.measured.rounds)) > 1
    }
    left_out = [
        {"case": printable(case.case.id), "why": printable(f"{case.outcome.value}: {case.reason}")}
        for case in profile.cases
        if case.measured is None
    ]
    known: dict[str, object | None] = {
        "schema": 1,
        "model": printable(profile.model.name),
        "sha256": profile.model.sha256,
        "machine": None if profile.machine is None else printable(profile.machine.key),
        "rounds": _ABOUT_ROUNDS,
        "one inference": _ABOUT_LAYERS,
        "merged": merged or None,
        "left_out": left_out or None,
    }
    return {key: value for key, value in known.items() if value is not None}


# -- what was measured, as spans


def _process(profile: Profile, case: CaseProfile, measurement: Measurement) -> Process:
    engine = measurement.engine
    threads = (
        Thread("rounds", tuple(_round_spans(measurement.rounds))),
        Thread("one inference", tuple(_layer_spans(case, measurement))),
    )
    return Process(
        f"{profile.model.name} {case.case.id}",
        engine.name if engine.version is None else f"{engine.name} {engine.version}",
        tuple(thread for thread in threads if thread.spans),
    )


def _round_spans(rounds: Sequence[Round]) -> Iterator[Span]:
    merged = _merged(rounds)
    start_ns = 0
    for number, made in enumerate(rounds, 1):
        parts = (
            Span("load", Category.LOAD, made.load_ns),
            Span("first inference", Category.INFERENCE, made.first_ns),
            *_inferences(made.times_ns, merged),
        )
        whole = Span(
            f"round {number}",
            Category.ROUND,
            sum(part.duration_ns for part in parts),
            start_ns,
            {
                "warmup_runs": made.warmup_runs,
                "is_steady": made.is_steady,
                "timed_runs": len(made.times_ns),
            },
        )
        yield whole
        yield from _in_turn(parts, start_ns)
        start_ns = whole.end_ns


def _merged(rounds: Sequence[Round]) -> int:
    """How many inferences in a row are one span."""
    return max(1, math.ceil(sum(len(made.times_ns) for made in rounds) / MAX_INFERENCES))


def _inferences(times_ns: Sequence[int], merged: int) -> Iterator[Span]:
    for first in range(0, len(times_ns), merged):
        group = times_ns[first : first + merged]
        if len(group) == 1:
            yield Span("inference", Category.INFERENCE, group[0])
            continue
        arguments = {
            "runs": len(group),
            "shortest_ms": min(group) / _NS_PER_MS,
            "longest_ms": max(group) / _NS_PER_MS,
        }
        name = f"{len(group)} inferences"
        yield Span(name, Category.INFERENCE, sum(group), arguments=arguments)


def _in_turn(spans: Iterable[Span], start_ns: int) -> Iterator[Span]:
    """The spans, each from where the one before it ends."""
    for span in spans:
        placed = replace(span, start_ns=start_ns)
        yield placed
        start_ns = placed.end_ns


def _layer_spans(case: CaseProfile, measurement: Measurement) -> Iterator[Span]:
    """The typical inference and the layers in it; nothing where no layer was timed."""
    rows = [(row, row.ns) for row in case.layers if row.ns is not None and _is_time(row.ns)]
    if not rows:
        return
    # The bounds are rounded, not the durations, of which thousands would drift from their sum.
    bounds_ns = [round(ns) for ns in accumulate((ns for _, ns in rows), initial=0.0)]
    latency = measurement.latency
    yield Span(
        "inference",
        Category.INFERENCE,
        max(round(latency.median_ns), bounds_ns[-1]),
        arguments={
            "p50_ms": latency.p50_ms,
            "p95_ms": latency.p95_ms,
            "samples": latency.samples,
            "rounds": latency.rounds,
        },
    )
    for (row, _), (start_ns, end_ns) in zip(rows, pairwise(bounds_ns), strict=True):
        yield _layer_span(row, start_ns, end_ns)


def _is_time(ns: float) -> bool:
    return math.isfinite(ns) and ns >= 0


def _layer_span(row: LayerRow, start_ns: int, end_ns: int) -> Span:
    layer, time = row.static, row.time
    kernel = None if time is None else time.kernel or None
    precision = None if time is None else time.precision
    is_overhead = time is not None and time.kind is RowKind.OVERHEAD
    arguments: dict[str, Argument] = {
        "kernel": kernel,
        "provider": None if time is None else time.provider,
        "precision": precision,
    }
    if layer is None:
        name = row.qualified_op if kernel is None else kernel
        arguments["kind"] = row.qualified_op
    else:
        name = _name(layer)
        arguments |= {
            "id": layer.id or None,
            "op_type": layer.qualified_op,
            "precision": layer.precision if precision is None else precision,
            "input_shape": None if layer.input_shape is None else format_shape(layer.input_shape),
            "output_shape": (
                None if layer.output_shape is None else format_shape(layer.output_shape)
            ),
            "macs": layer.macs,
            "params": layer.params,
            "fused": [f"{_name(part)} ({part.qualified_op})" for part in row.fused] or None,
        }
    category = Category.OVERHEAD if is_overhead else Category.OPERATOR
    return Span(name, category, end_ns - start_ns, start_ns, arguments)


def _name(layer: StaticLayer) -> str:
    return layer.name or layer.id or layer.qualified_op


# -- spans, as events


def _events(process: Process, pid: int) -> Iterator[dict[str, object]]:
    # Perfetto takes the thread whose number is that of its process for the main one, and 0 for
    # the idle one. No number of a thread here is either.
    numbered = [(10 * pid + place, thread) for place, thread in enumerate(process.threads, 1)]
    yield _metadata("process_name", pid, name=printable(process.name))
    yield _metadata("process_labels", pid, labels=printable(process.label))
    yield _metadata("process_sort_index", pid, sort_index=pid)
    for tid, thread in numbered:
        yield _metadata("thread_name", pid, tid, name=printable(thread.name))
        yield _metadata("thread_sort_index", pid, tid, sort_index=tid)
    yield from chain.from_iterable(
        (_event(span, pid, tid) for span in thread.spans) for tid, thread in numbered
    )


def _metadata(
    what: str, pid: int, tid: int | None = None, **arguments: str | int
) -> dict[str, object]:
    of_thread = {} if tid is None else {"tid": tid}
    return {"name": what, "ph": "M", "pid": pid, **of_thread, "args": arguments}


def _event(span: Span, pid: int, tid: int) -> dict[str, object]:
    known = {key: _safe(value) for key, value in span.arguments.items() if value is not None}
    return {
        "name": printable(span.name),
        "cat": span.category.value,
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": _us(span.start_ns),
        "dur": _us(span.duration_ns),
        **({"args": known} if known else {}),
    }


def _safe(value: Argument) -> Argument:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Sequence):
        return [printable(text) for text in value]
    return value


def _us(ns: int) -> float:
    """The time in microseconds, to the nanosecond.

    Older versions of Perfetto cut off what is less than one: they make 1000 ns of 1.001 us. Then
    a round would end before its last inference does, which is not drawn for it. The next larger
    number is the same nanosecond everywhere.
    """
    us = ns / _NS_PER_US
    return us if int(us * _NS_PER_US) == ns else math.nextafter(us, math.inf)
