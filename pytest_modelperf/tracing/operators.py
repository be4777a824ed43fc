"""Places the operators from a session's profile into its recorded inferences.

The profile has its own clock, which starts with it. Both clocks were read when the session was
created. From then on, each inference in the profile must lie within its recorded call. If one does
not, the clocks have drifted apart; it is moved, and all that follow with it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.tracing.records import ERROR, Category, Counter, Event, Span
from pytest_modelperf.tracing.spool import Record
from pytest_modelperf.tracing.written import ARGUMENTS, HIDDEN, KIND, SHAPES

# Covers the time between the two clock readings, and times that are cut to microseconds.
_SLACK_NS = 20_000
# The most by which rounding makes an inference in a profile longer than its call.
_ROUNDING_NS = 1_500


class Placed(Struct, frozen=True):
    """The operators and counters of a recorded inference; `shapes` is the number of its shapes."""

    shapes: int
    operators: tuple[Span, ...]
    counters: tuple[Counter, ...]


class Calls(Struct):
    """The calls of one session on one thread, in order, as columns.

    `shapes` are the numbers of their input shapes, -1 if unknown. A call that `failed` may have
    stopped before it ran. A `hidden` call was made during a pause.
    """

    ids: array[int] = field(default_factory=lambda: array("q"))
    starts_ns: array[int] = field(default_factory=lambda: array("q"))
    ends_ns: array[int] = field(default_factory=lambda: array("q"))
    shapes: array[int] = field(default_factory=lambda: array("q"))
    failed: bytearray = field(default_factory=bytearray)
    hidden: bytearray = field(default_factory=bytearray)

    def add(self, record: Record) -> None:
        """Add a call from the recorder's record of it."""
        start_ns, minus_end_ns, id_ = record[:3]
        self.ids.append(id_)
        self.starts_ns.append(start_ns)
        self.ends_ns.append(-minus_end_ns)
        self.shapes.append(-1 if record[SHAPES] is None else record[SHAPES])
        self.failed.append(ERROR in record[ARGUMENTS])
        self.hidden.append(record[KIND] == HIDDEN)


class _Clock(Struct):
    """The offset between two clocks, corrected by intervals that must lie within others."""

    offset_ns: int

    def move(self, start_ns: int, end_ns: int, low_ns: int, high_ns: int) -> None:
        """Correct the offset so that start to end, on the other clock, lies within low to high."""
        first, last = low_ns - start_ns, high_ns - end_ns
        if first > last:
            self.offset_ns = (first + last) // 2
        else:
            self.offset_ns = min(max(self.offset_ns, first), last)


class _Inside:
    """An inference of a profile, with the operators and counters inside it."""

    def __init__(self, inference: Span) -> None:
        self.inference = inference
        self.operators: list[Span] = []
        self.counters: list[Counter] = []
        self._ids = {inference.id}

    def add(self, event: Event) -> None:
        if isinstance(event, Counter):
            self.counters.append(event)
        elif isinstance(event, Span) and event.parent in self._ids:
            # The parent of an operator outside any inference is not among these.
            self._ids.add(event.id)
            self.operators.append(event)


class OperatorPlacer:
    """Moves the inferences of a profile into the calls of its session, on the trace's clock."""

    def __init__(
        self,
        calls: Mapping[int, Calls],
        begun_ns: int,
        new_id: Callable[[], int],
    ) -> None:
        self.placed = 0
        # Inferences of the profile without a recorded call.
        self.strays = 0
        # The most by which an operator exceeded its inference.
        self.overhang_ns = 0
        self._calls = calls
        self._begun_ns = begun_ns
        self._new_id = new_id
        self._at: dict[int, int] = {}

    def place(self, events: Iterable[Event]) -> Iterator[Placed]:
        """The inferences one by one; in each, a span comes before the spans inside it."""
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
            # Nesting is preserved.
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
        """The index of its call: the next on its thread that did not fail before running."""
        start_ns, end_ns = inference.start_ns + offset_ns, inference.end_ns + offset_ns
        at = self._at.get(inference.thread, 0)
        while at < len(calls.ids):
            low_ns, high_ns = calls.starts_ns[at] - _SLACK_NS, calls.ends_ns[at] + _SLACK_NS
            if end_ns < low_ns:
                return None
            at += 1
            # The profile has every call except those that failed before running.
            if not calls.failed[at - 1] or (low_ns <= start_ns and end_ns <= high_ns):
                self._at[inference.thread] = at
                return at - 1
        return None

    @property
    def is_sure(self) -> bool:
        """Whether all operators lay inside their inferences, apart from rounding."""
        return self.overhang_ns <= _ROUNDING_NS
