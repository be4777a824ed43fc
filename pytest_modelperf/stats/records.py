"""Figures of measured times, and rounds that fit into a time, without numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.files.documents import Confidence, Count, DurationMs, Figure

_NS_PER_MS = 1e6

# The percentiles that every profile reports if its samples support them.
PERCENTS = (50.0, 90.0, 95.0, 97.0, 99.0, 99.9)


class Members(Struct, frozen=True):
    """The members of a workload: their names, and how often each occurs in one pass.

    A pass runs each member as often as its weight.
    """

    names: tuple[str, ...]
    weights: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def inferences(self) -> int:
        return sum(self.weights)


class Mix(Struct, frozen=True):
    """The members of a workload, and the index of the one that ran in each turn."""

    members: Members
    turns: tuple[int, ...]

    def turned(self, first: int, count: int) -> Mix:
        """Return `count` turns from `first` on. The first turn follows the last."""
        length = len(self.turns)
        return Mix(self.members, tuple(self.turns[(first + at) % length] for at in range(count)))


class Turns(Struct, frozen=True, kw_only=True):
    """The inferences of one side of a round, and what disturbed each of them.

    `switches` is how often another process took a processor away during the inference. `running_ns`
    is the time of the inference without waiting for a processor. `unstalled_ns` is the time without
    the longest wait of one of its threads, if several processors were disturbed. They are None if
    the worker cannot measure them. The times are multiples of `tick_ns`, the tick of the clock.
    `mix` is None unless the turns are those of a workload.
    """

    times_ns: tuple[int, ...]
    switches: tuple[int, ...] | None = None
    running_ns: tuple[int, ...] | None = None
    unstalled_ns: tuple[int, ...] | None = None
    tick_ns: int = 1
    mix: Mix | None = None

    @property
    def calm_ns(self) -> tuple[int, ...]:
        """The times without waiting for a processor, if known."""
        return self.unstalled_ns or self.running_ns or self.times_ns

    def of_member(self, place: int) -> Turns:
        """Return the turns of one member of a workload, or all turns if this is not a workload."""
        if self.mix is None:
            return self
        own = [at for at, member in enumerate(self.mix.turns) if member == place]

        def pick(values: tuple[int, ...] | None) -> tuple[int, ...] | None:
            return None if values is None else tuple(values[at] for at in own)

        return Turns(
            times_ns=tuple(self.times_ns[at] for at in own),
            switches=pick(self.switches),
            running_ns=pick(self.running_ns),
            unstalled_ns=pick(self.unstalled_ns),
            tick_ns=self.tick_ns,
        )


class PartTurns(Struct, frozen=True, kw_only=True):
    """A part of a model in the turns of one side of a round.

    `in_place` are its runs right after the whole model, with the caches as the model leaves them.
    `alone` are its runs without the model. `cold_share` is the share of the data of its changed
    kernels that is not in a cache when they run in the model.
    """

    in_place: Turns
    alone: Turns
    cold_share: float = 1.0


class Percentile(Struct, frozen=True, kw_only=True):
    """A percentile of the latency, with its interval.

    `value_ns` is None if there are fewer than `needed` samples. Then the interval is None too. A
    single round has none either, because its spread is unknown.
    """

    percent: float
    needed: Count
    value_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None

    @property
    def name(self) -> str:
        """The name of the percentile: `p50`, `p99.9`."""
        return f"p{self.percent:g}"

    @property
    def value_ms(self) -> DurationMs | None:
        return None if self.value_ns is None else self.value_ns / _NS_PER_MS

    @property
    def interval_ms(self) -> tuple[DurationMs, DurationMs] | None:
        if self.low_ns is None or self.high_ns is None:
            return None
        return self.low_ns / _NS_PER_MS, self.high_ns / _NS_PER_MS

    @property
    def half_width(self) -> float | None:
        """The larger side of the interval, relative to the value."""
        if not self.value_ns or self.low_ns is None or self.high_ns is None:
            return None
        return max(self.high_ns - self.value_ns, self.value_ns - self.low_ns) / self.value_ns

    def scaled(self, factor: float) -> Percentile:
        """Return the percentile and its interval, multiplied by `factor`."""
        if self.value_ns is None:
            return self
        return replace(
            self,
            value_ns=self.value_ns * factor,
            low_ns=None if self.low_ns is None else self.low_ns * factor,
            high_ns=None if self.high_ns is None else self.high_ns * factor,
        )


class Latency(Struct, frozen=True, kw_only=True):
    """The time of an inference in steady state. `latency.p99_ms` is None if unsupported."""

    batch_size: int
    confidence: Confidence
    percentiles: tuple[Percentile, ...]
    samples: Count
    rounds: Count
    min_ns: int
    max_ns: int
    mean_ns: float

    def __repr__(self) -> str:
        p50 = "no p50" if self.p50_ms is None else f"p50 {self.p50_ms} ms"
        return f"<latency: {p50}, samples: {self.samples}, rounds: {self.rounds}>"

    def percentile(self, percent: float) -> Percentile:
        """Return the percentile of this number. Raise ValueError if it is not in `percentiles`."""
        for each in self.percentiles:
            if each.percent == percent:
                return each
        known = ", ".join(f"{each.percent:g}" for each in self.percentiles)
        raise ValueError(f"unknown percentile {percent!r}; choose one of {known}.")

    @property
    def median_ns(self) -> float:
        """The best estimate of the median, even if the samples do not support it."""
        value = self.percentile(50.0).value_ns
        return self.mean_ns if value is None else value

    @property
    def p50_ms(self) -> DurationMs | None:
        return self._ms(50.0)

    @property
    def p90_ms(self) -> DurationMs | None:
        return self._ms(90.0)

    @property
    def p95_ms(self) -> DurationMs | None:
        return self._ms(95.0)

    @property
    def p97_ms(self) -> DurationMs | None:
        return self._ms(97.0)

    @property
    def p99_ms(self) -> DurationMs | None:
        return self._ms(99.0)

    @property
    def p999_ms(self) -> DurationMs | None:
        return self._ms(99.9)

    @property
    def min_ms(self) -> DurationMs:
        return self.min_ns / _NS_PER_MS

    @property
    def max_ms(self) -> DurationMs:
        return self.max_ns / _NS_PER_MS

    @property
    def mean_ms(self) -> DurationMs:
        return self.mean_ns / _NS_PER_MS

    @property
    def items_per_second(self) -> Figure | None:
        """The items of a batch divided by the median latency."""
        median_ns = self.percentile(50.0).value_ns
        return None if not median_ns else self.batch_size * 1e9 / median_ns

    def _ms(self, percent: float) -> float | None:
        return self.percentile(percent).value_ms


class RoundSpread(Struct, frozen=True):
    """The spread of the times of one round: extremes, 5th and 95th percentile, quartiles."""

    samples: int
    min_ns: float
    p5_ns: float
    p25_ns: float
    p50_ns: float
    p75_ns: float
    p95_ns: float
    max_ns: float


class Ratio(Struct, frozen=True):
    """The time of the second side over that of the first. A single round has no interval."""

    value: float
    low: float | None
    high: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    def scaled(self, factor: float) -> Ratio:
        low, high = (None if each is None else each * factor for each in (self.low, self.high))
        return Ratio(self.value * factor, low, high)


class LatencySpread(Struct, frozen=True, kw_only=True):
    """Relative standard deviations of the inferences of a session, and of session medians."""

    inferences: float | None
    sessions: float | None


class Growth(Struct, frozen=True, kw_only=True):
    """The bytes that memory grows by with each inference.

    `low` and `high` are each wrong with the chance (1 - `confidence`) / 2.
    """

    inferences: int
    bytes_per_inference: float
    low: float
    high: float
    confidence: float

    @property
    def interval(self) -> tuple[float, float]:
        return self.low, self.high

    @property
    def is_shown(self) -> bool:
        return self.low > 0.0


class Slope(Struct, frozen=True, kw_only=True):
    """The nanoseconds by which a step takes longer than the previous one, and their interval."""

    ns_per_step: Figure
    low: float
    high: float
    confidence: float

    @property
    def interval(self) -> tuple[Figure, Figure]:
        return self.low, self.high


# The percentiles in a chart of many rounds: the extremes, the quartiles, and two between.
_PERCENTS = (0, 5, 25, 50, 75, 95, 100)


def percentile_of(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted times, by linear interpolation as in numpy.

    `np.quantile` takes longer for a few values, and its first call imports numpy's masked arrays.
    """
    place = percent / 100 * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread_of_round(times: Sequence[int]) -> RoundSpread:
    ordered = sorted(times)
    return RoundSpread(len(ordered), *(percentile_of(ordered, each) for each in _PERCENTS))


# The most rounds in the usual time, for which the usual looks are planned.
USUAL_ROUNDS = 35
_USUAL_SECONDS = 10.0
# Ten times the rounds show a change a third as large.
_MOST_ROUNDS = 10 * USUAL_ROUNDS


def rounds_within(max_seconds: float) -> int:
    """Return the most rounds of a duet, in proportion to the time."""
    allowed = round(USUAL_ROUNDS * max_seconds / _USUAL_SECONDS)
    return min(_MOST_ROUNDS, max(USUAL_ROUNDS, allowed))


def seconds_for(rounds: float) -> float:
    """Return the least time that allows these rounds, or infinity if none does."""
    if rounds > _MOST_ROUNDS:
        return math.inf
    return _USUAL_SECONDS * rounds / USUAL_ROUNDS if rounds > USUAL_ROUNDS else 0.0
