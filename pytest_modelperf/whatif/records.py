"""The records of a what-if: a model beside what could be made of it, each of them measured.

A level is one column of the summaries: the model as it is, a variant of it, or an estimate between
two variants. All times of a case are on one scale: each variant ran in turn with the model as it
is, and its times are those of the model times the ratio that the two had.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from pytest_modelperf.comparing.records import OutputChange
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import Case, CaseProfile, ModelFacts
from pytest_modelperf.stats.records import Ratio

BASELINE = "Baseline"
# A nanosecond, in ms. What is said to take less is left of a subtraction.
SHORTEST_MS = 1e-6


class VariantKind(str, Enum):
    """What is done to a model."""

    PRUNED = "pruned"
    NARROWED = "channels removed"
    QUANTIZED = "quantized"
    PRECISION = "precision"


_TITLES = {VariantKind.PRUNED: "Pruned", VariantKind.NARROWED: "Channels"}


class Variant(Struct, frozen=True):
    """One thing that is tried: `level` is the share of weights or channels that goes.

    `form` is which quantization, `dynamic` or `static`, or which precision, `bf16`.
    """

    kind: VariantKind
    level: float | None = None
    form: str = ""

    @property
    def title(self) -> str:
        """`Pruned 0.9`, `Channels 0.5`, `INT8 dynamic`, `BF16`."""
        if self.level is not None:
            return f"{_TITLES[self.kind]} {self.level:g}"
        return f"INT8 {self.form}" if self.kind is VariantKind.QUANTIZED else self.form.upper()

    @property
    def id(self) -> str:
        """`pruned-0.9`, `channels-0.5`, `int8-dynamic`, `bf16`."""
        return self.title.lower().replace(" ", "-")


class Level(Struct, frozen=True, kw_only=True):
    """What one column of the summaries says; None is what could not be had.

    `ms` is the median for a batch. `speedup` is how many times as fast as the model as it is, with
    its interval. `layer_types` and `layers` are milliseconds, by operator and by the id of the
    layer of the model as it is. `outside` are the layers that ran outside the accelerated engine.
    `zeros` is the share of its weights that is zero. `failure` says why there is no time.
    """

    title: str
    variant: Variant | None = None
    is_estimate: bool = False
    ms: float | None = None
    speedup: Ratio | None = None
    macs: int | None = None
    params: int | None = None
    size_bytes: int | None = None
    zeros: float | None = None
    layer_types: Mapping[str, float] = field(default_factory=dict)
    layers: Mapping[str, float] = field(default_factory=dict)
    outside: tuple[str, ...] = ()
    outputs: tuple[OutputChange, ...] = ()
    rounds: int | None = None
    notes: tuple[str, ...] = ()
    failure: str | None = None

    @property
    def is_faster(self) -> bool:
        """Whether it was shown to be faster than the model as it is."""
        ratio = self.speedup
        return ratio is not None and ratio.low is not None and ratio.low > 1.0

    @property
    def is_slower(self) -> bool:
        ratio = self.speedup
        return ratio is not None and ratio.high is not None and ratio.high < 1.0


def times_as_fast(before_ms: float | None, after_ms: float | None) -> float | None:
    """How many times as fast a layer became; None where either side took no time to speak of."""
    if before_ms is None or before_ms < SHORTEST_MS or not after_ms:
        return None
    return before_ms / after_ms


class WhatIfCase(Struct, frozen=True, kw_only=True):
    """One case: the model as it is, and beside it every variant and estimate.

    `levels` begins with the model as it is; `baseline` has its layers.
    """

    case: Case
    baseline: CaseProfile
    levels: tuple[Level, ...]
    notes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.case.id

    @property
    def has_failed(self) -> bool:
        return any(level.failure is not None for level in self.levels)

    def items_per_second(self, level: Level) -> float | None:
        return None if not level.ms else self.case.batch_size * 1e3 / level.ms


class WhatIf(Struct, frozen=True, kw_only=True):
    """A model and what could be made of it, at every case."""

    model: ModelFacts
    machine: MachineFacts | None
    engine: EngineFacts | None
    cases: tuple[WhatIfCase, ...]
    confidence: float
    seconds: float
