"""Stretches without news are folded: what changed and what takes most time stays in sight."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pytest_modelperf.report.picture.layout import fold, lay_out
from pytest_modelperf.report.picture.records import Box, BoxState, Picture


def chain(*boxes: Box, sides: tuple[str, ...] = ("A", "B")) -> Picture:
    linked = (
        Box(
            op_type=box.op_type,
            name=box.name,
            inputs=(place - 1,) if place else (),
            values=box.values,
            state=box.state,
        )
        for place, box in enumerate(boxes)
    )
    return Picture(tuple(linked), sides=sides)


def folds(picture: Picture) -> tuple[range, ...]:
    return fold(picture, lay_out([box.inputs for box in picture.boxes]))


def box(state: BoxState = BoxState.SAME, ms: float = 1.0) -> Box:
    return Box(op_type="Conv", name="c", values=(ms, ms), state=state)


def test_a_change_keeps_one_kernel_on_each_side_in_sight() -> None:
    picture = chain(*[box()] * 6, box(BoxState.CHANGED), *[box()] * 6)
    assert folds(picture) == (range(5), range(8, 13))


def test_a_pair_without_a_change_is_one_stretch() -> None:
    assert folds(chain(*[box()] * 9)) == (range(9),)


def test_fewer_than_three_kernels_are_not_folded() -> None:
    assert folds(chain(box(), box(), box(), box(BoxState.NEW), box(), box())) == ()


def test_a_small_model_alone_is_shown_whole() -> None:
    assert folds(chain(*[box()] * 150, sides=("",))) == ()


@pytest.mark.slow
@given(st.lists(st.floats(0, 10), min_size=151, max_size=400, unique=True))
def test_the_largest_kernels_of_a_large_model_stay_in_sight(times: list[float]) -> None:
    picture = chain(*(box(ms=ms) for ms in times), sides=("",))
    hidden = {row for each in folds(picture) for row in each}
    largest = sorted(range(len(times)), key=lambda row: -times[row])[:60]
    assert hidden.isdisjoint(largest)


@given(st.lists(st.sampled_from(BoxState), max_size=60))
def test_no_stretch_has_a_change_or_touches_another(states: list[BoxState]) -> None:
    found = folds(chain(*map(box, states)))
    assert all(states[row] is BoxState.SAME for row in [row for each in found for row in each])
    assert all(one.stop < other.start for one, other in pairwise(found))
