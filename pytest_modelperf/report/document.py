"""The values of JSON documents, and their text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

S = TypeVar("S", bound=Struct)

# A struct is written as the object of its fields, a date in ISO 8601.
Json: TypeAlias = (
    "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | Struct | dt.date | None"
)

SCHEMA = 1

# Most values of a document have one of these types.
_ALWAYS_FINITE = frozenset({str, int, bool, type(None)})

# With `indent`, each of thousands of samples would have a line. The pattern is safe because a JSON
# string has no line breaks.
_SAMPLES = re.compile(r'("times_ns": )\[\n([0-9,\s]*)\]')
# `##[group]` and `##vso[...]`, which the log of a CI job may obey anywhere in a line.
_RUNNER_COMMAND = re.compile(r"(?<=#)#(?=\w*\[)")


def dump_document(document: Mapping[str, Json] | Sequence[Struct] | Struct) -> str:
    """Return the text of a document in ASCII, so that names cannot steer a terminal or a CI job."""
    text = json.dumps(to_json(document), indent=2, allow_nan=False)
    text = _RUNNER_COMMAND.sub(r"\\u0023", text)
    return _SAMPLES.sub(lambda match: f"{match[1]}[{' '.join(match[2].split())}]", text) + "\n"


def to_json(document: Mapping[str, Json] | Sequence[Struct] | Struct) -> Any:  # noqa: ANN401  # JSON
    """Return the plain values of a document, with null for NaN and infinity.

    The types name the keys.
    """
    return _finite(msgspec.to_builtins(document, enc_hook=_path_text))


def _path_text(value: object) -> str:
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")


def copy_fields(kind: type[S], source: object, /, **others: Any) -> S:  # noqa: ANN401  # any field
    """Make an instance of `kind` from `others` and the attributes of `source` with the same names.

    It makes a part of a document from a record, or a record from a part. Properties count as
    attributes.
    """
    names = (name for name in kind.__struct_fields__ if name not in others)
    return kind(**{name: getattr(source, name) for name in names}, **others)


def ms(ns: float | None) -> float | None:
    return None if ns is None else number(ns / 1e6)


def number(value: float | None) -> float | None:
    """Return the value, or None for infinity and NaN, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def _finite(value: Any) -> Any:  # noqa: ANN401  # any value of JSON
    if type(value) in _ALWAYS_FINITE:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
