"""The kinds of settings: how their values are typed, read, written in Python, and described.

A face imports this where it reads a value, and not before: it imports all readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from pytest_modelperf.comparing.budgets import COMPANIONS, FIGURES
from pytest_modelperf.comparing.limits import TOLERANCE_WORDS, read_tolerances
from pytest_modelperf.comparing.records import Measure
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.spec import readers
from pytest_modelperf.spec.setting import Setting
from pytest_modelperf.spec.typed_text import (
    keep,
    parse_dims,
    parse_flag,
    parse_number,
    parse_numbers,
    parse_pairs,
)

JsonSchema = Mapping[str, object]

_TEXT: JsonSchema = {"type": "string", "minLength": 1}
_SECONDS: JsonSchema = {"type": "number", "exclusiveMinimum": 0}
_SHARE: JsonSchema = {"type": ["number", "string"]}


def _one_or_more(item: JsonSchema) -> JsonSchema:
    several = {"type": "array", "items": item, "minItems": 1, "uniqueItems": True}
    return {"anyOf": [item, several]}


def _table_of(value: JsonSchema) -> JsonSchema:
    return {"type": "object", "additionalProperties": value}


_SIZE: JsonSchema = {"type": "integer", "minimum": 1}
_LENGTH: JsonSchema = {"type": "integer", "minimum": 0}
# A key with dots makes tables within tables.
_PAIRS = _table_of({"type": ["string", "number", "object"]})


def read(setting: Setting, value: object, where: str) -> Any:  # noqa: ANN401  # as its kind
    """The setting from a value of a table; a UsageError begins with `where`."""
    return KINDS[setting.kind].read(value, where)


def read_typed(setting: Setting, text: object, where: str) -> Any:  # noqa: ANN401  # likewise
    """The setting from typed text, or from the texts of an option that can be repeated."""
    return read(setting, KINDS[setting.kind].parse(text, where), where)


def read_default(setting: Setting) -> Any:  # noqa: ANN401  # likewise
    if setting.default is None:
        return KINDS[setting.kind].nothing
    return read(setting, setting.default, "the default")


class Kind(Struct, frozen=True):
    """How a value of a kind is handled.

    `read` checks a value of a table and makes the setting of it, and `parse` makes such a value of
    typed text. `nothing` is the setting that nobody gives. `result` is the Python type of the
    setting, `written` the type that a marker and a call take, and `schema` describes the value of
    a table.
    """

    read: Callable[[object, str], Any]
    result: str
    written: str
    schema: JsonSchema
    parse: Callable[[object, str], object] = keep
    nothing: object = None


KINDS: Mapping[str, Kind] = {
    "address": Kind(readers.read_url, "ModelOrigin", "str", _TEXT),
    "budgets": Kind(
        readers.read_budget_table,
        "tuple[Budget, ...]",
        "Mapping[str, float | str | Mapping[str, float | str]]",
        {
            "type": "object",
            "properties": {
                **{word: {"anyOf": [_SHARE, _table_of(_SHARE)]} for word in FIGURES},
                **dict.fromkeys(COMPANIONS, _SHARE),
            },
            "additionalProperties": False,
        },
        nothing=(),
    ),
    "dims": Kind(
        readers.read_dims,
        "Mapping[str, tuple[int, ...]]",
        "Mapping[str, int | Sequence[int]] | Sequence[Mapping[str, int]]",
        {
            "anyOf": [
                _table_of(_one_or_more(_LENGTH)),
                {"type": "array", "items": _table_of(_LENGTH), "minItems": 1},
            ]
        },
        parse=parse_dims,
    ),
    "fixture": Kind(readers.read_fixture, "ModelOrigin", "str", _TEXT),
    "flag": Kind(readers.read_flag, "bool", "bool", {"type": "boolean"}, parse=parse_flag),
    "function": Kind(readers.read_function, "ModelOrigin", "str | Callable[[], object]", _TEXT),
    "gateway": Kind(readers.read_gateway, "str", "str", _TEXT),
    "inner_path": Kind(readers.read_inner_path, "str", "str", _TEXT),
    "lengths": Kind(
        readers.read_lengths,
        "tuple[int, ...]",
        "int | Sequence[int]",
        _one_or_more(_LENGTH),
        parse=parse_numbers,
        nothing=(),
    ),
    "measure": Kind(
        readers.read_measure,
        "Measure",
        'Literal["changed", "always"]',
        {"enum": [each.value for each in Measure]},
    ),
    "model": Kind(readers.read_model, "TestedModel", "TestedModel", {}),
    "names": Kind(
        readers.read_names,
        "tuple[str, ...]",
        "str | Sequence[str]",
        _one_or_more(_TEXT),
        nothing=(),
    ),
    "pairs": Kind(
        readers.read_pairs,
        "Mapping[str, str]",
        "Mapping[str, object]",
        _PAIRS,
        parse=parse_pairs,
    ),
    "path": Kind(readers.read_path, "Path", "str | PathLike[str]", _TEXT),
    "place": Kind(readers.read_place, "str", "str", _TEXT),
    "phases": Kind(
        readers.read_phases,
        "tuple[Phase, ...]",
        'Literal["prefill", "step"] | Sequence[Literal["prefill", "step"]]',
        _one_or_more({"enum": [each.value for each in Phase]}),
        nothing=tuple(Phase),
    ),
    "seconds": Kind(readers.read_seconds, "float", "float", _SECONDS, parse=parse_number),
    "sizes": Kind(
        readers.read_sizes,
        "tuple[int, ...]",
        "int | Sequence[int]",
        _one_or_more(_SIZE),
        parse=parse_numbers,
    ),
    "state": Kind(
        readers.read_state,
        "Mapping[str, str]",
        "Mapping[str, str]",
        _table_of({"type": ["string", "object"]}),
        parse=parse_pairs,
    ),
    "text": Kind(readers.read_text, "str", "str", _TEXT),
    "texts": Kind(
        readers.read_texts,
        "tuple[str, ...]",
        "str | Sequence[str]",
        _one_or_more(_TEXT),
        nothing=(),
    ),
    "tolerance": Kind(
        read_tolerances,
        "Tolerances",
        "float | str | Mapping[str, float | str]",
        {
            "anyOf": [
                _SHARE,
                {
                    "type": "object",
                    # In TOML, a dot separates two keys.
                    "properties": {word.replace(".", "_"): _SHARE for word in TOLERANCE_WORDS},
                    "additionalProperties": False,
                    "minProperties": 1,
                },
            ]
        },
    ),
    "update": Kind(readers.read_update, "UpdateMode", "str", {}),
}
