"""Records as the text of JSON, and back by their types."""

from __future__ import annotations

import json
import numbers
from typing import TypeVar

import msgspec

T = TypeVar("T")


def to_text(value: object) -> str:
    """A record as JSON. Infinite figures are `Infinity`, as Python writes and reads them."""
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_as_number)
    return json.dumps(plain, separators=(",", ":"))


def from_text(text: str, kind: type[T]) -> T:
    """The record that `to_text` was given."""
    return msgspec.convert(json.loads(text), type=kind, str_keys=True)


def _as_number(value: object) -> int | float:
    """A number of numpy as one of Python."""
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    raise TypeError(f"a {type(value).__name__} has no form as JSON")
