"""How often the intervals of a measured profile hold the truth, under simulated noise.

    python benchmarks/intervals.py [--repetitions 100]

300 repetitions take six minutes; docs/measuring.md sums up what they found. The first table
holds the intervals of fixed numbers of rounds against other ways to make them. The second runs the
very loop that samples a model, in simulated time, so that it stops as it does in earnest. No model
runs and no clock is read: the figures depend on the seed alone.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import results
from results import Expectation, Result, Start, conclude, markdown
from scipy import signal
from scipy import stats as scipy_stats

from pytest_modelperf.profiler import measurements
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.rounds import sample
from pytest_modelperf.stats.estimates import estimate_percentile, needed_samples, summarize

Floats: TypeAlias = npt.NDArray[np.float64]
Interval: TypeAlias = tuple[float, float]

CONFIDENCE = 0.95
# What of nominally 95 % may be left on average over all noises, many of which are no friendly ones.
MIN_HOLD = 0.9
PERCENTS = (50.0, 90.0, 95.0, 99.0)
KINDS = ("normal", "heavy tails", "two kinds", "drift")
SPREADS = (0.01, 0.02, 0.04)
# Rounds, and samples in each.
SIZES = (
    (5, 12), (5, 40), (5, 400), (6, 40), (9, 40), (9, 400), (13, 100), (20, 12), (20, 100),
)  # fmt: skip
STOPPED_KINDS = ("normal", "heavy tails", "two kinds")
STOPPED_SPREADS = (0.003, 0.005, 0.01, 0.02, 0.04)

# One inference, of which the logarithms are drawn, and the load of a session.
INFERENCE_NS = 1_000_000
LOAD_NS = 20_000_000
# Of an inference to the one before, where they are not independent.
RESEMBLANCE = 0.6
TRUTH_SAMPLES = 2_000_000
TRUTH_SESSIONS = 10_000
SEED = 1


@dataclass(frozen=True, slots=True)
class Noise:
    """How sessions differ: the shape of it, and its standard deviation, relative to a time.

    Of two kinds of sessions each lies so far from the middle. `drift` is normal, with inferences
    that resemble the one before and a machine that grows slower or faster over the run.
    """

    kind: str
    spread: float

    def sessions(self, random: np.random.Generator, count: int) -> Floats:
        if self.kind == "two kinds":
            side = np.where(random.random(count) < 0.5, -self.spread, self.spread)
            return side + random.normal(0.0, self.spread / 4, count)
        if self.kind == "heavy tails":
            # A t distribution with 4 degrees of freedom has a variance of 2.
            return self.spread / math.sqrt(2.0) * random.standard_t(4, count)
        return random.normal(0.0, self.spread, count)

    def inferences(self, random: np.random.Generator, rounds: int, samples: int) -> Floats:
        """Those of each round, without what its session adds: 6 % of them are delayed."""
        shape = (rounds, samples)
        logs = random.normal(0.0, 0.015, shape)
        if self.kind == "drift":
            # The first of a round is as wide as those that follow.
            fresh = math.sqrt(1.0 - RESEMBLANCE**2)
            logs[:, 0] /= fresh
            logs = np.asarray(signal.lfilter((fresh,), (1.0, -RESEMBLANCE), logs))
        return logs + np.log1p((random.random(shape) < 0.06) * random.pareto(2.5, shape) * 0.15)

    def run(self, random: np.random.Generator, rounds: int, samples: int) -> Floats:
        """The logarithms of all times of a run, a row for each round."""
        logs = self.inferences(random, rounds, samples)
        logs += self.sessions(random, rounds)[:, np.newaxis]
        if self.kind == "drift":
            slope = 0.02 * random.choice((-1.0, 1.0))
            logs += slope * np.linspace(-0.5, 0.5, rounds)[:, np.newaxis]
            logs += 0.01 * np.linspace(-0.5, 0.5, samples)
        return logs

    def random(self, *more: int) -> np.random.Generator:
        """Its own numbers: another row or column more changes none of the others."""
        name = zlib.crc32(self.kind.encode())
        return np.random.default_rng((SEED, name, round(1e6 * self.spread), *more))


def true_quantile(noise: Noise, percent: float, rounds: int, samples: int) -> float:
    """What the quantile of ever more such runs comes to."""
    if noise.kind != "drift":
        # Where no sample depends on its place, many sessions tell more than many of their samples.
        rounds, samples = TRUTH_SAMPLES, 1
    return true_quantiles(noise, rounds, samples)[percent]


@cache
def true_quantiles(noise: Noise, rounds: int, samples: int) -> Mapping[float, float]:
    random = noise.random(0)
    runs = math.ceil(TRUTH_SESSIONS / rounds)
    drawn = [noise.run(random, rounds, samples) for _ in range(runs)]
    found = np.quantile(np.concatenate(drawn, axis=None), [percent / 100.0 for percent in PERCENTS])
    return dict(zip(PERCENTS, found.tolist(), strict=True))


# -- ways to make an interval


def as_used(logs: Floats, percent: float) -> Interval:
    """That of a measured profile."""
    found = estimate_percentile([to_ns(row) for row in logs], percent, CONFIDENCE)
    if found.low_ns is None or found.high_ns is None:
        raise ValueError("too few samples for an interval")
    return math.log(found.low_ns / INFERENCE_NS), math.log(found.high_ns / INFERENCE_NS)


def as_independent(logs: Floats, percent: float) -> Interval:
    """The order statistics that a binomial distribution names for independent samples."""
    ordered = np.sort(logs, axis=None)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = scipy_stats.binom.ppf((tail, 1.0 - tail), len(ordered), percent / 100.0)
    return float(ordered[max(int(low) - 1, 0)]), float(ordered[min(int(high), len(ordered) - 1)])


def by_jackknife(logs: Floats, percent: float) -> Interval:
    """By how the percentile of all samples moves when a round is left out."""
    rounds = len(logs)
    without = [
        np.quantile(np.delete(logs, index, axis=0), percent / 100.0) for index in range(rounds)
    ]
    error = math.sqrt((rounds - 1) ** 2 / rounds) * float(np.std(without, ddof=1))
    return _around(float(np.quantile(logs, percent / 100.0)), error, rounds)


def by_own_percentiles(logs: Floats, percent: float) -> Interval:
    """The t interval of each round's own percentile."""
    own = np.quantile(logs, percent / 100.0, axis=1)
    error = float(np.std(own, ddof=1)) / math.sqrt(len(own))
    return _around(float(own.mean()), error, len(own))


