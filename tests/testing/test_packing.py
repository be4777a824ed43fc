"""Outcomes go to another process as text, and come out as they were."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_modelperf.testing.outcomes import CaseOutcome
from pytest_modelperf.testing.packing import pack, unpack

OUTCOMES = st.from_type(CaseOutcome)


def all_of(value: Any) -> Any:  # noqa: ANN401  # a record, or what one holds
    """Every field with its type, also those that are not compared."""
    if is_dataclass(value):
        held = {field.name: all_of(getattr(value, field.name)) for field in fields(value)}
        return type(value).__name__, held
    if isinstance(value, Mapping):
        return {key: all_of(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(all_of, value))
    # nan is not equal to itself.
    return repr(value)


def records_in(kind: Any, found: set[Any]) -> set[Any]:  # noqa: ANN401  # a class, or what typing has
    """The records that a field of this type may hold, and those in their fields."""
    assert not isinstance(kind, str), f"{kind!r} is text, which Python 3.10 takes for no type"
    for each in get_args(kind):
        records_in(each, found)
    if isinstance(kind, type) and is_dataclass(kind) and kind not in found:
        found.add(kind)
        for annotation in inspect.get_annotations(kind, eval_str=True).values():
            records_in(annotation, found)
    return found


def test_every_field_has_a_type_that_every_version_of_python_reads() -> None:
    assert len(records_in(CaseOutcome, set())) > 20


@settings(max_examples=30)
@given(OUTCOMES)
def test_what_is_packed_is_unpacked_as_it_was(outcome: CaseOutcome) -> None:
    (found,) = unpack(pack([outcome]))
    assert all_of(found) == all_of(outcome)


@settings(max_examples=5)
@given(OUTCOMES, st.integers(0, 3))
def test_it_is_the_text_that_json_has(outcome: CaseOutcome, count: int) -> None:
    # Several that differ are often more than hypothesis makes of one example.
    outcomes = [outcome] * count
    assert len(json.loads(pack(outcomes))) == len(unpack(pack(outcomes))) == len(outcomes)


@settings(max_examples=5)
@given(OUTCOMES)
def test_numbers_of_numpy_are_numbers(outcome: CaseOutcome) -> None:
    ours = replace(outcome, cores=2, seconds=0.5)
    theirs: dict[str, Any] = {"cores": np.int64(2), "seconds": np.float32(0.5)}
    assert pack([replace(ours, **theirs)]) == pack([ours])


@settings(max_examples=5)
@given(OUTCOMES)
def test_what_has_no_form_as_text_is_named(outcome: CaseOutcome) -> None:
    odd: dict[str, Any] = {"seconds": 1j}
    with pytest.raises(TypeError, match="holds a complex"):
        pack([replace(outcome, **odd)])
