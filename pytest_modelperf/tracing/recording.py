"""A recording that has ended: its events in order, which can be read repeatedly."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pytest_modelperf.text.escaping import printable
from pytest_modelperf.tracing.chrome_trace import TextSink, TraceWriter
from pytest_modelperf.tracing.finishing import Note, add_operators
from pytest_modelperf.tracing.recorder import ROW_OF_ITS_OWN, Recorder
from pytest_modelperf.tracing.records import LABEL, Category, Event, Span, ThreadName
from pytest_modelperf.tracing.spool import Spool
from pytest_modelperf.tracing.written import read_event

_PROCESS_NAME = "python"
_ABOUT_TIMES = (
    "Inferences were timed around the call. Operators are what ONNX Runtime's own profile tells, "
    "in whole microseconds, moved onto the same clock; profiling makes them slower."
)


class Recording:
    """All events of a recorder, and the operators from the profiles of its sessions."""

    def __init__(self, recorder: Recorder) -> None:
        recorder.end()
        self._recorder = recorder
        self.found: tuple[Note, ...] = (*add_operators(recorder), *_lost_spans(recorder.spool))

    def events(self) -> Iterator[Event]:
        """The events sorted by start; if two start together, the outer one comes first."""
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
    """The event, with the name of its label where that has a row of its own.

    `apart` gets the names of such labels, each of which comes before the spans inside it.
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
    """A note on what could not be written into the folder of the recording."""
    spool.flush()
    if spool.problem is not None:
        reason = spool.problem.strerror or str(spool.problem)
        yield Note(
            f"{spool.lost:,} spans and counters are missing: the folder of temporary files took "
            f"no more ({reason}). Make room, or set TMPDIR to another folder.",
            is_loss=True,
        )
