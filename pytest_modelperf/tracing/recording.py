"""A recording that has ended: completed with operators and layers, and read repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of
from pytest_modelperf.tracing.chrome_trace import TextSink, TraceWriter
from pytest_modelperf.tracing.files.ort_profile import OrtProfile
from pytest_modelperf.tracing.operators import Calls, OperatorPlacer
from pytest_modelperf.tracing.recorder import ROW_OF_ITS_OWN, Recorder
from pytest_modelperf.tracing.records import LABEL, Argument, Category, Event, Span, ThreadName
from pytest_modelperf.tracing.spool import (
    HIDDEN,
    INFERENCE,
    KIND,
    SESSION,
    THREAD,
    Spool,
    read_event,
    write_counter,
    write_span,
)

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.session_facts import WatchedSession
    from pytest_modelperf.tracing.operators import LayerFacts

# A profile has at most this many events, and each inference makes several.
MAX_CALLS = 1_000_000
# Sets of operator arguments that are cached, so that equal ones are written once.
_MAX_SHARED = 20_000
# The most models whose layers are cached.
_MAX_MODELS = 8
_NS_PER_US = 1000
_FACTS = "MACs and layers"
# The model's facts of an unknown operator: always the same object, so that it is cached.
_NOTHING: Mapping[str, Argument] = {}


class Note(Struct, frozen=True):
    """A remark on a recording. `is_loss` says that something is missing from the recording."""

    text: str
    is_loss: bool = False


def add_operators(recorder: Recorder) -> list[Note]:
    """Add the operators from the sessions' profiles, and return remarks on them."""
    wanted = {number for number, session in enumerate(recorder.sessions) if session.profiles}
    calls = _calls(recorder, wanted)
    notes: list[Note] = []
    # Sessions of the same model share the facts of its layers.
    facts_of = lru_cache(_MAX_MODELS)(_layer_facts)
    for number, session in enumerate(recorder.sessions):
        name = recorder.session_name(session)
        if number in wanted:
            found = _SessionOperators(recorder, session, calls.get(number, {}), facts_of)
            notes.extend(replace(note, text=f"{name}: {note.text}") for note in found.add())
        elif session.why is not None:
            notes.append(Note(f"{name}: no operators are shown, for {session.why}."))
        elif session.folder is not None:
            text = "no operators are shown: the runtime wrote no profile of it."
            notes.append(Note(f"{name}: {text}", is_loss=True))
    return notes


def _calls(recorder: Recorder, wanted: set[int]) -> dict[int, dict[int, Calls]]:
    """Return the calls of each session by thread, with hidden ones, as in the profile."""
    found: dict[int, dict[int, Calls]] = {number: {} for number in wanted}
    if not wanted:
        return found
    for record in recorder.spool.read():
        if record[KIND] not in (INFERENCE, HIDDEN) or record[SESSION] not in wanted:
            continue
        calls = found[record[SESSION]].setdefault(record[THREAD], Calls())
        if len(calls.ids) < MAX_CALLS:
            calls.add(record)
    return found


def _layer_facts(model: Path | None, plan: bytes | None) -> LayerFacts | None:
    if model is None or model.suffix == ".ort":
        return None
    # Imported here: without a known model, onnx is not needed.
    from pytest_modelperf.tracing.operators import LayerFacts

    return LayerFacts(model, plan)


