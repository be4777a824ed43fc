"""The records of a sweep: every configuration of one model or two, and which of them is best.

A configuration is a case and a number of requests that run at once. The best one gives the most
items per second while its median latency is surely within a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.comparing.changes import Interval
from pytest_modelperf.comparing.records import COMPARISON, Comparison
from pytest_modelperf.profiler.machine.hardware import MACHINE, MachineFacts
from pytest_modelperf.profiler.measurements import ENGINE, LATENCY, EngineFacts
from pytest_modelperf.profiler.records import PROFILE, Case, CaseState, ModelFacts, Outcome, Profile
from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.report.notebook import Shown
from pytest_modelperf.stats.records import Latency, Ratio, RoundSpread

# What can vary between configurations.
BATCH, CORES, STREAMS = "batch", "cores", "streams"


class Configuration(Struct, frozen=True):
    """A case, and how many requests run at once on one session of it."""

    case: Case
    streams: int = 1

    @property
    def id(self) -> str:
        """`b1-c2`, or `b1-c2-s4` if several requests run at once."""
        return self.case.id if self.streams == 1 else f"{self.case.id}-s{self.streams}"

    @property
    def amounts(self) -> dict[str, int]:
        """The batch size, cores and streams."""
        return {BATCH: self.case.batch_size, CORES: self.case.cores, STREAMS: self.streams}

    def all_else(self, of: str) -> tuple[object, ...]:
        """Return all its properties except this amount."""
        rest = (amount for name, amount in self.amounts.items() if name != of)
        return self.case.dims, self.case.phase, *rest


class SweepPoint(Struct, frozen=True, kw_only=True):
    """The result of one configuration. Without one, `outcome` and `reason` say why.

    `throughput` is in items per second.
    """

    configuration: Configuration
    latency: Latency | None = None
    throughput: Ratio | None = None
    rounds: tuple[RoundSpread, ...] = ()
    outcome: Outcome | None = None
    reason: str | None = None

    @property
    def id(self) -> str:
        return self.configuration.id

    @property
    def state(self) -> CaseState:
        """The state of the configuration: measured, or why it was not."""
        if self.latency is not None:
            return CaseState.MEASURED
        return CaseState((self.outcome or Outcome.FAILED).value)

    @property
    def p50_ms(self) -> float | None:
        return None if self.latency is None else self.latency.p50_ms

    @property
    def median_ns(self) -> float:
        """The best estimate of the median latency, infinite if it was not measured."""
        return math.inf if self.latency is None else self.latency.median_ns

    @property
    def latency_interval_ms(self) -> tuple[float, float] | None:
        """The interval of the median latency, or None if there are too few rounds."""
        return None if self.latency is None else self.latency.percentile(50.0).interval_ms


ROUND_SPREAD = JsonObject(
    RoundSpread,
    "samples min_ms=min_ns p5_ms=p5_ns p25_ms=p25_ns p50_ms=p50_ns p75_ms=p75_ns p95_ms=p95_ns"
    " max_ms=max_ns",
)
CONFIGURATION = JsonObject(
    SweepPoint,
    "id batch_size=configuration.case.batch_size cores=configuration.case.cores"
    " streams=configuration.streams dims=configuration.case.varied"
    " phase=configuration.case.phase.phase prompt=configuration.case.phase.prompt"
    " generate=configuration.case.phase.generate outcome=state reason latency"
    " items_per_second=throughput.value interval=throughput.interval rounds",
    title="Configuration",
    latency=LATENCY.or_nulls,
    interval=Interval,
    rounds=ROUND_SPREAD,
)


class SweetSpot(Struct, frozen=True, kw_only=True):
    """The ids of the best configuration within a threshold, and of possible equals.

    `best` is None if none is surely within. `equals` have a throughput that may be the same as
    the best; `undecided` may be within the threshold or beyond.
    """

    best: str | None
    equals: tuple[str, ...]
    undecided: tuple[str, ...]

    def role(self, config_id: str) -> str | None:
        """Return `best`, `equal` or `undecided`, or None for any other configuration."""
        if config_id == self.best:
            return "best"
        if config_id in self.equals:
            return "equal"
        return "undecided" if config_id in self.undecided else None


class Scaling(Struct, frozen=True, kw_only=True):
    """The gain from one configuration to another with one larger amount, all else equal.

    `factor` is the ratio of the two amounts, `gain` the ratio of the two throughputs.
    """

    of: str
    base: str
    id: str
    factor: float
    gain: Ratio

    @property
    def efficiency(self) -> float | None:
        """The gain as a share of a perfect gain, for cores only, otherwise None."""
        return self.gain.value / self.factor if self.of == CORES else None


SCALING = JsonObject(
    Scaling,
    "of base id factor gain=gain.value interval=gain.interval efficiency",
    interval=Interval,
)


class SweepSide(Struct, frozen=True, kw_only=True):
    """All configurations of one model, and the best of them."""

    model: ModelFacts
    engine: EngineFacts | None
    points: tuple[SweepPoint, ...]
    spot: SweetSpot
    scaling: tuple[Scaling, ...] = ()

    def point(self, config_id: str) -> SweepPoint:
        return next(point for point in self.points if point.id == config_id)


SIDE = JsonObject(
    SweepSide,
    "model engine configurations=points sweet_spot=spot scaling",
    engine=ENGINE.or_nulls,
    configurations=CONFIGURATION,
    scaling=SCALING,
)


class PointChange(Struct, frozen=True, kw_only=True):
    """One configuration of the second model compared with the first, in the same passes."""

    id: str
    latency: Ratio
    throughput: Ratio


CHANGE_RATIO = JsonObject(
    Ratio,
    "ratio=value interval",
    title="ChangeRatio",
    about="A figure of the second model over the same figure of the first.",
    interval=Interval,
)
CHANGE = JsonObject(
    PointChange, "id latency throughput", latency=CHANGE_RATIO, throughput=CHANGE_RATIO
)


class Sweep(Shown, frozen=True, kw_only=True):
    """One model or two, at every configuration.

    Each interval holds its own figure with this `confidence`. `threshold_ms` is None for no limit.
    `profile` is measured at the sweet spot of the only model; `comparison` compares both models
    at the sweet spot of the second. If all layers were asked for, they have every case.
    """

    sides: tuple[SweepSide, ...]
    changes: tuple[PointChange, ...] = ()
    threshold_ms: float | None = None
    confidence: float = 0.95
    seconds: float = 0.0
    passes: int = 0
    machine: MachineFacts | None = None
    profile: Profile | None = None
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether no configuration could be measured."""
        return all(point.latency is None for side in self.sides for point in side.points)


