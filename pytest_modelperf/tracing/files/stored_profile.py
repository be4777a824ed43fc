"""Reads a profile that was stored as JSON, as the spans of a trace.

A stored profile is no recording: each layer has one typical time. docs/json.md has the keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.documents import ContradictionError, DocumentFile, FileAdvice
from pytest_modelperf.files.reading import require_file
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.records import PROFILE, CaseProfile, LayerRow, Profile
from pytest_modelperf.profiler.shown.document_reader import read_profile
from pytest_modelperf.report.document import SCHEMA
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes
from pytest_modelperf.tracing.profile_spans import (
    category_of,
    find_start_ns,
    make_span,
    place_rows,
    round_spans,
    row_facts,
)
from pytest_modelperf.tracing.records import Argument, Category, Event, Span, ThreadName

TYPICAL = "typical inference"

_ROUNDS, _LAYERS = 1, 2
# The samples of a case take some 100 kB, and a profile may have many cases.
_MAX_BYTES = 256 << 20
# Other documents of this package, by a key that a profile does not have.
_OTHERS = {
    "traceEvents": "a trace",
    "sides": "a sweep",
    "checkups": "a checkup",
    "before": "a comparison",
    "counts": "a test run",
}

_EXPECTED = "Expected what `modelperf profile MODEL --json F` writes, or a profile of ONNX Runtime."
_ADVICE = FileAdvice(broken=_EXPECTED, conflict=_EXPECTED)


class StoredProfile(Struct, frozen=True):
    """A profile that was stored, as a trace."""

    profile: Profile

    @property
    def notes(self) -> tuple[str, ...]:
        """The parts of the profile that have no spans, and why."""
        return (
            *(
                f"{case.case.id}: {case.outcome.value}, {case.reason}"
                for case in self.profile.cases
                if case.measured is None
            ),
            *(
                f"{case.case.id}: the engine told no times of layers"
                for case in self.profile.cases
                if case.measured is not None and not place_rows(case, 0)
            ),
        )

    def events(self) -> Iterator[Event]:
        """The events: a process for each case, with its rounds and a typical inference."""
        ids = count(1)
        measured = [(case, case.measured) for case in self.profile.cases if case.measured]
        begun = [ns for ns in (find_start_ns(made) for _, made in measured) if ns is not None]
        zero_ns = min(begun, default=0)
        for process, (case, made) in enumerate(measured, 1):
            yield ThreadName(name=f"{self.profile.model.name} {case.case.id}", process=process)
            for event in _case_events(case, made, ids, zero_ns):
                yield replace(event, process=process)


def _case_events(
    case: CaseProfile, made: Measurement, ids: Iterator[int], zero_ns: int
) -> Iterator[Span | ThreadName]:
    """The events, each span before the spans inside it, on a clock that begins at `zero_ns`."""
    session, begun_ns = next(ids), find_start_ns(made)
    low_ns = 0 if begun_ns is None else begun_ns - zero_ns
    layers = tuple(_layer_spans(case, made, low_ns, session, ids))
    rounds = tuple(round_spans(made, zero_ns))
    ends_ns = [each.whole.end_ns for each in rounds] + [span.end_ns for span in layers]
    yield ThreadName(name="rounds", process=0, thread=_ROUNDS)
    if layers:
        yield ThreadName(name=TYPICAL, process=0, thread=_LAYERS)
    whole = make_span(case.case.id, Category.SESSION, low_ns, max(ends_ns) - low_ns)
    yield replace(whole, thread=_ROUNDS, id=session)
    for each in rounds:
        number = next(ids)
        yield replace(each.whole, thread=_ROUNDS, id=number, parent=session)
        for part in each.parts:
            yield replace(part, thread=_ROUNDS, id=next(ids), parent=number)
    yield from layers


def _layer_spans(
    case: CaseProfile, made: Measurement, low_ns: int, session: int, ids: Iterator[int]
) -> Iterator[Span]:
    rows = place_rows(case, low_ns)
    if not rows:
        return
    duration_ns = max(round(made.latency.median_ns), rows[-1].end_ns - low_ns)
    whole = make_span(TYPICAL, Category.LABEL, low_ns, duration_ns)
    number = next(ids)
    yield replace(whole, thread=_LAYERS, id=number, parent=session)
    for index, placed in enumerate(rows):
        category = category_of(placed.row)
        yield Span(
            name=_label(placed.row),
            category=category,
            start_ns=placed.start_ns,
            duration_ns=placed.end_ns - placed.start_ns,
            thread=_LAYERS,
            id=next(ids),
            parent=number,
            operator_index=index if category is Category.OPERATOR else None,
            arguments=_arguments(placed.row),
        )


def _label(row: LayerRow) -> str:
    layer = row.static
    if layer is not None and layer.id:
        return layer.name or layer.id
    return (row.time.kernel if row.time is not None else "") or row.qualified_op


def _arguments(row: LayerRow) -> dict[str, Argument]:
    return {
        "op_type": row.qualified_op,
        "layer": None if row.static is None else row.static.id,
        **row_facts(row),
        "fused": tuple(part.id for part in row.fused) or None,
    }


def read_stored_profile(path: str | Path) -> StoredProfile:
    """Read what `modelperf profile --json` wrote; UsageError for any other file."""
    file = DocumentFile(Path(path), _ADVICE, UsageError)
    try:
        size = require_file(file.path)
        if size > _MAX_BYTES:
            most = format_bytes(_MAX_BYTES)
            raise file.error(f"it has {format_bytes(size)}, of which {most} would be read")
        data = file.path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"cannot read {printable(str(file.path))}: {reason}.") from error
    document = file.parse(data)
    found = next((what for key, what in _OTHERS.items() if key in document), None)
    if found is not None:
        raise file.error(f"it is no profile: it is {found}")
    file.check_schema(document, SCHEMA)
    try:
        return StoredProfile(read_profile(file.convert(document, PROFILE.json_type)))
    except ContradictionError as error:
        raise file.error(error.problem, error.place) from None
