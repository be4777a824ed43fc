"""The data of the page of a trace: its spans in rows of threads, and their common contents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pytest_modelperf.profiler.shown.drawn import CASE_DRAWINGS
from pytest_modelperf.profiler.shown.page_data import model_entry, whole_page
from pytest_modelperf.profiler.shown.page_layers import kind_of
from pytest_modelperf.report.model import Drawing, Drawings, Drawn
from pytest_modelperf.tracing.records import Argument, Category, Event, Span, ThreadName

# More spans would take a browser seconds to read.
MOST_SPANS = 100_000

# Facts that differ in each run of an operator.
_OF_ONE_RUN = frozenset(
    {
        "pool",
        "core",
        "distribute_us",
        "enqueue_us",
        "run_us",
        "wait_us",
        "revoke_us",
        "other_threads",
    }
)
_FOLDER = Path(__file__).with_name("html")
_DRAWINGS = Drawings(
    parts=(Drawing("trace", "Timeline", leads=True),),
    # The colours of the kinds of operators are those of all pages.
    styles=(
        *(path for path in CASE_DRAWINGS.styles if path.stem == "layers"),
        _FOLDER / "trace.css",
    ),
    scripts=(_FOLDER / "trace.js",),
    needs_plotly=False,
)


class TracePage:
    """A collector of the first spans of a trace, which may be larger than memory."""

    def __init__(self, name: str, most: int = MOST_SPANS) -> None:
        self.name = name
        self.left_out = 0
        self.end_ns = 1
        self._most = most
        self._count = 0
        self._rows: dict[tuple[int, int], list[tuple[Span, int]]] = defaultdict(list)
        self._names: dict[tuple[int, int | None], str] = {}
        self._contents = _Contents()

    def add(self, event: Event) -> None:
        if isinstance(event, ThreadName):
            self._names[event.process, event.thread] = event.name
        elif isinstance(event, Span):
            if self._count == self._most:
                self.left_out += 1
                return
            self._count += 1
            self.end_ns = max(self.end_ns, event.end_ns)
            content = self._contents.index(event)
            self._rows[event.process, event.thread].append((event, content))

    def drawn(self) -> Drawn:
        return Drawn(_DRAWINGS, partial(trace_data, self))

    def rows(self) -> list[Mapping[str, Any]]:
        """Return the rows: processes in order, and their threads as far as possible as named."""
        places = {thread: place for place, thread in enumerate(self._names)}
        last = len(places)
        return [
            {"title": self._title(process, thread), **_columns(self._rows[process, thread])}
            for process, thread in sorted(
                self._rows, key=lambda row: (row[0], places.get(row, last), row[1])
            )
        ]

    def _title(self, process: int, thread: int) -> str:
        name = self._names.get((process, thread), f"thread {thread}")
        return " · ".join(filter(None, (self._names.get((process, None)), name)))

    def contents(self) -> list[Mapping[str, Any]]:
        """Return the common contents of spans: a label, the kind of operator, and facts."""
        return self._contents.entries


def trace_data(page: TracePage) -> Mapping[str, Any]:
    """Return the data of the page. It has no cases to choose from."""
    model = model_entry("", sides=[], points=[])
    trace = {"rows": page.rows(), "contents": page.contents(), "end": page.end_ns}
    return {**whole_page([model]), "trace": trace}


class _Contents:
    """The different contents of spans, each once: a trace has many spans of few operators."""

    def __init__(self) -> None:
        self.entries: list[Mapping[str, Any]] = []
        self._known: dict[tuple[object, ...], int] = {}

    def index(self, span: Span) -> int:
        facts = {
            key: _text(value)
            for key, value in span.arguments.items()
            if value is not None and key not in _OF_ONE_RUN
        }
        key = (span.name, span.category, *facts.items())
        if key not in self._known:
            self._known[key] = len(self.entries)
            named = {"name": span.name, "category": span.category.value}
            label = facts.get("op_type", span.name)
            kind = kind_of(label, is_layer=span.category is Category.OPERATOR)["id"]
            self.entries.append({"label": label, "kind": kind, "facts": {**named, **facts}})
        return self._known[key]


def _text(value: Argument) -> str:
    if isinstance(value, bool | int | float | str):
        return str(value)
    return ", ".join(value or ())


def _columns(spans: Sequence[tuple[Span, int]]) -> Mapping[str, list[int]]:
    """Return the spans of a row by start: the position and depth of each, and its own time.

    Its own time is without the spans inside it.
    """
    ordered = sorted(spans, key=lambda each: (each[0].start_ns, -each[0].duration_ns))
    depths: list[int] = []
    own: list[int] = []
    around: list[int] = []
    for place, (span, _) in enumerate(ordered):
        while around and ordered[around[-1]][0].end_ns <= span.start_ns:
            around.pop()
        if around:
            own[around[-1]] -= span.duration_ns
        depths.append(len(around))
        own.append(span.duration_ns)
        around.append(place)
    return {
        "start": [span.start_ns for span, _ in ordered],
        "duration": [span.duration_ns for span, _ in ordered],
        "content": [content for _, content in ordered],
        "depth": depths,
        "own": [max(0, ns) for ns in own],
    }
