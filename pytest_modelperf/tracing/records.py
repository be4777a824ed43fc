"""The records of a trace: what ran when, on which thread, inside of what.

A trace is a stream of events in which a span stands before those inside of it. It may be too large
to be held: who reads it goes through it once. There are hundreds of thousands of them in a profile,
so they are structs of msgspec, which are made in a fraction of the time that dataclasses take.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

# How a file of one begins. In this order for Perfetto, which reads as it goes: the unit before the
# events, and what some of its versions skip the rest at behind them.
TRACE_HEAD = '{"displayTimeUnit":"ms",\n"traceEvents":['

Argument: TypeAlias = "bool | int | float | str | Sequence[str] | None"


class Category(enum.Enum):
    """What a span is of; a viewer can filter by it."""

    LABEL = "label"
    SESSION = "session"
    ROUND = "round"
    LOAD = "load"
    INFERENCE = "inference"
    OPERATOR = "operator"
    OVERHEAD = "overhead"
    # What the program waits for, because it is recorded.
    RECORDING = "recording"


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stretch of time on a thread, and what is known of it. None in `arguments` is left out.

    `start_ns` is on the clock of the trace, which begins at 0 and never goes back. `id` is above 0
    and that of no other span of the trace, `parent` the `id` of the span that it ran inside of.
    `self_ns` leaves out the operators inside; None where it is the whole duration.
    `operator_index` is the place of an operator in its inference, from 0.
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

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


class Counter(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Values of something at a moment, such as bytes of memory by kind."""

    name: str
    at_ns: int
    values: Mapping[str, float]
    process: int = 0


class ThreadName(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a thread, or a process where `thread` is None, is called."""

    name: str
    process: int
    thread: int | None = None


Event: TypeAlias = "Span | Counter | ThreadName"
