"""A what-if as JSON: the types of its document, and how records become them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pytest_modelperf.comparing.document import Interval, OutputJson, output_to_json, ratio_interval
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.profiler.facts_document import (
    EngineJson,
    MachineJson,
    ModelJson,
    engine_to_json,
    machine_to_json,
    model_to_json,
)
from pytest_modelperf.profiler.records import StaticLayer
from pytest_modelperf.report.document import SCHEMA, dump_document, number
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
    model: ModelJson
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
    return WhatIfJson(
        schema=SCHEMA,
        model=model_to_json(whatif.model),
        machine=machine_to_json(whatif.machine),
        engine=engine_to_json(whatif.engine),
        confidence=number(whatif.confidence),
        seconds=number(whatif.seconds),
        outputs_tolerance=number(whatif.outputs_tolerance),
        cases=tuple(map(_case, whatif.cases)),
    )


def _case(case: WhatIfCase) -> WhatIfCaseJson:
    counted = case.baseline.counted
    layers = () if counted is None else counted.layers
    return WhatIfCaseJson(
        id=case.id,
        batch_size=case.case.batch_size,
        cores=case.case.cores,
        dims=dict(case.case.dims),
        summary=_summary(case),
        layers=tuple(map(_layer, layers)),
        levels=tuple(_level(case, level) for level in case.levels),
        notes=case.notes,
    )


def _summary(case: WhatIfCase) -> SummaryJson:
    unchanged, best = case.unchanged, case.best
    rate = None if best is None else case.items_per_second(best)
    return SummaryJson(
        measured_ms=number(unchanged.ms),
        measured_items_per_second=number(case.items_per_second(unchanged)),
        estimated_ms=None if best is None else number(best.ms),
        estimated_items_per_second=number(rate),
        speedup=None if best is None or best.speedup is None else number(best.speedup.value),
        level=None if best is None else _level_id(best),
    )


def _layer(layer: StaticLayer) -> WhatIfLayerJson:
    return WhatIfLayerJson(
        id=layer.id,
        name=layer.name,
        op_type=layer.qualified_op,
        weight=layer.weight,
        macs=layer.macs,
        params=layer.params,
    )


def _level(case: WhatIfCase, level: Level) -> LevelJson:
    variant = level.variant
    return LevelJson(
        id=_level_id(level),
        title=level.title,
        kind=None if variant is None else variant.kind,
        level=None if variant is None else number(variant.level),
        form=None if variant is None else variant.form or None,
        estimate=level.is_estimate,
        ms=number(level.ms),
        items_per_second=number(case.items_per_second(level)),
        speedup=None if level.speedup is None else number(level.speedup.value),
        interval=ratio_interval(level.speedup),
        rounds=level.rounds,
        macs=level.macs,
        params=level.params,
        size_bytes=level.size_bytes,
        zeros=number(level.zeros),
        layer_types={op: number(ms) for op, ms in level.layer_types.items()},
        layers={layer: number(ms) for layer, ms in level.layers.items()},
        half_widths_ms={layer: number(ms) for layer, ms in level.half_widths.items()},
        outside=level.outside,
        outputs=tuple(map(output_to_json, level.outputs)),
        outputs_verdict=None if level.judged_outputs is None else level.judged_outputs.verdict,
        notes=level.notes,
        failure=level.failure,
    )


def _level_id(level: Level) -> str:
    """`baseline`, `pruned-0.9`, `int8-static`; for an estimate, `pruned-0.7-estimate`."""
    if level.variant is None:
        return _BASELINE
    return f"{level.variant.id}-estimate" if level.is_estimate else level.variant.id
