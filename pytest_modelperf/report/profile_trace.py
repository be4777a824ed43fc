"""A profile as a Chrome trace: its cases on a time line.

A process per case, with two threads: its rounds, and one typical inference by layer. Of a round
only durations are kept, so its spans stand one after another, and so do rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from itertools import accumulate, pairwise

from pytest_modelperf.measurements import Measurement, Round, RowKind
from pytest_modelperf.records import CaseProfile, LayerRow, Profile, StaticLayer
from pytest_modelperf.report.chrome_trace import TraceWriter
from pytest_modelperf.traces import Argument, Category, Span, ThreadName
from pytest_modelperf.units import format_shape, printable

# Of a case. More would be megabytes that a viewer draws on top of each other.
MAX_INFERENCES = 10_000

_NS_PER_MS = 1e6
_ABOUT_ROUNDS = (
    "Every duration was measured. When each began was not kept, so they stand one after another; "
    "a warm-up has a count and no duration, and what was between rounds is not there."
)
_ABOUT_LAYERS = (
    "Median times of a separate, profiled session, scaled to the median latency, in the order of "
    "the graph; what belongs to no layer stands at the end."
)


def dump_trace(profile: Profile) -> str:
    """The profile as the text of a trace. A case that did not run is only named."""
    text = StringIO()
    writer = TraceWriter(text)
    measured = [(case, case.measured) for case in profile.cases if case.measured is not None]
    for number, (case, measurement) in enumerate(measured, 1):
        _write_case(writer, number, profile.model.name, case, measurement)
    writer.finish(_other_data(profile))
    return text.getvalue()


def _write_case(
    writer: TraceWriter, number: int, model: str, case: CaseProfile, measurement: Measurement
) -> None:
    engine = measurement.engine
    writer.write(ThreadName(name=f"{model} {case.case.id}", process=number))
    label = engine.name if engine.version is None else f"{engine.name} {engine.version}"
    writer.label_process(number, label)
    rows = (
        ("rounds", tuple(_round_spans(measurement.rounds))),
        ("one inference", tuple(_layer_spans(case, measurement))),
    )
    # Perfetto takes the thread whose number is that of its process for the main one, and 0 for
    # the idle one. No number of a thread here is either.
    threads = [(10 * number + at, *row) for at, row in enumerate(rows, 1) if row[1]]
    for thread, name, _ in threads:
        writer.write(ThreadName(name=name, process=number, thread=thread))
    for thread, _, spans in threads:
        for span in spans:
            writer.write(replace(span, process=number, thread=thread))


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


def _round_spans(rounds: Sequence[Round]) -> Iterator[Span]:
    merged = _merged(rounds)
    start_ns = 0
    for number, made in enumerate(rounds, 1):
        parts = (
            _lasting("load", Category.LOAD, made.load_ns),
            _lasting("first inference", Category.INFERENCE, made.first_ns),
            *_inferences(made.times_ns, merged),
        )
        whole = Span(
            name=f"round {number}",
            category=Category.ROUND,
            start_ns=start_ns,
            duration_ns=sum(part.duration_ns for part in parts),
            arguments={
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
            yield _lasting("inference", Category.INFERENCE, group[0])
            continue
        arguments: dict[str, Argument] = {
            "runs": len(group),
            "shortest_ms": min(group) / _NS_PER_MS,
            "longest_ms": max(group) / _NS_PER_MS,
        }
        name = f"{len(group)} inferences"
        yield _lasting(name, Category.INFERENCE, sum(group), arguments)


def _lasting(
    name: str, category: Category, duration_ns: int, arguments: Mapping[str, Argument] | None = None
) -> Span:
    """A span whose place on the clock is found later."""
    return Span(
        name=name,
        category=category,
        start_ns=0,
        duration_ns=duration_ns,
        arguments=arguments or {},
    )


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
    yield _lasting(
        "inference",
        Category.INFERENCE,
        max(round(latency.median_ns), bounds_ns[-1]),
        {
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
    return Span(
        name=name,
        category=category,
        start_ns=start_ns,
        duration_ns=end_ns - start_ns,
        arguments=arguments,
    )


def _name(layer: StaticLayer) -> str:
    return layer.name or layer.id or layer.qualified_op
