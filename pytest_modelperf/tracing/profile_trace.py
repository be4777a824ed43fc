"""Writes a profile as a Chrome trace: its cases on a time line.

Each case is a process, with a row for its rounds, a row for the rounds of the other side in a duet,
and a row for a typical inference by layer. Rounds are shown at the times when they ran. If these
were not kept, rounds and their parts follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO

from msgspec.structs import replace

from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.measurements import Measurement, Round
from pytest_modelperf.profiler.records import CaseProfile, Profile
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.tracing.chrome_trace import TraceWriter
from pytest_modelperf.tracing.profile_spans import (
    PlacedRow,
    category_of,
    find_start_ns,
    make_span,
    place_rows,
    round_spans,
    row_facts,
)
from pytest_modelperf.tracing.records import Category, Span, ThreadName

# For one case. More would be megabytes that a viewer draws on top of each other.
MAX_INFERENCES = 10_000

_ABOUT_ROUNDS = (
    "They stand where they ran. For inferences in a row the start of the first was measured, and "
    "for inferences in turn with another side the start of each."
)
_ABOUT_DURATIONS = (
    "Every duration was measured. When each began was not kept, so they stand one after another; "
    "a warm-up has a count and no duration, and the time between rounds is not shown."
)
_ABOUT_LAYERS = (
    "Median times of a separate, profiled session, scaled to the median latency, in the order of "
    "the graph; times that belong to no layer stand at the end."
)


def dump_trace(profile: Profile, others: Mapping[str, Measurement] | None = None) -> str:
    """The profile as the text of a trace. Cases that did not run are only named.

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
    # To Perfetto, the thread with the number of its process is the main thread, and 0 is the
    # idle thread. These numbers are neither.
    threads = [(10 * number + at, *row) for at, row in enumerate((x for x in rows if x[1]), 1)]
    for thread, row, _ in threads:
        writer.write(ThreadName(name=row, process=number, thread=thread))
    for thread, _, spans in threads:
        for span in spans:
            writer.write(replace(span, process=number, thread=thread))


def _other_data(profile: Profile) -> dict[str, object]:
    """The model, the machine, and notes for the reader of the trace."""
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
    """The rounds, each before its parts."""
    rounds = round_spans(measurement, zero_ns, _merged(measurement.rounds))
    return tuple(span for made in rounds for span in (made.whole, *made.parts))


def _merged(rounds: Sequence[Round]) -> int:
    """How many consecutive inferences one span stands for."""
    return max(1, math.ceil(sum(len(made.times_ns) for made in rounds) / MAX_INFERENCES))


def _layer_spans(case: CaseProfile, measurement: Measurement, zero_ns: int) -> tuple[Span, ...]:
    """The typical inference and its layers, starting with the first round.

    Empty if no layer was timed.
    """
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
    """`relu_1 (Relu), id stem_out`: the names that a fused layer is searched by."""
    text = f"{_name(layer)} ({layer.qualified_op})"
    return text if layer.id in {"", _name(layer)} else f"{text}, id {layer.id}"
