"""A what-if as JSON: the types of its document, and how records become them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pytest_modelperf.comparing.document import (
    Interval,
    OutputJson,
    outputs_to_json,
    ratio_interval,
)
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.records import LayerRow, ModelFacts
from pytest_modelperf.profiler.shown.facts_document import (
    EngineJson,
    MachineJson,
    engine_to_json,
    machine_to_json,
)
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document
from pytest_modelperf.whatif.records import Level, VariantKind, WhatIf, WhatIfCase

_BASELINE = "baseline"


class WhatIfLayerJson(Struct, frozen=True, kw_only=True):
    """One layer of the original model."""

    id: str
    name: str
    op_type: str
    weight: str | None
    macs: int | None
    params: int
    kernel: str | None
    fused: tuple[str, ...]
    runs_in: str | None


class LevelJson(Struct, frozen=True, kw_only=True):
    """The original model, a variant of it, or an estimate."""

    id: str
    title: str
    kind: VariantKind | None
    level: float | None
    form: str | None
    estimate: bool
    ms: float | None
    items_per_second: float | None
    speedup: float | None
    interval: Interval
    rounds: int | None
    macs: int | None
    params: int | None
    size_bytes: int | None
    zeros: float | None
    layer_types: Mapping[str, float | None]
    layers: Mapping[str, float | None]
    half_widths_ms: Mapping[str, float | None]
    outside: tuple[str, ...]
    outputs: tuple[OutputJson, ...]
    outputs_verdict: Verdict | None
    notes: tuple[str, ...]
    failure: str | None


class SummaryJson(Struct, frozen=True, kw_only=True):
    """How fast the model is, beside how fast the best of its levels lets it be.

    `level` is the id of the fastest level that was shown to be faster. It and the estimated values
    are null if none was.
    """

    measured_ms: float | None
    measured_items_per_second: float | None
    estimated_ms: float | None
    estimated_items_per_second: float | None
    speedup: float | None
    level: str | None


class WhatIfCaseJson(Struct, frozen=True, kw_only=True):
    """One case, with every level."""

    id: str
    batch_size: int
    cores: int
    dims: Mapping[str, int]
    summary: SummaryJson
    layers: tuple[WhatIfLayerJson, ...]
    levels: tuple[LevelJson, ...]
    notes: tuple[str, ...]


class WhatIfJson(Struct, frozen=True, kw_only=True):
    """A model beside its variants."""

    schema: int
    model: ModelFacts
    machine: MachineJson | None
    engine: EngineJson
    confidence: float | None
    seconds: float | None
    outputs_tolerance: float | None
    cases: tuple[WhatIfCaseJson, ...]


def dump_whatif(whatif: WhatIf) -> str:
    """The what-if as JSON text."""
    return dump_document(whatif_to_json(whatif))


def whatif_to_json(whatif: WhatIf) -> WhatIfJson:
    return copy_fields(
        WhatIfJson,
        whatif,
        schema=SCHEMA,
        machine=machine_to_json(whatif.machine),
        engine=engine_to_json(whatif.engine),
        cases=tuple(map(_case, whatif.cases)),
    )


def _case(case: WhatIfCase) -> WhatIfCaseJson:
    rows = case.baseline.layers
    return WhatIfCaseJson(
        id=case.id,
        batch_size=case.case.batch_size,
        cores=case.case.cores,
        dims=dict(case.case.dims),
        summary=_summary(case),
        layers=tuple(_layer(row, row.static) for row in rows if row.static is not None),
        levels=tuple(_level(case, level) for level in case.levels),
        notes=case.notes,
    )


def _summary(case: WhatIfCase) -> SummaryJson:
    unchanged, best = case.unchanged, case.best
    return SummaryJson(
        measured_ms=unchanged.ms,
        measured_items_per_second=case.items_per_second(unchanged),
        estimated_ms=None if best is None else best.ms,
        estimated_items_per_second=None if best is None else case.items_per_second(best),
        speedup=None if best is None or best.speedup is None else best.speedup.value,
        level=None if best is None else _level_id(best),
    )


def _layer(row: LayerRow, layer: StaticLayer) -> WhatIfLayerJson:
    return copy_fields(
        WhatIfLayerJson,
        layer,
        op_type=layer.qualified_op,
        kernel=None if row.time is None else row.time.kernel,
        fused=tuple(other.id for other in row.fused),
        runs_in=row.runs_in,
    )


def _level(case: WhatIfCase, level: Level) -> LevelJson:
    variant = level.variant
    return copy_fields(
        LevelJson,
        level,
        id=_level_id(level),
        kind=None if variant is None else variant.kind,
        level=None if variant is None else variant.level,
        form=None if variant is None else variant.form or None,
        estimate=level.is_estimate,
        items_per_second=case.items_per_second(level),
        speedup=None if level.speedup is None else level.speedup.value,
        interval=ratio_interval(level.speedup),
        half_widths_ms=level.half_widths,
        outputs=outputs_to_json(level.outputs),
        outputs_verdict=None if level.judged_outputs is None else level.judged_outputs.verdict,
    )


def _level_id(level: Level) -> str:
    """`baseline`, `pruned-0.9`, `int8-static`; for an estimate, `pruned-0.7-estimate`."""
    if level.variant is None:
        return _BASELINE
    return f"{level.variant.id}-estimate" if level.is_estimate else level.variant.id
