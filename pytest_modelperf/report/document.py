"""The values of a JSON document, and their text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

SCHEMA = 1

# `indent` would give each of thousands of samples a line. Text in JSON has no line breaks.
_SAMPLES = re.compile(r'("times_ns": )\[\n([0-9,\s]*)\]')
# `##[group]` and `##vso[...]`, which a CI job may obey anywhere in its log.
_RUNNER_COMMAND = re.compile(r"(?<=#)#(?=\w*\[)")


def dump_document(document: Mapping[str, Json]) -> str:
    """The text of a document, in ASCII, so that no name in it can steer a terminal or a CI job."""
    text = json.dumps(document, indent=2, allow_nan=False)
    text = _RUNNER_COMMAND.sub(r"\\u0023", text)
    return _SAMPLES.sub(_on_one_line, text) + "\n"


def _on_one_line(match: re.Match[str]) -> str:
    return f"{match[1]}[{' '.join(match[2].split())}]"


def ms(ns: float | None) -> float | None:
    return None if ns is None else number(ns / 1e6)


def number(value: float | None) -> float | None:
    """The value if it is finite, else None: JSON has neither infinity nor NaN."""
    return value if value is not None and math.isfinite(value) else None
