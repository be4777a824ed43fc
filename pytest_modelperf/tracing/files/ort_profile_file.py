"""Read the events of a profile of ONNX Runtime, even if it is damaged, and facts of its kernels.

The runtime writes an array with one event per line. Older versions do not escape names (1.20.1 does
not, 1.31.1 does): a quote, a backslash or a line break in a name makes invalid JSON. Such an event
is read by the runtime's own layout. A file that another program saved is read as plain JSON.

A profile has hundreds of thousands of events, nearly all well formed. These are decoded straight
into records. The others take a second, slower attempt.

The facts of a kernel are the same in each inference, so they are kept once for each kernel.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeAlias

import msgspec
from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.documents import require_file
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_shape
from pytest_modelperf.text.words import count_of
from pytest_modelperf.tracing.records import Argument

INFERENCE = "model_run"
# The runtime's limit of events; only its log mentions it.
MAX_EVENTS = 1_000_000
# Above this, nanoseconds exceed 64 bits.
MAX_WHOLE = (1 << 63) // 4000

# How the runtime writes an event.
_OWN_START = '{"cat" : "'
_OWN_EVENT = re.compile(
    r'\{"cat" : "(?P<cat>\w+)","pid" :(?P<pid>\d+),"tid" :(?P<tid>\d+),"dur" :(?P<dur>\d+),'
    r'"ts" :(?P<ts>\d+),"ph" : "X","name" :"(?P<name>.*)","args" : (?P<args>\{.*\})\},?\s*',
    re.DOTALL,
)
_OWN_INFERENCE = re.compile(
    rb'"tid" :(?P<tid>\d+),"dur" :(?P<dur>\d+),"ts" :(?P<ts>\d+),"ph" : "X","name" :$'
)
# The text before the events: an array, or the object that chrome://tracing saves.
_HEAD = re.compile(r'\s*(?:\{\s*"traceEvents"\s*:\s*)?\[\s*')
_BETWEEN = re.compile(r"[\s,]*")
_SHOWN = 40
_CHUNK = 1 << 20
# The longest event. Text that cannot be read within this length is broken.
_MAX_EVENT = 1 << 24
_MAX_LINES_OF_AN_EVENT = 100
# An inference's event is within this many characters around its name.
_AROUND = 512

_Decode: TypeAlias = "Callable[[str, int], tuple[object, int]]"
_Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MAX_WHOLE)]
# A number as an event has it, usually as text.
RawNumber: TypeAlias = str | int | float | None


class KernelTold(msgspec.Struct, gc=False):
    """The facts of a kernel in an event, unconverted."""

    op_name: Any = None
    provider: Any = None
    node_index: Any = None
    input_type_shape: Any = None
    output_type_shape: Any = None
    parameter_size: Any = None
    activation_size: Any = None
    output_size: Any = None
    thread_scheduling_stats: Any = None
    mem_bytes_in_use: RawNumber = None
    mem_in_use_peak: RawNumber = None
    mem_arena_held: RawNumber = None


class RawEvent(msgspec.Struct, gc=False):
    """An event of the file: a name, a time in microseconds, a thread."""

    name: str
    ts: _Whole
    dur: _Whole
    tid: _Whole
    args: KernelTold = msgspec.field(default_factory=KernelTold)
    cat: Any = None
    pid: Any = None


# Of two equal keys the last counts, as in the standard library's json.
_decode_event: Callable[[bytes], RawEvent] = msgspec.json.Decoder(RawEvent).decode


class Interval(Struct, frozen=True):
    """The time of an inference in microseconds, and its thread."""

    start: int
    duration: int
    thread: int

    def holds(self, moment: int) -> bool:
        return self.start <= moment <= self.start + self.duration


class ProfileFile:
    """A profile file. After `events()` is read, its attributes say what was wrong."""

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
        """Reset the findings, to read the file again."""
        # Whether the end of the file is missing.
        self.is_cut = False
        self.event_count = 0
        self.broken_count = 0
        # The place of the first unreadable event: `line 17`, `character 4711`.
        self.broken_place: str | None = None
        self._at = 0

    def events(self) -> Iterator[RawEvent]:
        """Return the events in the order of the file, and count everything else as broken."""
        return self._lines() if self._has_own_lines() else self._values()

    def _events_of(self, value: object) -> Iterator[RawEvent]:
        """Yield the event in a JSON value, or count the value as broken."""
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
        """Find the time of each inference without parsing the whole file."""
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
        # There may be a byte order mark, and a name may have any bytes.
        return self.path.open(encoding="utf-8-sig", errors="replace", newline="\n")

    def _refuse_other_files(self) -> None:
        if not self._head.strip():
            raise UsageError(
                f"{self._shown} is empty: it is not a profile of ONNX Runtime. End its session "
                "before the file is read: end_profiling() writes it."
            )
        if _HEAD.match(self._head) is None:
            start = printable(self._head.lstrip()[:_SHOWN])
            raise UsageError(
                f"{self._shown} is not a profile of ONNX Runtime, which is an array of events: "
                f"it starts with '{start}'. Set enable_profiling of SessionOptions, and give the "
                "file that end_profiling() names."
            )

    def _has_own_lines(self) -> bool:
        first, _, rest = self._head.lstrip().partition("\n")
        own = rest.lstrip()[: len(_OWN_START)]
        return first.strip() == "[" and bool(own) and _OWN_START.startswith(own)

    # -- as the runtime writes it

    def _lines(self) -> Iterator[RawEvent]:
        self.is_cut = True
        decode = json.JSONDecoder(strict=False).raw_decode
        # Lines of an incomplete event: its name may have line breaks.
        begun: list[str] = []
        with self.path.open("rb") as file:
            for number, raw in enumerate(iter(partial(file.readline, _MAX_EVENT), b""), 1):
                event = None if begun else _event_in(raw)
                if event is not None:
                    self.event_count += 1
                    yield event
                    continue
                # There may be a byte order mark, and a name may have any bytes.
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8", "replace")
                if not begun:
                    self._at = number
                    value, end = _decoded(decode, line)
                    # A name can contain text that looks like the end of an event.
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
                    # The end is missing, or this is not JSON.
                    if text[at : at + 1] not in ("{", ""):
                        self._note_broken()
                    return
                passed += at
                text, at = text[at:] + more, 0


def _is_endless(begun: list[str]) -> bool:
    return len(begun) >= _MAX_LINES_OF_AN_EVENT or sum(map(len, begun)) >= _MAX_EVENT


def _event_in(line: bytes) -> RawEvent | None:
    """Return the event of a whole line, or None if the line needs the slower attempt."""
    try:
        return _decode_event(line[:-2] if line.endswith(b",\n") else line)
    except (RecursionError, ValueError):
        return None


def _from_object(value: Mapping[str, Any]) -> RawEvent | None:
    name, facts, at = value.get("name"), value.get("args"), _interval(value)
    if type(name) is not str or at is None:
        return None
    args = _kernel_facts(facts if isinstance(facts, dict) else {})
    return RawEvent(
        name, at.start, at.duration, at.thread, args, value.get("cat"), value.get("pid")
    )


def _kernel_facts(value: Mapping[str, Any]) -> KernelTold:
    """Return the facts in a JSON object. Memory figures must be numbers or texts."""
    facts = KernelTold(**{key: value[key] for key in KernelTold.__struct_fields__ if key in value})
    for key in ("mem_bytes_in_use", "mem_in_use_peak", "mem_arena_held"):
        known = getattr(facts, key)
        if isinstance(known, bool) or not isinstance(known, RawNumber):
            setattr(facts, key, None)
    return facts


def _decoded(decode: _Decode, text: str, at: int = 0) -> tuple[object | None, int]:
    try:
        return decode(text, at)
    except (RecursionError, ValueError):
        # A number with thousands of digits raises a ValueError of its own.
        return None, at


def _skipped(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return at if found is None else found.end()


def _own_event(text: str) -> dict[str, Any] | None:
    """Return the event in lines that the runtime wrote, whose name may be invalid JSON."""
    # Without an end, the pattern would try each text that looks like arguments.
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
    """Return the inference with its name at this place, or None if no event has its name there."""
    before = m[max(0, at - _AROUND) : at]
    own = _OWN_INFERENCE.search(before)
    if own is not None:
        return Interval(int(own["ts"]), int(own["dur"]), int(own["tid"]))
    text = before.decode("utf-8", "replace")
    start = middle = len(text)
    text += m[at : at + _AROUND].decode("utf-8", "replace")
    decode = json.JSONDecoder(strict=False).raw_decode
    # The arguments are an object, too, and may come before the name.
    for _ in range(3):
        start = text.rfind("{", 0, start)
        if start < 0:
            return None
        event, end = _decoded(decode, text, start)
        if end > middle and isinstance(event, dict) and event.get("name") == INFERENCE:
            return _interval(event)
    return None


def _interval(event: Mapping[str, Any]) -> Interval | None:
    start, duration, thread = (whole(event.get(key)) for key in ("ts", "dur", "tid"))
    if start is None or duration is None or thread is None:
        return None
    return Interval(start, duration, thread)


def whole(value: object) -> int | None:
    """Return a number of JSON as a count. Some programs write counts as 3.0."""
    if type(value) is int and 0 <= value < MAX_WHOLE:
        return value
    if isinstance(value, float) and value.is_integer() and 0 <= value < MAX_WHOLE:
        return int(value)
    return None


# ONNX Runtime's names of tensor types that have another name in numpy.
_TYPES = {"float": "float32", "double": "float64"}
# Types of indexes and conditions, not of the numbers that are computed.
_INDEX_TYPES = ("bool", "int32", "int64")
_SIZES = (
    ("parameter_size", "parameter_bytes"),
    ("activation_size", "activation_bytes"),
    ("output_size", "output_bytes"),
)
# Times that the calling thread spent on its thread pool.
_POOL_TIMES = (
    ("Distribution", "distribute_us"),
    ("DistributionEnqueue", "enqueue_us"),
    ("Run", "run_us"),
    ("Wait", "wait_us"),
    ("WaitRevoke", "revoke_us"),
)
# Facts of the kernel itself, not of one run of it.
_OF_KERNEL = attrgetter("op_name", "provider", "node_index", "input_type_shape",
                        "output_type_shape", "parameter_size", "activation_size",
                        "output_size")  # fmt: skip

RawMemory: TypeAlias = tuple[RawNumber, RawNumber, RawNumber]


class _Known(Struct, frozen=True):
    """The facts of a kernel as its event has them, and as arguments of a span."""

    told: Sequence[object]
    arguments: dict[str, Argument]


class KernelFacts:
    """The arguments of kernels, cached by name."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def of(self, name: str, said: KernelTold) -> Mapping[str, Argument]:
        facts = _OF_KERNEL(said)
        known = self._known.get(name)
        if known is None or known.told != facts:
            known = self._known[name] = _Known(facts, dict(_arguments(said)))
        return known.arguments


