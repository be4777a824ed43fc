"""Sums up a trace: the times of its inferences and operators, grouped and sorted, and as JSON."""

from __future__ import annotations

import enum
import statistics
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from pytest_modelperf.profiler.measurements import NEEDED
from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.report.document import dump_document
from pytest_modelperf.stats.estimates import summarize
from pytest_modelperf.stats.records import Latency
from pytest_modelperf.text.words import count_of
from pytest_modelperf.tracing.records import (
    ERROR,
    FIRST_INFERENCE,
    SESSION,
    Argument,
    Category,
    Counter,
    Event,
    Span,
)


class Grouping(enum.Enum):
    """The key by which the times of operators are grouped."""

    OPERATOR = "operator"
    TYPE = "type"
    LAYER = "layer"


class Order(enum.Enum):
    """The key that sorts operators: times and calls from the largest, names from A to Z."""

    TOTAL = "total"
    MEAN = "mean"
    MAX = "max"
    CALLS = "calls"
    NAME = "name"


class OperatorTime(Struct, frozen=True, kw_only=True):
    """The self times of all operators of one name, type or layer, added up.

    A fact that differs among these operators is None. `layer` is the layer that shows their time,
    and `fused` are the layers that the same kernel runs; `fused` is empty if there are none, or if
    they differ.
    """

    name: str
    op_type: str | None
    provider: str | None
    precision: str | None
    calls: int
    total_ns: int
    min_ns: int
    max_ns: int
    layer: str | None = None
    fused: tuple[str, ...] = ()

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.calls


OPERATOR = JsonObject(
    OperatorTime,
    "name op_type provider precision calls total_ms=total_ns share= mean_ms=mean_ns min_ms=min_ns"
    " max_ms=max_ns layer fused",
    share=float,
)


class InferenceTimes(Struct, frozen=True, kw_only=True):
    """The times of all inferences of one name; the median is known for any number of them."""

    name: str
    latency: Latency
    median_ns: float


INFERENCES = JsonObject(
    InferenceTimes,
    "name latency",
    latency=JsonObject(
        Latency,
        "p50_ms p90_ms p95_ms p97_ms p99_ms p99.9_ms=p999_ms min_ms max_ms mean_ms samples"
        " needed=.",
        about="A latency without the keys that only a measurement in rounds has.",
        needed=NEEDED,
    ),
)


class TraceSummary(Struct, frozen=True, kw_only=True):
    """The totals of one process of a trace, or of one session in it.

    `between_ns` is the time of its inferences outside operators. It is None if operators ran on
    other threads than the inferences, or if no inference is known.
    """

    name: str
    inferences: tuple[InferenceTimes, ...]
    operators: tuple[OperatorTime, ...]
    inference_ns: int
    between_ns: int | None
    peak_bytes: int | None

    @property
    def operator_ns(self) -> int:
        return sum(operator.total_ns for operator in self.operators)


TRACE = JsonObject(
    TraceSummary,
    "name peak_bytes inferences_ms=inference_ns between_operators_ms=between_ns inferences"
    " operators",
    inferences=INFERENCES,
    operators=OPERATOR,
)


class TraceTotals(Struct, frozen=True, kw_only=True):
    """The totals of a file, with its operators in the order of the summary."""

    by: Grouping
    notes: tuple[str, ...]
    traces: tuple[TraceSummary, ...]


TRACE_TOTALS = JsonDocument(TraceTotals, "by notes traces", traces=TRACE)


# -- sums up a trace


_TIMED = (Category.OPERATOR, Category.OVERHEAD)
_SUMMED = (*_TIMED, Category.INFERENCE)
# The facts that operators of one name usually share.
_FACTS = ("op_type", "provider", "precision", "layer", "fused")
# The fewest inferences for which a row without the first one shows something new.
_FEWEST = 3
_KEYS: Mapping[Order, Callable[[OperatorTime], Any]] = {
    Order.TOTAL: lambda time: -time.total_ns,
    Order.MEAN: lambda time: -time.mean_ns,
    Order.MAX: lambda time: -time.max_ns,
    Order.CALLS: lambda time: -time.calls,
    Order.NAME: lambda time: time.name,
}


