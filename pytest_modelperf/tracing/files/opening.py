"""Opens any file of what ran: recorded traces, stored profiles, and profiles of ONNX Runtime."""

from __future__ import annotations

import heapq
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeGuard

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.documents import (
    ContradictionError,
    DocumentFile,
    FileAdvice,
    require_file,
)
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.records import PROFILE, CaseProfile, Profile
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.profiler.shown.document import read_profile
from pytest_modelperf.report.document import SCHEMA
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes
from pytest_modelperf.tracing.chrome_trace import (
    category_of,
    find_start_ns,
    make_span,
    place_rows,
    round_spans,
    row_facts,
)
from pytest_modelperf.tracing.files.ort_profile import OrtProfile
from pytest_modelperf.tracing.records import (
    SESSION,
    TRACE_HEAD,
    Argument,
    Category,
    Counter,
    Event,
    Span,
    ThreadName,
)

# The line between the events and the notes on them.
_END = b"],"
# A key that only a trace of a measurement in rounds has.
_OF_ROUNDS = "rounds"
_LINES_OF_HEAD = TRACE_HEAD.count("\n") + 1
# The longest event, and the longest notes.
_MAX_LINE = 1 << 24
_NS_PER_US = 1000.0
_NS_PER_MS = 1e6
# Above this, nanoseconds exceed 64 bits.
_MAX_US = (1 << 61) / _NS_PER_US
_MAX_NUMBER = 1 << 62

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=_MAX_NUMBER)]
_Time: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=_MAX_US)]


class _Written(msgspec.Struct, gc=False):
    name: str
    ph: str
    pid: _Number
    tid: _Number | None = None
    cat: str = ""
    ts: _Time = 0.0
    dur: _Time = 0.0
    args: dict[str, Any] = msgspec.field(default_factory=dict)


_decode = msgspec.json.Decoder(_Written).decode
_CATEGORIES = {category.value: category for category in Category}


class RecordedTrace:
    """A trace as events. Once all events are read, `notes` say what the trace lacks."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.notes: tuple[str, ...] = ()
        self._about = self._read_about()
        if self._about is not None and _OF_ROUNDS in self._about:
            raise UsageError(
                f"{printable(str(self.path))} is a trace of rounds, in which many inferences may "
                "be one span. Give what has all of them: modelperf profile MODEL --json F"
            )

    def __iter__(self) -> Iterator[Event]:
        reading = _Reading()
        broken = first = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(iter(partial(file.readline, _MAX_LINE), b""), 1):
                text = line.rstrip()
                if number <= _LINES_OF_HEAD or not text:
                    continue
                if text == _END:
                    break
                written = _event(text.removesuffix(b","))
                events = None if written is None else reading.add(written)
                if events is None:
                    broken, first = broken + 1, first or number
                else:
                    yield from events
        self.notes = tuple(_notes(self._about, broken, first))

    def _read_about(self) -> Mapping[str, object] | None:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, io.SEEK_END)
                file.seek(max(0, size - _MAX_LINE))
                _, end, about = file.read(_MAX_LINE).rpartition(b"\n" + _END + b"\n")
            found = json.loads(b"{" + about)["otherData"] if end else None
        except OSError as error:
            shown = printable(str(self.path))
            raise UsageError(f"cannot read {shown}: {error.strerror or error}.") from error
        except (RecursionError, ValueError, KeyError):
            return None
        return found if isinstance(found, dict) else None


def _event(line: bytes) -> _Written | None:
    try:
        return _decode(line)
    except (RecursionError, ValueError):
        return None


def _notes(about: Mapping[str, object] | None, broken: int, first: int) -> Iterator[str]:
    if about is None:
        yield "the end of the file is missing."
    else:
        notes = about.get("notes")
        if isinstance(notes, list):
            yield from (note for note in notes if isinstance(note, str))
    if broken:
        yield f"{broken:,} of its events cannot be read, the first at line {first:,}."


class _Reading:
    def __init__(self) -> None:
        self._ids = count(1)
        self._processes: dict[int, _Process] = {}

    def add(self, event: _Written) -> tuple[Event, ...] | None:
        if event.ph == "X":
            category = _CATEGORIES.get(event.cat)
            if category is None or event.tid is None:
                return None
            process = self._processes.setdefault(event.pid, _Process())
            span = process.add(event, category, event.tid, next(self._ids))
            return None if span is None else (span,)
        if event.ph == "C":
            values = {key: value for key, value in event.args.items() if _is_finite(value)}
            counter = Counter(
                name=event.name, at_ns=_ns(event.ts), values=values, process=event.pid
            )
            return (counter,)
        name = event.args.get("name")
        if event.name in ("process_name", "thread_name") and isinstance(name, str):
            thread = event.tid if event.name == "thread_name" else None
            return (ThreadName(name=name, process=event.pid, thread=thread),)
        return ()


class _Row(Struct):
    """A thread: its open spans, the starts of its first and last span, and its latest end."""

    open: list[Span] = field(default_factory=list)
    first_ns: int = _MAX_NUMBER
    begun_ns: int = 0
    last_ns: int = 0


class _Process:
    """The open spans on each thread, and the open inferences of each session by their end."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = defaultdict(_Row)
        self._running: dict[str, list[tuple[int, int, Span]]] = defaultdict(list)

    def add(self, event: _Written, category: Category, thread: int, number: int) -> Span | None:
        arguments = event.args
        index = arguments.pop("operator_index", None)
        self_ms = arguments.pop("self_ms", None)
        span = Span(
            name=event.name,
            category=category,
            start_ns=_ns(event.ts),
            duration_ns=_ns(event.dur),
            process=event.pid,
            thread=thread,
            id=number,
            self_ns=round(self_ms * _NS_PER_MS) if _is_finite(self_ms) else None,
            operator_index=index if _is_number(index) else None,
            arguments={key: value for key, value in arguments.items() if _is_argument(value)},
        )
        if not self._close(span):
            return None
        around = self._around(span)
        if around is not None:
            span = replace(span, parent=around.id)
        if span.self_ns is not None and not 0 <= span.self_ns <= span.duration_ns:
            span = replace(span, self_ns=None)
        self._rows[thread].open.append(span)
        if category is Category.INFERENCE:
            running = self._running[str(span.arguments.get(SESSION))]
            heapq.heappush(running, (span.end_ns, number, span))
        return span

    def _close(self, span: Span) -> bool:
        """Close the ended spans of its thread. Return whether it is inside the spans still open."""
        row = self._rows[span.thread]
        if span.start_ns < row.begun_ns:
            # In a trace made from a profile, the session comes last and contains all other spans,
            # because the reader of a profile finds its end last.
            is_around = span.start_ns < row.first_ns and row.last_ns <= span.end_ns
            if not is_around or span.category is not Category.SESSION:
                return False
            row.open.clear()
            # A second session that contains this one would begin even earlier.
            row.first_ns = span.start_ns
            row.begun_ns = row.last_ns = span.end_ns
            return True
        while row.open and not _holds(row.open[-1], span):
            if row.open[-1].end_ns > span.start_ns:
                return False
            row.open.pop()
        row.first_ns = min(row.first_ns, span.start_ns)
        row.begun_ns = span.start_ns
        row.last_ns = max(row.last_ns, span.end_ns)
        return True

    def _around(self, span: Span) -> Span | None:
        """Return the span around it, or for an operator without one the only running inference."""
        own = self._rows[span.thread].open
        if own:
            return own[-1]
        if span.category is not Category.OPERATOR:
            return None
        running = self._running[str(span.arguments.get(SESSION))]
        while running and running[0][0] < span.end_ns:
            heapq.heappop(running)
        if len(running) != 1 or not _holds(running[0][2], span):
            return None
        return running[0][2]


