"""Facts from a run of ONNX Runtime complete a model exactly, and change nothing else of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.copies import write_runnable
from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.observed import complete_model, needs_observation
from pytest_modelperf.profiler.counting.count import profile_graph
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.engines import onnxruntime as engine
from pytest_modelperf.profiler.inputs.made import make_inputs
from pytest_modelperf.profiler.worker.sessions import ModelLocation
from tests.support.light_models import light_model
from tests.support.onnx_text import parse_model
from tests.support.small_models import parse

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A model that its graph describes only in part, inputs for it, and its MACs by hand."""

    text: str
    macs: int
    inputs: Mapping[str, Array]
    weights: Mapping[str, Array]

    def bound(self, batch_size: int | None = None) -> BoundModel:
        model = parse(self.text, weights=self.weights)
        return load_model(open_model(model), Binding(batch_size))


def case(text: str, macs: int, inputs: Mapping[str, Array] | None = None, **weights: Array) -> Case:
    return Case(text, macs, inputs or {}, weights)


def observe(bound: BoundModel, inputs: Mapping[str, Array], folder: Path) -> list[dict[str, Any]]:
    """Return the facts of one run without optimization, each node by its name in the copy."""
    path = folder / "named.onnx"
    write_runnable(bound, path)
    feeds = {n: f.array for n, f in make_inputs(bound.graph, bound.inputs).items()} | dict(inputs)
    dtypes = {name: str(array.dtype) for name, array in feeds.items()}
    return engine.observe_shapes(ModelLocation(str(path), None), {}, feeds, dtypes, str(folder))


def completed(case: Case, folder: Path) -> BoundModel:
    bound = case.bound()
    return complete_model(bound, observe(bound, case.inputs, folder))


def profiled(bound: BoundModel) -> StaticProfile:
    return profile_graph(bound.graph)


def floats(*shape: int) -> Array:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


ONES = np.ones((2, 2), np.float32)

