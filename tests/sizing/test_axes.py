"""Wishes of operators for an axis are found by following it from the input."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.profiler.inputs.made import find_uses
from pytest_modelperf.sizing.axes import AxisUses, Merge, SizeRange, WindowSizes, follow_axis
from tests.support.graph_models import load, parse, zeros

SIZES = st.integers(1, 60)


def _follow(graph: str, axis: int, **weights: tuple[int, ...]) -> AxisUses:
    model = parse(graph, {name: zeros(*shape) for name, shape in weights.items()})
    built = load(model, Binding(leaves_open=True)).graph
    return follow_axis(built.inputs[0], axis, find_uses(built))


@given(SIZES, SIZES, st.integers(0, 8), SIZES)
def test_a_window_makes_a_wanted_size_of_just_the_sizes_before_it(
    kernel: int, stride: int, padding: int, wanted: int
) -> None:
    before = WindowSizes(kernel, stride, padding).before(SizeRange(wanted, wanted))

    def made(size: int) -> int:
        return (size + padding - kernel) // stride + 1

    found = {size for size in range(1, 4000) if made(size) == wanted}
    assert found == (set() if before is None else set(range(before.low, before.high + 1)))


@given(SIZES, SIZES, st.sampled_from([1, 2]))
def test_a_merge_is_undone(size: int, others: int, unknown: int) -> None:
    product = others * size**unknown
    assert Merge(others, unknown).before(SizeRange(product, product)) == SizeRange(size, size)


# Graphs, the axis of their first input, their weights, and what is found of that axis.
FOLLOWED: dict[str, tuple[str, int, dict[str, tuple[int, ...]], dict[str, object]]] = {
    # The pool needs three elements of the convolution, whose last window ends at the fifth row.
    "strides multiply along the way": (
        """g (float[1,3,H,8] x) => (float[1,4,a,b] y) {
            h = Conv<strides = [2, 1], pads = [1, 1, 1, 1]>(x, v)
            r = Relu(h)
            y = MaxPool<kernel_shape = [3, 1], strides = [3, 1]>(r)
        }""",
        2, {"v": (4, 3, 3, 3)}, {"step": 6, "steps": {2, 6}, "least": 5},
    ),
    "an open axis that gets a fixed size is followed no further": (
        """g (float[1,3,H,W] x, float[r,4] rois, int64[r] i) => (float[r,5] y) {
            a = RoiAlign<output_height = 7, output_width = 7>(x, rois, i)
            f = Flatten(a)
            y = Gemm<transB = 1>(f, w)
        }""",
        2, {"w": (5, 147)}, {"wishes": []},
    ),
    "an axis is followed through a group normalization": (
        """g (float[N,1,T] x) => (float[N,4,b] y) <int64[3] groups = {0, 2, -1}> {
            h = Conv<strides = [5]>(x, v)
            s = Shape(h)
            g = Reshape(h, groups)
            n = InstanceNormalization(g, scale, bias)
            r = Reshape(n, s)
            y = Conv<strides = [4]>(r, w)
        }""",
        2, {"v": (4, 1, 10), "w": (4, 4, 8), "scale": (2,), "bias": (2,)},
        {"step": 20, "least": 45},
    ),
    # 28 and 29 both leave 12 rows.
    "a classifier wants the size that fills its features": (
        """g (float[N,1,H,W] x) => (float[N,10] y) {
            h = Conv(x, v)
            p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(h)
            f = Flatten(p)
            y = Gemm<transB = 1>(f, w)
        }""",
        2, {"v": (6, 1, 5, 5), "w": (10, 6 * 12 * 12)},
        {"wishes": [(SizeRange(28, 29), 2, "Gemm")]},
    ),
    # The Squeeze is of axis 0, whose size is 1 already.
    "a squeeze wants what shrinks to one": (
        """g (float[1,1,T] x) => (float[1,4] y) {
            h = Conv<strides = [8]>(x, v)
            y = Squeeze(h, axes)
        }""",
        2, {"v": (4, 1, 16), "axes": (1,)}, {"wishes": [], "least": 16},
    ),
    "an axis of tokens is followed through an embedding": (
        """g (int64[1,S] ids) => (float[1,S,6] y) {
            e = Gather(table, ids)
            y = Add(e, positions)
        }""",
        1, {"table": (50, 6), "positions": (1, 20, 6)},
        {"wishes": [(SizeRange(20, 20), 1, "Add")]},
    ),
    "a reshape into tiles wants multiples of them": (
        """g (float[1,S,6] x) => (float[1,n,7,6] y)
        <int64[4] target = {1, -1, 7, 6}> { y = Reshape(x, target) }""",
        1, {}, {"steps": {7}},
    ),
    **{
        f"a spectrogram slides along a signal: {node}": (
            f"""g (float[N,T,1] x, float[400] frame) => (float[a,b,c,2] y) {{
                hop = Constant<value_int = 160>()
                length = Constant<value_int = 400>()
                y = STFT({node})
            }}""",
            1, {}, {"step": 160, "least": 400, "steps": {160}},
        )
        for node in ("x, hop, frame", "x, hop, , length")
    },
}  # fmt: skip


@pytest.mark.parametrize(("graph", "axis", "weights", "expected"), FOLLOWED.values(), ids=FOLLOWED)
def test_facts_found_along_an_axis(
    graph: str, axis: int, weights: dict[str, tuple[int, ...]], expected: dict[str, object]
) -> None:
    found = _follow(graph, axis, **weights)
    facts = {
        "step": found.step,
        "least": found.least,
        "steps": set(found.steps),
        # The reason names the operator that wants the sizes.
        "wishes": [(w.sizes, w.step, w.reason.split()[0]) for w in found.wishes],
    }
    assert facts == facts | expected


def test_a_scalar_that_is_gathered_from_wants_nothing() -> None:
    graph = "g (int64[B,S] ids) => (float[m] y) <float one = {1}> { y = Gather(one, ids) }"
    assert _follow(graph, 1) == AxisUses()


def test_a_cache_is_recognized_by_what_is_added_to_it() -> None:
    graph = """g (float[1,P,4] past, float[1,S,4] x) => (float[1,T,4] y) {
        y = Concat<axis = 1>(past, x)
    }"""
    assert _follow(graph, 1).cache_of.startswith("Concat ")


@pytest.mark.parametrize("line", ["Slice(h, zero, most, zero)", "Pad(h, pads)", "Add(h, w)"])
def test_an_axis_is_not_followed_through_an_unknown_number_of_axes(line: str) -> None:
    found = _follow(
        f"""g (float[1,S,4] x) => (float[] y)
            <int64 n = {{2}}, bool t = {{1}}, int64[1] zero = {{0}}, int64[1] most = {{9}}> {{
            y = Loop(n, t, x) <body = b (int64 k, bool c, float[] h) => (bool d, float[] m) {{
                d = Identity(c)
                pads = Shape(h)
                z = {line}
                m = Unsqueeze(h, zero)
            }}>
        }}""",
        1,
        w=(4,),
    )
    assert found == AxisUses()
