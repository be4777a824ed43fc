"""Writes a stream of events as a Chrome trace for Perfetto and chrome://tracing.

The format:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Protocol

from pytest_modelperf.text.escaping import printable
from pytest_modelperf.tracing.records import TRACE_HEAD, Argument, Counter, Event, Span

_NS_PER_US = 1000.0
_NS_PER_MS = 1e6
# The most sets of arguments whose text is cached.
_MAX_KNOWN = 10_000
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class TextSink(Protocol):
    """An object that takes text."""

    def write(self, text: str, /) -> object: ...


class TraceWriter:
    """A writer of one event at a time, so that a trace may be larger than memory.

    Viewers sort events by their start. If two start together, they take the first as the outer one:
    write a span before the spans inside it.
    """

    def __init__(self, stream: TextSink) -> None:
        self._stream = stream
        self._before = "\n"
        self._known: dict[int, tuple[Mapping[str, Argument], str]] = {}
        self._processes = 0
        self._threads = 0
        # One event per line, so that a search for an event finds its line.
        stream.write(TRACE_HEAD)

    def write(self, event: Event) -> None:
        """Add an event. Rows are shown in the order in which they are named."""
        if isinstance(event, Span):
            self._add_text(self._span(event))
        elif isinstance(event, Counter):
            self._add(_counter(event))
        elif event.thread is None:
            self._processes += 1
            self._describe("process_name", event.process, name=printable(event.name))
            self._describe("process_sort_index", event.process, sort_index=self._processes)
        else:
            self._threads += 1
            row = event.process, event.thread
            self._describe("thread_name", *row, name=printable(event.name))
            self._describe("thread_sort_index", *row, sort_index=self._threads)

    def label_process(self, process: int, label: str) -> None:
        """Add a label next to the name of a process."""
        self._describe("process_labels", process, labels=printable(label))

    def finish(self, about: Mapping[str, object]) -> None:
        """End the trace with notes for the reader: printable texts and JSON values."""
        notes = json.dumps(about, indent=1, allow_nan=False)
        self._stream.write(f'\n],\n"otherData":{notes}}}\n')

    def _describe(
        self, what: str, process: int, thread: int | None = None, **arguments: str | int
    ) -> None:
        of_thread = {} if thread is None else {"tid": thread}
        self._add({"name": what, "ph": "M", "pid": process, **of_thread, "args": arguments})

    def _span(self, span: Span) -> str:
        """Return the span as JSON, formatted by hand: a trace may have a million spans."""
        arguments = self._arguments(span.arguments)
        if span.pool:
            arguments += _encoded(span.pool)
        if span.operator_index is not None:
            arguments += f',"operator_index":{span.operator_index}'
        if span.self_ns is not None and span.self_ns != span.duration_ns:
            arguments += f',"self_ms":{span.self_ns / _NS_PER_MS}'
        name = _ENCODER.encode(printable(span.name))
        return (
            f'{{"name":{name},"cat":"{span.category.value}","ph":"X","pid":{span.process},'
            f'"tid":{span.thread},"ts":{_us(span.start_ns)},"dur":{_us(span.duration_ns)}'
            + (f',"args":{{{arguments.removeprefix(",")}}}}}' if arguments else "}")
        )

    def _arguments(self, arguments: Mapping[str, Argument]) -> str:
        """Return the arguments as text, cached because many spans share them."""
        known = self._known.get(id(arguments))
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            # The object is kept too, so that no other object gets its id.
            known = self._known[id(arguments)] = arguments, _encoded(arguments)
        return known[1]

    def _add(self, event: Mapping[str, object]) -> None:
        self._add_text(_ENCODER.encode(event))

    def _add_text(self, text: str) -> None:
        self._stream.write(self._before + text)
        self._before = ",\n"


def _encoded(arguments: Mapping[str, Argument]) -> str:
    values = {key: _safe(value) for key, value in arguments.items() if value is not None}
    return f",{_ENCODER.encode(values)[1:-1]}" if values else ""


def _counter(counter: Counter) -> dict[str, object]:
    return {
        "name": printable(counter.name),
        "ph": "C",
        "pid": counter.process,
        "ts": _us(counter.at_ns),
        "args": {printable(key): value for key, value in counter.values.items()},
    }


def _safe(value: Argument) -> Argument:
    if isinstance(value, str):
        return printable(value)
    # Numbers first: to check whether a value is a sequence takes long.
    if value is None or isinstance(value, int | float):
        return value
    return [printable(text) for text in value]


def _us(ns: int) -> float:
    """Return the time in microseconds, exact to the nanosecond.

    Older versions of Perfetto truncate: they read 1.001 us as 1000 ns. Then a round would end
    before its last inference, which would not be drawn. The next larger float is the same
    nanosecond in every version.
    """
    us = ns / _NS_PER_US
    return us if int(us * _NS_PER_US) == ns else math.nextafter(us, math.inf)
