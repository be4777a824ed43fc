"""Files of older schemas, made into those of the newest: one pure step for each version.

A step changes what its schema names and hands on the rest, which the types of the newest check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from pytest_modelperf.files.documents import Schema

Part: TypeAlias = dict[str, Any]

_CASE_ID = re.compile(r"b[0-9]+-c([0-9]{1,6})", re.ASCII)
# How far a twin may be from its model, as the interval of schema 2 is judged now.
_NEAR = (0.98, 1.02)
_RECORD_AGAIN = (
    "an older version recorded the baseline and did not compare the engine's plans: record it again"
)
# How the note begins that schema 3 has on figures which a run completed.
_COMPLETED = "only a run could tell"
COUNT_AGAIN = (
    "an older version recorded the baseline and did not store what its graph alone tells: record "
    "it again"
)


def _model_1_to_2(root: Part) -> Part:
    """Cases become an object by id, and get the model that they were recorded of.

    Figures that follow from others are dropped, and so are times, which only a run could have
    filled.
    """
    model = root["model"]
    cases: Part = {}
    for case in root["cases"]:
        case_id, static = case["id"], case["static"]
        if case_id in cases:
            raise ValueError(f"there are two cases {case_id}")
        match = _CASE_ID.fullmatch(case_id)
        if match is None:
            raise ValueError(f'"{case_id}" is no id such as b8-c2')
        kinds = dict(_layer_type_1_to_2(kind) for kind in case["layer_types"])
        cases[case_id] = {
            "batch_size": case["batch_size"],
            "cores": int(match[1]),
            "dims": {},
            "engine": None,
            "fidelity": None,
            "layer_types": kinds,
            "model_sha256": model["sha256"],
            "provenance": None,
            "static": {
                **_without(static, "coverage", "flops"),
                "knows_activations": all(k["output_bytes"] is not None for k in kinds.values()),
            },
        }
    return {
        **_without(root, "model", "cases"),
        "schema": 2,
        "model": {**model, "opsets": {}, "producer": ""},
        "cases": cases,
        "twin": None,
    }


def _layer_type_1_to_2(kind: Part) -> tuple[str, Part]:
    domain, op = kind["domain"], kind["op_type"]
    if not isinstance(domain, str) or not isinstance(op, str):
        raise TypeError("an operator whose name is no text")
    return (f"{domain}::{op}" if domain else op), _without(kind, "ms", "op_type", "share")


def _model_2_to_3(root: Part) -> Part:
    """A fidelity says whether the plans are the same, which nobody asked until now.

    A twin that was shown to be near its model is trusted without. Of one that was not, only a new
    recording can tell.
    """
    return {**root, "schema": 3, "cases": _each(root["cases"], _case_2_to_3)}


def _case_2_to_3(case: Part) -> Part:
    fidelity = case["fidelity"]
    if fidelity is None:
        return case
    upgraded = {**fidelity, "has_same_plan": None}
    if fidelity["is_trusted"] is False:
        bounds = fidelity["interval"] or ()
        is_near = bool(bounds) and all(_NEAR[0] <= bound <= _NEAR[1] for bound in bounds)
        upgraded |= {"is_trusted": is_near, "reason": None if is_near else _RECORD_AGAIN}
    return {**case, "fidelity": upgraded}


def _model_3_to_4(root: Part) -> Part:
    """What the graph alone tells and what a run completed are two things.

    Schema 3 stored what was known last. Where a run completed it, the other is null, and nothing
    tells whether the twin is as it was recorded. Nobody counted yet how many parameters are a
    tensor of a single value.
    """
    twin = root["twin"]
    return {
        **root,
        "schema": 4,
        "twin": None if twin is None else {**twin, "left_out_bytes": None},
        "cases": _each(root["cases"], _case_3_to_4),
    }


def _case_3_to_4(case: Part) -> Part:
    upgraded = {**case, "inputs": None, "observed": None, "options": None}
    if case["static"] is None:
        return upgraded
    static = {**case["static"], "scalar_params": None}
    if not any(str(note).startswith(_COMPLETED) for note in static["notes"]):
        return {**upgraded, "static": static}
    fidelity = case["fidelity"]
    if fidelity is not None and fidelity["is_trusted"]:
        fidelity = {**fidelity, "is_trusted": False, "reason": COUNT_AGAIN}
    observed = {"static": static, "layer_types": case["layer_types"]}
    nothing = {"static": None, "layer_types": None}
    return {**upgraded, **nothing, "observed": observed, "fidelity": fidelity}


def _model_4_to_5(root: Part) -> Part:
    """Nobody stored the size of a model with its external data yet."""
    return {**root, "schema": 5, "model": {**root["model"], "total_bytes": None}}


def _model_5_to_6(root: Part) -> Part:
    """No case was a phase of a generation yet."""
    return {
        **root,
        "schema": 6,
        "cases": _each(root["cases"], lambda case: {**case, "generation": None}),
    }


def _model_6_to_7(root: Part) -> Part:
    """Nobody stored the digest of a plan yet."""
    return {**root, "schema": 7, "cases": _each(root["cases"], lambda case: {**case, "plan": None})}


def _model_7_to_8(root: Part) -> Part:
    """Nobody stored the digest of a structure yet."""
    cases = _each(root["cases"], lambda case: {**case, "structure": None})
    return {**root, "schema": 8, "cases": cases}


def _each(cases: Part, upgrade: Any) -> Part:  # noqa: ANN401  # a step for one case
    return {case_id: upgrade(case) for case_id, case in cases.items()}


def _without(part: Mapping[str, Any], *keys: str) -> Part:
    return {key: value for key, value in part.items() if key not in keys}


_MODEL_STEPS = (
    _model_1_to_2,
    _model_2_to_3,
    _model_3_to_4,
    _model_4_to_5,
    _model_5_to_6,
    _model_6_to_7,
    _model_7_to_8,
)
MODEL_SCHEMA = Schema(8, dict(enumerate(_MODEL_STEPS, 1)))
MACHINE_SCHEMA = Schema(1)
