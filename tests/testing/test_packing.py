"""Outcomes go to another process as text, and come out as they were."""

from __future__ import annotations

import datetime as dt
import enum
import os
import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from msgspec import Meta, Struct, UnsetType
from msgspec.structs import replace

from pytest_modelperf.testing.outcomes import CaseOutcome
from pytest_modelperf.testing.packing import pack, unpack

# JSON has no infinity, and most texts have characters outside ASCII.
_VALUES: Mapping[type, object] = {
    bool: True,
    int: 2**62,
    float: float("inf"),
    str: "\N{GREEK SMALL LETTER MU}s",
    bytes: b"\x00\xff",
    dt.date: dt.date(2026, 1, 31),
}


def filled(kind: Any, inside: tuple[type, ...] = ()) -> Any:  # noqa: ANN401  # what typing has
    """A value of a type with every field of every record filled, but for a record in its like."""
    origin = get_origin(kind)
    if origin is not None:
        return _filled_whole(origin, get_args(kind), inside)
    if issubclass(kind, Struct):
        if kind in inside:
            return None
        hints = get_type_hints(kind, include_extras=True)
        return kind(**{name: filled(hints[name], (*inside, kind)) for name in hints})
    return list(kind)[-1] if issubclass(kind, enum.Enum) else _VALUES[kind]


def _filled_whole(origin: Any, arguments: Any, inside: tuple[type, ...]) -> object:  # noqa: ANN401  # likewise
    """A value of a type that is made of others."""
    if origin is Annotated:
        base, meta = arguments
        return _within(base, meta, inside)
    if origin in (Union, types.UnionType):
        kinds = [each for each in arguments if each not in {types.NoneType, UnsetType}]
        return filled(kinds[0], inside)
    if origin is Literal:
        return arguments[-1]
    if origin is tuple:
        return tuple(filled(each, inside) for each in arguments if each is not ...)
    return {filled(arguments[0], inside): filled(arguments[1], inside)}


def _within(base: type, meta: Meta, inside: tuple[type, ...]) -> object:
    """A value that keeps to the bounds or the pattern of a field."""
    if meta.pattern is not None:
        # A digest of this length, a key, or a type of numbers.
        digits = re.search(r"\{(\d+)\}", meta.pattern)
        texts = ("0" * int(digits[1]),) if digits else ("key", "bool")
        return next(text for text in texts if re.search(meta.pattern, text))
    return filled(base, inside) if meta.le is None else base(meta.le)


OUTCOME: CaseOutcome = filled(CaseOutcome)


def test_outcomes_are_unpacked_unchanged_with_any_paths_and_numbers() -> None:
    assert unpack(pack([])) == ()
    assert unpack(pack([OUTCOME, replace(OUTCOME, test="another")])) == (
        OUTCOME,
        replace(OUTCOME, test="another"),
    )
    name = os.fsdecode(b"models/\xff.onnx")
    outcome = replace(OUTCOME, test=f"{name}::b1-c1", model=replace(OUTCOME.model, path=name))
    assert unpack(pack([outcome])) == (outcome,)
    ours = replace(OUTCOME, cores=2, seconds=0.5)
    theirs: dict[str, Any] = {"cores": np.int64(2), "seconds": np.float32(0.5)}
    assert pack([replace(ours, **theirs)]) == pack([ours])


def test_a_value_without_a_form_as_text_is_named() -> None:
    odd: dict[str, Any] = {"seconds": 1j}
    with pytest.raises(TypeError, match="complex"):
        pack([replace(OUTCOME, **odd)])
