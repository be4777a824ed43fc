"""A checkup of a machine as JSON: the types of the document, and how records become them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.profiler.doctor.records import Checkup
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import Noise
from pytest_modelperf.profiler.shown.facts_document import (
    EngineJson,
    MachineJson,
    engine_to_json,
    machine_to_json,
)
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document, ms
from pytest_modelperf.stats.records import LatencySpread


class CheckupRatioJson(Struct, frozen=True, kw_only=True):
    """The second side over the first."""

    value: float | None
    interval: tuple[float | None, float | None] | None


class OutlookJson(Struct, frozen=True, kw_only=True):
    """The smallest slowdown that a number of rounds would detect."""

    rounds: int
    seconds: float
    detectable: float | None


class GrowthJson(Struct, frozen=True, kw_only=True):
    """How much the memory of the model grows with each inference."""

    inferences: int
    bytes_per_inference: float
    interval: tuple[float, float]
    confidence: float


class CheckupJson(Struct, frozen=True, kw_only=True):
    """A checkup at one core count."""

    model: str
    engine: EngineJson
    cores: int
    processors: tuple[int, ...] | None
    seconds: float
    rounds: int
    p50_ms: float | None
    ratio: CheckupRatioJson
    spread: LatencySpread
    level: float
    power: float
    outlook: tuple[OutlookJson, ...]
    growth: GrowthJson | None
    noise: tuple[Noise, ...]
    notes: tuple[str, ...]


class CheckupsJson(Struct, frozen=True, kw_only=True):
    """All checkups of a machine."""

    schema: int
    machine: MachineJson | None
    checkups: tuple[CheckupJson, ...]


def dump_checkups(machine: MachineFacts, checkups: Sequence[Checkup]) -> str:
    """The checkups as JSON text."""
    return dump_document(
        CheckupsJson(
            schema=SCHEMA,
            machine=machine_to_json(machine),
            checkups=tuple(map(checkup_to_json, checkups)),
        )
    )


def checkup_to_json(checkup: Checkup) -> CheckupJson:
    """A checkup as it stands in documents."""
    growth, ratio = checkup.growth, checkup.ratio
    return copy_fields(
        CheckupJson,
        checkup,
        engine=engine_to_json(checkup.engine),
        p50_ms=ms(checkup.median_ns),
        ratio=CheckupRatioJson(value=ratio.value, interval=ratio.interval),
        outlook=tuple(
            copy_fields(OutlookJson, look, detectable=look.change) for look in checkup.outlook
        ),
        growth=None
        if growth is None
        else copy_fields(GrowthJson, growth, interval=(growth.low, growth.high)),
    )
