"""What every target checks: errors are ours and can be shown, and what was read keeps its laws."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from pytest_modelperf.errors import ModelPerfError

T = TypeVar("T")


class BrokenLawError(Exception):
    """What was read of an input is not as everything that is read must be."""


def hold(is_kept: bool, law: str) -> None:  # noqa: FBT001  # as with assert, the condition comes first
    if not is_kept:
        raise BrokenLawError(law)


def read_or_refuse(read: Callable[[], T], *kinds: type[ModelPerfError]) -> T | None:
    """What was read; None where it was refused with an error of these kinds, in one safe line."""
    try:
        return read()
    except kinds as error:
        hold(str(error).isprintable(), f"an error can be shown: {str(error)!r}")
        return None


def check_shown(text: str) -> None:
    hold(text.replace("\n", "").isprintable(), "a report can be shown")


def check_json(text: str) -> None:
    json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise BrokenLawError(f"JSON has no {name}")
