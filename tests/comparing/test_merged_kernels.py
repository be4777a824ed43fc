"""The kernels of two plans make one graph: each once, as connected on its sides, no cycle."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from pytest_modelperf.comparing.changes import KernelChange, LayerChange
from pytest_modelperf.comparing.merged_kernels import NO_PLANS, KnownPlans, merge_kernels
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.measurements import GraphKernel, LayerTime, RowKind
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.report.picture.layout import lay_out
from pytest_modelperf.report.picture.records import BoxState
from tests.support.comparisons import row
from tests.support.known import known


def _layer(name: str, op_type: str) -> StaticLayer:
    return known(row(name, op_type, None).static)


def _row(index: int, op_type: str = "Conv", fused: tuple[str, ...] = ()) -> LayerRow:
    time = LayerTime(kind=RowKind.LAYER, kernel=f"k{index}", ns=1.0, layer=index)
    return LayerRow(_layer(f"l{index}", op_type), time, tuple(_layer(f"f{op}", op) for op in fused))


def _kernel(layer: int | None, *inputs: int, op_type: str = "Conv") -> GraphKernel:
    kind = RowKind.LAYOUT if layer is None else RowKind.LAYER
    return GraphKernel(op_type=op_type, inputs=inputs, kind=kind, layer=layer, ns=1.0)


def _reorder(*inputs: int) -> GraphKernel:
    return _kernel(None, *inputs, op_type="ReorderInput")


def _same(*layers: int) -> list[LayerChange]:
    """The same layers on both sides."""
    return [LayerChange(_row(layer), _row(layer)) for layer in layers]


def _states(kernels: tuple[KernelChange, ...]) -> list[str]:
    return [kernel.state.value for kernel in kernels]


def test_kernels_of_the_same_layers_are_one() -> None:
    side = (_kernel(0), _kernel(1, 0), _kernel(2, 1, 0))
    merged = merge_kernels(side, side, _same(0, 1, 2), NO_PLANS)
    assert _states(merged) == ["same"] * 3
    assert [kernel.inputs for kernel in merged] == [(), (0,), (1, 0)]


def test_an_inserted_kernel_is_new_and_the_edge_that_it_replaces_is_of_before() -> None:
    before = (_kernel(0), _kernel(1, 0))
    after = (_kernel(0), _kernel(7, 0), _kernel(1, 1))
    merged = merge_kernels(before, after, [*_same(0, 1), LayerChange(None, _row(7))], NO_PLANS)
    assert _states(merged) == ["same", "new", "same"]
    assert set(merged[2].inputs) == {0, 1}
    assert (merged[2].only_before, merged[2].only_after) == ((0,), (1,))


def test_a_removed_kernel_comes_last_and_keeps_its_edges() -> None:
    before = (_kernel(0), _kernel(7, 0), _kernel(1, 1))
    after = (_kernel(0), _kernel(1, 0))
    merged = merge_kernels(before, after, [*_same(0, 1), LayerChange(_row(7), None)], NO_PLANS)
    assert _states(merged) == ["same", "same", "gone"]
    assert merged[2].inputs == (0,)
    assert set(merged[1].inputs) == {0, 2}


def test_a_kernel_that_runs_other_layers_too_is_refused() -> None:
    side = (_kernel(0),)
    changes = [LayerChange(_row(0), _row(0, fused=("Relu",)))]
    assert _states(merge_kernels(side, side, changes, NO_PLANS)) == ["re-fused"]


def test_another_operator_is_a_change() -> None:
    changes = [LayerChange(_row(0, "Relu"), _row(0, "Clip"))]
    assert _states(merge_kernels((_kernel(0),), (_kernel(0),), changes, NO_PLANS)) == ["changed"]


def test_inserted_kernels_are_known_by_their_neighbours() -> None:
    """A reorder before the first kernel is known by what reads it, the other by what feeds it."""
    before = (_reorder(), _kernel(0, 0), _reorder(1), _kernel(1, 2))
    after = (_reorder(), _kernel(0, 0), _kernel(1, 1))
    merged = merge_kernels(before, after, _same(0, 1), NO_PLANS)
    assert _states(merged) == ["same", "same", "same", "gone"]
    assert merged[0].before is not None


def test_the_plans_say_what_is_the_same_and_in_which_part_the_rest_changed() -> None:
    before = (_kernel(0), _kernel(1, 0))
    after = (_kernel(0), _kernel(1, 0))
    known = KnownPlans({0: 0}, ({1: 4}, {1: 4}))
    merged = merge_kernels(before, after, _same(0, 1), known)
    assert [(kernel.state, kernel.part) for kernel in merged] == [
        (BoxState.SAME, None),
        (BoxState.CHANGED, 4),
    ]


def test_kernels_in_another_order_do_not_feed_themselves() -> None:
    before = (_kernel(0), _kernel(1, 0))
    after = (_kernel(1), _kernel(0, 0))
    merged = merge_kernels(before, after, _same(0, 1), NO_PLANS)
    assert sorted(_states(merged)) == ["gone", "new", "same"]
    lay_out([kernel.inputs for kernel in merged])


@st.composite
def _sides(draw: st.DrawFn) -> tuple[GraphKernel, ...]:
    count = draw(st.integers(1, 8))
    layers = draw(st.permutations(range(10)))[:count]
    return tuple(
        _kernel(layer, *sorted(draw(st.sets(st.integers(0, at - 1), max_size=2))) if at else ())
        for at, layer in enumerate(layers)
    )


@given(_sides(), _sides())
def test_each_kernel_of_each_side_is_there_once_and_the_graph_can_be_laid_out(
    before: tuple[GraphKernel, ...], after: tuple[GraphKernel, ...]
) -> None:
    merged = merge_kernels(before, after, _same(*range(10)), NO_PLANS)
    for side, kernels in (("before", before), ("after", after)):
        found = [getattr(each, side) for each in merged if getattr(each, side) is not None]
        assert sorted(k.layer for k in found) == sorted(k.layer or 0 for k in kernels)
    lay_out([kernel.inputs for kernel in merged])
