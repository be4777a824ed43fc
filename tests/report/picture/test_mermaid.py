"""The flowchart of a comment: the boxes that are seen of a picture, and how they are connected."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.report.picture.drawn import MOST_BOXES, render_mermaid
from pytest_modelperf.report.picture.layout import SeenBox, seen_boxes
from pytest_modelperf.report.picture.records import Box, BoxState, Picture

_CHAIN = tuple(
    Box(op_type="Conv", name=f"conv{at}", inputs=(at - 1,) if at else (), values=(1.0, 1.5))
    for at in range(11)
)


def _pair(*boxes: Box) -> Picture:
    return Picture(boxes, sides=("A", "B"))


def test_a_change_is_seen_between_its_neighbours_and_folds() -> None:
    changed = replace(_CHAIN[5], state=BoxState.CHANGED)
    seen = seen_boxes(_pair(*_CHAIN[:5], changed, *_CHAIN[6:]))
    assert [(box.name, box.kernels, box.change_ms, box.inputs) for box in seen] == [
        ("", 4, None, ()),
        ("conv4", 1, None, (0,)),
        ("conv5", 1, 0.5, (1,)),
        ("conv6", 1, None, (2,)),
        ("", 4, None, (3,)),
    ]


@given(st.lists(st.tuples(st.sets(st.integers(1, 4)), st.booleans()), max_size=40))
def test_every_kernel_is_in_one_box_and_no_box_feeds_itself(
    kernels: list[tuple[set[int], bool]],
) -> None:
    boxes = [
        Box(
            op_type="Add",
            name=f"{at}",
            inputs=tuple(sorted({at - back for back in backs if back <= at})),
            values=(1.0, 2.0),
            state=BoxState.CHANGED if is_changed else BoxState.SAME,
        )
        for at, (backs, is_changed) in enumerate(kernels)
    ]
    seen = seen_boxes(_pair(*boxes))
    assert sum(box.kernels for box in seen) == len(boxes)
    assert all(index not in box.inputs for index, box in enumerate(seen))
    names = {box.name for box in seen}
    assert names >= {box.name for box in boxes if box.state is BoxState.CHANGED}


def test_states_are_shown_without_colour_too() -> None:
    boxes = (
        SeenBox(op_type="Reorder", name="Reorder", change_ms=0.25, state=BoxState.NEW),
        SeenBox(op_type="Relu", name="relu", change_ms=-0.5, state=BoxState.GONE, inputs=(0,)),
        SeenBox(op_type="Elu", name="", change_ms=-0.001, inputs=(0,)),
    )
    assert render_mermaid(boxes) == snapshot("""\
```mermaid
flowchart TD
  k0["Reorder<br>new<br>+0.250 ms"]:::new
  k1["Relu<br>relu<br>gone<br>-0.500 ms"]:::gone
  k0 --> k1
  k2["Elu<br>-0.0010 ms"]:::faster
  k0 --> k2
  classDef faster fill:#dff3e6,stroke:#18733f,color:#1b1f23
  classDef new fill:#fdebdd,stroke:#c2500a,color:#1b1f23,stroke-width:2px
  classDef gone fill:#e1effa,stroke:#0a6aa8,color:#1b1f23,stroke-dasharray:5 4
```\
""")


def test_no_chart_is_drawn_of_nothing_or_of_too_much() -> None:
    box = SeenBox(op_type="Add", name="")
    assert render_mermaid(()) == render_mermaid((box,) * (MOST_BOXES + 1)) == ""
    assert render_mermaid((box,) * MOST_BOXES)
