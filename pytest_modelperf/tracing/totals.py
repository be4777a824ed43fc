"""The records of what a trace says in total, and what it may be added up and sorted by."""

from __future__ import annotations

import enum

from msgspec import Struct

from pytest_modelperf.stats.records import Latency


class Grouping(enum.Enum):
    """What the runs of operators are added up by."""

    OPERATOR = "operator"
    TYPE = "type"
    LAYER = "layer"


class Order(enum.Enum):
    """What operators are sorted by: times from the longest, names from A to Z."""

    TOTAL = "total"
    MEAN = "mean"
    MAX = "max"
    CALLS = "calls"
    NAME = "name"


class OperatorTime(Struct, frozen=True, kw_only=True):
    """What operators of one name, type or layer took together, without those in their bodies.

    What differs among them is None.
    """

    name: str
    op_type: str | None
    provider: str | None
    precision: str | None
    calls: int
    total_ns: int
    min_ns: int
    max_ns: int

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.calls


class InferenceTimes(Struct, frozen=True, kw_only=True):
    """How long the inferences of one name took."""

    name: str
    latency: Latency


class TraceSummary(Struct, frozen=True, kw_only=True):
    """What one process of a trace did, or one session in it.

    `between_ns` is what its inferences took beside operators, None where operators ran on other
    threads than the inferences, or no inference is known.
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