def _holds(outer: Span, span: Span) -> bool:
    return outer.start_ns <= span.start_ns and span.end_ns <= outer.end_ns


def _ns(us: float) -> int:
    return round(us * _NS_PER_US)


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and type(value) is not bool and abs(value) < _MAX_NUMBER


def _is_number(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _MAX_NUMBER


def _is_argument(value: object) -> TypeGuard[Argument]:
    if isinstance(value, list):
        return all(isinstance(text, str) for text in value)
    return isinstance(value, bool | str) or _is_finite(value)


# -- reads a profile that was stored as JSON


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
    """A stored profile, as a trace."""

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
                f"{case.case.id}: the engine reported no layer times"
                for case in self.profile.cases
                if case.measured is not None and not place_rows(case, 0)
            ),
        )

    def events(self) -> Iterator[Event]:
        """Yield the events: a process for each case, with its rounds and a typical inference."""
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
    """Yield the events, each span before those inside it, on a clock that begins at `zero_ns`."""
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
    """Read what `modelperf profile --json` wrote. Raise UsageError for any other file."""
    file = DocumentFile(Path(path), _ADVICE, UsageError)
    try:
        size = require_file(file.path)
        if size > _MAX_BYTES:
            most = format_bytes(_MAX_BYTES)
            raise file.error(f"it has {format_bytes(size)}, and at most {most} are read")
        data = file.path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"cannot read {printable(str(file.path))}: {reason}.") from error
    document = file.parse(data)
    found = next((what for key, what in _OTHERS.items() if key in document), None)
    if found is not None:
        raise file.error(f"it is not a profile: it is {found}")
    file.check_schema(document, SCHEMA)
    try:
        return StoredProfile(read_profile(file.convert(document, PROFILE.json_type)))
    except ContradictionError as error:
        raise file.error(error.problem, error.place) from None


# -- opens any file of what ran; the start of the file shows its kind


_HEAD_CHARACTERS = 4096
# The start of a profile of ONNX Runtime that chrome://tracing saved.
_SAVED = re.compile(r'\{\s*"traceEvents"')


class ProfileSource(Struct, frozen=True):
    """The events of a file, to be read once.

    After that, `notes` say what is missing. `about` is the kind of the file.
    """

    events: Iterable[Event]
    notes: Callable[[], tuple[str, ...]]
    about: str


def open_profile(path: str | Path) -> ProfileSource:
    """Open a profile of ONNX Runtime, a stored profile, or a recorded trace."""
    head = _head(Path(path))
    if head.startswith(TRACE_HEAD):
        trace = RecordedTrace(path)
        return ProfileSource(trace, lambda: trace.notes, "a recorded trace")
    if head.startswith("{") and _SAVED.match(head) is None:
        stored = read_stored_profile(path)
        return ProfileSource(stored.events(), lambda: stored.notes, "modelperf profile --json")
    profile = OrtProfile(path)
    return ProfileSource(profile, lambda: profile.notes, "a profile of ONNX Runtime")


def _head(path: Path) -> str:
    try:
        require_file(path)
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            return file.read(_HEAD_CHARACTERS).lstrip()
    except OSError as error:
        raise UsageError(
            f"cannot read {printable(str(path))}: {error.strerror or error}."
        ) from error
