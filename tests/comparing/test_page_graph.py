"""The picture of a comparison: its boxes lead to the rows of the page, with what was measured."""

from __future__ import annotations

import pytest

from pytest_modelperf.comparing.changes import (
    KernelChange,
    KernelCounts,
    LayerChange,
    PartChange,
    TimeChange,
)
from pytest_modelperf.comparing.page_data import comparison_picture, ordered_layers
from pytest_modelperf.comparing.records import CaseComparison, How
from pytest_modelperf.profiler.measurements import GraphKernel, LayerTime, RowKind
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.report.picture.records import BoxState
from tests.support.comparisons import change, row

NS = 1e6


def _timed(name: str, layer: int, ms: float) -> LayerRow:
    static = row(name, "Conv", None).static
    return LayerRow(static, LayerTime(kind=RowKind.LAYER, kernel=name, ns=ms * NS, layer=layer))


def _kernel(layer: int | None, ms: float, op_type: str = "Conv") -> GraphKernel:
    kind = RowKind.LAYER if layer is not None else RowKind.LAYOUT
    return GraphKernel(op_type=op_type, kind=kind, layer=layer, ns=ms * NS)


_MOVES = LayerRow(None, LayerTime(kind=RowKind.LAYOUT, kernel="ReorderInput", ns=NS))
_CASE = CaseComparison(
    Case(1, 1),
    metrics=(),
    layer_types=(),
    # In the order of their explanation, which is not that of the graph.
    layers=(
        LayerChange(None, _MOVES, change(1.0)),
        LayerChange(_timed("old", 1, 2.0), _timed("new", 2, 3.0), change(1.0)),
        LayerChange(_timed("same", 0, 5.0), _timed("same", 0, 5.0), change(0.01)),
    ),
    kernels=(
        KernelChange(before=_kernel(0, 5.0), after=_kernel(0, 5.0), state=BoxState.SAME),
        KernelChange(
            before=None, after=_kernel(None, 1.0, "ReorderInput"), state=BoxState.NEW, inputs=(0,),
            part=0,
        ),
        KernelChange(
            before=_kernel(1, 2.0), after=_kernel(2, 3.0), state=BoxState.CHANGED, inputs=(0, 1),
            only_before=(0,), only_after=(1,), part=0,
        ),
    ),
    parts=(
        PartChange(
            kernels=KernelCounts(before=1, after=2), before_ns=2 * NS, after_ns=4 * NS,
            time=TimeChange(ns=2 * NS, low_ns=1.5 * NS, high_ns=2.5 * NS), reasons=("one", "two"),
        ),
    ),
)  # fmt: skip


def test_a_box_leads_to_the_row_of_its_layer_and_is_named_as_it_is_now() -> None:
    boxes = comparison_picture(_CASE).boxes
    rows = ordered_layers(_CASE.layers)
    assert [box.name for box in boxes] == ["same", "ReorderInput", "new"]
    found = [rows[box.row or 0].after for box in boxes]
    assert [None if r is None or r.static is None else r.static.name for r in found] == [
        "same", None, "new",
    ]  # fmt: skip


def test_a_box_has_the_time_of_its_kernel_on_both_sides_and_says_if_its_change_is_clear() -> None:
    boxes = comparison_picture(_CASE).boxes
    assert [box.values for box in boxes] == [(5.0, 5.0), (None, 1.0), (2.0, 3.0)]
    assert [box.change for box in boxes] == [0.0, 1.0, 1.0]
    assert [box.is_clear for box in boxes] == [False, True, True]
    assert [box.is_layout for box in boxes] == [False, True, False]
    assert (boxes[2].only_before, boxes[2].only_after) == ((0,), (1,))


def test_a_part_has_its_words_and_its_figure_in_ms() -> None:
    (part,) = comparison_picture(_CASE).parts
    assert (part.text, part.change_ms, part.interval_ms) == ("one; two", 2.0, (1.5, 2.5))


@pytest.mark.parametrize(
    ("how", "layers", "reason"),
    [
        (How.PLAN, (), "Nothing differs: the engine runs the same kernels on both sides."),
        (How.DUET, _CASE.layers, "This case was stored without the connections of its kernels"),
        (How.DUET, (), ""),
    ],
)
def test_without_kernels_the_picture_says_why(
    how: How, layers: tuple[LayerChange, ...], reason: str
) -> None:
    picture = comparison_picture(CaseComparison(Case(1, 1), (), (), layers=layers, how=how))
    assert picture.boxes == ()
    assert picture.reason.startswith(reason)
    assert bool(picture.reason) == bool(reason)
