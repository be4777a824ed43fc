"""The benchmark sees whether a reduction keeps what was planted, and what is missed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from reduce import Reduced, expectations, read_reduction, tables

from pytest_modelperf.reducing.files import dump_reduction
from pytest_modelperf.reducing.records import Reduction
from tests.docs.test_evidence import result_of
from tests.support.reductions import UNITS, make_reduction, nothing_slower

PLANTED = frozenset({"Abs", "Mul"})


def read(found: Reduction, words: frozenset[str] = PLANTED, repro: float | None = 2.1) -> Reduced:
    document = json.loads(dump_reduction(found, "reduced"))
    return read_reduction("lstm", "an activation decomposed", document, words, repro, 20.0)


def test_kernels_of_what_was_planted_are_found() -> None:
    found = read(make_reduction())
    assert found.is_found
    assert (found.kernels, found.bytes, found.steps) == (4, 733 + 1728, 2)


def test_other_kernels_are_not_what_was_planted() -> None:
    assert read(make_reduction(), frozenset({"Softmax"})).is_found is False


def test_kernels_that_did_not_change_are_not_what_was_planted() -> None:
    units = (replace(UNITS[1], is_changed=False),) * 3
    assert read(replace(make_reduction(), units=units)).is_found is False


def test_a_slowdown_that_was_not_reduced_is_not_found() -> None:
    assert read(replace(make_reduction(), search=None, written=None)).is_found is False


def test_what_is_not_slower_counts_for_nothing() -> None:
    found = read(nothing_slower(), repro=None)
    assert (found.is_found, found.kernels, found.verdict) == (None, None, "passed")


def rows(*found: Reduced) -> Any:  # noqa: ANN401  # the document of a benchmark
    made = [{name: getattr(each, name) for name in Reduced.__slots__} for each in found]
    return result_of({"reductions": made})


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        (read(make_reduction()), []),
        (read(make_reduction(), frozenset({"Softmax"})), ["reductions that keep what was planted"]),
        (read(make_reduction(), repro=0.9), ["programs that call the second model slower"]),
    ],
)
def test_what_is_missed_is_said(found: Reduced, missed: list[str]) -> None:
    expected = expectations(rows(found, read(nothing_slower())))
    assert [each.what for each in expected if each.is_met is False] == missed


def test_without_a_slowdown_nothing_is_shown() -> None:
    assert {each.is_met for each in expectations(rows(read(nothing_slower())))} == {None}


def test_each_reduction_has_a_row() -> None:
    shown = tables(rows(read(make_reduction()), read(nothing_slower())))
    assert len(shown["reduce all"].splitlines()) == 4
    assert "1 of 1" in shown["reduce"]
