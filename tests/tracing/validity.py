"""The rules of the trace event format, checked on the text of a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Shown:
    """A span as a viewer shows it: `depth` is how many spans of its thread are around it."""

    name: str
    category: str
    thread: int
    start_ns: int
    end_ns: int
    depth: int
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace that was found to be valid."""

    spans: tuple[Shown, ...]
    counters: tuple[Mapping[str, Any], ...]
    thread_names: Mapping[int, str]
    about: Mapping[str, Any]

    def of(self, category: str) -> list[Shown]:
        return [span for span in self.spans if span.category == category]

    def named(self, name: str) -> Shown:
        (span,) = [span for span in self.spans if span.name == name]
        return span


def read_valid_trace(text: str) -> Trace:
    """Return the spans of a trace; fail if the format, the clock or the nesting is violated."""
    assert text.isascii()
    document = json.loads(text, parse_constant=pytest.fail)
    assert list(document) == ["displayTimeUnit", "traceEvents", "otherData"]
    assert document["displayTimeUnit"] == "ms"
    spans: list[Shown] = []
    counters = []
    thread_names: dict[int, str] = {}
    around: dict[int, list[Shown]] = {}
    last_us = 0.0
    for event in document["traceEvents"]:
        assert type(event["pid"]) is int
        assert event["pid"] > 0
        assert event["name"]
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                assert event["tid"] not in thread_names
                thread_names[event["tid"]] = event["args"]["name"]
            continue
        assert type(event["ts"]) is float
        assert event["ts"] >= last_us, "the clock goes back"
        last_us = event["ts"]
        if event["ph"] == "C":
            assert event.keys() == {"name", "ph", "pid", "ts", "args"}
            assert all(type(value) in (int, float) for value in event["args"].values())
            counters.append(event)
            continue
        assert event["ph"] == "X"
        assert event.keys() - {"args"} == {"name", "cat", "ph", "pid", "tid", "ts", "dur"}
        assert type(event["tid"]) is int
        # Perfetto has 32 bits for it.
        assert 0 < event["tid"] < 1 << 32
        assert type(event["dur"]) is float
        assert event["dur"] >= 0
        spans.append(_shown(event, around.setdefault(event["tid"], [])))
    assert {span.thread for span in spans} <= thread_names.keys()
    return Trace(tuple(spans), tuple(counters), thread_names, document["otherData"])


def _shown(event: Mapping[str, Any], around: list[Shown]) -> Shown:
    start_ns = int(event["ts"] * 1000.0)
    end_ns = start_ns + int(event["dur"] * 1000.0)
    while around and start_ns >= around[-1].end_ns and end_ns > around[-1].end_ns:
        around.pop()
    arguments = event.get("args", {})
    shown = Shown(
        event["name"], event["cat"], event["tid"], start_ns, end_ns, len(around), arguments
    )
    assert all(end_ns <= outer.end_ns for outer in around), f"{shown} crosses {around}"
    around.append(shown)
    return shown
