"""The records of a checkup of a machine."""

from __future__ import annotations

from msgspec import Struct

from pytest_modelperf.profiler.machine.hardware import MACHINE, MachineFacts
from pytest_modelperf.profiler.measurements import ENGINE, EngineFacts, Noise
from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.stats.records import Growth, LatencySpread, Ratio


class Outlook(Struct, frozen=True, kw_only=True):
    """The smallest slowdown that a number of rounds would detect, and how long they would take."""

    rounds: int
    seconds: float
    change: float


class Checkup(Struct, frozen=True, kw_only=True):
    """How noisy a machine is: one model against itself, two sessions in turn.

    `ratio` would be 1 without noise. `noise` has an entry for each round. `outlook` is for one test
    at `level` that detects a change with the probability `power`. `growth` is the growth of the
    model's memory, or None for the doctor's own small network. `notes` are the notes of the worker.
    `ratios` has the time of the second session divided by that of the first for each round.
    """

    model: str
    engine: EngineFacts
    cores: int
    processors: tuple[int, ...] | None
    seconds: float
    median_ns: float
    ratio: Ratio
    spread: LatencySpread
    noise: tuple[Noise, ...]
    level: float
    power: float
    outlook: tuple[Outlook, ...]
    ratios: tuple[float, ...]
    growth: Growth | None = None
    notes: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        return len(self.noise)


CHECKUP = JsonObject(
    Checkup,
    "model engine cores processors seconds rounds p50_ms=median_ns ratio spread level power outlook"
    " growth noise notes",
    engine=ENGINE,
    ratio=JsonObject(
        Ratio,
        "value interval",
        about="The second side over the first.",
        interval=tuple[float | None, float | None] | None,
    ),
    outlook=JsonObject(
        Outlook,
        "rounds seconds detectable=change",
        about="The smallest slowdown that a number of rounds would detect.",
        detectable=float | None,
    ),
    growth=JsonObject(
        Growth,
        "inferences bytes_per_inference interval confidence",
        about="How much the memory of the model grows with each inference.",
    ),
)


class Checkups(Struct, frozen=True):
    """All checkups of a machine."""

    machine: MachineFacts
    checkups: tuple[Checkup, ...]


CHECKUPS = JsonDocument(Checkups, "machine checkups", machine=MACHINE, checkups=CHECKUP)
