"""The values of a kept profile, each given as what is expected or refused with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from pytest_modelperf.files.fields import MAX_INTEGER, Field

T = TypeVar("T")

_NS_PER_MS = 1e6


def one_of(field: Field, choices: Mapping[str, T], *more: str) -> T:
    """What the text stands for; `more` are others that could have been there."""
    pattern = re.compile("|".join(map(re.escape, choices)))
    return choices[field.matching(pattern, f"one of {', '.join((*more, *choices))}")]


def with_keys(field: Field, *keys: str) -> dict[str, Field]:
    """The entries of an object that has at least these keys."""
    found = field.mapping()
    missing = [key for key in keys if key not in found]
    if missing:
        raise field.error(f'the key "{missing[0]}" is missing')
    return found


def some_items(field: Field) -> tuple[Field, ...]:
    items = field.items()
    if not items:
        raise field.error("expected at least one value, found an empty list")
    return items


def texts(field: Field) -> tuple[str, ...]:
    return tuple(item.text() for item in field.items())


def number(field: Field) -> float:
    """A number with all of its digits. What is left of a latency can be a little less than 0."""
    value = field.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        # The nearest to the largest integer is one more: what is written of that has to be read.
        if abs(value) <= MAX_INTEGER + 1:
            return float(value)
        raise field.error(f"expected a number of up to 2^63, found {value}")
    # This says what was found in the place of a number.
    return field.number()


def nanoseconds(field: Field) -> float:
    """Of milliseconds."""
    value = number(field)
    if value < 0:
        raise field.error(f"expected a duration, found {value}")
    return value * _NS_PER_MS
