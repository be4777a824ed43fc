"""What changed since a case was recorded: the version of its engine, and the times of short runs.

The same plan settles a case without a comparison of times. If the model takes longer than when it
was recorded, and longer than drift explains, the plan may hide a difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TypeAlias

from msgspec import Struct, field

from pytest_modelperf.baselines.records import StoredCase, StoredLatency
from pytest_modelperf.comparing.records import CaseComparison, How
from pytest_modelperf.files.opened import installed_version
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.stats.slowdowns import ShortLook, low_time, typical_slowdown

# Other builds of an engine, which are separate packages with the same version.
_BUILDS: Mapping[str, Sequence[str]] = {
    "onnxruntime": ("onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml")
}


class EngineChange(Struct, frozen=True, order=True):
    """An engine whose installed version differs from the recorded one."""

    engine: str
    recorded: str
    installed: str

    def __str__(self) -> str:
        return f"{self.engine} {self.recorded} → {self.installed}"

    @property
    def recorded_requirement(self) -> str:
        return requirement_of(self.engine, self.recorded)


def find_engine_change(stored: StoredCase) -> EngineChange | None:
    """Return the change of a case's engine since it was recorded, or None if none is known."""
    return change_of_engine(stored.engine, stored.engine_version)


def change_of_engine(engine: str | None, recorded: str | None) -> EngineChange | None:
    """Return the change of an engine since this version was recorded, or None if none is known."""
    if engine is None or recorded is None:
        return None
    installed = list(installed_builds(engine).values())
    if not installed or recorded in installed:
        return None
    return EngineChange(engine, recorded, installed[0])


def installed_builds(engine: str) -> Mapping[str, str]:
    """Return the installed packages with an engine, and the version of each."""
    found = {package: installed_version(package) for package in (engine, *_BUILDS.get(engine, ()))}
    return {package: version for package, version in found.items() if version is not None}


def with_builds(packages: Mapping[str, str]) -> dict[str, str]:
    """Add the versions of engines that are only installed as another build."""
    found = {engine: [*installed_builds(engine).values()] for engine in _BUILDS}
    return {**{engine: versions[0] for engine, versions in found.items() if versions}, **packages}


def requirement_of(engine: str, version: str) -> str:
    """Return the requirement for this version of an engine, as the build that is installed."""
    package = next(iter(installed_builds(engine)), engine)
    return f"{package}=={version}"


# The machine and the number of cores: other processes delay several threads more than one.
DriftPlace: TypeAlias = tuple[str, int]

# Above this, a ratio is easier to read than a percentage.
_MANY_TIMES = 2


class Slowdowns(Struct):
    """The slowdowns of the models of a run. Their cases may be checked in any order."""

    _found: dict[DriftPlace, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, place: DriftPlace, model: str, slowdown: float) -> None:
        """Remember a slowdown that the machine explains."""
        self._found.setdefault(place, defaultdict(list))[model].append(slowdown)

    def of_others(self, place: DriftPlace, model: str) -> tuple[float, ...]:
        """Return the slowdowns of the other models there. Drift slows all models, not only one."""
        models = self._found.get(place, {})
        # Another thread may add a model in the meantime.
        return tuple(median(own) for name, own in list(models.items()) if name != model)


class Suspicion(Struct, frozen=True, kw_only=True):
    """A case that its plan would settle, but that took longer than drift explains."""

    place: DriftPlace
    model: str
    slowdown: float
    others: tuple[float, ...]

    @property
    def reason(self) -> str:
        took, others = map(describe_slowdown, (self.slowdown, typical_slowdown(self.others)))
        found = f"the plan is the recorded one, but the model took {took} recorded"
        return f"{found} while other models took {others} recorded" if self.others else found

    def describe(self, compared: CaseComparison) -> str:
        """Return the note on the comparison that followed."""
        if compared.how is How.DUET:
            return f"{self.reason}: compared as a duet"
        return f"{self.reason}: the plan did not settle the case"

    def drift(self, compared: CaseComparison) -> float | None:
        """Return the part of the slowdown that the comparison did not find in the model."""
        ratio = None if compared.typical is None else compared.typical.ratio
        return self.slowdown / ratio if ratio else None


def look_at(stored: StoredLatency, now: Measurement) -> ShortLook | None:
    """Compare a short run with the slowest recorded process, or return None on another engine."""
    if not stored.is_of(now.engine):
        return None
    recorded_ns = max(low_time(process.times_ns) for process in stored.processes)
    if recorded_ns <= 0:
        return None
    return ShortLook(now.low_ns / recorded_ns, now.taken)


def describe_slowdown(slowdown: float, place: str = "") -> str:
    """Describe a duration: `2.1 times as long as`, or `34 % longer on this machine than`."""
    percent = round(100 * (slowdown - 1))
    if percent == 0:
        return f"as long{place} as"
    if slowdown >= _MANY_TIMES:
        return f"{slowdown:.1f} times as long{place} as"
    change = f"{percent} % longer" if percent > 0 else f"{-percent} % less time"
    return f"{change}{place} than"
