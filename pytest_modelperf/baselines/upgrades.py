"""Files of older schemas, made into those of the newest: one pure step for each version.

A step checks what it takes apart and hands on the rest as it is, which the decoder checks then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from pytest_modelperf.files.fields import Field

# A step takes a document of its schema to one of the next.
Step: TypeAlias = Callable[[Field], dict[str, object]]

MODEL_SCHEMA = 4
MACHINE_SCHEMA = 1

_CASE_ID = re.compile(r"b[0-9]+-c([0-9]{1,6})", re.ASCII)


def upgrade(root: Field, newest: int, steps: Mapping[int, Step]) -> Field:
    """The document in the newest schema; BaselineError where it is newer than that."""
    found = root.mapping().get("schema")
    if found is None:
        raise root.error('the key "schema" is missing')
    version = found.integer(least=1)
    if version > newest:
        raise found.error(
            f"this file has schema {version}, and this version reads up to {newest}",
            "It was written by a newer pytest-modelperf: "
            "`python -m pip install --upgrade pytest-modelperf`.",
        )
    for step in range(version, newest):
        root = replace(root, value=steps[step](root))
    return root


def _model_1_to_2(root: Field) -> dict[str, object]:
    """Cases become an object by id, and get the model that they were recorded of.

    What follows from other figures is dropped, as is what only a run could have filled.
    """
    entries = root.entries("cases", "model", "schema")
    model = entries["model"].entries("bytes", "name", "sha256")
    cases: dict[str, object] = {}
    for item in entries["cases"].items():
        case = item.entries("batch_size", "id", "layer_types", "static")
        case_id = case["id"].matching(_CASE_ID, "an id such as b8-c2")
        if case_id in cases:
            raise item.error(f"there are two cases {case_id}")
        match = _CASE_ID.fullmatch(case_id)
        kinds = [_layer_type_1_to_2(kind) for kind in case["layer_types"].items()]
        static = case["static"].mapping()
        knows_activations = all(kind["output_bytes"] is not None for _, kind in kinds)
        cases[case_id] = {
            "batch_size": case["batch_size"].value,
            "cores": None if match is None else int(match[1]),
            "dims": {},
            "engine": None,
            "fidelity": None,
            "layer_types": dict(kinds),
            "model_sha256": model["sha256"].value,
            "provenance": None,
            "static": {
                **{key: f.value for key, f in static.items() if key not in {"coverage", "flops"}},
                "knows_activations": knows_activations,
            },
        }
    return {
        "schema": 2,
        "model": {**{k: f.value for k, f in model.items()}, "opsets": {}, "producer": ""},
        "cases": cases,
        "twin": None,
    }


def _layer_type_1_to_2(field: Field) -> tuple[str, dict[str, object]]:
    entries = field.entries(
        *("backward_macs", "count", "domain", "elementwise_ops", "macs", "ms"),
        *("op_type", "output_bytes", "params", "share", "weight_bytes"),
    )
    domain, op = entries["domain"].text(), entries["op_type"].text()
    kept = {k: f.value for k, f in entries.items() if k not in {"ms", "op_type", "share"}}
    return (f"{domain}::{op}" if domain else op), kept


# How far a twin may be from its model, as the interval of schema 2 is judged now.
_NEAR = (0.98, 1.02)
_RECORD_AGAIN = (
    "an older version recorded the baseline and did not compare the engine's plans: record it again"
)


def _model_2_to_3(root: Field) -> dict[str, object]:
    """A fidelity says whether the plans are the same, which nobody asked until now.

    A twin that was shown to be near its model is trusted without. Of one that was not, only a new
    recording can tell.
    """
    entries = root.mapping()
    cases: dict[str, object] = {}
    if "cases" in entries:
        for case_id, case in entries["cases"].mapping().items():
            known = case.mapping()
            upgraded = {key: field.value for key, field in known.items()}
            if "fidelity" in known and known["fidelity"].value is not None:
                upgraded["fidelity"] = _fidelity_2_to_3(known["fidelity"])
            cases[case_id] = upgraded
    return {**{key: field.value for key, field in entries.items()}, "schema": 3, "cases": cases}


def _fidelity_2_to_3(field: Field) -> dict[str, object]:
    entries = field.entries("interval", "is_trusted", "ratio", "reason", "rounds")
    kept = {key: each.value for key, each in entries.items()}
    if entries["is_trusted"].flag():
        return {**kept, "has_same_plan": None}
    bounds = entries["interval"].optional(lambda field: [b.number() for b in field.items()])
    # The decoder checks later that there are two.
    is_near = bool(bounds) and all(_NEAR[0] <= bound <= _NEAR[1] for bound in bounds or ())
    # The old reason is replaced, and must still be valid.
    entries["reason"].optional(Field.text)
    reason = None if is_near else _RECORD_AGAIN
    return {**kept, "is_trusted": is_near, "reason": reason, "has_same_plan": None}


# How the note begins that schema 3 has on figures which a run completed.
_COMPLETED = "only a run could tell"


_COUNT_AGAIN = (
    "an older version recorded the baseline and did not store what its graph alone tells: record "
    "it again"
)


def _model_3_to_4(root: Field) -> dict[str, object]:
    """What the graph alone tells and what a run completed are two things.

    Schema 3 stored what was known last. Where a run completed it, the other is null, and nothing
    tells whether the twin is as it was recorded. Nobody counted yet how many parameters are a
    tensor of a single value.
    """
    entries = root.mapping()
    cases: dict[str, object] = {}
    if "cases" in entries:
        for case_id, case in entries["cases"].mapping().items():
            known = {key: field.value for key, field in case.mapping().items()}
            known |= {"inputs": None, "observed": None, "options": None}
            static = case.mapping().get("static")
            if static is not None and static.value is not None:
                counted = {key: field.value for key, field in static.mapping().items()}
                known["static"] = {**counted, "scalar_params": None}
            if _is_completed(case):
                counts = {"static": known["static"], "layer_types": known.get("layer_types")}
                known |= {"static": None, "layer_types": None, "observed": counts}
                fidelity = known.get("fidelity")
                if isinstance(fidelity, dict) and fidelity.get("is_trusted") is True:
                    known["fidelity"] = {**fidelity, "is_trusted": False, "reason": _COUNT_AGAIN}
            cases[case_id] = known
    upgraded = {key: field.value for key, field in entries.items()}
    if upgraded.get("twin") is not None:
        twin = {key: field.value for key, field in entries["twin"].mapping().items()}
        upgraded["twin"] = {**twin, "left_out_bytes": None}
    return {**upgraded, "schema": 4, "cases": cases}


def _is_completed(case: Field) -> bool:
    static = case.mapping().get("static")
    if static is None or static.value is None or "notes" not in static.mapping():
        return False
    notes = static.mapping()["notes"].items()
    return any(isinstance(n.value, str) and n.value.startswith(_COMPLETED) for n in notes)


MODEL_UPGRADES: Mapping[int, Step] = {1: _model_1_to_2, 2: _model_2_to_3, 3: _model_3_to_4}
MACHINE_UPGRADES: Mapping[int, Step] = {}