class TraceSummarizer:
    """A collector of the events of a trace that keeps only totals and the times of inferences.

    Inferences that raised an error are left out, with their operators: they ended early.
    """

    def __init__(self, grouping: Grouping) -> None:
        self._grouping = grouping
        self._names: dict[int, str] = {}
        self._peak_bytes: dict[int, int] = {}
        # By process and by session; the session is None if the trace does not name one.
        self._parts: dict[tuple[int, str | None], _Part] = {}
        # The number of inferences that raised an error, and the ids of these and of the spans
        # inside.
        self._failed_count = 0
        self._failed: set[int | None] = set()

    def add(self, event: Event) -> None:
        if isinstance(event, Span):
            if event.category in _SUMMED:
                key = event.process, _text(event.arguments.get(SESSION))
                part = self._parts.get(key)
                if part is None:
                    part = self._parts[key] = _Part()
                if self._has_failed(event):
                    self._failed.add(event.id)
                else:
                    part.add(event, self._grouping)
        elif isinstance(event, Counter):
            peak_bytes = int(event.values.get("peak_bytes", 0))
            known = self._peak_bytes.get(event.process, 0)
            self._peak_bytes[event.process] = max(known, peak_bytes)
        elif event.thread is None:
            self._names[event.process] = event.name

    def _has_failed(self, span: Span) -> bool:
        if span.category is Category.INFERENCE and ERROR in span.arguments:
            self._failed_count += 1
            return True
        return span.parent in self._failed

    def notes(self) -> tuple[str, ...]:
        if not self._failed_count:
            return ()
        count = count_of(self._failed_count, "inference")
        return (f"{count} raised an error: the totals leave out what failed.",)

    def finish(self, order: Order) -> tuple[TraceSummary, ...]:
        """Return a summary for each session or process that ran something."""
        sessions = Counts(process for process, _ in self._parts)
        return tuple(
            part.finished(
                self._names.get(process, "") if session is None else session,
                order,
                # The memory of a process belongs to all of its sessions.
                self._peak_bytes.get(process) if sessions[process] == 1 else None,
            )
            for (process, session), part in self._parts.items()
        )


class _Time(Struct):
    """An `OperatorTime` that is still being added up."""

    name: str
    facts: dict[str, Argument]
    calls: int = 0
    total_ns: int = 0
    min_ns: int = 1 << 62
    max_ns: int = 0

    def add(self, span: Span) -> None:
        ns = span.duration_ns if span.self_ns is None else span.self_ns
        self.calls += 1
        self.total_ns += ns
        self.min_ns = min(self.min_ns, ns)
        self.max_ns = max(self.max_ns, ns)
        for name, value in self.facts.items():
            if value != span.arguments.get(name):
                self.facts[name] = None

    def finished(self) -> OperatorTime:
        return OperatorTime(
            name=self.name,
            op_type=_text(self.facts["op_type"]),
            provider=_text(self.facts["provider"]),
            precision=_text(self.facts["precision"]),
            layer=_text(self.facts["layer"]),
            fused=_texts(self.facts["fused"]),
            calls=self.calls,
            total_ns=self.total_ns,
            min_ns=self.min_ns,
            max_ns=self.max_ns,
        )


class _Part(Struct):
    """A `TraceSummary` that is still being added up."""

    inferences: dict[str, list[int]] = field(default_factory=dict)
    times: dict[tuple[str, str | None], _Time] = field(default_factory=dict)
    callers: set[int] = field(default_factory=set)
    workers: set[int] = field(default_factory=set)
    between_ns: int = 0
    has_unknown_rest: bool = False

    def add(self, span: Span, grouping: Grouping) -> None:
        if span.category in _TIMED:
            self.workers.add(span.thread)
            key = _key(span, grouping)
            time = self.times.get(key)
            if time is None:
                facts = {name: span.arguments.get(name) for name in _FACTS}
                time = self.times[key] = _Time(key[0], facts)
            time.add(span)
        else:
            self.callers.add(span.thread)
            self.inferences.setdefault(span.name, []).append(span.duration_ns)
            if span.self_ns is None:
                self.has_unknown_rest = True
            else:
                self.between_ns += span.self_ns

    def finished(self, name: str, order: Order, peak_bytes: int | None) -> TraceSummary:
        knows_rest = (
            bool(self.inferences) and not self.has_unknown_rest and self.workers <= self.callers
        )
        return TraceSummary(
            name=name,
            inferences=tuple(
                InferenceTimes(
                    name=name,
                    latency=summarize([times], batch_size=1),
                    median_ns=statistics.median(times),
                )
                for name, times in self._groups()
            ),
            operators=tuple(sorted((t.finished() for t in self.times.values()), key=_KEYS[order])),
            inference_ns=sum(sum(times) for times in self.inferences.values()),
            between_ns=self.between_ns if knows_rest else None,
            peak_bytes=peak_bytes or None,
        )

    def _groups(self) -> Iterator[tuple[str, list[int]]]:
        """Yield each group with and without its first inference.

        The first one is slower, because it allocates and tunes. In a profile the first inferences
        are a group of their own.
        """
        for name, times in self.inferences.items():
            yield name, times
            if len(times) >= _FEWEST and FIRST_INFERENCE not in self.inferences:
                yield "after the first", times[1:]


def _key(span: Span, grouping: Grouping) -> tuple[str, str | None]:
    op_type = _text(span.arguments.get("op_type"))
    if grouping is Grouping.OPERATOR:
        return span.name, op_type
    if grouping is Grouping.TYPE:
        return op_type or span.name, None
    return _text(span.arguments.get("layer")) or "", None


def _text(value: Argument) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: Argument) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()


# -- the totals of a trace as JSON


def dump_trace_totals(totals: TraceTotals) -> str:
    document = TRACE_TOTALS.of(totals)
    for trace, found in zip(totals.traces, document["traces"], strict=True):
        whole_ns = trace.operator_ns
        for time, operator in zip(trace.operators, found["operators"], strict=True):
            operator["share"] = time.total_ns / whole_ns if whole_ns else 0.0
    return dump_document(document)
