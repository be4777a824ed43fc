"""Records to JSON, with the keys that others rely on: a value that could not be had is null."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from pytest_modelperf.records import (
    CaseProfile,
    LayerType,
    MachineFacts,
    ModelFacts,
    Profile,
    Shape,
    Sparsity,
    StaticLayer,
    StaticProfile,
)
from pytest_modelperf.verdicts import CaseComparison, Comparison, LayerTypeChange, Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

SCHEMA = 1

_PERCENTILES = ("p50_ms", "p90_ms", "p95_ms", "p97_ms", "p99_ms", "p99.9_ms")


def dump_profile(profile: Profile) -> str:
    """The profile as JSON text, in ASCII, so that no name in it can steer a terminal."""
    return json.dumps(profile_to_json(profile), indent=2, allow_nan=False) + "\n"


def profile_to_json(profile: Profile) -> dict[str, Json]:
    return {
        "schema": SCHEMA,
        "model": _model(profile.model),
        "machine": _machine(profile.machine),
        "cases": [_case(case) for case in profile.cases],
    }


def dump_comparison(comparison: Comparison) -> str:
    """The comparison as JSON text; what only a measurement tells is null."""
    return json.dumps(comparison_to_json(comparison), indent=2, allow_nan=False) + "\n"


def comparison_to_json(comparison: Comparison) -> dict[str, Json]:
    return {
        "schema": SCHEMA,
        "verdict": comparison.verdict.value,
        "seconds": None,
        "rounds": None,
        "confidence": None,
        "tolerance": None,
        "before": _model(comparison.before),
        "after": _model(comparison.after),
        "cases": [_case_comparison(case) for case in comparison.cases],
    }


def _case_comparison(case: CaseComparison) -> dict[str, Json]:
    return {
        "id": case.id,
        "verdict": case.verdict.value,
        "metrics": [_metric(metric) for metric in case.metrics],
        "layer_types": [_layer_type_change(change) for change in case.layer_types],
        "layers": [],
        "reasons": list(case.reasons),
    }


def _metric(metric: Metric) -> dict[str, Json]:
    return {
        "name": metric.name,
        "before": metric.before,
        "after": metric.after,
        "ratio": metric.ratio,
        "interval": None,
        "detectable": None,
        "gated": metric.gated,
        "verdict": metric.verdict.value,
    }


def _layer_type_change(change: LayerTypeChange) -> dict[str, Json]:
    known = change.after or change.before
    return {
        "op_type": known.op_type if known else None,
        "domain": known.domain if known else None,
        "before": None if change.before is None else _layer_type(change.before),
        "after": None if change.after is None else _layer_type(change.after),
    }


def _model(model: ModelFacts) -> dict[str, Json]:
    return {
        "name": model.name,
        "path": model.path,
        "sha256": model.sha256,
        "bytes": model.size_bytes,
        "opsets": dict(model.opsets),
        "producer": model.producer,
    }


def _machine(machine: MachineFacts | None) -> Json:
    if machine is None:
        return None
    sets = machine.instruction_sets
    return {
        "key": machine.key,
        "cpu": machine.cpu,
        "microarchitecture": machine.microarchitecture,
        "instruction_sets": None if sets is None else list(sets),
        "physical_cores": machine.physical_cores,
        "logical_cores": machine.logical_cores,
        "usable_cores": machine.usable_cores,
        "quota_cores": machine.quota_cores,
        "caches": dict(machine.caches),
        "memory_bytes": machine.memory_bytes,
        "memory_limit_bytes": machine.memory_limit_bytes,
        "governor": machine.governor,
        "turbo": machine.turbo,
        "virtualization": machine.virtualization,
        "system": machine.system,
        "kernel": machine.kernel,
        "distribution": machine.distribution,
        "architecture": machine.architecture,
        "python": machine.python,
        "packages": dict(machine.packages),
    }


def _case(case: CaseProfile) -> dict[str, Json]:
    static = case.static
    return {
        "id": case.case.id,
        "batch_size": case.case.batch_size,
        "cores": case.case.cores,
        "dims": dict(case.case.dims),
        "engine": {"name": None, "version": None, "options": None},
        "static": _static(static),
        "latency": _no_latency(),
        "load_ms": None,
        "first_inference_ms": None,
        "peak_rss_bytes": None,
        "layer_types": [_layer_type(kind) for kind in static.layer_types.values()],
        "layers": [_layer(layer) for layer in static.layers],
    }


def _static(static: StaticProfile) -> dict[str, Json]:
    uncounted: dict[str, Json] = {}
    for entry in static.uncounted:
        uncounted[entry.op_type] = int(str(uncounted.get(entry.op_type, 0))) + entry.count
    return {
        "macs": static.macs,
        "elementwise_ops": static.elementwise_ops,
        "flops": static.flops,
        "backward_macs": static.backward_macs,
        "effective_macs": static.effective_macs,
        "params": static.params,
        "weight_bytes": static.weight_bytes,
        "activation_bytes": static.activation_bytes,
        "peak_activation_bytes": static.peak_activation_bytes,
        "uncounted_ops": uncounted,
        "coverage": static.coverage,
        "notes": list(static.notes),
    }


def _no_latency() -> dict[str, Json]:
    keys = (*_PERCENTILES, "min_ms", "max_ms", "mean_ms", "samples", "rounds", "items_per_second")
    return dict.fromkeys(keys)


def _layer_type(kind: LayerType) -> dict[str, Json]:
    return {
        "op_type": kind.op_type,
        "domain": kind.domain,
        "count": kind.count,
        "ms": None,
        "share": None,
        "macs": kind.macs,
        "elementwise_ops": kind.elementwise_ops,
        "backward_macs": kind.backward_macs,
        "params": kind.params,
        "weight_bytes": kind.weight_bytes,
        "output_bytes": kind.output_bytes,
    }


def _layer(layer: StaticLayer) -> dict[str, Json]:
    return {
        "id": layer.id,
        "name": layer.name,
        "op_type": layer.op_type,
        "domain": layer.domain,
        "weight": layer.weight,
        "provider": None,
        "precision": layer.precision,
        "ms": None,
        "macs": layer.macs,
        "elementwise_ops": layer.elementwise_ops,
        "backward_macs": layer.backward_macs,
        "effective_macs": layer.effective_macs,
        "params": layer.params,
        "weight_bytes": layer.weight_bytes,
        "output_bytes": layer.output_bytes,
        "input_shape": _shape(layer.input_shape),
        "output_shape": _shape(layer.output_shape),
        "repeats": layer.repeats,
        "sparsity": _sparsity(layer.sparsity),
        "fused": [],
    }


def _shape(shape: Shape | None) -> Json:
    return None if shape is None else list(shape)


def _sparsity(sparsity: Sparsity | None) -> Json:
    if sparsity is None:
        return None
    return {
        "ratio": sparsity.ratio,
        "zeros": sparsity.zeros,
        "size": sparsity.size,
        "pattern": sparsity.pattern,
        "block_ratio": sparsity.block_ratio,
        "n_of_m": None if sparsity.n_of_m is None else list(sparsity.n_of_m),
    }
