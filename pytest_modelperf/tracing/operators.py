"""The operators of recorded inferences, out of the profile that their session wrote.

The profile has a clock of its own, which starts with it. When the session was created both clocks
were read, and from then on each inference in the profile lies within the call that was recorded of
it: where one does not, the clocks have drifted apart, and what follows is moved with it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.tracing.records import Category, Counter, Event, Span
from pytest_modelperf.tracing.spool import Record
from pytest_modelperf.tracing.written import ARGUMENTS, HIDDEN, KIND, SHAPES

# Two clocks that were read one after the other, and times that are cut off to microseconds.
_SLACK_NS = 20_000
# What an inference in a profile may be longer than the call that it was made by.
_ROUNDING_NS = 1_500


class Placed(Struct, frozen=True):
    """What a profile tells of an inference that was recorded; `shapes` is the number of its own."""

    shapes: int
    operators: tuple[Span, ...]
    counters: tuple[Counter, ...]


class Calls(Struct):
    """The calls of one session by one thread, in order, as columns.

    `shapes` are the numbers of what they were called with, -1 where that is not known. A call that
    `failed` may not have come as far as to run. One that is `hidden` was made while
    the profile was paused.
    """

    ids: array[int] = field(default_factory=lambda: array("q"))
    starts_ns: array[int] = field(default_factory=lambda: array("q"))
    ends_ns: array[int] = field(default_factory=lambda: array("q"))
    shapes: array[int] = field(default_factory=lambda: array("q"))
    failed: bytearray = field(default_factory=bytearray)
    hidden: bytearray = field(default_factory=bytearray)

    def add(self, record: Record) -> None:
        """Add a call, as the recorder wrote it down."""
        start_ns, minus_end_ns, id_ = record[:3]
        self.ids.append(id_)
        self.starts_ns.append(start_ns)
        self.ends_ns.append(-minus_end_ns)
        self.shapes.append(-1 if record[SHAPES] is None else record[SHAPES])
        self.failed.append("error" in record[ARGUMENTS])
        self.hidden.append(record[KIND] == HIDDEN)


class _Clock(Struct):
    """How far one clock is ahead of another, kept right by what lies within what."""

    offset_ns: int

    def move(self, start_ns: int, end_ns: int, low_ns: int, high_ns: int) -> None:
        """Have the stretch from start to end, on the other clock, lie within low and high."""
        first, last = low_ns - start_ns, high_ns - end_ns
        if first > last:
            self.offset_ns = (first + last) // 2
        else:
            self.offset_ns = min(max(self.offset_ns, first), last)


class _Inside:
    """An inference of a profile, and what is told inside of it."""

    def __init__(self, inference: Span) -> None:
        self.inference = inference
        self.operators: list[Span] = []
        self.counters: list[Counter] = []
        self._ids = {inference.id}

    def add(self, event: Event) -> None:
        if isinstance(event, Counter):
            self.counters.append(event)
        elif isinstance(event, Span) and event.parent in self._ids:
            # An operator that belongs to no inference has another parent.
            self._ids.add(event.id)
            self.operators.append(event)


class OperatorPlacer:
    """Puts what a profile tells into the calls of its session, on the clock of the trace."""

    def __init__(
        self,
        calls: Mapping[int, Calls],
        begun_ns: int,
        new_id: Callable[[], int],
    ) -> None:
        self.placed = 0
        # Inferences of the profile that no call is known of.
        self.strays = 0
        # How far an operator stood out of its inference, at most.
        self.overhang_ns = 0
        self._calls = calls
        self._begun_ns = begun_ns
        self._new_id = new_id
        self._at: dict[int, int] = {}

    def place(self, events: Iterable[Event]) -> Iterator[Placed]:
        """Inference by inference, what is inside of something after it."""
        clock = _Clock(self._begun_ns)
        inside: _Inside | None = None
        for event in events:
            if isinstance(event, Span) and event.category is Category.INFERENCE:
                yield from self._fit(inside, clock)
                inside = _Inside(event)
            elif inside is not None:
                inside.add(event)
        yield from self._fit(inside, clock)

    def _fit(self, inside: _Inside | None, clock: _Clock) -> Iterator[Placed]:
        if inside is None:
            return
        inference = inside.inference
        calls = self._calls.get(inference.thread)
        place = None if calls is None else self._find(inference, calls, clock.offset_ns)
        if calls is None or place is None:
            self.strays += 1
            return
        low_ns, high_ns = calls.starts_ns[place], calls.ends_ns[place]
        clock.move(inference.start_ns, inference.end_ns, low_ns, high_ns)
        if calls.hidden[place]:
            return
        self.placed += 1
        own_id = calls.ids[place]
        ids = {span.id: self._new_id() for span in inside.operators}
        moved = []
        for span in inside.operators:
            first_ns, last_ns = span.start_ns + clock.offset_ns, span.end_ns + clock.offset_ns
            # What is inside of what stays so.
            start_ns, end_ns = (min(max(ns, low_ns), high_ns) for ns in (first_ns, last_ns))
            self.overhang_ns = max(self.overhang_ns, start_ns - first_ns, last_ns - end_ns)
            duration_ns = end_ns - start_ns
            moved.append(
                replace(
                    span,
                    start_ns=start_ns,
                    duration_ns=duration_ns,
                    self_ns=None if span.self_ns is None else min(span.self_ns, duration_ns),
                    id=ids[span.id],
                    parent=ids.get(span.parent or 0, own_id),
                )
            )
        timed = tuple(
            replace(counter, at_ns=min(max(counter.at_ns + clock.offset_ns, low_ns), high_ns))
            for counter in inside.counters
        )
        yield Placed(calls.shapes[place], tuple(moved), timed)

    def _find(self, inference: Span, calls: Calls, offset_ns: int) -> int | None:
        """Which call it is: the next of its thread, unless that failed before it ran."""
        start_ns, end_ns = inference.start_ns + offset_ns, inference.end_ns + offset_ns
        at = self._at.get(inference.thread, 0)
        while at < len(calls.ids):
            low_ns, high_ns = calls.starts_ns[at] - _SLACK_NS, calls.ends_ns[at] + _SLACK_NS
            if end_ns < low_ns:
                return None
            at += 1
            # One that failed before it ran is not in the profile; every other one is.
            if not calls.failed[at - 1] or (low_ns <= start_ns and end_ns <= high_ns):
                self._at[inference.thread] = at
                return at - 1
        return None

    @property
    def is_sure(self) -> bool:
        """Whether all operators lay inside of their inferences, but for rounding."""
        return self.overhang_ns <= _ROUNDING_NS