def pool_facts(said: KernelTold) -> Mapping[str, Argument] | None:
    """Return how the session's thread pool ran a kernel, or None if that is unknown."""
    stats = said.thread_scheduling_stats
    return dict(_pool(stats)) if isinstance(stats, dict) else None


def raw_memory(said: KernelTold) -> RawMemory | None:
    """Return the runtime's memory figures, unconverted, or None if there are none."""
    peak = said.mem_in_use_peak
    return None if peak is None else (said.mem_bytes_in_use, peak, said.mem_arena_held)


@lru_cache
def memory_values(memory: RawMemory) -> Mapping[str, float]:
    """Return the runtime's bytes of memory by kind."""
    values = zip(("in_use_bytes", "peak_bytes", "held_bytes"), map(_number, memory), strict=True)
    return {key: value for key, value in values if value is not None}


def _arguments(said: KernelTold) -> Iterator[tuple[str, Argument]]:
    for value, ours in ((said.op_name, "op_type"), (said.provider, "provider")):
        if isinstance(value, str):
            yield ours, value
    inputs, outputs = _tensors(said.input_type_shape), _tensors(said.output_type_shape)
    precision = _precision(inputs, outputs)
    if precision is not None:
        yield "precision", precision
    for kind, tensors in (("input", inputs), ("output", outputs)):
        if tensors:
            yield f"{kind}_shape", tensors[0].shape
            yield f"{kind}s", tuple(f"{tensor.dtype} {tensor.shape}" for tensor in tensors)
    for theirs, ours in _SIZES:
        value = _number(getattr(said, theirs))
        if value is not None:
            yield ours, value


