"""The records of a what-if: a model, and its variants measured next to it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias

from msgspec import Struct, field

from pytest_modelperf.comparing.changes import OUTPUT, Interval, OutputChange
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.profiler.machine.hardware import MACHINE, MachineFacts
from pytest_modelperf.profiler.measurements import ENGINE, EngineFacts, RowKind
from pytest_modelperf.profiler.records import Case, CaseProfile, ModelFacts
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.report.document import dump_document
from pytest_modelperf.report.notebook import Shown
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.escaping import printable

BASELINE = "Baseline"
_BASELINE_ID = "baseline"
# The row of layer types with the time for which a disturbed model waited.
WAITING = RowKind.WAITING.value
# One nanosecond, in ms. A shorter time is a remainder of a subtraction, not a measurement.
SHORTEST_MS = 1e-6


class VariantKind(str, Enum):
    """The change that is made to a model."""

    PRUNED = "pruned"
    NARROWED = "channels removed"
    QUANTIZED = "quantized"
    PRECISION = "precision"


# Variants that should keep the outputs of the model.
FAITHFUL = frozenset({VariantKind.QUANTIZED, VariantKind.PRECISION})
# The names that a user types, and the forms of a variant that each names.
FORMS: Mapping[VariantKind, Mapping[str, tuple[str, ...]]] = {
    VariantKind.QUANTIZED: {
        "int8": ("dynamic", "static"),
        "int8-dynamic": ("dynamic",),
        "int8-static": ("static",),
    },
    VariantKind.PRECISION: {name: (name,) for name in ("bf16", "f16", "f32")},
}
_TITLES = {VariantKind.PRUNED: "Pruned", VariantKind.NARROWED: "Channels"}


class Variant(Struct, frozen=True):
    """One change: a share of weights or channels to remove, or a quantization or precision."""

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
    """One column of the summaries. None is an unknown value.

    `ms` is the median for a batch. `speedup` compares it with the unchanged model. `layer_types`
    and `layers` are milliseconds, by operator and by the id of the unchanged model's layer.
    `half_widths` has half the interval of each of these times, if known. All of these are
    undisturbed times. If other processes disturbed the model, `WAITING` has the rest of `ms`.
    `outside` are the layers that ran outside the accelerated engine. `zeros` is the share of zero
    weights. `judged_outputs` is the largest difference of outputs with its verdict, or None if no
    tolerance judges it. `failure` says why there is no time.
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
    half_widths: Mapping[str, float] = field(default_factory=dict)
    outside: tuple[str, ...] = ()
    outputs: tuple[OutputChange, ...] = ()
    judged_outputs: Metric | None = None
    rounds: int | None = None
    notes: tuple[str, ...] = ()
    failure: str | None = None

    def __repr__(self) -> str:
        """Return one line, for a Python prompt: the times of layers would fill pages."""
        if self.failure is not None:
            return f"<level {printable(self.title)}: failed, {printable(self.failure)}>"
        ms = "no time" if self.ms is None else f"{self.ms:g} ms"
        return f"<level {printable(self.title)}: {ms}>"

    @property
    def id(self) -> str:
        """`baseline`, `pruned-0.9`, `int8-static`, or for an estimate `pruned-0.7-estimate`."""
        if self.variant is None:
            return _BASELINE_ID
        return f"{self.variant.id}-estimate" if self.is_estimate else self.variant.id

    @property
    def form(self) -> str | None:
        return None if self.variant is None else self.variant.form or None

    def relative_half_width(self, layer_id: str) -> float | None:
        """Return the half width of a layer's interval, relative to its time, or None if unknown."""
        ms, half_width = self.layers.get(layer_id), self.half_widths.get(layer_id)
        return None if not ms or half_width is None else half_width / ms

    @property
    def is_faster(self) -> bool:
        """Whether it was shown to be faster than the unchanged model."""
        ratio = self.speedup
        return ratio is not None and ratio.low is not None and ratio.low > 1.0

    @property
    def has_other_outputs(self) -> bool:
        """Whether its outputs differ by more than is allowed."""
        judged = self.judged_outputs
        return judged is not None and judged.verdict is Verdict.REGRESSED

    @property
    def is_gain(self) -> bool:
        """Whether it was shown to be faster and its outputs, if judged, have passed."""
        judged = self.judged_outputs
        return self.is_faster and (judged is None or judged.verdict is Verdict.PASSED)

    @property
    def is_slower(self) -> bool:
        ratio = self.speedup
        return ratio is not None and ratio.high is not None and ratio.high < 1.0


