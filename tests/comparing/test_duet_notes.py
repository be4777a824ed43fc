"""The notes below the figures of a duet."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.comparing.duet_notes import (
    describe_factor,
    describe_pages,
    describe_stretch,
    notes_of_sides,
)
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.judged_rounds import judge_rounds
from pytest_modelperf.profiler.machine.pages import REMEDY
from pytest_modelperf.profiler.measurements import Block, DuetRound, Noise, Round

WEIGHT_BYTES = 42_000_000


def test_a_note_of_one_side_says_which_and_one_of_both_is_said_once() -> None:
    shared = "weights are subnormal"
    one, two = (f"only a run could tell the output shapes of {n}" for n in ("1 layer", "2 layers"))
    assert list(notes_of_sides((shared, one), (two, shared))) == [
        shared,
        f"before: {one}",
        f"now: {two}",
    ]


@pytest.mark.parametrize(
    ("seconds", "usual", "shown"),
    [
        (10.3, 10.0, None),
        (10.6, 10.0, "11"),
        (0.7, 0.5, "0.7"),
        (0.52, 0.5, None),
        (29.6, 10.0, "30"),
    ],
)
def test_a_longer_time_is_noted_where_it_is_shown_as_longer(
    seconds: float, usual: float, shown: str | None
) -> None:
    note = describe_stretch(seconds, usual)
    assert (note is None) == (shown is None)
    if shown is not None:
        assert f"measured for {shown} s instead of {usual:g} s" in (note or "")


@given(st.floats(min_value=0, max_value=1e4), st.sampled_from([0.5, 2.0, 10.0, 60.0]))
def test_no_note_compares_a_time_with_itself(seconds: float, usual: float) -> None:
    found = re.search(
        r"for ([0-9.]+) s instead of ([0-9.]+) s", describe_stretch(seconds, usual) or ""
    )
    assert found is None or float(found[1]) > float(found[2])


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (0.3, "70 % less time on this machine than"),
        (0.994, "1 % less time on this machine than"),
        (0.996, "as long on this machine as"),
        (1.004, "as long on this machine as"),
        (1.05, "5 % longer on this machine than"),
        (1.994, "99 % longer on this machine than"),
        (2.0, "2.0 times as long on this machine as"),
        (12.34, "12.3 times as long on this machine as"),
    ],
)
def test_a_factor_is_a_percentage_until_it_is_twice(factor: float, words: str) -> None:
    assert describe_factor(factor) == words


def rounds(ratio: float, between: float, count: int = 35) -> list[DuetRound]:
    """Rounds of 12 turns that vary by 2 %, and as much from round to round as is said."""
    random = np.random.default_rng(3)

    def side(log: float) -> Round:
        times = 2e6 * np.exp(log + 0.02 * random.standard_normal(12))
        block = Block(times_ns=tuple(times.astype(int).tolist()), noise=Noise(wall_ns=1))
        return Round(load_ns=1, first_ns=1, warmup_runs=1, is_steady=True, block=block)

    return [
        DuetRound(before=side(0.0), after=side(np.log(ratio) + between * random.standard_normal()))
        for _ in range(count)
    ]


def test_rounds_that_differ_and_leave_the_median_open_may_lie_in_small_pages() -> None:
    (note,) = describe_pages(judge_rounds(rounds(1.04, 0.06), Gate()), WEIGHT_BYTES)
    assert re.match(r"rounds differ by [5-7]\.\d % beyond what their inferences explain", note)
    assert "40.05 MiB of weights" in note
    assert REMEDY in note


def test_pages_are_not_blamed_where_rounds_agree_or_decide() -> None:
    made = rounds(1.03, 0.0), rounds(1.3, 0.06), rounds(1.04, 0.06, count=3)
    steady, decided, few = (judge_rounds(each, Gate()) for each in made)
    assert steady.p50.is_open
    assert not decided.p50.is_open
    for judged in (steady, decided, few):
        assert not list(describe_pages(judged, WEIGHT_BYTES))
