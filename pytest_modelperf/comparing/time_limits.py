"""Limits on the times of rounds: of a percentile, a start, the slowest, or missed deadlines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from pytest_modelperf.baselines.records import StoredProcess
from pytest_modelperf.comparing.limits import FIRST, LOAD
from pytest_modelperf.profiler.measurements import Round
from pytest_modelperf.stats.budgets import (
    judge_misses,
    judge_percentile,
    judge_slowest,
    judge_typical,
    samples_without_a_miss,
)
from pytest_modelperf.stats.decisions import BudgetDecision, plan_looks

# The chance that a model exactly at its tolerance passes, for each case.
PASS_LEVEL = 0.05
# The rounds after which limits are checked. They are checked once more after the last round. The
# first ones are for models so slow that the usual time is too short for the usual rounds.
LIMIT_LOOKS = (1, 3, *plan_looks(100))
# The chance that one of these checks passes a figure exactly at its limit.
LIMIT_PASS_LEVEL = PASS_LEVEL / (len(LIMIT_LOOKS) + 1)


class StartFigure(Struct, frozen=True):
    """A time that each side has once a round: its metric, and its value in a round or a file."""

    metric: str
    of: Callable[[Round], int]
    stored: Callable[[StoredProcess], tuple[int, ...]]


# The times that each round has once, by their names in a tolerance.
STARTS: Mapping[str, StartFigure] = {
    LOAD: StartFigure("load_ms", lambda made: made.load_ns, lambda made: made.load_ns),
    FIRST: StartFigure(
        "first_inference_ms", lambda made: made.first_ns, lambda made: made.first_ns
    ),
}
# The figures of these times, by their names in reports.
START_METRICS = frozenset(start.metric for start in STARTS.values())
_NS_PER_MS = 1e6
# The first session of a process also pays for what the engine loads once.
COLD_ROUNDS = 1


class LatencyLimit(Struct, frozen=True, tag=True):
    """The largest value that a percentile of the latency may have."""

    percent: float
    ns: float


class StartLimit(Struct, frozen=True, tag=True):
    """The largest value of a time that each round has once."""

    metric: str
    ms: float


class SlowestLimit(Struct, frozen=True, tag=True):
    """The largest value that any timed inference may have."""

    ns: float


class MissLimit(Struct, frozen=True, tag=True):
    """The largest share of inferences that may take longer than a deadline."""

    ns: float
    share: float

    @property
    def samples_needed(self) -> int:
        """How many inferences show that the limit is kept, if none of them is late."""
        return samples_without_a_miss(self.share, LIMIT_PASS_LEVEL)


TimeLimit: TypeAlias = LatencyLimit | StartLimit | SlowestLimit | MissLimit


def judge_limit(
    limit: TimeLimit, rounds: Sequence[Round], level: float, limited: Collection[float]
) -> BudgetDecision:
    """Return the decision. Each of the `limited` percentiles has its own level."""
    times = [made.times_ns for made in rounds]
    if isinstance(limit, LatencyLimit):
        return judge_percentile(times, limit.percent, limit.ns, level, LIMIT_PASS_LEVEL, limited)
    if isinstance(limit, SlowestLimit):
        return judge_slowest(times, limit.ns, level)
    if isinstance(limit, MissLimit):
        return judge_misses(times, limit.ns, limit.share, level, LIMIT_PASS_LEVEL)
    (of,) = (start.of for start in STARTS.values() if start.metric == limit.metric)
    warm = rounds[COLD_ROUNDS:] or rounds
    return judge_typical([of(made) / _NS_PER_MS for made in warm], limit.ms, level)