_Times: TypeAlias = Mapping[str, float | None]
LEVEL = JsonObject(
    Level,
    "id title kind=variant.kind level=variant.level form estimate=is_estimate ms items_per_second="
    " speedup=speedup.value interval=speedup.interval rounds macs params size_bytes zeros"
    " layer_types layers half_widths_ms=half_widths outside outputs"
    " outputs_verdict=judged_outputs.verdict notes failure",
    about="The original model, a variant of it, or an estimate.",
    items_per_second=float | None,
    interval=Interval,
    layer_types=_Times,
    layers=_Times,
    half_widths_ms=_Times,
    outputs=OUTPUT,
)


def times_as_fast(before_ms: float | None, after_ms: float | None) -> float | None:
    """Return how many times as fast a layer became, or None if a time is missing or too short."""
    if before_ms is None or before_ms < SHORTEST_MS or not after_ms:
        return None
    return before_ms / after_ms


def _speedup(level: Level) -> float:
    return 0.0 if level.speedup is None else level.speedup.value


class Summary(Struct, frozen=True, kw_only=True):
    """The speed of the model, and that of its best level.

    `level` is the id of the fastest level that was shown to be faster. It and the estimated values
    are null if none was.
    """

    measured_ms: float | None
    measured_items_per_second: float | None
    estimated_ms: float | None
    estimated_items_per_second: float | None
    speedup: float | None
    level: str | None


class WhatIfCase(Struct, frozen=True, kw_only=True):
    """One case: the unchanged model with every variant and estimate.

    `levels` begins with the unchanged model. `baseline` has its layers.
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

    @property
    def unchanged(self) -> Level:
        return self.levels[0]

    @property
    def best(self) -> Level | None:
        """The fastest level of those shown to be faster, or None."""
        gains = [level for level in self.levels if level.is_gain]
        return max(gains, key=_speedup, default=None)

    @property
    def summarized(self) -> Level | None:
        """The best level, or else the fastest one that may be a gain."""
        open_levels = [
            level
            for level in self.levels[1:]
            if not level.is_estimate and not level.has_other_outputs and _speedup(level) > 1.0
        ]
        return self.best or max(open_levels, key=_speedup, default=None)

    def is_outside(self, layer_id: str, level: Level) -> bool:
        """Whether a layer ran outside of the engine on one side, so that it has no speedup."""
        return layer_id in level.outside or layer_id in self.unchanged.outside

    def items_per_second(self, level: Level) -> float | None:
        return None if not level.ms else self.case.batch_size * 1e3 / level.ms

    @property
    def layers(self) -> tuple[LayerRow, ...]:
        """The layers of the unchanged model."""
        return tuple(row for row in self.baseline.layers if row.static is not None)

    @property
    def summary(self) -> Summary:
        unchanged, best = self.unchanged, self.best
        return Summary(
            measured_ms=unchanged.ms,
            measured_items_per_second=self.items_per_second(unchanged),
            estimated_ms=None if best is None else best.ms,
            estimated_items_per_second=None if best is None else self.items_per_second(best),
            speedup=None if best is None or best.speedup is None else best.speedup.value,
            level=None if best is None else best.id,
        )


LAYER = JsonObject(
    LayerRow,
    "id=static.id name=static.name op_type=qualified_op weight=static.weight macs=static.macs"
    " params=static.params kernel=time.kernel fused=fused.id runs_in",
    title="WhatIfLayer",
    about="One layer of the original model.",
    id=str,
    name=str,
    params=int,
)
WHATIF_CASE = JsonObject(
    WhatIfCase,
    "id batch_size=case.batch_size cores=case.cores dims=case.varied summary layers levels notes",
    layers=LAYER,
    levels=LEVEL,
)


class WhatIf(Shown, frozen=True, kw_only=True):
    """A model and its variants, at every case.

    `outputs_tolerance` is the allowed difference of outputs, as a share of their largest value, or
    None if they are not judged.
    """

    model: ModelFacts
    machine: MachineFacts | None
    engine: EngineFacts | None
    cases: tuple[WhatIfCase, ...]
    confidence: float
    seconds: float
    outputs_tolerance: float | None = None


WHATIF = JsonDocument(
    WhatIf,
    "model machine engine confidence seconds outputs_tolerance cases",
    machine=MACHINE,
    engine=ENGINE.or_nulls,
    cases=WHATIF_CASE,
)


# -- a what-if as JSON, with the items per second of each level


def dump_whatif(whatif: WhatIf) -> str:
    return dump_document(whatif_document(whatif))


def whatif_document(whatif: WhatIf) -> dict[str, Any]:
    document = WHATIF.of(whatif)
    for case, found in zip(whatif.cases, document["cases"], strict=True):
        for level, entry in zip(case.levels, found["levels"], strict=True):
            entry["items_per_second"] = case.items_per_second(level)
    return document