class _SessionOperators:
    def __init__(
        self,
        recorder: Recorder,
        session: WatchedSession,
        calls: Mapping[int, Calls],
        facts_of: Callable[[Path | None, bytes | None], LayerFacts | None],
    ) -> None:
        self._recorder = recorder
        self._session = session
        self._name = recorder.session_name(session)
        self._placer = OperatorPlacer(calls, session.begun_ns - recorder.begun_ns, recorder.new_id)
        self._expected = sum(
            not failed and not hidden
            for each in calls.values()
            for failed, hidden in zip(each.failed, each.hidden, strict=True)
        )
        self._layers = facts_of(session.model, session.plan)
        # Inferences whose input shapes are unknown.
        self._unknown = 0
        # By the ids of objects that the reader shares. Both are kept, so that no other object gets
        # their ids.
        self._shared: dict[tuple[int, int], tuple[object, object, Mapping[str, Argument]]] = {}

    def add(self) -> Iterator[Note]:
        try:
            for path in self._session.profiles:
                profile = OrtProfile(path, is_early=self._session.is_limited)
                self._write(profile)
                yield from (Note(note, is_loss=True) for note in profile.notes)
        except Exception as error:  # noqa: BLE001  # the recording is kept, whatever the error
            yield Note(f"its profile cannot be read: {error}", is_loss=True)
        placer = self._placer
        if placer.placed < self._expected:
            why = self._session.why or "its profile lacks the others"
            yield Note(
                f"the operators of {placer.placed:,} of its {self._expected:,} inferences are "
                f"shown: {why}.",
                is_loss=self._session.why is None,
            )
        if placer.strays:
            count = count_of(placer.strays, "inference")
            yield Note(
                f"its profile has {count} that ran after the recording, or by a method that is not "
                "recorded: the trace leaves that out."
            )
        if not placer.is_sure:
            yield Note(
                f"operators exceeded their inference by up to "
                f"{placer.overhang_ns // _NS_PER_US:,} us, and were moved into it."
            )
        if self._layers is not None and self._layers.note is not None:
            yield Note(self._layers.note)
        if self._layers is None and placer.placed:
            yield Note(f"its operators lack {_FACTS}: {self._why_no_layers}.", is_loss=True)
        elif self._unknown:
            yield Note(
                f"the operators of {self._unknown:,} of its {placer.placed:,} inferences lack "
                f"{_FACTS}: the shapes of their inputs are not known.",
                is_loss=True,
            )

    @property
    def _why_no_layers(self) -> str:
        model = self._session.model
        if model is not None:
            return f"the layers of {printable(model.name)} cannot be read"
        return "its model is in memory, and too large to be kept as a file"

    def _write(self, profile: OrtProfile) -> None:
        recorder = self._recorder
        name = f"memory of {self._name}"
        for placed in self._placer.place(profile):
            facts = self._facts(placed.operators, placed.shapes)
            for span, more in zip(placed.operators, facts, strict=True):
                recorder.names.setdefault(span.thread, f"pool thread {span.thread}")
                merged = self._merged(span.arguments, more)
                recorder.spool.add(write_span(replace(span, arguments=merged)))
            for counter in placed.counters:
                recorder.spool.add(write_counter(replace(counter, name=name), recorder.new_id()))

    def _facts(self, operators: Sequence[Span], shapes: int) -> list[Mapping[str, Argument]]:
        if self._layers is None:
            return [_NOTHING for _ in operators]
        self._unknown += shapes < 0
        from pytest_modelperf.tracing.operators import OperatorKey

        keys = [
            OperatorKey(span.name, str(span.arguments.get("op_type", ""))) for span in operators
        ]
        return self._layers.of(keys, self._recorder.shapes[shapes] if shapes >= 0 else None)

    def _merged(
        self, arguments: Mapping[str, Argument], more: Mapping[str, Argument]
    ) -> Mapping[str, Argument]:
        """Join both with the session. The same two always give the same object."""
        key = id(arguments), id(more)
        known = self._shared.get(key)
        if known is None:
            if len(self._shared) >= _MAX_SHARED:
                self._shared.clear()
            joined = arguments
            if more:
                # Imported here: without a known model, onnx is not needed.
                from pytest_modelperf.tracing.operators import join_facts

                joined = join_facts(arguments, more)
            known = self._shared[key] = (arguments, more, {**joined, "session": self._name})
        return known[2]


# -- a recording that has ended


_PROCESS_NAME = "python"
_ABOUT_TIMES = (
    "Inferences were timed around the call. Operators are from ONNX Runtime's own profile, "
    "in whole microseconds, moved onto the same clock; profiling makes them slower."
)


class Recording:
    """All events of a recorder, and the operators from the profiles of its sessions."""

    def __init__(self, recorder: Recorder) -> None:
        recorder.end()
        self._recorder = recorder
        self.found: tuple[Note, ...] = (*add_operators(recorder), *_lost_spans(recorder.spool))

    def events(self) -> Iterator[Event]:
        """Yield the events sorted by start, the outer one first if two start together."""
        recorder = self._recorder
        yield ThreadName(name=_PROCESS_NAME, process=recorder.process)
        for thread, name in recorder.names.items():
            yield ThreadName(name=name, process=recorder.process, thread=thread)
        for record in recorder.spool.read():
            event = read_event(record, recorder.process)
            if event is not None:
                yield event

    def write_chrome(self, stream: TextSink) -> None:
        writer = TraceWriter(stream)
        apart: dict[int | None, str] = {}
        for event in self.events():
            writer.write(_with_label(event, apart))
        about: dict[str, object] = {"schema": 1, "times": _ABOUT_TIMES}
        if self.found:
            about["notes"] = [printable(note.text) for note in self.found]
        writer.finish(about)


def _with_label(event: Event, apart: dict[int | None, str]) -> Event:
    """Add the name of its label to an event if the label has a row of its own.

    `apart` gets the names of such labels. A label comes before the spans inside it.
    """
    if not isinstance(event, Span):
        return event
    if event.category is Category.LABEL:
        if event.thread >= ROW_OF_ITS_OWN:
            apart[event.id] = event.name
        return event
    label = apart.get(event.parent)
    return event if label is None else replace(event, arguments={**event.arguments, LABEL: label})


def _lost_spans(spool: Spool) -> Iterator[Note]:
    spool.flush()
    if spool.problem is not None:
        reason = spool.problem.strerror or str(spool.problem)
        yield Note(
            f"{spool.lost:,} spans and counters are missing: the folder of temporary files took "
            f"no more ({reason}). Make room, or set TMPDIR to another folder.",
            is_loss=True,
        )
