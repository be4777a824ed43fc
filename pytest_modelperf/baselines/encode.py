"""Records to the text of a baseline's files: the same content is the same bytes.

Keys are sorted, and what holds only plain values, such as the samples of a round or the figures
of a layer type, stands on one line: so a line of a diff says what changed. The text is ASCII.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pytest_modelperf.baselines.records import (
    Fidelity,
    MachineBaseline,
    ModelBaseline,
    Provenance,
    StoredCase,
    StoredLatency,
    StoredProcess,
    StoredStatic,
    StoredTwin,
)
from pytest_modelperf.baselines.upgrades import MACHINE_SCHEMA, MODEL_SCHEMA
from pytest_modelperf.files.fields import rounded
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import LayerType, ModelFacts

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_STATIC = (
    *("activation_bytes", "backward_macs", "effective_macs", "elementwise_ops"),
    *("knows_activations", "macs", "params", "peak_activation_bytes", "scalar_params"),
    "weight_bytes",
)
_OF_LAYER_TYPE = (
    *("backward_macs", "count", "domain", "elementwise_ops"),
    *("macs", "output_bytes", "params", "weight_bytes"),
)


def encode_model(stored: ModelBaseline) -> bytes:
    """The content of `model.json`."""
    return _text(
        {
            "schema": MODEL_SCHEMA,
            "model": _model(stored.model),
            "twin": _twin(stored.twin),
            "cases": {case.id: _case(case) for case in stored.cases},
        }
    )


def encode_machine(stored: MachineBaseline) -> bytes:
    """The content of the file of a machine."""
    return _text(
        {
            "schema": MACHINE_SCHEMA,
            "machine": {"key": stored.key, **_machine(stored.machine)},
            "cases": {case.id: _latency(case) for case in stored.cases},
        }
    )


def _text(document: Json) -> bytes:
    return f"{_lines(document, 0)}\n".encode("ascii")


def _lines(value: Json, depth: int) -> str:
    """A value as JSON; one that holds other objects or lists has a line for each entry."""
    if isinstance(value, Mapping):
        pairs = [(f"{json.dumps(key)}: ", value[key]) for key in sorted(value)]
        opening, closing = "{}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        pairs = [("", item) for item in value]
        opening, closing = "[]"
    else:
        return json.dumps(value, allow_nan=False)
    entries = [f"{key}{_lines(item, depth + 1)}" for key, item in pairs]
    if all(item is None or isinstance(item, str | int | float) for _, item in pairs):
        return f"{opening}{', '.join(entries)}{closing}"
    indent = "\n" + " " * (depth + 1)
    return f"{opening}{indent}{f',{indent}'.join(entries)}{indent[:-1]}{closing}"


def _model(model: ModelFacts) -> Json:
    return {
        "name": model.name,
        "sha256": model.sha256,
        "bytes": model.size_bytes,
        "opsets": dict(model.opsets),
        "producer": model.producer,
    }


def _twin(twin: StoredTwin | None) -> Json:
    if twin is None:
        return None
    return {
        "sha256": twin.sha256,
        "bytes": twin.size_bytes,
        "left_out_bytes": twin.left_out_bytes,
        "model_sha256": twin.model_sha256,
    }


def _case(case: StoredCase) -> Json:
    return {
        "batch_size": case.batch_size,
        "cores": case.cores,
        "dims": dict(case.dims),
        "engine": case.engine,
        "options": None if case.options is None else dict(case.options),
        "inputs": None
        if case.inputs is None
        else {"specs": dict(case.inputs.specs), "sha256": case.inputs.sha256},
        "model_sha256": case.model_sha256,
        "fidelity": _fidelity(case.fidelity),
        "provenance": _provenance(case.provenance),
        "static": _static(case.static),
        "layer_types": _layer_types(case.static),
        "observed": None
        if case.observed is None
        else {"static": _static(case.observed), "layer_types": _layer_types(case.observed)},
    }


def _provenance(origin: Provenance | None) -> Json:
    if origin is None:
        return None
    return {
        "date": origin.date.isoformat(),
        "machine": origin.machine,
        "packages": dict(origin.packages),
    }


def _fidelity(fidelity: Fidelity | None) -> Json:
    if fidelity is None:
        return None
    low, high = fidelity.ratio.low, fidelity.ratio.high
    return {
        "ratio": rounded(fidelity.ratio.value),
        "interval": None if low is None or high is None else [rounded(low), rounded(high)],
        "rounds": fidelity.rounds,
        "has_same_plan": fidelity.has_same_plan,
        "is_trusted": fidelity.is_trusted,
        "reason": fidelity.reason,
    }


def _static(static: StoredStatic | None) -> Json:
    if static is None:
        return None
    return {
        **{name: getattr(static, name) for name in _STATIC},
        "uncounted_ops": dict(static.uncounted_ops),
        "notes": list(static.notes),
    }


def _layer_types(static: StoredStatic | None) -> Json:
    if static is None:
        return None
    return {op: _layer_type(kind) for op, kind in static.layer_types.items()}


def _layer_type(kind: LayerType) -> Json:
    return {name: getattr(kind, name) for name in _OF_LAYER_TYPE}


def _machine(machine: MachineFacts) -> dict[str, Json]:
    sets = machine.instruction_sets
    quota = machine.quota_cores
    return {
        **{name: getattr(machine, name) for name in MachineFacts.__struct_fields__},
        "caches": dict(machine.caches),
        "instruction_sets": None if sets is None else list(sets),
        "packages": dict(machine.packages),
        "quota_cores": None if quota is None else rounded(quota),
    }


def _latency(case: StoredLatency) -> Json:
    return {
        "engine": _engine(case.engine),
        "model_sha256": case.model_sha256,
        "processes": [_process(process) for process in case.processes],
    }


def _engine(engine: EngineFacts) -> Json:
    return {
        "name": engine.name,
        "version": engine.version,
        "python": engine.python,
        "options": dict(engine.options),
        "providers": list(engine.providers),
    }


def _process(process: StoredProcess) -> Json:
    spent = process.layer_type_ns
    return {
        "date": process.date.isoformat(),
        "load_ns": [made.load_ns for made in process.rounds],
        "first_ns": [made.first_ns for made in process.rounds],
        "peak_rss_bytes": process.peak_rss_bytes,
        "layer_type_ns": None if spent is None else dict(spent),
        "samples": [made.samples for made in process.rounds],
        "times_ns": [list(made.times_ns) for made in process.rounds],
    }
