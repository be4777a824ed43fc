"""A profile of ONNX Runtime as a trace: session, inferences, operators, operators in their bodies.

The runtime tells when each event began and how long it took, not what it was inside of, and the
time of a Loop, an If or a Scan holds that of its body. Both follow from the order in which the
events of a thread ended. An inference is kept until it has ended, and no more than that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pytest_modelperf.profile_files.ort_kernel_facts import (
    KernelFacts,
    MemoryTold,
    memory_told,
    memory_values,
)
from pytest_modelperf.profile_files.ort_profile_file import (
    INFERENCE,
    MAX_EVENTS,
    MAX_WHOLE,
    Interval,
    ProfileFile,
    RawEvent,
    whole,
)
from pytest_modelperf.traces import Argument, Category, Counter, Event, Span, ThreadName
from pytest_modelperf.units import printable

_KERNEL = "_kernel_time"
# Versions before 1.21 also tell of the waits before and behind a kernel.
_FENCES = ("_fence_before", "_fence_after")
# A whole graph: that of the model, or of a body.
_GRAPH = "::Execute"
_LOADS = ("model_loading", "session_initialization")
_NUMBERS = ("ts", "dur", "tid")
_INFERENCE_NAME = "inference"
_MEMORY = "memory"

_NS_PER_US = 1000
# Durations are whole microseconds, cut off: on average they lack half of one.
_CUT_OFF_NS = 500

# Later than anything that a profile can hold.
_FOREVER_NS = 1 << 62
_SESSION_ID = 1
# The session begins before everything in it: viewers take the first of two spans that begin
# together for the outer one, and its end is known last.
_FIRST_NS = 1


def read_ort_profile(path: str | Path) -> Iterator[Event]:
    """The events of the profile file that `InferenceSession.end_profiling()` names."""
    return iter(OrtProfile(path))


class OrtProfile:
    """A profile file as the events of a trace; `notes` say what it lacks once all were read.

    An inference comes when it has ended, and then what ran inside of it, each span before those
    inside, and its memory; the session comes last. Where several threads work on an inference,
    operators overlap. One that `is_early` was ended while inferences ran: that it lacks the ends of
    these is nothing to be told.
    """

    def __init__(self, path: str | Path, *, is_early: bool = False) -> None:
        self._is_early = is_early
        self.path = Path(path)
        self.notes: tuple[str, ...] = ()
        # A file that is no profile is told at once.
        self._file = ProfileFile(self.path)

    def __iter__(self) -> Iterator[Event]:
        file = self._file
        file.rewind()
        reading = _Reading(self.path.name, file.find_inferences(), is_early=self._is_early)
        for event in file.events():
            if _is_complete(event):
                yield from reading.add(event)
            else:
                file.note_broken()
        yield from reading.finish()
        self.notes = (*_notes_of_file(file), *reading.notes())


def _notes_of_file(file: ProfileFile) -> Iterator[str]:
    if file.event_count >= MAX_EVENTS:
        yield (
            f"ONNX Runtime writes no more than {MAX_EVENTS:,} events into a profile: what ran "
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


def _is_complete(event: RawEvent) -> bool:
    """Whether it has a name, a time and a thread, which are made whole numbers."""
    if type(event.get("name")) is not str:
        return False
    for key in _NUMBERS:
        value = event.get(key)
        if type(value) is not int or not 0 <= value < MAX_WHOLE:
            number = whole(value)
            if number is None:
                return False
            event[key] = number
    return True


@dataclass(slots=True)
class _Ended:
    """What has ended on a thread: a kernel, or a graph, which has no facts.

    `start_us` is as it was told, and the rest of what is known of it when its inference has ended.
    """

    start_us: int
    end_ns: int
    thread: int
    name: str = ""
    facts: Mapping[str, Argument] | None = None
    memory: MemoryTold | None = None
    start_ns: int = 0
    inside_ns: int = 0
    holder: _Ended | None = None
    id: int = 0

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(slots=True)
class _Frame:
    """A kernel or a graph while what ran inside is placed, from its end to its start."""

    start_us: int
    low_ns: int
    # What is placed next ended before this.
    high_ns: int
    operator: _Ended | None
    is_graph: bool


class _Reading:
    """What has been read so far, and what of it belongs to inferences that have not ended yet."""

    def __init__(
        self, name: str, inferences: Iterable[Interval], *, is_early: bool = False
    ) -> None:
        self._name = name
        self._is_early = is_early
        self._next_id = _SESSION_ID
        self._process = 0
        self._end_ns = 0
        self._session_thread: int | None = None
        self._named: set[int] = set()
        # Of each thread that starts inferences: those that have not ended, the last one first.
        self._coming: dict[int, list[Interval]] = {}
        for interval in inferences:
            self._coming.setdefault(interval.thread, []).append(interval)
        for coming in self._coming.values():
            coming.reverse()
        self._callers = frozenset(self._coming)
        # By the thread of the inference that runs, and the thread that they ran on.
        self._running: dict[int, dict[int, list[_Ended]]] = {
            caller: defaultdict(list) for caller in self._callers
        }
        # What belongs to no inference that is known.
        self._loose: dict[int, list[_Ended]] = defaultdict(list)
        self._last: dict[int, _Ended] = {}
        self._free_from_ns: dict[int, int] = {}
        self._facts = KernelFacts()
        self._memory: MemoryTold | None = None
        self._shared = self._without = 0
        self._left_out: dict[str, int] = {}

    def notes(self) -> Iterator[str]:
        if self._shared:
            yield (
                f"{self._shared:,} operators ran on threads of a pool while several inferences "
                "did: the profile does not tell which of these they belong to."
            )
        if self._without and not self._is_early:
            yield (
                f"{self._without:,} operators belong to no inference whose end is in the profile."
            )
        for kind, count in self._left_out.items():
            yield f"{count:,} events of the kind {printable(kind)!r} are left out."

    def add(self, event: RawEvent) -> Iterable[Event]:
        """What is complete with this event."""
        name: str = event["name"]
        kind = event.get("cat")
        if kind == "Node":
            if name.endswith(_KERNEL):
                self._add_kernel(event, name[: -len(_KERNEL)])
            elif not name.endswith(_FENCES):
                self._leave_out("Node")
        elif name.endswith(_GRAPH):
            self._keep(_Ended(event["ts"], _end_ns(event), event["tid"]))
        elif name == INFERENCE:
            return self._end_inference(event)
        elif name.startswith(_LOADS):
            return self._loaded(event)
        else:
            self._leave_out(name if kind == "Session" else str(kind))
        return ()

    def finish(self) -> Iterator[Event]:
        """What was not complete at the end of the file, and the session."""
        for running in self._running.values():
            for thread, ended in running.items():
                self._loose[thread].extend(ended)
        for thread, ended in self._loose.items():
            operators = _placed(ended, self._free_from_ns.get(thread, _FIRST_NS), _FOREVER_NS)
            self._without += len(operators)
            self._end_ns = max(self._end_ns, *map(_end, operators), 0)
            yield from self._spans(operators, _SESSION_ID, has_index=False)
        self._without -= self._shared
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

    def _leave_out(self, kind: str) -> None:
        self._left_out[kind] = self._left_out.get(kind, 0) + 1

    def _add_kernel(self, event: RawEvent, name: str) -> None:
        arguments = event.get("args")
        said = arguments if isinstance(arguments, dict) else {}
        facts = self._facts.of(name, said)
        self._keep(
            _Ended(event["ts"], _end_ns(event), event["tid"], name, facts, memory_told(said))
        )

    def _keep(self, ended: _Ended) -> None:
        """Keep it with the inference that it belongs to, until that has ended."""
        thread = ended.thread
        last = self._last.get(thread)
        # The half of a microsecond that durations are made longer may not be there.
        if last is not None and last.start_us < ended.start_us:
            last.end_ns = min(last.end_ns, _NS_PER_US * ended.start_us)
        self._last[thread] = ended
        caller = self._caller(ended)
        group = self._loose if caller is None else self._running[caller]
        group[thread].append(ended)

    def _caller(self, ended: _Ended) -> int | None:
        """The thread whose inference it ran in."""
        own = self._coming.get(ended.thread)
        if own and own[-1].start <= ended.start_us:
            return ended.thread
        found = [
            caller
            for caller, coming in self._coming.items()
            if coming and coming[-1].holds(ended.start_us)
        ]
        if len(found) > 1:
            self._shared += ended.facts is not None
        return found[0] if len(found) == 1 else None

    def _loaded(self, event: RawEvent) -> Iterator[Event]:
        thread = event["tid"]
        if self._session_thread is None:
            self._session_thread = thread
        start_ns, end_ns = self._stretch(event, thread, _FOREVER_NS)
        yield from self._introduce(event, thread)
        yield Span(
            name=event["name"],
            category=Category.LOAD,
            start_ns=start_ns,
            duration_ns=end_ns - start_ns,
            process=self._process,
            thread=thread,
            id=self._new_id(),
            parent=_SESSION_ID,
        )

    def _end_inference(self, event: RawEvent) -> Iterator[Event]:
        thread = event["tid"]
        coming = self._coming.get(thread, [])
        while coming and coming.pop().start != event["ts"]:
            pass
        next_ns = _NS_PER_US * coming[-1].start if coming else _FOREVER_NS
        start_ns, end_ns = self._stretch(event, thread, next_ns)
        yield from self._introduce(event, thread)
        running = self._running.get(thread, {})
        operators = list(
            chain.from_iterable(_placed(ended, start_ns, end_ns) for ended in running.values())
        )
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
            start_ns=start_ns,
            duration_ns=end_ns - start_ns,
            process=self._process,
            thread=thread,
            id=own_id,
            parent=_SESSION_ID,
            self_ns=end_ns - start_ns - inside_ns,
            arguments={"operators": len(operators)},
        )
        yield from self._spans(operators, own_id, has_index=True)

    def _stretch(self, event: RawEvent, thread: int, next_ns: int) -> tuple[int, int]:
        """When it began and ended, between what ran on the thread before and what does next."""
        start_ns = max(_NS_PER_US * event["ts"], self._free_from_ns.get(thread, _FIRST_NS))
        end_ns = max(start_ns, min(_end_ns(event), next_ns))
        self._free_from_ns[thread] = end_ns
        self._end_ns = max(self._end_ns, end_ns)
        return start_ns, end_ns

    def _introduce(self, event: RawEvent, thread: int) -> Iterator[Event]:
        if not self._named:
            self._process = whole(event.get("pid")) or 0
            yield ThreadName(name=self._name, process=self._process)
        yield from self._name_thread(thread)

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
        # By their start. Of those that start and end together the outer one ended last.
        from_the_last = reversed(operators)
        for index, operator in enumerate(sorted(from_the_last, key=_order)):
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
            )
        for operator in sorted(operators, key=_end):
            told = operator.memory
            if told is not None and told != self._memory:
                self._memory = told
                yield Counter(
                    name=_MEMORY,
                    at_ns=operator.end_ns,
                    values=memory_values(told),
                    process=process,
                )


def _end_ns(event: RawEvent) -> int:
    end_us: int = event["ts"] + event["dur"]
    return _NS_PER_US * end_us + _CUT_OFF_NS


def _order(operator: _Ended) -> tuple[int, int]:
    return operator.start_ns, -operator.end_ns


def _end(operator: _Ended) -> int:
    return operator.end_ns


def _placed(ended: Sequence[_Ended], low_ns: int, high_ns: int) -> list[_Ended]:
    """The kernels of what ended on a thread, in that order, each inside of what it ran in.

    From the last to the first: then what ran inside of something comes after it. A kernel holds
    nothing but graphs, for two short ones can begin in the same microsecond.
    """
    operators = []
    frames = [_Frame(-1, low_ns, high_ns, None, is_graph=True)]
    for index in range(len(ended) - 1, -1, -1):
        item = ended[index]
        start_us = item.start_us
        is_kernel = item.facts is not None
        frame = frames[-1]
        while start_us < frame.start_us or (is_kernel and not frame.is_graph):
            frames.pop()
            frame = frames[-1]
        item.start_ns = start_ns = min(max(_NS_PER_US * start_us, frame.low_ns), frame.high_ns)
        item.end_ns = end_ns = max(start_ns, min(item.end_ns, frame.high_ns))
        item.holder = holder = frame.operator
        frame.high_ns = start_ns
        if not is_kernel:
            frames.append(_Frame(start_us, start_ns, end_ns, holder, is_graph=True))
            continue
        if holder is not None:
            holder.inside_ns += end_ns - start_ns
        operators.append(item)
        if index and ended[index - 1].facts is None:
            frames.append(_Frame(start_us, start_ns, end_ns, item, is_graph=False))
    operators.reverse()
    return operators
