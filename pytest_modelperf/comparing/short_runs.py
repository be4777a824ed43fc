"""The short runs of settled cases, held against the times of their baselines.

The same plan settles a case without a comparison of times. If the model then takes longer than it
took when it was recorded, and longer than drift explains, the plan may hide a difference.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TypeAlias

from msgspec import Struct, field

from pytest_modelperf.baselines.records import StoredLatency
from pytest_modelperf.comparing.records import CaseComparison, How
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.stats.slowdowns import Look, low_time, typical_drift

# The machine and the number of cores: neighbours delay several threads more than one.
DriftPlace: TypeAlias = tuple[str, int]

# From here on a ratio reads better than a percentage.
_MANY_TIMES = 2


class Slowdowns(Struct):
    """The slowdowns of the models of a run, in whatever order their cases are checked."""

    _found: dict[DriftPlace, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, place: DriftPlace, model: str, slowdown: float) -> None:
        """Remember a slowdown that the machine explains."""
        self._found.setdefault(place, defaultdict(list))[model].append(slowdown)

    def of_others(self, place: DriftPlace, model: str) -> tuple[float, ...]:
        """The slowdown of each other model there: what slows all cases of one is no drift."""
        models = self._found.get(place, {})
        return tuple(median(own) for name, own in models.items() if name != model)


class Suspicion(Struct, frozen=True, kw_only=True):
    """A case that its plan would settle, but that took longer than drift explains."""

    place: DriftPlace
    model: str
    slowdown: float
    others: tuple[float, ...]

    @property
    def reason(self) -> str:
        found = (
            f"the plan is the recorded one, but the model ran {_describe(self.slowdown)} recorded"
        )
        if not self.others:
            return found
        return f"{found} while other models ran {_describe(typical_drift(self.others))} recorded"

    def describe(self, compared: CaseComparison) -> str:
        """The note on the comparison that followed."""
        if compared.how is How.DUET:
            return f"{self.reason}: compared as a duet"
        return f"{self.reason}: the plan did not settle the case"

    def drift(self, compared: CaseComparison) -> float | None:
        """The part of the slowdown that the comparison did not find in the model."""
        ratios = (m.ratio for m in compared.metrics if m.name == "latency_p50")
        ratio = next(ratios, None)
        return self.slowdown / ratio if ratio else None


def look_at(stored: StoredLatency, now: Measurement) -> Look | None:
    """A short run against the slowest recorded process; None if these ran on another engine."""
    if not stored.is_of(now.engine):
        return None
    recorded_ns = max(low_time(process.times_ns) for process in stored.processes)
    if recorded_ns <= 0:
        return None
    now_ns = low_time(made.block.calm_ns for made in now.rounds)
    return Look(now_ns / recorded_ns, _taken(now))


def _taken(now: Measurement) -> float:
    """How many of its processors others had."""
    noises = [made.block.noise for made in now.rounds]
    wall_ns = sum(noise.wall_ns for noise in noises)
    return sum(noise.others_ns or 0 for noise in noises) / wall_ns if wall_ns else 0.0


def _describe(slowdown: float) -> str:
    """`2.1 times as long as`, `34 % longer than`."""
    percent = round(100 * (slowdown - 1))
    if percent == 0:
        return "as long as"
    if slowdown >= _MANY_TIMES:
        return f"{slowdown:.1f} times as long as"
    return f"{abs(percent)} % {'longer' if percent > 0 else 'shorter'} than"
