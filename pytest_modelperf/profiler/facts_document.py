"""What several documents tell alike: of a model, a machine, an engine, a latency, a layer."""

from __future__ import annotations

from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts, Noise, RowKind
from pytest_modelperf.profiler.records import (
    LayerRow,
    LayerType,
    ModelFacts,
    Shape,
    Sparsity,
)
from pytest_modelperf.report.document import Json, ms, number
from pytest_modelperf.stats.records import Latency, Percentile

_PERCENTILES = ("p50_ms", "p90_ms", "p95_ms", "p97_ms", "p99_ms", "p99.9_ms")
_OF_SAMPLES = ("min_ms", "max_ms", "mean_ms", "samples", "rounds", "items_per_second")
_OF_PERCENTILES = ("confidence", "intervals_ms", "needed")
_TOTALS = (
    *("macs", "elementwise_ops", "flops", "backward_macs", "effective_macs", "params"),
    *("weight_bytes", "activation_bytes", "peak_activation_bytes"),
)
_OF_LAYER = (
    *("macs", "elementwise_ops", "backward_macs", "effective_macs"),
    *("params", "weight_bytes", "output_bytes"),
)


def model_to_json(model: ModelFacts) -> dict[str, Json]:
    return {
        "name": model.name,
        "path": model.path,
        "sha256": model.sha256,
        "bytes": model.size_bytes,
        "opsets": dict(model.opsets),
        "producer": model.producer,
    }


def machine_to_json(machine: MachineFacts | None) -> dict[str, Json] | None:
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


def engine_to_json(engine: EngineFacts | None) -> dict[str, Json]:
    return {
        "name": None if engine is None else engine.name,
        "version": None if engine is None else engine.version,
        "python": None if engine is None else engine.python,
        "options": None if engine is None else dict(engine.options),
        "providers": None if engine is None else list(engine.providers),
    }


def latency_to_json(latency: Latency | None) -> dict[str, Json]:
    if latency is None:
        return dict.fromkeys((*_PERCENTILES, *_OF_SAMPLES, *_OF_PERCENTILES))
    found = {f"{percentile.name}_ms": percentile for percentile in latency.percentiles}
    return {
        **{key: ms(found[key].value_ns) if key in found else None for key in _PERCENTILES},
        "min_ms": ms(latency.min_ns),
        "max_ms": ms(latency.max_ns),
        "mean_ms": ms(latency.mean_ns),
        "samples": latency.samples,
        "rounds": latency.rounds,
        "items_per_second": number(latency.items_per_second),
        "confidence": number(latency.confidence),
        "intervals_ms": {key: _interval(found[key]) for key in _PERCENTILES if key in found},
        "needed": {key: found[key].needed for key in _PERCENTILES if key in found},
    }


def _interval(percentile: Percentile) -> Json:
    if percentile.low_ns is None or percentile.high_ns is None:
        return None
    return [ms(percentile.low_ns), ms(percentile.high_ns)]


def noise_to_json(noise: Noise) -> dict[str, Json]:
    return {
        "wall_ns": noise.wall_ns,
        "cpu_ns": noise.cpu_ns,
        "involuntary_switches": noise.involuntary_switches,
        "others_ns": noise.others_ns,
        "stolen_ns": noise.stolen_ns,
        "throttled_ns": noise.throttled_ns,
    }


def layer_type_to_json(kind: LayerType) -> dict[str, Json]:
    # A time that belongs to no layer has none of what the graph tells.
    is_layer = kind.count > 0
    return {
        "op_type": kind.op_type,
        "domain": kind.domain if is_layer else None,
        "count": kind.count if is_layer else None,
        "ms": ms(kind.ns),
        "share": number(kind.share),
        "macs": kind.macs,
        "elementwise_ops": kind.elementwise_ops,
        "backward_macs": kind.backward_macs,
        "params": kind.params if is_layer else None,
        "weight_bytes": kind.weight_bytes if is_layer else None,
        "output_bytes": kind.output_bytes,
    }


def layer_to_json(row: LayerRow) -> dict[str, Json]:
    """A layer with its time; or a time that belongs to none, with null for what a layer has."""
    layer, time = row.static, row.time
    precision = time.precision if time is not None else None
    return {
        "kind": RowKind.LAYER.value if layer is not None or time is None else time.kind.value,
        "id": None if layer is None else layer.id,
        "name": None if layer is None else layer.name,
        "op_type": row.qualified_op if layer is None else layer.op_type,
        "domain": None if layer is None else layer.domain,
        "weight": None if layer is None else layer.weight,
        "provider": None if time is None else time.provider,
        "precision": layer.precision if layer is not None and precision is None else precision,
        "ms": ms(row.ns),
        **{name: None if layer is None else getattr(layer, name) for name in _OF_LAYER},
        "input_shape": None if layer is None else _shape(layer.input_shape),
        "output_shape": None if layer is None else _shape(layer.output_shape),
        "repeats": None if layer is None else layer.repeats,
        "sparsity": None if layer is None else _sparsity(layer.sparsity),
        "kernel": None if time is None else time.kernel or None,
        "fused": [layer.id for layer in row.fused],
        "runs_in": row.runs_in,
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


def totals_to_json(static: object | None) -> dict[str, Json]:
    """The totals of a static profile, counted now or stored."""
    return {name: None if static is None else getattr(static, name) for name in _TOTALS}
