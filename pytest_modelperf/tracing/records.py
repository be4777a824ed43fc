"""The records of a trace: what ran, when, on which thread, and inside which other span.

A trace is a stream of events in which each span comes before the spans inside it. It may be larger
than memory, so readers go through it once. A profile has hundreds of thousands of events; msgspec
creates structs in a fraction of the time of dataclasses.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

# The start of a trace file. Perfetto parses the file in order and needs the unit before the events.
# Some versions stop at `otherData`, so that comes last.
TRACE_HEAD = '{"displayTimeUnit":"ms",\n"traceEvents":['

# The first inference of each session of a profile, which is kept apart from the others.
FIRST_INFERENCE = "first inference"
# The argument of a span that names its session.
SESSION = "session"
# The argument of a span in a file that names its label, if its row does not show it.
LABEL = "label"
# The argument of a span with the type of the error that ended it.
ERROR = "error"

Argument: TypeAlias = "bool | int | float | str | Sequence[str] | None"


class Category(enum.Enum):
    """The kind of a span, by which viewers can filter."""

    LABEL = "label"
    SESSION = "session"
    ROUND = "round"
    LOAD = "load"
    INFERENCE = "inference"
    OPERATOR = "operator"
    OVERHEAD = "overhead"
    # Time that the program waits because of the recording.
    RECORDING = "recording"


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that ran on a thread, with its facts. Arguments that are None are not written.

    `start_ns` is on the clock of the trace, which begins at 0 and never goes back. `id` is above 0
    and unique in the trace. `parent` is the `id` of the span that contains this one. `self_ns`
    excludes the operators inside. None: the same as the duration. `operator_index` is the position
    of an operator in its inference, from 0. `pool` has arguments too: how a thread pool ran this
    operator this time. All runs of an operator share their other arguments.
    """

    name: str
    category: Category
    start_ns: int
    duration_ns: int
    process: int = 0
    thread: int = 0
    id: int = 0
    parent: int | None = None
    self_ns: int | None = None
    operator_index: int | None = None
    arguments: Mapping[str, Argument] = msgspec.field(default_factory=dict)
    pool: Mapping[str, Argument] | None = None

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


class Counter(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Values at one moment, such as bytes of memory by kind."""

    name: str
    at_ns: int
    values: Mapping[str, float]
    process: int = 0


class ThreadName(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The name of a thread, or of a process if `thread` is None."""

    name: str
    process: int
    thread: int | None = None


Event: TypeAlias = "Span | Counter | ThreadName"
