"""The totals of a trace as records, with the ways to group and sort them."""

from __future__ import annotations

import enum

from msgspec import Struct

from pytest_modelperf.profiler.measurements import NEEDED
from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.stats.records import Latency


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

    A fact that differs among these operators is None. `layer` is the one that shows their time, and
    `fused` are those that the same kernel runs; empty if there is none, or if they differ.
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

    `between_ns` is the time of its inferences outside operators; None if operators ran on other
    threads than the inferences, or if no inference is known.
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
