"""Figures of two sides that differ by judged ratios, as laws."""

from __future__ import annotations

import math
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.stats.decisions import RatioOfSides, rising_at_ratios

TIMES = st.floats(1.0, 1e10)
RATIOS = st.floats(1e-3, 1e3)
SIDES = st.lists(st.builds(RatioOfSides, TIMES, TIMES, RATIOS), max_size=6)


def distance(found: list[RatioOfSides], asked: list[RatioOfSides]) -> float:
    """How far the middles of both sides were moved, by the squares of logs."""
    return math.fsum(
        math.log(one.before_ns * one.after_ns / (two.before_ns * two.after_ns)) ** 2
        for one, two in zip(found, asked, strict=True)
    )


@given(asked=SIDES)
def test_both_sides_rise_and_differ_by_the_ratios(asked: list[RatioOfSides]) -> None:
    found = rising_at_ratios(asked)
    for lower, higher in pairwise(found):
        assert lower.before_ns <= higher.before_ns
        assert lower.after_ns <= higher.after_ns
    for each, judged in zip(found, asked, strict=True):
        assert each.after_ns / each.before_ns == pytest.approx(judged.ratio)


@given(asked=SIDES)
def test_figures_that_rise_at_their_ratios_stay_as_they_are(asked: list[RatioOfSides]) -> None:
    found = rising_at_ratios(asked)
    again = rising_at_ratios(found)
    assert [each.before_ns for each in again] == pytest.approx([e.before_ns for e in found])
    assert [each.after_ns for each in again] == pytest.approx([e.after_ns for e in found])


@given(asked=SIDES.filter(len))
def test_the_first_percentile_stays_where_it_is(asked: list[RatioOfSides]) -> None:
    first = rising_at_ratios(asked)[0]
    assert first.before_ns * first.after_ns == pytest.approx(asked[0].before_ns * asked[0].after_ns)


def test_no_other_figures_are_nearer() -> None:
    asked = [RatioOfSides(1.0, 1.0, 1.0), RatioOfSides(3.0, 3.0, 0.8), RatioOfSides(2.0, 2.0, 1.2)]
    found = rising_at_ratios(asked)
    steps = [math.exp(0.02 * step) for step in range(-20, 21)]
    for second, third in product(steps, steps):
        moved = [
            found[0],
            RatioOfSides(found[1].before_ns * second, found[1].after_ns * second, 0.8),
            RatioOfSides(found[2].before_ns * third, found[2].after_ns * third, 1.2),
        ]
        rises = all(
            low.before_ns <= high.before_ns * (1 + 1e-12)
            and low.after_ns <= high.after_ns * (1 + 1e-12)
            for low, high in pairwise(moved)
        )
        assert not rises or distance(moved, asked) >= distance(found, asked) - 1e-9