class _Tensor(Struct, frozen=True):
    dtype: str
    shape: str


def _tensors(value: object) -> list[_Tensor]:
    entries = value if isinstance(value, list) else []
    return [
        _Tensor(_TYPES.get(str(dtype), str(dtype)), _shape(dims))
        for entry in entries
        if isinstance(entry, dict)
        for dtype, dims in entry.items()
    ]


def _shape(dims: object) -> str:
    sizes = dims if isinstance(dims, list) else []
    return format_shape(tuple(whole(size) for size in sizes))


def _precision(inputs: list[_Tensor], outputs: list[_Tensor]) -> str | None:
    """Return the type of a kernel's first input, or of its output if that is an index."""
    found = inputs[:1]
    if not found or found[0].dtype in _INDEX_TYPES:
        found = outputs[:1] or found
    return found[0].dtype if found else None


def _pool(stats: Mapping[str, Any]) -> Iterator[tuple[str, Argument]]:
    """Yield how the kernel's work was distributed over the thread pool."""
    main = stats.get("main_thread")
    if isinstance(main, dict):
        for theirs, ours in (("thread_pool_name", "pool"), ("core", "core")):
            if isinstance(main.get(theirs), str | int):
                yield ours, main[theirs]
        for theirs, ours in _POOL_TIMES:
            value = _number(main.get(theirs))
            if value is not None:
                yield ours, value
    others = stats.get("sub_threads")
    if isinstance(others, dict):
        texts = [_other(thread) for thread in others.values() if isinstance(thread, dict)]
        if texts:
            yield "other_threads", tuple(texts)


def _other(thread: Mapping[str, Any]) -> str:
    runs, core = whole(thread.get("num_run")), whole(thread.get("core"))
    # A thread that has not run has no core.
    return count_of(runs or 0, "run") + ("" if core is None else f" on core {core}")


def _number(value: object) -> int | None:
    """Return a count, which the runtime writes as text, or None for any other value."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return whole(value)
