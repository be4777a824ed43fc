"""Records to JSON, with the keys that others rely on: a value that could not be had is null."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from pytest_modelperf.machine_facts import MachineFacts
from pytest_modelperf.measurements import (
    Checkup,
    EngineFacts,
    Latency,
    Noise,
    Percentile,
    Round,
    RowKind,
)
from pytest_modelperf.records import (
    CaseProfile,
    LayerRow,
    LayerType,
    ModelFacts,
    Profile,
    Shape,
    Sparsity,
    StaticProfile,
)
from pytest_modelperf.verdicts import (
    CaseComparison,
    Comparison,
    LayerChange,
    LayerTypeChange,
    Metric,
    OutputChange,
    TimeChange,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

SCHEMA = 1

_PERCENTILES = ("p50_ms", "p90_ms", "p95_ms", "p97_ms", "p99_ms", "p99.9_ms")
_OF_SAMPLES = ("min_ms", "max_ms", "mean_ms", "samples", "rounds", "items_per_second")
_OF_PERCENTILES = ("confidence", "intervals_ms", "needed")
_STATIC = (
    *("macs", "elementwise_ops", "flops", "backward_macs", "effective_macs", "params"),
    *("weight_bytes", "activation_bytes", "peak_activation_bytes"),
)
_OF_LAYER = (
    *("macs", "elementwise_ops", "backward_macs", "effective_macs"),
    *("params", "weight_bytes", "output_bytes"),
)
_MEASURED = "measured"

# Thousands of samples, of which `indent` would make a line each. No text of JSON has line breaks.
_SAMPLES = re.compile(r'("times_ns": )\[\n([0-9,\s]*)\]')


def dump_profile(profile: Profile) -> str:
    """The profile as JSON text, in ASCII, so that no name in it can steer a terminal."""
    text = json.dumps(profile_to_json(profile), indent=2, allow_nan=False)
    return _SAMPLES.sub(_on_one_line, text) + "\n"


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
        "seconds": _number(comparison.seconds),
        "rounds": comparison.rounds,
        "confidence": _number(comparison.confidence),
        "tolerance": _number(comparison.tolerance),
        "engines": list(comparison.engines),
        "before": _model(comparison.before),
        "after": _model(comparison.after),
        "cases": [_case_comparison(case) for case in comparison.cases],
    }


def dump_checkups(machine: MachineFacts, checkups: Sequence[Checkup]) -> str:
    """What the doctor found, as JSON text."""
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "machine": _machine(machine),
        "checkups": [_checkup(checkup) for checkup in checkups],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _checkup(checkup: Checkup) -> dict[str, Json]:
    ratio = checkup.ratio
    return {
        "model": checkup.model,
        "engine": _engine(checkup.engine),
        "cores": checkup.cores,
        "processors": None if checkup.processors is None else list(checkup.processors),
        "seconds": checkup.seconds,
        "rounds": checkup.rounds,
        "p50_ms": _ms(checkup.median_ns),
        "ratio": {
            "value": _number(ratio.value),
            "interval": None
            if ratio.low is None or ratio.high is None
            else [_number(ratio.low), _number(ratio.high)],
        },
        "spread": {
            "inferences": _number(checkup.spread.inferences),
            "sessions": _number(checkup.spread.sessions),
        },
        "level": checkup.level,
        "power": checkup.power,
        "outlook": [
            {
                "rounds": look.rounds,
                "seconds": look.seconds,
                "detectable": _number(look.change),
            }
            for look in checkup.outlook
        ],
        "noise": [_noise(noise) for noise in checkup.noise],
    }


def _case_comparison(case: CaseComparison) -> dict[str, Json]:
    return {
        "id": case.id,
        "verdict": None if case.has_failed else case.verdict.value,
        "failure": case.failure,
        "seconds": _number(case.seconds),
        "rounds": case.rounds,
        "metrics": [_metric(metric) for metric in case.metrics],
        "layer_types": [_layer_type_change(change) for change in case.layer_types],
        "layers": [_layer_change(change) for change in case.layers],
        "reasons": list(case.reasons),
        "outputs": [_output(output) for output in case.outputs],
        "notes": list(case.notes),
    }


def _metric(metric: Metric) -> dict[str, Json]:
    return {
        "name": metric.name,
        "before": _number(metric.before),
        "after": _number(metric.after),
        "ratio": _number(metric.ratio),
        "interval": _bounds(metric.interval),
        "detectable": _number(metric.detectable),
        "allowed": _number(metric.allowed),
        "limit": _number(metric.limit),
        "after_interval": _bounds(metric.after_interval),
        "gated": metric.gated,
        "verdict": metric.verdict.value,
    }


def _bounds(interval: tuple[float, float] | None) -> Json:
    return None if interval is None else [_number(bound) for bound in interval]


def _layer_type_change(change: LayerTypeChange) -> dict[str, Json]:
    known = change.after or change.before
    is_layer = known is not None and known.count > 0
    return {
        "op_type": known.op_type if known else None,
        "domain": known.domain if known and is_layer else None,
        **_time_change(change.time),
        "before": None if change.before is None else _layer_type(change.before),
        "after": None if change.after is None else _layer_type(change.after),
    }


def _layer_change(change: LayerChange) -> dict[str, Json]:
    return {
        **_time_change(change.time),
        "before": None if change.before is None else _layer(change.before),
        "after": None if change.after is None else _layer(change.after),
    }


def _time_change(time: TimeChange | None) -> dict[str, Json]:
    """What it takes more now. The interval is there with both ends or not at all."""
    interval: Json = None
    if time is not None and time.low_ns is not None and time.high_ns is not None:
        interval = [_ms(time.low_ns), _ms(time.high_ns)]
    return {
        "change_ms": None if time is None else _ms(time.ns),
        "change_interval_ms": interval,
        "explains": None if time is None else _number(time.share),
    }


def _output(output: OutputChange) -> dict[str, Json]:
    return {
        "name": output.name,
        "max_absolute": _number(output.max_absolute),
        "max_relative": _number(output.max_relative),
        "cosine": _number(output.cosine),
        "difference": output.difference,
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
    run = case.measured
    return {
        "id": case.case.id,
        "batch_size": case.case.batch_size,
        "cores": case.case.cores,
        "dims": dict(case.case.dims),
        "outcome": _MEASURED if run is not None else case.outcome.value,
        "reason": None if run is not None else case.reason,
        "engine": _engine(None if run is None else run.engine),
        "processors": None if run is None or run.processors is None else list(run.processors),
        "seconds": None if run is None else _number(run.seconds),
        "notes": [] if run is None else list(run.notes),
        "static": _static(case.counted),
        "latency": _latency(None if run is None else run.latency),
        "load_ms": None if run is None else _number(run.load_ms),
        "first_load_ms": None if run is None else _number(run.first_load_ms),
        "first_inference_ms": None if run is None else _number(run.first_inference_ms),
        "peak_rss_bytes": None if run is None else run.peak_rss_bytes,
        "engine_peak_bytes": None if run is None else run.engine_peak_bytes,
        "layer_types": [_layer_type(kind) for kind in case.layer_types.values()],
        "layers": [_layer(row) for row in case.layers],
        "raw": None if run is None else [_round(made) for made in run.rounds],
    }


def _engine(engine: EngineFacts | None) -> dict[str, Json]:
    return {
        "name": None if engine is None else engine.name,
        "version": None if engine is None else engine.version,
        "python": None if engine is None else engine.python,
        "options": None if engine is None else dict(engine.options),
        "providers": None if engine is None else list(engine.providers),
    }


def _static(static: StaticProfile | None) -> dict[str, Json]:
    figures: dict[str, Json] = {
        name: None if static is None else getattr(static, name) for name in _STATIC
    }
    uncounted: dict[str, Json] = {}
    for entry in static.uncounted if static is not None else ():
        uncounted[entry.op_type] = int(str(uncounted.get(entry.op_type, 0))) + entry.count
    return {
        **figures,
        "uncounted_ops": None if static is None else uncounted,
        "coverage": None if static is None else static.coverage,
        "notes": [] if static is None else list(static.notes),
    }


def _latency(latency: Latency | None) -> dict[str, Json]:
    if latency is None:
        return dict.fromkeys((*_PERCENTILES, *_OF_SAMPLES, *_OF_PERCENTILES))
    found = {f"{percentile.name}_ms": percentile for percentile in latency.percentiles}
    return {
        **{key: _ms(found[key].value_ns) if key in found else None for key in _PERCENTILES},
        "min_ms": _ms(latency.min_ns),
        "max_ms": _ms(latency.max_ns),
        "mean_ms": _ms(latency.mean_ns),
        "samples": latency.samples,
        "rounds": latency.rounds,
        "items_per_second": _number(latency.items_per_second),
        "confidence": _number(latency.confidence),
        "intervals_ms": {key: _interval(found[key]) for key in _PERCENTILES if key in found},
        "needed": {key: found[key].needed for key in _PERCENTILES if key in found},
    }


def _interval(percentile: Percentile) -> Json:
    if percentile.low_ns is None or percentile.high_ns is None:
        return None
    return [_ms(percentile.low_ns), _ms(percentile.high_ns)]


def _round(made: Round) -> dict[str, Json]:
    return {
        "load_ms": _ms(made.load_ns),
        "first_ms": _ms(made.first_ns),
        "warmup_runs": made.warmup_runs,
        "is_steady": made.is_steady,
        "noise": _noise(made.block.noise),
        "times_ns": list(made.times_ns),
    }


def _noise(noise: Noise) -> dict[str, Json]:
    return {
        "wall_ns": noise.wall_ns,
        "cpu_ns": noise.cpu_ns,
        "involuntary_switches": noise.involuntary_switches,
        "others_ns": noise.others_ns,
        "stolen_ns": noise.stolen_ns,
        "throttled_ns": noise.throttled_ns,
    }


def _layer_type(kind: LayerType) -> dict[str, Json]:
    # A time that belongs to no layer has none of what the graph tells.
    is_layer = kind.count > 0
    return {
        "op_type": kind.op_type,
        "domain": kind.domain if is_layer else None,
        "count": kind.count if is_layer else None,
        "ms": _ms(kind.ns),
        "share": _number(kind.share),
        "macs": kind.macs,
        "elementwise_ops": kind.elementwise_ops,
        "backward_macs": kind.backward_macs,
        "params": kind.params if is_layer else None,
        "weight_bytes": kind.weight_bytes if is_layer else None,
        "output_bytes": kind.output_bytes,
    }


def _layer(row: LayerRow) -> dict[str, Json]:
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
        "ms": _ms(row.ns),
        **{name: None if layer is None else getattr(layer, name) for name in _OF_LAYER},
        "input_shape": None if layer is None else _shape(layer.input_shape),
        "output_shape": None if layer is None else _shape(layer.output_shape),
        "repeats": None if layer is None else layer.repeats,
        "sparsity": None if layer is None else _sparsity(layer.sparsity),
        "kernel": None if time is None else time.kernel or None,
        "fused": [layer.id for layer in row.fused],
        "runs_in": row.runs_in,
    }


def _ms(ns: float | None) -> float | None:
    return None if ns is None else _number(ns / 1e6)


def _number(value: float | None) -> float | None:
    """JSON has no infinity, and what is no number is not known."""
    return value if value is not None and math.isfinite(value) else None


def _on_one_line(match: re.Match[str]) -> str:
    return f"{match[1]}[{' '.join(match[2].split())}]"


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