COMPLETED: Mapping[str, Case] = {
    "NonZero": case(
        """n (float[3,4] x) => (float[k,5] y) {
            i = NonZero(x)
            f = Cast<to = 1>(i)
            t = Transpose<perm = [1, 0]>(f)
            y = MatMul(t, w)
        }""",
        # 7 of the 12 elements are not 0.
        7 * 2 * 5, {"x": np.array([[0, 1, 1, 0], [1, 1, 1, 0], [0, 0, 1, 1]], np.float32)},
        w=floats(2, 5),
    ),
    "TopK": case(
        "t (float[3,8] x, int64[1] k) => (float[3,5] y) { v, i = TopK(x, k) y = MatMul(v, w) }",
        3 * 4 * 5, {"k": np.array([4])}, w=floats(4, 5),
    ),
    "NonMaxSuppression": case(
        """n (float[1,6,4] b, float[1,1,6] s, int64[1] m, float[1] iou, float[1] least)
            => (float[k,2] y) {
            i = NonMaxSuppression(b, s, m, iou, least)
            f = Cast<to = 1>(i)
            y = MatMul(f, w)
        }""",
        # Six boxes that do not overlap, of which at most four are asked for.
        4 * 3 * 2,
        {
            "b": np.array([[[n, n, n + 0.5, n + 0.5] for n in range(6)]], np.float32),
            "s": np.ones((1, 1, 6), np.float32),
            "m": np.array([4]),
        },
        w=floats(3, 2),
    ),
    "Unique, with outputs left out": case(
        """u (float[9] x) => (float[k,3] y, int64[k] c) {
            v,,,c = Unique(x)
            m = Unsqueeze(v, axis)
            y = MatMul(m, w)
        }""",
        5 * 1 * 3, {"x": np.array([1, 2, 3, 4, 5, 5, 5, 1, 2], np.float32)}, w=floats(1, 3),
        axis=np.array([1]),
    ),
    "a Reshape to a shape that is an input": case(
        "r (float[3,4] x, int64[2] s) => (float[a,b] y) { q = Reshape(x, s) y = MatMul(q, w) }",
        6 * 2 * 5, {"s": np.array([6, 2])}, w=floats(2, 5),
    ),
    "a Loop that its data ends": case(
        """l (float[2,2] x) => (float[2,2] y) <int64 n = {99}, bool t = {1}, float limit = {100}> {
            y = Loop(n, t, x) <body = b (int64 i, bool c, float[2,2] a)
                => (bool d, float[2,2] p) {
                p = MatMul(a, w)
                s = ReduceSum<keepdims = 0>(p)
                d = Less(s, limit)
            }>
        }""",
        # From 4, each trip doubles the sum: 8, 16, 32, 64, 128.
        5 * 8, {"x": ONES}, w=ONES,
    ),
    "a Loop that does not run": case(
        """l (int64 n, float[2,2] x) => (float[2,2] y) {
            y = Loop(n, , x) <body = b (int64 i, bool c, float[2,2] a) => (bool d, float[2,2] p)
                { d = Identity(c) p = MatMul(a, w) }>
        }""",
        0, {"n": np.array(0)}, w=ONES,
    ),
    "a Loop whose only trip changes a shape": case(
        """l (int64 n, float[2,2] x) => (float[m,2] y) {
            y = Loop(n, , x) <body = b (int64 i, bool c, float[a,2] p) => (bool d, float[e,2] r)
                { d = Identity(c) q = MatMul(p, w) r = Concat<axis = 0>(p, q) }>
        }""",
        8, {"n": np.array(1)}, w=ONES,
    ),
    "an If that its data decides": case(
        """i (float[2,2] x) => (float[k,2] y) <float zero = {0}> {
            s = ReduceSum<keepdims = 0>(x)
            c = Greater(s, zero)
            y = If(c) <
                then_branch = a () => (float[2,2] p) { p = MatMul(x, w) },
                else_branch = b () => (float[1,2] q) { r = ReduceMax(x, axis) q = MatMul(r, w) }>
        }""",
        # The branch that is cheaper, and that no static profile would choose.
        1 * 2 * 2, {"x": -ONES}, w=ONES, axis=np.array([0]),
    ),
    "an If whose taken branch is a constant": case(
        """i (bool c, float[2,2] x) => (float[2,2] y) {
            z = Relu(x)
            y = If(c) <then_branch = a () => (float[2,2] p) { p = MatMul(x, w) },
                       else_branch = b () => (float[2,2] q) { q = Identity(v) }>
        }""",
        0, {"c": np.zeros((), bool)}, w=ONES, v=ONES,
    ),
    "a Scan over what a run makes": case(
        """s (float[6,2] x) => (float[k,2] y, float[2] z) {
            c = Greater(x, zero)
            r = ReduceMax(x, one)
            f = Greater(r, zero)
            e = Compress<axis = 0>(x, f)
            z, y = Scan(start, e) <num_scan_inputs = 1, body = b (float[2] s, float[2] v)
                => (float[2] t, float[2] o) { t = Add(s, v) o = MatMul(v, w) }>
        }""",
        3 * 2 * 2, {"x": np.array([[1, 1], [0, 0], [1, 1], [0, 0], [0, 0], [1, 1]], np.float32)},
        w=ONES, zero=np.array([0], np.float32), one=np.array([1]), start=np.zeros(2, np.float32),
    ),
    "a Loop in an If": case(
        """i (bool c, int64 n, float[2,2] x) => (float[2,2] y) {
            y = If(c) <
                then_branch = a () => (float[2,2] r) {
                    r = Loop(n, , x) <body = b (int64 i, bool ci, float[2,2] p)
                        => (bool d, float[2,2] q) { d = Identity(ci) q = MatMul(p, w) }>
                },
                else_branch = b () => (float[2,2] s) { s = Identity(x) }>
        }""",
        4 * 8, {"c": np.ones((), bool), "n": np.array(4)}, w=ONES,
    ),
    "a Loop in a Loop": case(
        """l (int64 n, int64 m, float[2,2] x) => (float[2,2] y) {
            y = Loop(n, , x) <body = a (int64 i, bool c, float[2,2] p) => (bool d, float[2,2] q) {
                d = Identity(c)
                q = Loop(m, , p) <body = b (int64 j, bool e, float[2,2] r)
                    => (bool f, float[2,2] s) { f = Identity(e) s = MatMul(r, w) }>
            }>
        }""",
        2 * 3 * 8, {"n": np.array(2), "m": np.array(3)}, w=ONES,
    ),
    "a Loop that carries a sequence": case(
        """l (int64 n, float[2,2] x) => (float[k,2] y) {
            s = SequenceConstruct(x)
            t, p = Loop(n, , s) <body = b (int64 i, bool c, seq(float[2,2]) a)
                => (bool d, seq(float[2,2]) e, float[2] r) {
                d = Identity(c)
                e = SequenceInsert(a, x)
                r = ReduceSum<keepdims = 0>(x, axis)
            }>
            y = MatMul(p, w)
        }""",
        3 * 2 * 2, {"n": np.array(3)}, w=ONES, axis=np.array([0]),
    ),
    "a SequenceMap, which the runtime unfolds": case(
        """s (float[3,4] x) => (float[3,4] y) {
            s = SplitToSequence<axis = 0>(x)
            t = SequenceMap(s) <body = b (float[1,4] e) => (float[1,4] q) { q = MatMul(e, w) }>
            y = ConcatFromSequence<axis = 0>(t)
        }""",
        3 * 4 * 4, w=floats(4, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLETED)
def test_a_run_completes_what_the_graph_leaves_open(name: str, tmp_path: Path) -> None:
    before = COMPLETED[name].bound()
    assert needs_observation(before.graph)
    after = completed(COMPLETED[name], tmp_path)
    static = profiled(after)
    assert (static.macs, static.coverage, static.uncounted) == (COMPLETED[name].macs, 1.0, ())
    assert not needs_observation(after.graph)
    assert after.notes[0].startswith("only a run can show")


def test_shapes_from_a_run_reach_tensors_that_the_run_did_not_name(tmp_path: Path) -> None:
    """The runtime may merge or unfold a node: its shape then follows from those before it."""
    one = COMPLETED["NonZero"]
    bound = one.bound()
    seen = [each for each in observe(bound, one.inputs, tmp_path) if each["name"] == "i"]
    assert len(seen) == 1
    assert profiled(complete_model(bound, seen)).macs == one.macs


def test_a_model_that_its_graph_describes_fully_needs_no_run() -> None:
    bound = case("r (float[3,4] x) => (float[3,4] y) { y = Relu(x) }", 0).bound()
    assert not needs_observation(bound.graph)


def test_an_unused_output_is_not_a_reason_for_a_run() -> None:
    """Before opset 10 the mask of a Dropout has no shape that onnx would infer."""
    bound = load_model(open_model(light_model("squeezenet")))
    mask = next(n for n in bound.graph.nodes if n.op_type == "Dropout").outputs[1]
    assert mask is not None
    assert not mask.is_complete
    assert not needs_observation(bound.graph)


def test_a_completed_model_has_the_rows_that_it_had(tmp_path: Path) -> None:
    """Layer times are mapped to rows; only of an If those of the other branch go."""
    for one in (COMPLETED["NonZero"], COMPLETED["a Loop in a Loop"]):
        before = [layer.id for layer in profiled(one.bound()).layers]
        assert [layer.id for layer in profiled(completed(one, tmp_path)).layers] == before


def test_the_graph_is_believed_if_a_run_contradicts_it() -> None:
    bound = case("r (float[3,4] x) => (float[3,4] y) { y = Relu(x) }", 0).bound()
    after = complete_model(bound, [{"name": "y", "calls": [[[3, 5]]]}])
    assert after.tensors["y"].shape == (3, 4)
    assert after.notes == (
        "a run saw the output shape 3x5 of Relu 'y', but the graph says 3x4: that is counted",
    )


def test_facts_from_a_run_do_not_change_what_was_asked_for(tmp_path: Path) -> None:
    """At another batch than the model's own the same holds."""
    text = """b (float[1,3,4] x) => (float[1,3,4] y) {
        s = Shape(x)
        i = NonZero(x)
        f = Cast<to = 1>(i)
        t = Transpose<perm = [1, 0]>(f)
        m = MatMul(t, w)
        y = Relu(x)
    }"""
    one = case(text, 0, w=floats(3, 2))
    bound = one.bound(2)
    inputs = {"x": np.ones((2, 3, 4), np.float32)}
    after = complete_model(bound, observe(bound, inputs, tmp_path))
    assert after.inputs.batch_size == 2
    assert profiled(after).macs == 24 * 3 * 2


def test_a_model_is_completed_without_reading_its_file_again(tmp_path: Path) -> None:
    text = """b (float[2,3] x) => (float[n,2] y) {
        i = NonZero(x)
        f = Cast<to = 1>(i)
        t = Transpose<perm = [1, 0]>(f)
        y = MatMul(t, w)
    }"""
    bound = case(text, 0, w=floats(2, 2)).bound()
    seen = observe(bound, {"x": np.ones((2, 3), np.float32)}, tmp_path)
    bound.file.proto.Clear()
    assert profiled(complete_model(bound, seen)).macs == 6 * 2 * 2


GROWING = """g (int64 n, float[3,2] x) => (float[k,2] y) {
    y = Loop(n, , x) <body = b (int64 i, bool c, float[a,2] p) => (bool d, float[e,2] r)
        { d = Identity(c) m = MatMul(p, w) r = Concat<axis = 0>(m, p) }>
}"""
UNEVEN = """u (int64 n, float[2,2] x) => (float[2,2] y) {
    y = Loop(n, , x) <body = a (int64 i, bool c, float[2,2] p) => (bool d, float[2,2] q) {
        d = Identity(c)
        q = Loop(i, , p) <body = b (int64 j, bool e, float[2,2] r)
            => (bool f, float[2,2] s) { f = Identity(e) s = MatMul(r, w) }>
    }>
}"""
ALTERNATING = """u (int64 n, float[2,2] x) => (float[2,2] y) {
    y = Loop(n, , x) <body = a (int64 i, bool c, float[2,2] p) => (bool d, float[2,2] q) {
        d = Identity(c)
        m = Mod(i, two)
        b = Cast<to = 9>(m)
        q = If(b) <then_branch = t () => (float[2,2] r) { r = MatMul(p, w) },
                   else_branch = f () => (float[2,2] s) { s = Neg(p) }>
    }>
}"""


@pytest.mark.parametrize(
    ("text", "trips", "note", "uncounted"),
    [
        (GROWING, 3, "change from trip to trip, first of MatMul 'm'", ["MatMul", "Concat"]),
        # 0, 1, 2 and 3 trips.
        (UNEVEN, 4, "Loop 'q' runs its body 6 times in 4 calls", ["Loop"]),
        (ALTERNATING, 4, "If 'q' does not take the same branch each time", []),
    ],
)
def test_shapes_that_differ_between_iterations_are_noted(
    text: str, trips: int, note: str, uncounted: list[str], tmp_path: Path
) -> None:
    one = case(text, 0, {"n": np.array(trips)}, w=ONES, two=np.array(2))
    after = completed(one, tmp_path)
    assert any(note in each for each in after.notes)
    assert [each.op_type for each in profiled(after).uncounted] == uncounted


def test_trips_that_differ_but_share_out_evenly_are_counted_exactly(tmp_path: Path) -> None:
    # 0, 1 and 2 trips are one for each of the three calls.
    after = completed(case(UNEVEN, 0, {"n": np.array(3)}, w=ONES), tmp_path)
    assert (profiled(after).macs, profiled(after).coverage) == (3 * 8, 1.0)


@pytest.mark.parametrize(
    "calls",
    [
        [[[2, 7], None, None, None]], [[[2, 7]]], [], [[]], [[[2, 7], [2], [2], [2], [2]]],
    ],
)  # fmt: skip
def test_answers_of_any_length_are_used_as_far_as_they_go(
    calls: Sequence[Sequence[Sequence[int] | None]],
) -> None:
    model = parse("n (float[3,4] x) => (int64[a,b] y) { y = NonZero(x) }")
    bound = load_model(open_model(model))
    seen: list[dict[str, Any]] = [
        {"name": "y", "calls": calls},
        {"name": "unknown", "calls": [[[1]]]},
    ]
    shape = complete_model(bound, seen).tensors["y"].shape
    assert shape == ((2, 7) if calls == [[[2, 7]]] else (2, None))


def test_nodes_that_share_a_name_are_distinguished(tmp_path: Path) -> None:
    model = parse(
        """n (float[4] x, float[6] z) => (int64[1,a] y, int64[1,b] w)
        { y = NonZero(x) w = NonZero(z) }"""
    )
    for node in model.graph.node:
        node.name = "same"
    bound = load_model(open_model(model))
    inputs = {"x": np.ones(4, np.float32), "z": np.ones(6, np.float32)}
    after = complete_model(bound, observe(bound, inputs, tmp_path))
    assert [after.tensors[name].shape for name in "yw"] == [(1, 4), (1, 6)]


def test_local_functions_are_seen_through(tmp_path: Path) -> None:
    model = parse_model(
        """<ir_version: 10, opset_import: ["": 21, "local": 1]>
        m (float[4] x) => (float[1,k] y) { y = local.f(x) }
        <domain: "local", opset_import: ["": 21]>
        f (a) => (c) { b = NonZero(a) c = Cast<to = 1>(b) }"""
    )
    bound = load_model(open_model(model))
    inputs = {"x": np.array([0, 1, 1, 0], np.float32)}
    after = complete_model(bound, observe(bound, inputs, tmp_path))
    assert after.tensors["y"].shape == (1, 2)
