"""What every document is made of: the values of JSON, and their text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

SCHEMA = 1


def dump_document(document: Mapping[str, Json]) -> str:
    """The text of a document, in ASCII, so that no name in it can steer a terminal."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def ms(ns: float | None) -> float | None:
    return None if ns is None else number(ns / 1e6)


def number(value: float | None) -> float | None:
    """JSON has no infinity, and what is no number is not known."""
    return value if value is not None and math.isfinite(value) else None