def _around(centre: float, error: float, rounds: int) -> Interval:
    half = _t_quantile(rounds - 1) * error
    return centre - half, centre + half


@cache
def _t_quantile(freedom: int) -> float:
    return float(scipy_stats.t.ppf((1.0 + CONFIDENCE) / 2.0, freedom))


WAYS: Mapping[str, Callable[[Floats, float], Interval]] = {
    "as used here": as_used,
    "samples taken as independent": as_independent,
    "jackknife over rounds": by_jackknife,
    "t interval of the rounds' own percentiles": by_own_percentiles,
}


def to_ns(logs: Floats) -> list[int]:
    times: list[int] = np.rint(INFERENCE_NS * np.exp(logs)).astype(np.int64).tolist()
    return times


# -- the first table


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often the intervals of one way and percentile hold: a share for each noise and size."""

    way: str
    percent: float
    repetitions: int
    shares: tuple[float, ...]


def simulate_coverage(repetitions: int) -> list[Coverage]:
    shares: dict[tuple[str, float], list[float]] = {}
    for percent in PERCENTS:
        print(f"... intervals of p{percent:g}", file=sys.stderr)
        for noise in (Noise(kind, spread) for kind in KINDS for spread in SPREADS):
            for rounds, samples in SIZES:
                if rounds * samples >= needed_samples(percent):
                    for way, share in shares_that_hold(
                        noise, percent, rounds, samples, repetitions
                    ).items():
                        shares.setdefault((way, percent), []).append(share)
    return [
        Coverage(way, percent, repetitions, tuple(found))
        for (way, percent), found in shares.items()
    ]


def coverages_of(result: Result) -> dict[tuple[str, float], Coverage]:
    rows = result.rows["coverage"]
    found = [Coverage(**{**row, "shares": tuple(row["shares"])}) for row in rows]
    return {(each.way, each.percent): each for each in found}


def coverage_table(result: Result) -> str:
    """For each way and percentile the share that holds the truth: the mean, and the worst."""
    found = coverages_of(result)
    rows = [
        [way, *(_mean_and_worst(found[way, percent].shares) for percent in PERCENTS)]
        for way in WAYS
    ]
    return markdown(["interval", *(f"p{percent:g}" for percent in PERCENTS)], rows)


def shares_that_hold(
    noise: Noise, percent: float, rounds: int, samples: int, repetitions: int
) -> dict[str, float]:
    truth = true_quantile(noise, percent, rounds, samples)
    random = noise.random(round(10 * percent), rounds, samples)
    hits = dict.fromkeys(WAYS, 0)
    for _ in range(repetitions):
        logs = noise.run(random, rounds, samples)
        for way, make in WAYS.items():
            low, high = make(logs, percent)
            hits[way] += low <= truth <= high
    return {way: count / repetitions for way, count in hits.items()}


def _mean_and_worst(shares: Sequence[float]) -> str:
    return f"{100 * sum(shares) / len(shares):.0f} % ({100 * min(shares):.0f})"


# -- the second table


class SimulatedBench:
    """A model that takes no time but on its own clock."""

    def __init__(self, noise: Noise, random: np.random.Generator) -> None:
        self._noise = noise
        self._random = random
        self._session = 0.0
        self._now_ns = 0

    def clock(self) -> int:
        return self._now_ns

    def open(self) -> tuple[measurements.Load]:
        (self._session,) = self._noise.sessions(self._random, 1)
        self._now_ns += LOAD_NS
        return (measurements.Load(LOAD_NS),)

    def take(self, count: int, max_ns: int) -> tuple[measurements.Block]:
        times = to_ns(self._session + self._noise.inferences(self._random, 1, count)[0])
        begun = self._now_ns
        for done, time_ns in enumerate(times, 1):
            self._now_ns += time_ns
            if self._now_ns - begun > max_ns:
                del times[done:]
                break
        noise = measurements.Noise(wall_ns=self._now_ns - begun)
        return (measurements.Block(times_ns=tuple(times), noise=noise),)

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Stopped:
    """Of one noise, the share of medians whose interval holds, and how many rounds it took."""

    spread: float
    kind: str
    repetitions: int
    share: float
    rounds: float


def simulate_stopping(repetitions: int) -> list[Stopped]:
    found = []
    for spread in STOPPED_SPREADS:
        print(f"... sessions that differ by {100 * spread:g} %", file=sys.stderr)
        for kind in STOPPED_KINDS:
            share, rounds = sampled_share(Noise(kind, spread), repetitions)
            found.append(Stopped(spread, kind, repetitions, share, rounds))
    return found


def stopping_table(result: Result) -> str:
    found = {(row["spread"], row["kind"]): Stopped(**row) for row in result.rows["stopping"]}
    rows = []
    for spread in STOPPED_SPREADS:
        row = [f"{100 * spread:g} %"]
        for kind in STOPPED_KINDS:
            each = found[spread, kind]
            row.append(f"{100 * each.share:.0f} %, {each.rounds:.0f} rounds")
        rows.append(row)
    return markdown(["spread of sessions", *STOPPED_KINDS], rows)


def sampled_share(noise: Noise, repetitions: int) -> tuple[float, float]:
    policy = SamplingPolicy(confidence=CONFIDENCE)
    # Sessions count alike, however long their blocks are.
    truth_ns = INFERENCE_NS * math.exp(true_quantile(noise, 50.0, 20, 40))
    random = noise.random(1)
    hits = total = 0
    for _ in range(repetitions):
        bench = SimulatedBench(noise, random)
        rounds = sample(bench, policy, bench.clock, lambda _: None)
        median = summarize([r.times_ns for r in rounds], 1, CONFIDENCE).percentile(50.0)
        if median.low_ns is None or median.high_ns is None:
            raise ValueError("too few rounds for an interval")
        hits += median.low_ns <= truth_ns <= median.high_ns
        total += len(rounds)
    return hits / repetitions, total / repetitions


def tables(result: Result) -> dict[str, str]:
    covered, stopped = (result.rows[kind][0]["repetitions"] for kind in ("coverage", "stopping"))
    return {
        "intervals": (
            f"{coverage_table(result)}\n\n"
            "So many of the intervals at 95 % hold the true percentile: the mean of all noises "
            f"and sizes, and the worst; {covered} repetitions of each."
        ),
        "intervals stopped": (
            f"{stopping_table(result)}\n\n"
            "So many of the medians hold where measuring stops by its own rule, and the rounds "
            f"that it took; {stopped} repetitions of each. Two kinds lie twice the spread apart."
        ),
    }


def expectations(result: Result) -> tuple[Expectation, ...]:
    found = coverages_of(result)
    expected = []
    for percent in PERCENTS:
        shares = found["as used here", percent].shares
        mean = sum(shares) / len(shares)
        expected.append(
            Expectation(
                f"95 % intervals of p{percent:g} that hold, mean of all noises",
                f"at least {100 * MIN_HOLD:g} %",
                f"{100 * mean:.1f} %, worst {100 * min(shares):.0f} %",
                mean >= MIN_HOLD,
            )
        )
    return tuple(expected)


def main() -> int:
    parser = results.parser(__doc__)
    parser.add_argument("--repetitions", type=int, default=100, help="of each noise")
    arguments = parser.parse_args()
    repetitions: int = arguments.repetitions
    if repetitions < 2:
        parser.error("--repetitions takes 2 or more")
    start = Start.now("intervals")
    rows = {
        # There are ten times as many of these, and half of the repetitions do for them.
        "coverage": [asdict(each) for each in simulate_coverage(repetitions // 2)],
        "stopping": [asdict(each) for each in simulate_stopping(repetitions)],
    }
    return conclude(start.finish(rows), tables, expectations, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
