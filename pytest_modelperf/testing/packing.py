"""Outcomes as text in a test report, which pytest-xdist and other plugins pass on.

The text holds plain values only. They are read by the types of the records, so nothing in them
chooses which class is made. It is MessagePack, which JSON is not enough for: a figure may be
infinite.
"""

from __future__ import annotations

import base64
import numbers
from collections.abc import Iterable

import msgspec

from pytest_modelperf.testing.outcomes import CaseOutcome


def pack(outcomes: Iterable[CaseOutcome]) -> str:
    data = msgspec.msgpack.encode(tuple(outcomes), enc_hook=_as_number)
    return base64.b64encode(data).decode("ascii")


def unpack(text: str) -> tuple[CaseOutcome, ...]:
    """The outcomes that `pack` was given."""
    return msgspec.msgpack.decode(base64.b64decode(text), type=tuple[CaseOutcome, ...])


def _as_number(value: object) -> int | float:
    """A number of numpy as one of Python."""
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    raise TypeError(f"an outcome holds a {type(value).__name__}, which has no form as text")
