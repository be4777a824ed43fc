"""The events in a profile file of ONNX Runtime, however it was saved, as far as they can be read.

The runtime writes an array with an event in each line, and older versions write names as they are,
as 1.20.1 does and 1.31.1 does not: a quote, a backslash or a line break in one makes what is no
JSON. There an event is read by how the runtime writes it. What was saved by another program is read
as any JSON.

A profile has hundreds of thousands of events, nearly all of which are written as expected: these
are decoded right into records, and whatever is not so is looked at again with more patience.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeAlias

import msgspec

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.reading import require_file
from pytest_modelperf.text.escaping import printable

INFERENCE = "model_run"
# The runtime takes no more events than this, and says so only in its log.
MAX_EVENTS = 1_000_000
# Beyond, nanoseconds are no number of 64 bits.
MAX_WHOLE = (1 << 63) // 4000

# How the runtime begins, and writes, an event.
_OWN_START = '{"cat" : "'
_OWN_EVENT = re.compile(
    r'\{"cat" : "(?P<cat>\w+)","pid" :(?P<pid>\d+),"tid" :(?P<tid>\d+),"dur" :(?P<dur>\d+),'
    r'"ts" :(?P<ts>\d+),"ph" : "X","name" :"(?P<name>.*)","args" : (?P<args>\{.*\})\},?\s*',
    re.DOTALL,
)
_OWN_INFERENCE = re.compile(
    rb'"tid" :(?P<tid>\d+),"dur" :(?P<dur>\d+),"ts" :(?P<ts>\d+),"ph" : "X","name" :$'
)
# Before the events in an array, or in the object that chrome://tracing saves.
_HEAD = re.compile(r'\s*(?:\{\s*"traceEvents"\s*:\s*)?\[\s*')
_BETWEEN = re.compile(r"[\s,]*")
_SHOWN = 40
_CHUNK = 1 << 20
# No event is longer. What cannot be read in so many characters is broken.
_MAX_EVENT = 1 << 24
_MAX_LINES_OF_AN_EVENT = 100
# Characters before and behind the name of an inference that its event lies in.
_AROUND = 512

_Decode: TypeAlias = "Callable[[str, int], tuple[object, int]]"
_Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MAX_WHOLE)]
# A number as an event has it, most often as text.
Told: TypeAlias = str | int | float | None


class KernelTold(msgspec.Struct, gc=False):
    """What an event tells of a kernel, as it does."""

    op_name: Any = None
    provider: Any = None
    node_index: Any = None
    input_type_shape: Any = None
    output_type_shape: Any = None
    parameter_size: Any = None
    activation_size: Any = None
    output_size: Any = None
    thread_scheduling_stats: Any = None
    mem_bytes_in_use: Told = None
    mem_in_use_peak: Told = None
    mem_arena_held: Told = None


class RawEvent(msgspec.Struct, gc=False):
    """An event as it is in the file: with a name, a time in microseconds, and a thread."""

    name: str
    ts: _Whole
    dur: _Whole
    tid: _Whole
    args: KernelTold = msgspec.field(default_factory=KernelTold)
    cat: Any = None
    pid: Any = None


# The last of two equal keys counts, as it does for the json of the standard library.
_decode_event: Callable[[bytes], RawEvent] = msgspec.json.Decoder(RawEvent).decode


@dataclass(frozen=True, slots=True)
class Interval:
    """When an inference ran, in microseconds, and on which thread."""

    start: int
    duration: int
    thread: int

    def holds(self, moment: int) -> bool:
        return self.start <= moment <= self.start + self.duration


class ProfileFile:
    """A profile file; `events()` goes through it once, after which it tells what was wrong."""

    def __init__(self, path: Path, chunk_characters: int = _CHUNK) -> None:
        self.path = path
        self._chunk_characters = chunk_characters
        self.rewind()
        try:
            require_file(path)
            with self._open() as file:
                self._head = file.read(4 * _AROUND)
        except OSError as error:
            raise UsageError(f"cannot read {self._shown}: {error.strerror or error}.") from error
        self._refuse_other_files()

    def rewind(self) -> None:
        """Forget what was found, to go through it again."""
        # Whether the end is missing.
        self.is_cut = False
        self.event_count = 0
        self.broken_count = 0
        # Where the first event is that cannot be read: `line 17`, `character 4711`.
        self.broken_place: str | None = None
        self._at = 0

    def events(self) -> Iterator[RawEvent]:
        """The events in the order of the file; what is none is counted."""
        return self._lines() if self._has_own_lines() else self._values()

    def _events_of(self, value: object) -> Iterator[RawEvent]:
        """The event that a value of JSON is; what is none is counted."""
        if isinstance(value, dict):
            self.event_count += 1
            event = _from_object(value)
            if event is not None:
                yield event
                return
        self._note_broken()

    def _note_broken(self) -> None:
        self.broken_count += 1
        if self.broken_place is None:
            self.broken_place = f"{'line' if self._has_own_lines() else 'character'} {self._at:,}"

    def find_inferences(self) -> list[Interval]:
        """When each inference ran; found without reading the whole file."""
        with (
            self.path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as m,
        ):
            wanted = f'"{INFERENCE}"'.encode()
            found = []
            at = m.find(wanted)
            while at >= 0:
                interval = _interval_around(m, at)
                if interval is not None:
                    found.append(interval)
                at = m.find(wanted, at + 1)
            return found

    @property
    def _shown(self) -> str:
        return printable(str(self.path))

    def _open(self) -> TextIO:
        # With a byte order mark or without; a name may be of any bytes.
        return self.path.open(encoding="utf-8-sig", errors="replace", newline="\n")

    def _refuse_other_files(self) -> None:
        if not self._head.strip():
            raise UsageError(
                f"{self._shown} is empty: it is no profile of ONNX Runtime. End its session before "
                "the file is read: end_profiling() writes it."
            )
        if _HEAD.match(self._head) is None:
            start = printable(self._head.lstrip()[:_SHOWN])
            raise UsageError(
                f"{self._shown} is no profile of ONNX Runtime, which is an array of events: it "
                f"starts with '{start}'. Set enable_profiling of SessionOptions, and give the file "
                "that end_profiling() names."
            )

    def _has_own_lines(self) -> bool:
        """Whether the runtime itself wrote it, with an event in each line."""
        first, _, rest = self._head.lstrip().partition("\n")
        own = rest.lstrip()[: len(_OWN_START)]
        return first.strip() == "[" and bool(own) and _OWN_START.startswith(own)

    # -- as the runtime writes it

    def _lines(self) -> Iterator[RawEvent]:
        self.is_cut = True
        decode = json.JSONDecoder(strict=False).raw_decode
        # Lines that are no event yet: a name in it may have line breaks.
        begun: list[str] = []
        with self.path.open("rb") as file:
            for number, raw in enumerate(iter(partial(file.readline, _MAX_EVENT), b""), 1):
                event = None if begun else _event_in(raw)
                if event is not None:
                    self.event_count += 1
                    yield event
                    continue
                # With a byte order mark or without; a name may be of any bytes.
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8", "replace")
                if not begun:
                    self._at = number
                    value, end = _decoded(decode, line)
                    # A name can hold what looks like the end of an event.
                    if value is not None and line[end:].strip() in (",", ""):
                        yield from self._events_of(value)
                        continue
                    bare = line.strip()
                    if bare == "]":
                        self.is_cut = False
                        return
                    if bare in ("[", ""):
                        continue
                elif line.startswith(_OWN_START) or _is_endless(begun):
                    self._note_broken()
                    begun, self._at = [], number
                begun.append(line)
                own = _own_event("".join(begun))
                if own is not None:
                    begun = []
                    yield from self._events_of(own)

    # -- as any program writes JSON

    def _values(self) -> Iterator[RawEvent]:
        with self._open() as file:
            self.is_cut = True
            decode = json.JSONDecoder(strict=False).raw_decode
            text = file.read(self._chunk_characters)
            head = _HEAD.match(text)
            at = 0 if head is None else head.end()
            passed = 0
            while True:
                at = _skipped(text, at)
                self._at = passed + at + 1
                value, end = _decoded(decode, text, at)
                if value is not None:
                    yield from self._events_of(value)
                    at = end
                    continue
                if text[at : at + 1] == "]":
                    self.is_cut = False
                    return
                more = file.read(self._chunk_characters) if len(text) - at < _MAX_EVENT else ""
                if not more:
                    # It lacks its end, or is no JSON at all.
                    if text[at : at + 1] not in ("{", ""):
                        self._note_broken()
                    return
                passed += at
                text, at = text[at:] + more, 0


def _is_endless(begun: list[str]) -> bool:
    return len(begun) >= _MAX_LINES_OF_AN_EVENT or sum(map(len, begun)) >= _MAX_EVENT


def _event_in(line: bytes) -> RawEvent | None:
    """The event that is all of a line; None where it takes another look to find one, or to say."""
    try:
        return _decode_event(line[:-2] if line.endswith(b",\n") else line)
    except (RecursionError, ValueError):
        return None


def _from_object(value: Mapping[str, Any]) -> RawEvent | None:
    """The event that an object of JSON is; None where it has no name, no time or no thread."""
    name, told = value.get("name"), value.get("args")
    start, duration, thread = (whole(value.get(key)) for key in ("ts", "dur", "tid"))
    if type(name) is not str or start is None or duration is None or thread is None:
        return None
    args = _kernel_told(told if isinstance(told, dict) else {})
    return RawEvent(name, start, duration, thread, args, value.get("cat"), value.get("pid"))


def _kernel_told(value: Mapping[str, Any]) -> KernelTold:
    """What is there of it; a memory that is no number, nor one as text, is not."""
    told = KernelTold(**{key: value[key] for key in KernelTold.__struct_fields__ if key in value})
    for key in ("mem_bytes_in_use", "mem_in_use_peak", "mem_arena_held"):
        known = getattr(told, key)
        if isinstance(known, bool) or not isinstance(known, Told):
            setattr(told, key, None)
    return told


def _decoded(decode: _Decode, text: str, at: int = 0) -> tuple[object | None, int]:
    """The value there and where it ends; None where there is none, or not all of it."""
    try:
        return decode(text, at)
    except (RecursionError, ValueError):
        # Numbers of thousands of digits are an error of their own.
        return None, at


def _skipped(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return at if found is None else found.end()


def _own_event(text: str) -> dict[str, Any] | None:
    """The event in lines of the runtime whose name may be no JSON; None where there is none."""
    # Without the end of one, every place that looks like its arguments would be tried in vain.
    if not text.rstrip(", \r\n").endswith("}}"):
        return None
    found = _OWN_EVENT.fullmatch(text)
    if found is None:
        return None
    try:
        arguments = json.loads(found["args"], strict=False)
        numbers = {key: int(found[key]) for key in ("pid", "tid", "dur", "ts")}
    except (RecursionError, ValueError):
        return None
    name = found["name"].replace("\r\n", "\n")
    return {"cat": found["cat"], **numbers, "ph": "X", "name": name, "args": arguments}


def _interval_around(m: mmap.mmap, at: int) -> Interval | None:
    """The inference whose name lies there; None where it is not the name of an event."""
    before = m[max(0, at - _AROUND) : at]
    own = _OWN_INFERENCE.search(before)
    if own is not None:
        return Interval(int(own["ts"]), int(own["dur"]), int(own["tid"]))
    text = before.decode("utf-8", "replace")
    start = middle = len(text)
    text += m[at : at + _AROUND].decode("utf-8", "replace")
    decode = json.JSONDecoder(strict=False).raw_decode
    # Its arguments, an object of their own, may stand before the name.
    for _ in range(3):
        start = text.rfind("{", 0, start)
        if start < 0:
            return None
        event, end = _decoded(decode, text, start)
        if end > middle and isinstance(event, dict) and event.get("name") == INFERENCE:
            return _interval(event)
    return None


def _interval(event: Mapping[str, Any]) -> Interval | None:
    numbers = [whole(event.get(key)) for key in ("ts", "dur", "tid")]
    start, duration, thread = numbers
    if start is None or duration is None or thread is None:
        return None
    return Interval(start, duration, thread)


def whole(value: object) -> int | None:
    """A number of JSON that is a count of something; some programs write it with a point."""
    if type(value) is int and 0 <= value < MAX_WHOLE:
        return value
    if isinstance(value, float) and value.is_integer() and 0 <= value < MAX_WHOLE:
        return int(value)
    return None
