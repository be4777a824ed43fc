"""The kinds of settings: how their values are typed, read, written in Python, and described."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from pytest_modelperf.comparing.budgets import COMPANIONS, FIGURES
from pytest_modelperf.comparing.limits import TOLERANCE_WORDS, read_tolerances
from pytest_modelperf.comparing.records import Measure
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.spec import readers
from pytest_modelperf.spec.run_definitions import Setting
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shown

# The same words as in pytest's own ini keys.
_TRUE = frozenset({"y", "yes", "t", "true", "on", "1"})
_FALSE = frozenset({"n", "no", "f", "false", "off", "0"})


def keep(value: object, place: str) -> object:  # noqa: ARG001  # like all parsers
    """Return the value unchanged: text needs no parsing."""
    return value


def parse_flag(value: object, place: str) -> object:  # noqa: ARG001  # like all parsers
    word = value.strip().lower() if isinstance(value, str) else None
    if word in _TRUE:
        return True
    return False if word in _FALSE else value


def parse_number(value: object, place: str) -> object:  # noqa: ARG001  # like all parsers
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def parse_numbers(value: object, place: str) -> object:  # noqa: ARG001  # like all parsers
    """Parse whole numbers that are separated by commas."""
    if not isinstance(value, str):
        return value
    return [_whole_number(part.strip()) for part in value.split(",")]


def parse_dims(value: object, place: str) -> object:
    """Make a table of texts such as `seq=64,128`. `seq=64,past=0` are the sizes of one case."""
    if not isinstance(value, list | tuple):
        return value
    # Imported here: only a command has such texts.
    from pytest_modelperf.graph.binding import parse_dim

    texts = [text for text in value if isinstance(text, str)]
    if any("=" in part for text in texts for part in text.split(",")[1:]):
        return _parse_paired(texts, place)
    dims: dict[str, list[int]] = {}
    for text in texts:
        first, *more = text.split(",")
        name, size = parse_dim(first)
        if name in dims:
            raise UsageError(
                f"{place} {printable(name)} is given twice. Give several sizes as "
                f"{printable(name)}=64,128."
            )
        dims[name] = [size, *(parse_dim(f"{name}={part}")[1] for part in more)]
    return dims


def parse_pairs(value: object, place: str) -> object:
    """Make a table of texts or lines such as `KEY=VALUE`."""
    lines = value
    if isinstance(value, str):
        lines = [line for line in value.splitlines() if line.strip()]
    if not isinstance(lines, list | tuple):
        return value
    pairs: dict[str, str] = {}
    for line in lines:
        key, separator, text = line.partition("=") if isinstance(line, str) else ("", "", "")
        if not key.strip() or not separator:
            raise UsageError(f"{place} takes KEY=VALUE, not {shown(line)}.")
        if key.strip() in pairs:
            raise UsageError(f"{place}: {printable(key.strip())} is given twice: give it once.")
        pairs[key.strip()] = text.strip()
    return pairs


def _whole_number(text: str) -> int | str:
    try:
        return int(text) if text.isdecimal() else text
    except ValueError:
        # Python refuses to parse thousands of digits.
        return text


def _parse_paired(texts: Sequence[str], place: str) -> list[dict[str, int]]:
    from pytest_modelperf.graph.binding import parse_dim

    cases = [dict(parse_dim(part) for part in text.split(",")) for text in texts]
    counts = [len(text.split(",")) for text in texts]
    is_whole = [len(case) for case in cases] == counts
    if not is_whole or any(case.keys() != cases[0].keys() for case in cases):
        raise UsageError(
            f"each {place} with several names is one case, and takes all names once: "
            f"{place} seq=64,past=0 {place} seq=1,past=128."
        )
    return cases


# -- the kinds of settings


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


_MEMBERS: Sequence[JsonSchema] = (
    _TEXT,
    {
        "type": "array",
        "minItems": 2,
        "items": {
            "anyOf": [
                _TEXT,
                {
                    "type": "object",
                    "properties": {
                        "dims": _table_of(_LENGTH),
                        "input_file": _TEXT,
                        "weight": _SIZE,
                    },
                    "additionalProperties": False,
                },
            ]
        },
    },
)


def read(setting: Setting, value: object, place: str) -> Any:  # noqa: ANN401  # as its kind
    """Read a setting from a value in a table. A UsageError begins with `place`."""
    return KINDS[setting.kind].read(value, place)


def read_typed(setting: Setting, text: object, place: str) -> Any:  # noqa: ANN401  # likewise
    """Read a setting from typed text, or from the texts of a repeatable option."""
    return read(setting, KINDS[setting.kind].parse(text, place), place)


def read_default(setting: Setting) -> Any:  # noqa: ANN401  # likewise
    if setting.default is None:
        return KINDS[setting.kind].nothing
    return read(setting, setting.default, "the default")


class Kind(Struct, frozen=True):
    """The way to read, type and describe the values of one kind of setting.

    `read` checks a value of a table and returns the setting. `parse` makes such a value from typed
    text. `nothing` is the value of a setting that the user does not give. `result` is the Python
    type of the setting, `written` the type of the argument of a marker or a call, and `schema`
    describes the value in a table.
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
        readers.read_pairs, "Mapping[str, str]", "Mapping[str, object]", _PAIRS, parse=parse_pairs
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
    "workload": Kind(
        readers.read_workload,
        "DeclaredWorkload",
        "str | PathLike[str] | Sequence[object] | Mapping[str, object]",
        {
            "anyOf": [
                *_MEMBERS,
                {
                    "type": "object",
                    "properties": {
                        "members": {"anyOf": _MEMBERS},
                        "every_ms": _SECONDS,
                        "streams": _SIZE,
                    },
                    "additionalProperties": False,
                    "minProperties": 1,
                },
            ]
        },
    ),
}
