"""Boxes are in the order of the data, apart from each other and from the lines that pass."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pytest_modelperf.report.picture.layout import Layout, lay_out

Inputs = list[tuple[int, ...]]


@st.composite
def graphs(draw: st.DrawFn) -> Inputs:
    """Boxes, each fed by some of those before it; then in another order."""
    count = draw(st.integers(0, 40))
    fed = [
        draw(st.sets(st.integers(0, box - 1), max_size=4)) if box else set() for box in range(count)
    ]
    place = draw(st.permutations(range(count)))
    moved: Inputs = [()] * count
    for box, feeders in enumerate(fed):
        moved[place[box]] = tuple(sorted(place[feeder] for feeder in feeders))
    return moved


def ends(inputs: Inputs, layout: Layout) -> list[int]:
    """The last row in which the output of each box is read."""
    found = list(layout.rows)
    for box, feeders in enumerate(inputs):
        for feeder in feeders:
            found[feeder] = max(found[feeder], layout.rows[box])
    return found


@given(graphs())
def test_each_box_is_below_its_inputs(inputs: Inputs) -> None:
    layout = lay_out(inputs)
    assert len(layout.rows) == len(layout.lanes) == len(layout.ways) == len(inputs)
    for box, feeders in enumerate(inputs):
        assert all(layout.rows[feeder] < layout.rows[box] for feeder in feeders)


@given(graphs())
def test_no_two_boxes_and_no_line_share_a_place(inputs: Inputs) -> None:
    """A tensor that is read further down keeps its lane free of boxes and of other tensors."""
    layout = lay_out(inputs)
    taken = list(zip(layout.rows, layout.lanes, strict=True))
    for box, last in enumerate(ends(inputs, layout)):
        rows = range(layout.rows[box] + 1, last)
        assert (layout.ways[box] is None) == (not rows)
        taken += [(row, way) for row in rows if (way := layout.ways[box]) is not None]
    assert len(taken) == len(set(taken))


@given(graphs())
def test_rows_and_lanes_are_counted_from_0_without_an_empty_row(inputs: Inputs) -> None:
    layout = lay_out(inputs)
    assert sorted(set(layout.rows)) == list(range(len(set(layout.rows))))
    assert min([*layout.lanes, *(way for way in layout.ways if way is not None)], default=0) == 0


def test_a_chain_goes_straight_down_next_to_its_skip_connections() -> None:
    """A residual block: the sum takes the input of the block, too."""
    layout = lay_out([(), (0,), (1,), (2, 0), (3,)])
    assert layout.rows == (0, 1, 2, 3, 4)
    assert len(set(layout.lanes)) == 1
    assert layout.ways[0] not in {None, layout.lanes[0]}


def test_branches_are_side_by_side() -> None:
    layout = lay_out([(), (0,), (0,), (0,), (1, 2, 3)])
    assert layout.rows == (0, 1, 1, 1, 2)
    assert sorted(layout.lanes[1:4]) == [0, 1, 2]


def test_an_input_of_one_box_alone_is_near_to_it() -> None:
    """A chain of five, and a second input that only its last box reads."""
    layout = lay_out([(), (0,), (1,), (2,), (3, 6), (), (5,)])
    assert (layout.rows[5], layout.rows[6], layout.rows[4]) == (2, 3, 4)


def test_a_long_chain_needs_no_deep_recursion() -> None:
    layout = lay_out([(box - 1,) if box else () for box in range(20_000)])
    assert layout.rows == tuple(range(20_000))


def test_a_cycle_is_an_error() -> None:
    with pytest.raises(ValueError, match="cycle"):
        lay_out([(1,), (0,)])
