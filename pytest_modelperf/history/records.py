"""The records of a history: the lines that a run stores, and what is read from them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from pytest_modelperf.files.documents import MAX_INTEGER, Confidence, Count, Number
from pytest_modelperf.report.codec import JsonDocument, JsonObject

# The schema of a line.
LINE_SCHEMA = 1
# The intervals of chained figures are this many standard errors wide to each side: 99 % of a normal
# distribution.
INTERVAL_QUANTILE = 2.576

# A listing shows the last points of each case.
LISTED_POINTS = 24

# No model changes by more. The logarithm of this and its square are small numbers.
MOST_FACTOR = 1e9
_Factor: TypeAlias = Annotated[float, Meta(ge=1 / MOST_FACTOR, le=MOST_FACTOR)]
# Ratios along a chain could multiply beyond this. No count is a larger multiple of another.
_LARGEST_LOG = math.log(MAX_INTEGER)
# Logarithms of the largest counts are known to this many decimal places.
_DIGITS = 12

# There are millions of the smallest records, none of which can refer to itself, so the garbage
# collector need not follow them: `gc=False`.


class HistoryMetric(str, Enum):
    """A figure whose history can be listed: a measured ratio, or an exact count."""

    P50 = "p50"
    P95 = "p95"
    MACS = "macs"
    PARAMS = "params"
    WEIGHT_BYTES = "weight_bytes"
    PEAK_ACTIVATION_BYTES = "peak_activation_bytes"
    SIZE_BYTES = "size_bytes"

    @property
    def is_exact(self) -> bool:
        return self not in (HistoryMetric.P50, HistoryMetric.P95)


class StoredRatio(Struct, frozen=True, kw_only=True, gc=False):
    """The time of a model relative to its baseline, with its interval at `confidence`."""

    ratio: _Factor
    low: _Factor
    high: _Factor
    confidence: Confidence


class StoredFigures(Struct, frozen=True, kw_only=True, gc=False):
    """The exact figures of a case, each None if unknown.

    `size_bytes` is the size of the model's files, external data included.
    """

    macs: Count | None = None
    params: Count | None = None
    weight_bytes: Count | None = None
    peak_activation_bytes: Count | None = None
    size_bytes: Count | None = None


class ChainedLine(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a history line that every chain needs.

    `digest` is the SHA-256 of the model that was checked, and `baseline` that of the model that it
    was compared with: the same digest is the same model, so these two link the ratios of different
    baselines. `verdict` is the word in the report of the run. `unlinked` says why a model that
    became the new baseline has no ratio to the one before, and is None if it has one or none was
    tried. `run_url` is the page of the run on the service that ran it; None if it is not known.
    """

    schema: int
    date: Annotated[dt.datetime, Meta(tz=True)]
    commit: str | None
    case: str
    engine: str | None
    digest: str | None
    baseline: str | None
    verdict: str
    reasons: tuple[str, ...] = ()
    unlinked: str | None = None
    run_url: str | None = None


class P50Line(ChainedLine, frozen=True, kw_only=True, gc=False):
    """A line with the ratio of the median to that of its baseline.

    `p50` is None if no time was compared.
    """

    p50: StoredRatio | None


class P95Line(ChainedLine, frozen=True, kw_only=True, gc=False):
    """A line with the ratio of the p95 to that of its baseline.

    `p95` is None if no time was compared.
    """

    p95: StoredRatio | None


class FiguresLine(ChainedLine, frozen=True, kw_only=True, gc=False):
    """The fields of a line that a chain of an exact figure needs."""

    figures: StoredFigures | None


class HistoryLine(ChainedLine, frozen=True, kw_only=True):
    """One case of one run: a line of a history.

    `model` is the folder of the baseline. `recorded` means that the run made the checked model the
    new baseline of this case. `p50` and `p95` are None if the case was not compared in time. `how`
    says by what the latency was judged: `plan`, `parts`, `duet` or `stored`; None if it was not.
    """

    p50: StoredRatio | None
    p95: StoredRatio | None
    figures: StoredFigures | None
    branch: str | None
    model: str
    machine: str
    engine_version: str | None
    recorded: bool
    load_ms: Number | None
    peak_rss_bytes: Count | None
    seconds: Number | None
    how: str | None


# The fields of a line that each metric needs.
LINE_TYPES: Mapping[HistoryMetric, type[ChainedLine]] = {
    HistoryMetric.P50: P50Line,
    HistoryMetric.P95: P95Line,
    **dict.fromkeys(filter(lambda metric: metric.is_exact, HistoryMetric), FiguresLine),
}


class HistoryPoint(Struct, frozen=True, kw_only=True, gc=False):
    """One point of a chain: the logarithm of a cost, and how certain it is.

    `level` counts from the first baseline of the chain. `variance` is the error of this point
    alone, and `link_variance` that of the links between its baseline and the one of the first
    point. A point that is a link itself has no other error. Exact figures have none.
    """

    date: dt.datetime
    commit: str | None
    verdict: str
    baseline: str | None
    level: float
    variance: float = 0.0
    link_variance: float = 0.0
    reasons: tuple[str, ...] = ()
    run_url: str | None = None


