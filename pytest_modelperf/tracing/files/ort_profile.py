"""Reads a profile of ONNX Runtime as a trace: session, inferences, operators, nested operators.

The profile has the start and the duration of each event, but not its parent, and the time of a
Loop, an If or a Scan includes its body. Parents and self times follow from the order in which the
events of a thread ended. The reader keeps only inferences that have not ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

import msgspec

from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of
from pytest_modelperf.tracing.files.ort_profile_file import (
    INFERENCE,
    MAX_EVENTS,
    Interval,
    KernelFacts,
    ProfileFile,
    RawEvent,
    RawMemory,
    memory_values,
    pool_facts,
    raw_memory,
    whole,
)
from pytest_modelperf.tracing.records import Argument, Category, Counter, Event, Span, ThreadName

_KERNEL = "_kernel_time"
# Versions before 1.21 also write the waits before and after a kernel.
_FENCES = ("_fence_before", "_fence_after")
# An event of a whole graph: of the model, or of a body.
_GRAPH = "::Execute"
_LOADS = ("model_loading", "session_initialization")
_INFERENCE_NAME = "inference"
_MEMORY = "memory"

_NS_PER_US = 1000
# Durations are cut to whole microseconds, so on average half of one is missing.
_CUT_OFF_NS = 500

# Later than any event of a profile.
_FOREVER_NS = 1 << 62
_SESSION_ID = 1
# Events begin at 1, after the session. Viewers take the first of two spans that start together as
# the outer one, and the session is written last.
_FIRST_NS = 1
_START, _END = attrgetter("start_ns"), attrgetter("end_ns")


class OrtProfile:
    """A profile file as the events of a trace.

    Once all events are read, `notes` say what the profile lacks. Each inference is followed by the
    spans inside it, each before its own inner spans, and by its memory. The session comes last. If
    several threads work on an inference, operators overlap. `is_early`: the profile was ended while
    inferences ran, so missing ends are not worth a note. A profile of `max_events` events is full:
    the runtime wrote no more.
    """

    def __init__(
        self, path: str | Path, *, is_early: bool = False, max_events: int = MAX_EVENTS
    ) -> None:
        self._is_early = is_early
        self._max_events = max_events
        self.path = Path(path)
        self.notes: tuple[str, ...] = ()
        # Raises an error now, not later, if the file is not a profile.
        self._file = ProfileFile(self.path)

    def __iter__(self) -> Iterator[Event]:
        file = self._file
        file.rewind()
        reading = _Reading(self.path.name, file.find_inferences(), is_early=self._is_early)
        for event in file.events():
            yield from reading.add(event)
        yield from reading.finish()
        self.notes = (*_notes_of_file(file, self._max_events), *reading.notes())


def _notes_of_file(file: ProfileFile, max_events: int) -> Iterator[str]:
    if file.event_count >= max_events:
        yield (
            f"ONNX Runtime writes no more than {max_events:,} events into a profile: what ran "
            "after them is not in it. Profile fewer inferences."
        )
    if file.is_cut:
        yield (
            f"the end of the file is missing, after {file.event_count:,} events: the disk was "
            "full, or the program ended before end_profiling() was done."
        )
    if file.broken_count:
        place = file.broken_place
        yield f"{file.broken_count:,} of its events cannot be read, the first at {place}."


# Something that ended, the kernel that it ran in, and the earliest and latest time for it.
_Place: TypeAlias = "tuple[_Ended, _Ended | None, int, int]"


class _Ended(msgspec.Struct):
    """Something that ended on a thread: a kernel, or a graph or an inference (without facts).

    Everything that ran inside it ended after its start and before its end. Neighbours on a thread
    do not overlap: each begins when the one before has ended, or later.
    """

    start_us: int
    start_ns: int
    end_ns: int
    thread: int
    name: str = ""
    facts: Mapping[str, Argument] | None = None
    pool: Mapping[str, Argument] | None = None
    memory: RawMemory | None = None
    # Its direct children, the last first.
    inside: list[_Ended] | None = None
    # The previous event on its thread, outside it.
    before: _Ended | None = None
    # The list in which it waits for the end of its inference. None: it is written or has a parent.
    waiting: list[_Ended] | None = None
    # Once this is written, the next on its thread begins no earlier than this.
    free_from_ns: int = 0
    inside_ns: int = 0
    holder: _Ended | None = None
    id: int = 0

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class _Reading:
    """The state of reading: what has ended, by the inference that it waits for."""

    def __init__(self, name: str, inferences: Iterable[Interval], *, is_early: bool) -> None:
        self._name = name
        self._is_early = is_early
        self._next_id = _SESSION_ID
        self._process = 0
        self._end_ns = 0
        self._session_thread: int | None = None
        self._named: set[int] = set()
        # For each thread that starts inferences: those that have not ended, the last one first.
        self._coming: dict[int, list[Interval]] = {}
        for interval in inferences:
            self._coming.setdefault(interval.thread, []).append(interval)
        for coming in self._coming.values():
            coming.reverse()
        self._callers = frozenset(self._coming)
        # By the thread of the running inference, then by the thread that they ran on.
        self._running: dict[int, dict[int, list[_Ended]]] = {
            caller: defaultdict(list) for caller in self._callers
        }
        # By thread: events of no known inference, and events of one of several inferences.
        self._without: dict[int, list[_Ended]] = defaultdict(list)
        self._shared: dict[int, list[_Ended]] = defaultdict(list)
        # The event that ended last on each thread.
        self._last: dict[int, _Ended] = {}
        self._facts = KernelFacts()
        self._memory: RawMemory | None = None
        self._without_count = self._shared_count = 0
        self._left_out: dict[str, int] = {}

    def notes(self) -> Iterator[str]:
        if self._shared_count:
            count = count_of(self._shared_count, "operator")
            yield (
                f"{count} ran on threads of a pool while several inferences did: the profile does "
                "not show which of these each belongs to."
            )
        if self._without_count and not self._is_early:
            count = count_of(self._without_count, "operator")
            yield f"{count} ran in no inference whose end is in the profile."
        for kind, number in self._left_out.items():
            yield f"not shown: {count_of(number, 'event')} of the kind {printable(kind)!r}."

    def add(self, event: RawEvent) -> Iterable[Event]:
        name, kind = event.name, event.cat
        if kind == "Node":
            if name.endswith(_KERNEL):
                self._add_kernel(event, name[: -len(_KERNEL)])
            elif not name.endswith(_FENCES):
                self._leave_out("Node")
        elif name.endswith(_GRAPH):
            self._keep(_ended(event))
        elif name == INFERENCE:
            return self._end_inference(event)
        elif name.startswith(_LOADS):
            return self._loaded(event)
        else:
            self._leave_out(name if kind == "Session" else str(kind))
        return ()

    def finish(self) -> Iterator[Event]:
        """Yield the parts that the end of the file cut off, and the session."""
        for running in (*self._running.values(), self._without):
            operators = _placed(running, _FIRST_NS, _FOREVER_NS)
            self._without_count += len(operators)
            yield from self._loose(operators)
        operators = _placed(self._shared, _FIRST_NS, _FOREVER_NS)
        self._shared_count = len(operators)
        yield from self._loose(operators)
        if not self._named:
            return
        thread = min(self._named) if self._session_thread is None else self._session_thread
        yield Span(
            name=self._name,
            category=Category.SESSION,
            start_ns=0,
            duration_ns=self._end_ns,
            process=self._process,
            thread=thread,
            id=_SESSION_ID,
        )

    def _loose(self, operators: Sequence[_Ended]) -> Iterator[Event]:
        """Yield operators outside any inference, as children of the session."""
        self._end_ns = max(self._end_ns, *map(_END, operators), 0)
        yield from self._spans(operators, _SESSION_ID, has_index=False)

    def _leave_out(self, kind: str) -> None:
        self._left_out[kind] = self._left_out.get(kind, 0) + 1

    def _add_kernel(self, event: RawEvent, name: str) -> None:
        ended = _ended(event)
        ended.name = name
        ended.facts = self._facts.of(name, event.args)
        ended.pool = pool_facts(event.args)
        ended.memory = raw_memory(event.args)
        self._keep(ended)

    def _keep(self, ended: _Ended) -> None:
        """Keep an event that has ended until its inference ends too."""
        thread = ended.thread
        last = self._last.get(thread)
        start_us = ended.start_us
        if last is not None and last.start_us >= start_us:
            last = _hold(ended, last)
        _follow(ended, last)
        self._last[thread] = ended
        ended.waiting = waiting = self._group(ended)[thread]
        waiting.append(ended)

    def _group(self, ended: _Ended) -> dict[int, list[_Ended]]:
        """Return the waiting lists by thread of its inference, or others if that is unknown."""
        own = self._coming.get(ended.thread)
        if own and own[-1].start <= ended.start_us:
            return self._running[ended.thread]
        found = [
            caller
            for caller, coming in self._coming.items()
            if coming and coming[-1].holds(ended.start_us)
        ]
        if len(found) > 1:
            return self._shared
        return self._running[found[0]] if found else self._without

    def _loaded(self, event: RawEvent) -> Iterator[Event]:
        thread = event.tid
        if self._session_thread is None:
            self._session_thread = thread
        load = self._outermost(event, (), _FOREVER_NS)
        yield from self._introduce(event)
        yield Span(
            name=event.name,
            category=Category.LOAD,
            start_ns=load.start_ns,
            duration_ns=load.duration_ns,
            process=self._process,
            thread=thread,
            id=self._new_id(),
            parent=_SESSION_ID,
        )

    def _end_inference(self, event: RawEvent) -> Iterator[Event]:
        thread = event.tid
        coming = self._coming.get(thread, [])
        while coming and coming.pop().start != event.ts:
            pass
        next_ns = _NS_PER_US * coming[-1].start if coming else _FOREVER_NS
        running = self._running.get(thread, {})
        inference = self._outermost(event, running.get(thread, ()), next_ns)
        yield from self._introduce(event)
        operators = _placed(running, inference.start_ns, inference.end_ns)
        running.clear()
        inside_ns = sum(
            operator.duration_ns
            for operator in operators
            if operator.holder is None and operator.thread == thread
        )
        own_id = self._new_id()
        yield Span(
            name=_INFERENCE_NAME,
            category=Category.INFERENCE,
            start_ns=inference.start_ns,
            duration_ns=inference.duration_ns,
            process=self._process,
            thread=thread,
            id=own_id,
            parent=_SESSION_ID,
            self_ns=inference.duration_ns - inside_ns,
            arguments={"operators": len(operators)},
        )
        yield from self._spans(operators, own_id, has_index=True)

    def _outermost(self, event: RawEvent, own: Sequence[_Ended], next_ns: int) -> _Ended:
        """Place an inference or a load between its neighbours on its thread.

        `own` is what ran inside it on this thread.
        """
        ended = _ended(event)
        last = self._last.get(ended.thread)
        for item in reversed(own):
            if item is not last:
                break
            last = item.before
        _follow(ended, last)
        ended.before = None
        ended.end_ns = ended.free_from_ns = max(ended.start_ns, min(ended.end_ns, next_ns))
        self._last[ended.thread] = ended
        self._end_ns = max(self._end_ns, ended.end_ns)
        return ended

    def _introduce(self, event: RawEvent) -> Iterator[Event]:
        if not self._named:
            self._process = whole(event.pid) or 0
            yield ThreadName(name=self._name, process=self._process)
        yield from self._name_thread(event.tid)

    def _name_thread(self, thread: int) -> Iterator[Event]:
        if thread in self._named:
            return
        self._named.add(thread)
        if thread in self._callers:
            kind = "inferences"
        elif thread == self._session_thread:
            kind = "session"
        else:
            kind = "pool thread"
        yield ThreadName(name=f"{kind} {thread}", process=self._process, thread=thread)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _spans(
        self, operators: Sequence[_Ended], parent: int, *, has_index: bool
    ) -> Iterator[Event]:
        process = self._process
        # The sort is stable: an outer span stays before inner spans with the same start.
        for index, operator in enumerate(sorted(operators, key=_START)):
            operator.id = self._new_id()
            if operator.thread not in self._named:
                yield from self._name_thread(operator.thread)
            end_ns, inside_ns = operator.end_ns, operator.inside_ns
            duration_ns = end_ns - operator.start_ns
            yield Span(
                name=operator.name,
                category=Category.OPERATOR,
                start_ns=operator.start_ns,
                duration_ns=duration_ns,
                process=process,
                thread=operator.thread,
                id=operator.id,
                parent=parent if operator.holder is None else operator.holder.id,
                self_ns=duration_ns - inside_ns if inside_ns else None,
                operator_index=index if has_index else None,
                arguments=operator.facts or {},
                pool=operator.pool,
            )
        for operator in sorted(operators, key=_END):
            memory = operator.memory
            if memory is not None and memory != self._memory:
                self._memory = memory
                yield Counter(
                    name=_MEMORY,
                    at_ns=operator.end_ns,
                    values=memory_values(memory),
                    process=process,
                )


def _ended(event: RawEvent) -> _Ended:
    start_us = event.ts
    return _Ended(
        start_us,
        _NS_PER_US * start_us or _FIRST_NS,
        _NS_PER_US * (start_us + event.dur) + _CUT_OFF_NS,
        event.tid,
    )


def _hold(outer: _Ended, last: _Ended) -> _Ended | None:
    """Make the events inside it its children, and return the event before them.

    A kernel only contains graphs: two short kernels can begin in the same microsecond.
    """
    is_graph = outer.facts is None
    inside = []
    before: _Ended | None = last
    while before is not None and before.start_us >= outer.start_us:
        held = before
        if held.waiting is None or not (is_graph or held.facts is None):
            break
        # The last on its thread is also the last of its waiting list.
        held.waiting.pop()
        before, held.waiting, held.before = held.before, None, None
        inside.append(held)
    if inside:
        outer.inside = inside
    return before


def _follow(ended: _Ended, last: _Ended | None) -> None:
    """Move its start after the end of `last`."""
    if last is None:
        return
    ended.before = last
    if last.waiting is None:
        ended.start_ns = max(ended.start_ns, last.free_from_ns)
        return
    ended.start_ns = max(ended.start_ns, last.start_ns)
    # Half a microsecond was added to durations, and there may be no room for it.
    last.end_ns = min(last.end_ns, ended.start_ns)


def _placed(running: Mapping[int, list[_Ended]], low_ns: int, high_ns: int) -> list[_Ended]:
    """Move the kernels of each thread into this time, each after the kernel that it ran in."""
    operators = []
    for ended in running.values():
        pending: list[_Place] = [(item, None, low_ns, high_ns) for item in reversed(ended)]
        while pending:
            item, holder, low, high = pending.pop()
            item.waiting = item.before = None
            start_ns = min(max(item.start_ns, low), high)
            end_ns = max(start_ns, min(item.end_ns, high))
            item.free_from_ns = max(item.start_ns, end_ns)
            item.start_ns, item.end_ns = start_ns, end_ns
            if item.facts is not None:
                if holder is not None:
                    item.holder = holder
                    holder.inside_ns += end_ns - start_ns
                operators.append(item)
                holder = item
            if item.inside is not None:
                pending.extend((inner, holder, start_ns, end_ns) for inner in item.inside)
                item.inside = None
    return operators
