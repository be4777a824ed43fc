"""The values of JSON documents, and their text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

# A struct is written as the object of its fields, a date as ISO 8601 has it.
Json: TypeAlias = (
    "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | Struct | dt.date | None"
)

SCHEMA = 1

# Thousands of samples: `indent` would give each a line. A JSON string has no line breaks.
_SAMPLES = re.compile(r'("times_ns": )\[\n([0-9,\s]*)\]')
# `##[group]` and `##vso[...]`, which the log of a CI job may obey anywhere in a line.
_RUNNER_COMMAND = re.compile(r"(?<=#)#(?=\w*\[)")


def dump_document(document: Mapping[str, Json] | Sequence[Struct] | Struct) -> str:
    """The text of a document in ASCII, so that no name in it can steer a terminal or a CI job."""
    text = json.dumps(document, indent=2, allow_nan=False, default=msgspec.to_builtins)
    text = _RUNNER_COMMAND.sub(r"\\u0023", text)
    return _SAMPLES.sub(_on_one_line, text) + "\n"


def _on_one_line(match: re.Match[str]) -> str:
    return f"{match[1]}[{' '.join(match[2].split())}]"


def ms(ns: float | None) -> float | None:
    return None if ns is None else number(ns / 1e6)


def number(value: float | None) -> float | None:
    """The value; None for infinity and NaN, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None