class Shift(Struct, frozen=True):
    """The change of a cost, as a difference of logarithms with its standard error."""

    log_ratio: float
    error: float = 0.0

    @property
    def ratio(self) -> float:
        """The cost relative to the one before: 1.03 is 3 % more."""
        return math.exp(min(self.log_ratio, _LARGEST_LOG))

    @property
    def change(self) -> float:
        """The relative change: 0.03 is 3 % more."""
        return _change(self.log_ratio)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the change at 99 %."""
        return self.bounds(INTERVAL_QUANTILE)

    @property
    def ratio_interval(self) -> tuple[float, float]:
        low, high = self.interval
        return 1.0 + low, 1.0 + high

    def bounds(self, quantile: float) -> tuple[float, float]:
        """Return the interval of the change at this many standard errors."""
        width = quantile * self.error
        return _change(self.log_ratio - width), _change(self.log_ratio + width)


SHIFT = JsonObject(
    Shift,
    "change low=interval.0 high=interval.1",
    about="A relative change with its interval at 99 %.",
)


def _change(log_ratio: float) -> float:
    """Return the relative change.

    It is rounded, because logarithms make 105 a little more than 5 % above 100.
    """
    return round(math.expm1(min(log_ratio, _LARGEST_LOG)), _DIGITS)


class Step(Struct, frozen=True):
    """A change point: the cost differs before and after it.

    `before` is the last point with the old level, and `after` the first with the new one.
    """

    before: HistoryPoint
    after: HistoryPoint
    shift: Shift


STEP = JsonObject(
    Step,
    "last_date=before.date last_commit=before.commit first_date=after.date"
    " first_commit=after.commit run_url=after.run_url shift reasons=after.reasons",
    about="A change point: the last point with the old level, and the first with the new one.\n\n"
    "`run_url` is the page of the run of the first point; null if it is not known.",
    shift=SHIFT,
)


class Tag(Struct, frozen=True):
    """A tag of the repository, with its commit and its date."""

    name: str
    commit: str
    date: dt.datetime


class ChainedPoint(Struct, frozen=True):
    """One point, and its cost relative to the first point of its chain."""

    point: HistoryPoint
    shift: Shift


class CaseHistory(Struct, frozen=True, kw_only=True):
    """The history of one case of one model on one kind of machine, by one engine.

    `points` is the latest chain, or its last points in a listing. `first` is the first point of the
    chain, and `count` the number of all its points. `earlier_points` counts those of chains before
    it that are not linked to it; `unlinked` says why, if that is known. `tagged` is the point of
    the last tag, and `since_tag` the change since then; both are None if there is none.
    """

    model: str
    machine: str
    case: str
    engine: str | None
    points: tuple[HistoryPoint, ...]
    first: HistoryPoint
    count: int
    earlier_points: int = 0
    unlinked: str | None = None
    steps: tuple[Step, ...] = ()
    tagged: HistoryPoint | None = None
    since_tag: Shift | None = None

    @property
    def since_first(self) -> Shift:
        return shift_since(self.first, self.points[-1])

    @property
    def chained(self) -> tuple[ChainedPoint, ...]:
        """The points, each with its cost relative to the first."""
        return tuple(ChainedPoint(each, shift_since(self.first, each)) for each in self.points)


CASE_HISTORY = JsonObject(
    CaseHistory,
    "model machine case engine since_first since_tag earlier_points unlinked steps points=chained",
    about="The history of one case on one kind of machine.\n\n`unlinked` says why the chain is not"
    " linked to the earlier points; null if that is not known.",
    since_first=SHIFT,
    since_tag=SHIFT,
    steps=STEP,
    points=JsonObject(
        ChainedPoint,
        "date=point.date commit=point.commit verdict=point.verdict baseline=point.baseline"
        " run_url=point.run_url ratio=shift.ratio interval=shift.ratio_interval",
        about="One point: its cost relative to the first point, with the interval.",
    ),
)


class History(Struct, frozen=True, kw_only=True):
    """The histories of all cases. `notes` say what could not be read.

    Points before `since` are left out; None keeps all points.
    """

    metric: HistoryMetric
    cases: tuple[CaseHistory, ...]
    since: dt.datetime | None = None
    tag: Tag | None = None
    notes: tuple[str, ...] = ()


HISTORY = JsonDocument(History, "metric tag=tag.name cases notes", cases=CASE_HISTORY)


def shift_since(first: HistoryPoint, point: HistoryPoint) -> Shift:
    """Return the change from the first point of a chain to this one."""
    if first == point:
        return Shift(0.0)
    variance = first.variance + point.variance + point.link_variance
    return Shift(point.level - first.level, math.sqrt(variance))