SWEEP = JsonDocument(
    Sweep,
    "latency_threshold_ms=threshold_ms confidence passes seconds machine sides changes profile"
    " comparison notes",
    machine=MACHINE,
    sides=SIDE,
    changes=CHANGE,
    profile=PROFILE,
    comparison=COMPARISON,
)


def find_competing(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """Return the measured points that may be the best.

    For a generation, these are only the steps, because a prefill takes many tokens at once.
    """
    steps = [point for point in points if point.configuration.case.is_step]
    return [point for point in steps or points if point.latency is not None]


def find_sweet_spot(points: Sequence[SweepPoint], threshold_ms: float | None) -> SweetSpot:
    """Find the highest throughput among the points that are surely within the threshold."""
    within, undecided = [], []
    for point in find_competing(points):
        interval = point.latency_interval_ms
        if threshold_ms is None or (interval is not None and interval[1] <= threshold_ms):
            within.append(point)
        elif _may_be_within(point, threshold_ms):
            undecided.append(point.id)
    if not within:
        return SweetSpot(best=None, equals=(), undecided=tuple(undecided))
    best = max(within, key=_throughput)
    equals = tuple(point.id for point in within if point is not best and _overlap(point, best))
    return SweetSpot(best=best.id, equals=equals, undecided=tuple(undecided))


def _may_be_within(point: SweepPoint, threshold_ms: float) -> bool:
    interval = point.latency_interval_ms
    if interval is not None:
        return interval[0] <= threshold_ms
    # With few samples or one round the median is unknown, but the fastest sample may be too slow.
    return point.latency is not None and point.latency.min_ms <= threshold_ms


def _throughput(point: SweepPoint) -> float:
    return 0.0 if point.throughput is None else point.throughput.value


def _overlap(one: SweepPoint, other: SweepPoint) -> bool:
    a, b = (None if p.throughput is None else p.throughput.interval for p in (one, other))
    return a is None or b is None or (a[0] <= b[1] and b[0] <= a[1])


def choose_point(side: SweepSide) -> SweepPoint | None:
    """Return the sweet spot of a side, or its quickest point if it has no sweet spot.

    The result is None if no point was measured.
    """
    if side.spot.best is not None:
        return side.point(side.spot.best)
    measured = [point for point in side.points if point.latency is not None]
    competing = find_competing(measured) or measured
    return min(competing, key=lambda each: each.median_ns, default=None)
