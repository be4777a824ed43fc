"""A what-if as JSON: every level of each case, with its layer types and layers."""

from __future__ import annotations

from pytest_modelperf.comparing.document import output_to_json
from pytest_modelperf.profiler.facts_document import engine_to_json, machine_to_json, model_to_json
from pytest_modelperf.profiler.records import StaticLayer
from pytest_modelperf.report.document import SCHEMA, Json, dump_document, number
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.whatif.records import Level, WhatIf, WhatIfCase

_BASELINE = "baseline"


def dump_whatif(whatif: WhatIf) -> str:
    """The what-if as JSON text; what could not be had is null."""
    return dump_document(whatif_to_json(whatif))


def whatif_to_json(whatif: WhatIf) -> dict[str, Json]:
    return {
        "schema": SCHEMA,
        "model": model_to_json(whatif.model),
        "machine": machine_to_json(whatif.machine),
        "engine": engine_to_json(whatif.engine),
        "confidence": number(whatif.confidence),
        "seconds": number(whatif.seconds),
        "cases": [_case(case) for case in whatif.cases],
    }


def _case(case: WhatIfCase) -> dict[str, Json]:
    counted = case.baseline.counted
    return {
        "id": case.id,
        "batch_size": case.case.batch_size,
        "cores": case.case.cores,
        "dims": dict(case.case.dims),
        "layers": [_layer(layer) for layer in (counted.layers if counted is not None else ())],
        "levels": [_level(case, level) for level in case.levels],
        "notes": list(case.notes),
    }


def _layer(layer: StaticLayer) -> dict[str, Json]:
    return {
        "id": layer.id,
        "name": layer.name,
        "op_type": layer.qualified_op,
        "weight": layer.weight,
        "macs": layer.macs,
        "params": layer.params,
    }


def _level(case: WhatIfCase, level: Level) -> dict[str, Json]:
    variant = level.variant
    return {
        "id": level_id(level),
        "title": level.title,
        "kind": None if variant is None else variant.kind.value,
        "level": None if variant is None else number(variant.level),
        "form": None if variant is None else variant.form or None,
        "estimate": level.is_estimate,
        "ms": number(level.ms),
        "items_per_second": number(case.items_per_second(level)),
        "speedup": None if level.speedup is None else number(level.speedup.value),
        "interval": _interval(level.speedup),
        "rounds": level.rounds,
        "macs": level.macs,
        "params": level.params,
        "size_bytes": level.size_bytes,
        "zeros": number(level.zeros),
        "layer_types": {op: number(ms) for op, ms in level.layer_types.items()},
        "layers": {layer: number(ms) for layer, ms in level.layers.items()},
        "outside": list(level.outside),
        "outputs": [output_to_json(output) for output in level.outputs],
        "notes": list(level.notes),
        "failure": level.failure,
    }


def level_id(level: Level) -> str:
    """`baseline`, `pruned-0.9`, `int8-static`; of an estimate `pruned-0.7-estimate`."""
    if level.variant is None:
        return _BASELINE
    return f"{level.variant.id}-estimate" if level.is_estimate else level.variant.id


def _interval(ratio: Ratio | None) -> Json:
    """Both ends, or null."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return [number(ratio.low), number(ratio.high)]
