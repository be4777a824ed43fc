"""Inputs that are made, held against a runtime that refuses what is out of range; given ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pytest_modelperf.errors import BindingError, ModelPerfError, UsageError
from pytest_modelperf.graph.binding import Binding, InputSpec, parse_input_spec
from pytest_modelperf.graph.load import BoundModel, declared_inputs, load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.weights.numbers import STORED_AS, name_of, to_stored
from pytest_modelperf.profiler.engines import onnxruntime as engine
from pytest_modelperf.profiler.inputs.given import (
    GivenSource,
    MakeInputs,
    make_arguments,
    read_given,
    specs_of,
)
from pytest_modelperf.profiler.inputs.made import Feed, make_inputs
from pytest_modelperf.profiler.worker.agent import Agent
from pytest_modelperf.profiler.worker.sessions import ModelLocation
from tests.support.known import known
from tests.support.light_models import light_model
from tests.support.runtimes import INSTALLED, unless_1_23
from tests.support.small_models import parse

Array = npt.NDArray[Any]

# By our names; ml_dtypes defines which numbers the bits are.
ML_TYPES: Mapping[str, Any] = {
    name_of(np.dtype(kind)): np.dtype(kind)
    for kind in (
        ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu,
        ml_dtypes.float4_e2m1fn,
    )
}  # fmt: skip
# Types that ONNX's text form names differently.
TEXT_TYPES = {"float32": "float", "float64": "double"}


def bound(text: str | onnx.ModelProto, *inputs: str, **weights: Array) -> BoundModel:
    model = parse(text, weights=weights) if isinstance(text, str) else text
    binding = Binding(inputs=tuple(map(parse_input_spec, inputs)))
    return load_model(open_model(model), binding)


def made(model: str | BoundModel, *inputs: str, seed: int = 0) -> dict[str, Feed]:
    model = bound(model, *inputs) if isinstance(model, str) else model
    return make_inputs(model.graph, model.inputs, seed)


def values(model: str | BoundModel, *inputs: str, **weights: Array) -> dict[str, list[Any]]:
    model = bound(model, *inputs, **weights) if isinstance(model, str) else model
    return {name: feed.array.tolist() for name, feed in made(model).items()}


def run(model: BoundModel, folder: Path) -> list[Any]:
    """The outputs on made inputs, which went the way that a worker takes them."""
    agent = Agent()
    agent.do_inputs({name: feed.to_wire() for name, feed in made(model).items()})
    path = folder / "model.onnx"
    with model.file.open_bytes() as file:
        path.write_bytes(file.read())
    session = engine.load(ModelLocation(str(path), None), 1, {})
    outputs: list[Any] = session.prepare(agent._feeds[""].arrays, agent._feeds[""].dtypes)()
    session.close()
    return outputs


def smallest_normal(dtype: npt.DTypeLike) -> float:
    info: Any = ml_dtypes.finfo
    return float(info(dtype).smallest_normal)


def table(rows: int, columns: int = 4) -> Array:
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)


def bytes_of(*shape: int) -> Array:
    return np.ones(shape, np.uint8)


# -- integers inside the range that their uses allow

BERT = """
bert (int64[2,7] input_ids, int64[2,7] some, int64[2,7] token_type_ids) => (float[2,7,7] y)
    <int64[1,7] positions = {0, 1, 2, 3, 4, 5, 6}, int64[1] one_axis = {1}, float one = {1},
     float big = {-10000}>
{
    w = Gather(words, input_ids)
    t = Gather(types, token_type_ids)
    p = Gather(places, positions)
    wt = Add(w, t)
    h = Add(wt, p)
    m1 = Unsqueeze(some, one_axis)
    m2 = Cast<to = 1>(m1)
    m3 = Sub(one, m2)
    m4 = Mul(m3, big)
    ht = Transpose<perm = [0, 2, 1]>(h)
    s1 = MatMul(h, ht)
    s2 = Add(s1, m4)
    y = Softmax(s2)
}"""

# Each refuses to run, or computes something else, if an index is out of range.
RUNNABLE: Mapping[str, tuple[str, Mapping[str, Array]]] = {
    "bert": (BERT, {"words": table(10), "types": table(2), "places": table(16)}),
    "embedding": (
        "e (int64[400] ids) => (float[400,4] y) { y = Gather(t, ids) }",
        {"t": table(10)},
    ),
    "one hot": (
        ("o (int64[6] i) => (float[6,3] y) <int64 d = {3}, float[2] v = {0, 1}>"
        "{ y = OneHot(i, d, v) }"),
        {},
    ),
    "positions that are shifted": (
        ("p (int64[2,50] p) => (float[2,50,4] y) <int64 two = {2}>"
        "{ a = Add(p, two) y = Gather(t, a) }"),
        {"t": table(5)},
    ),
    "a past length before many positions": (
        ("p (int64[1] past) => (float[4,4] y) <int64[4] r = {0, 1, 2, 3}>"
        "{ a = Add(r, past) y = Gather(t, a) }"),
        {"t": table(5)},
    ),
    "what is computed before it is an index": (
        "p (int64[99] a, int64[99] b) => (float[99,4] y) { c = Mul(a, b) y = Gather(t, c) }",
        {"t": table(3)},
    ),
    "indices by floats": (
        "f (float[99] x) => (float[99,4] y) { i = Cast<to = 7>(x) y = Gather(t, i) }",
        {"t": table(3)},
    ),
    "both branches": (
        """b (bool c, int64[99] i) => (float[99,4] y) {
            y = If(c) <then_branch = a () => (float[99,4] r) { r = Gather(t, i) },
                       else_branch = b () => (float[99,4] q) { q = Gather(u, i) }>
        }""",
        {"t": table(5), "u": table(3)},
    ),
    "carried by a loop": (
        """l (int64[99] i) => (float[2,99,4] y) <int64 n = {2}, bool t = {1}> {
            z, y = Loop(n, t, i) <body = b (int64 k, bool c, int64[99] j)
                => (bool d, int64[99] o, float[99,4] r)
                { d = Identity(c) o = Identity(j) r = Gather(tab, j) }>
        }""",
        {"tab": table(5)},
    ),
    "scattered": (
        "s (int64[9,2] i, float[9] u) => (float[4,5] y) { y = ScatterND(t, i, u) }",
        {"t": table(4, 5)},
    ),
    "elements": (
        "g (int64[9,4] i) => (float[9,4] y) { y = GatherElements(t, i) }",
        {"t": table(3)},
    ),
    "sizes": (
        """s (int64[1] k, float[2,5] x, int64 a, int64 b, int64 c, int64[2] r, int64[1] shape)
            => (float[2,m] y, int64[2,m] z, int64[q] w, float[e,f] v, float[g] u)
        { y, z = TopK(x, k) w = Range(a, b, c) v = Tile(x, r) u = ConstantOfShape(shape) }""",
        {},
    ),
    "thresholds": (
        ("n (float[1,6,4] b, float[1,1,6] s, int64[1] m, float[1] iou, float[1] least)"
        "=> (int64[q,3] y) { y = NonMaxSuppression(b, s, m, iou, least) }"),
        {},
    ),
    "divisors": (
        ("d (int64[99] a, int64[99] b, int32[99] c, int32[99] e) => (int64[99] y, int32[99] z)"
        "{ y = Div(a, b) z = Mod(c, e) }"),
        {},
    ),
    "slices": (
        ("s (float[5,6] x, int64[1] b, int64[1] e, int64[1] a, int64[1] t) => (float[q,p] y)"
        "{ y = Slice(x, b, e, a, t) }"),
        {},
    ),
    "lengths of sequences": (
        ("l (float[5,2,3] x, int32[2] n) => (float[5,1,2,4] y)"
        "{ y = LSTM<hidden_size = 4>(x, w, r, , n) }"),
        {"w": np.ones((1, 16, 3), np.float32), "r": np.ones((1, 16, 4), np.float32)},
    ),
    "lengths of quantized sequences": (
        """l (float[5,2,3] x, int32[2] n) => (float[5,1,2,4] y)
            <float[1] s = {0.5}, uint8[1] z = {0}>
        { y = com.microsoft.DynamicQuantizeLSTM<hidden_size = 4>
            (x, w, r, , n, , , , s, z, s, z) }""",
        {"w": bytes_of(1, 3, 16), "r": bytes_of(1, 4, 16)},
    ),
    "numbers as texts": (
        ("t (string[9] a, string[9] b) => (string[q] y, int64[9] z)"
        "{ y = StringNormalizer(a) z = Cast<to = 7>(b) }"),
        {},
    ),
    "categories": (
        """c (string[9,2] a, int64[9,1] b, int64[9,1] c)
            => (float[9,1,2] x, float[9,1,3] y, float[9,1,2] z)
            <int64[1] second = {1}>
        { d = ai.onnx.ml.ArrayFeatureExtractor(a, second)
          x = ai.onnx.ml.OneHotEncoder<cats_strings = ["red", "green"], zeros = 0>(d)
          y = ai.onnx.ml.OneHotEncoder<cats_int64s = [3, 4, 5], zeros = 0>(b)
          z = ai.onnx.ml.OneHotEncoder<cats_int64s = [7, 900], zeros = 0>(c) }""",
        {},
    ),
    "embedding layers": (
        """e (int32[2,9] i, int32[2,9] s, int32[2,9] m) => (float[2,9,8] y, int32[2] k)
        { y, k = com.microsoft.EmbedLayerNormalization(i, s, w, p, t, g, b, m) }""",
        {"w": table(10, 8), "p": table(9, 8), "t": table(2, 8), "g": table(1, 8)[0],
         "b": table(1, 8)[0]},
    ),
    "quantized embedding layers": (
        """e (int32[2,9] i, int32[2,9] s) => (float[2,9,8] y, int32[2] k)
            <float scale = {0.5}, uint8 zero = {3}>
        { y, k = com.microsoft.QEmbedLayerNormalization(i, s, w, p, t, g, b, , scale, scale, scale,
            scale, scale, zero, zero, zero, zero, zero) }""",
        {"w": bytes_of(10, 8), "p": bytes_of(9, 8), "t": bytes_of(2, 8), "g": bytes_of(8),
         "b": bytes_of(8)},
    ),
    "cached keys": (
        """g (float[1,2,16] q, float[1,2,16] k, float[1,2,16] v, float[1,2,3,8] a, float[1,2,3,8] b,
            int32[1] s, int32 t) => (float[1,2,16] y, float[1,2,5,8] c, float[1,2,5,8] d)
        { y, c, d = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 2>
            (q, k, v, a, b, s, t) }""",
        {},
    ),
    "searches": (
        """s (int32[2,5] ids, int32[1] most, int32[1] least, int32[1] beams, int32[1] texts,
            float[1] length, float[1] repetition) => (int32[2,t,n] y)
        { y = com.microsoft.BeamSearch<eos_token_id = 9, pad_token_id = 9, model_type = 0,
            decoder = d (int32[b,s] input_ids, int32[b,s] position_ids, int32[b,m] attention_mask,
                float[2,b,2,p,4] past_0) => (float[b,s,10] logits, float[2,b,2,q,4] present_0)
                <int64[5] parts = {0, 0, 2, 2, 4}> {
                logits = Gather(words, input_ids)
                flat = Gather(keys, input_ids)
                split = Reshape(flat, parts)
                new = Transpose<perm = [2, 0, 3, 1, 4]>(split)
                present_0 = Concat<axis = 3>(past_0, new)
            }>(ids, most, least, beams, texts, length, repetition) }""",
        {"words": table(10, 10), "keys": table(10, 16)},
    ),
    "rotary positions": (
        ("r (float[1,4,2,8] x, int64[1,2] p) => (float[1,4,2,8] y)"
        "{ y = com.microsoft.RotaryEmbedding(x, p, c, s) }"),
        {"c": table(6), "s": table(6)},
    ),
    "labels": (
        ("l (float[99,5] x, int64[99] a, int64[99] b) => (float y, float z)"
        "{ p = LogSoftmax(x) y = NegativeLogLikelihoodLoss(p, a)"
        "  z = SoftmaxCrossEntropyLoss(x, b) }"),
        {},
    ),
    "axes": (
        """a (float[2,3,4] x, float[1,16,1] w, int64[1] r, int32[1] e, int64 d)
            => (float[q,p,o] y, float[q,p,o,n] z, float[m,l,k] v)
        { y = ReduceSum(x, r) z = com.microsoft.ExpandDims(x, e) v = DFT(w, , d) }""",
        {},
    ),
    "positions in a sequence": (
        ("s (float[6,3] x, int64 p) => (float[6,3] y)"
        "{ s = SequenceConstruct(x) y = SequenceAt(s, p) }"),
        {},
    ),
    "pieces": (
        ("p (float[6,3] x, int64[2] s) => (float[q,r] y, float[o,p] z)"
        "{ y, z = Split<axis = 0>(x, s) }"),
        {},
    ),
    "grids and spectra": (
        """g (float[2,2,3] t, int64[4] g, float[1,16,1] x, int64 n, int64 step, int64 mel)
            => (float[a,b,c,d] y, float[e,f,h] z, float[i,j,k,l] v, float[m,o] u)
            <int64 length = {4}, int64 bins = {3}, int64 rate = {8000}, float low = {0},
             float high = {4000}>
        { y = AffineGrid(t, g) z = DFT(x, n) v = STFT(x, step, , length)
          u = MelWeightMatrix(bins, mel, rate, low, high) }""",
        {},
    ),
    "types that numpy lacks": (
        """f (bfloat16[9] a, float8e4m3fn[9] b, float8e5m2[9] c)
            => (float[9] x, float[9] y, float[9] z)
        { x = Cast<to = 1>(a) y = Cast<to = 1>(b) z = Cast<to = 1>(c) }""",
        {},
    ),
}  # fmt: skip


NOT_ON_1_23 = {
    "numbers as texts": "wants a locale that few systems have",
    "searches": "lets no decoder use a weight outside of it",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=unless_1_23(NOT_ON_1_23[name])) if name in NOT_ON_1_23 else name
        for name in RUNNABLE
    ],
)
def test_the_runtime_accepts_what_is_made(name: str, tmp_path: Path) -> None:
    text, weights = RUNNABLE[name]
    model = parse(text, weights=weights)
    assert run(load_model(open_model(model)), tmp_path)


@pytest.mark.skipif(INSTALLED < (1, 32), reason="older releases take no lengths of queries")
def test_the_runtime_accepts_queries_that_are_all_valid(tmp_path: Path) -> None:
    model = bound("""
        g (float[1,2,16] q, float[1,2,16] k, float[1,2,16] v, float[1,2,3,8] a, float[1,2,3,8] b,
            int32[1] s, int32 t, int32[1] n)
            => (float[1,2,16] y, float[1,2,5,8] c, float[1,2,5,8] d)
        { y, c, d = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 2>
            (q, k, v, a, b, s, t, , , , , , , , , , n) }
    """)
    assert values(model)["n"] == [2]
    assert run(model, tmp_path)


@pytest.mark.parametrize("name", ["shufflenet", "squeezenet"])
def test_images_keep_activations_in_a_normal_range(name: str, tmp_path: Path) -> None:
    (output,) = run(load_model(open_model(light_model(name))), tmp_path)
    assert np.isfinite(output).all()


@given_by(
    rows=st.integers(1, 400), dtype=st.sampled_from(["int64", "int32"]), seed=st.integers(0, 2**31)
)
def test_indices_cover_their_table_and_stay_in_it(rows: int, dtype: str, seed: int) -> None:
    model = bound(
        f"e ({dtype}[4000] ids) => (float[4000,1] y) {{ y = Gather(t, ids) }}", t=table(rows, 1)
    )
    ids = make_inputs(model.graph, model.inputs, seed)["ids"].array
    assert ids.dtype == dtype
    assert ids.min() >= 0
    assert ids.max() < rows
    # All but 1 in 22,000 rows are drawn at least once.
    assert len(np.unique(ids)) > 0.98 * rows - 1


def test_indices_that_a_scan_of_a_batch_steps_through_stay_in_their_table() -> None:
    model = parse(
        """s (float[2,1] start, int64[2,7,9] ids) => (float[2,1] last, float[2,7,9,4] y) {
            last, y = Scan<num_scan_inputs = 1,
                body = b (float[1] t, int64[9] i) => (float[1] o, float[9,4] r) {
                    o = Identity(t)
                    r = Gather(rows, i)
                }>("", start, ids)
        }""",
        opset=8,
        weights={"rows": table(3)},
    )
    assert set(made(bound(model))["ids"].array.reshape(-1).tolist()) == {0, 1, 2}


@pytest.mark.parametrize(("op", "opset"), [("CumSum", 21), ("CumProd", 26)])
def test_an_axis_that_something_runs_along_is_the_first(op: str, opset: int) -> None:
    text = f"c (float[3] x, int64 axis) => (float[3] y) {{ y = {op}(x, axis) }}"
    assert made(bound(parse(text, opset=opset)))["axis"].array.tolist() == 0


def test_positions_in_time_height_and_width_stay_in_the_table_of_angles() -> None:
    text = """r (float[1,2,50,8] x, int64[3,1,50] p) => (float[1,2,50,8] y)
        { y = com.microsoft.MRotaryEmbedding(x, p, cosines, sines) }"""
    model = bound(text, cosines=table(6), sines=table(6))
    assert set(made(model)["p"].array.reshape(-1).tolist()) == set(range(6))


def test_the_tightest_of_several_uses_wins() -> None:
    ids = values(
        """t (int64[999] i) => (float[999,4] y, float[999,4] z)
        { y = Gather(a, i) z = Gather(b, i) }""",
        a=table(50),
        b=table(3),
    )["i"]
    assert set(ids) == {0, 1, 2}


def test_categories_are_those_of_the_encoder() -> None:
    inputs = values(
        """c (string[99] a, int64[99] b, int64[99] c)
            => (float[99,3] x, float[99,3] y, float[99,2] z)
        { x = ai.onnx.ml.OneHotEncoder<cats_strings = ["red", "green", "no"]>(a)
          y = ai.onnx.ml.OneHotEncoder<cats_int64s = [5, 3, 4]>(b)
          z = ai.onnx.ml.OneHotEncoder<cats_int64s = [900, 7]>(c) }"""
    )
    assert {name: set(made) for name, made in inputs.items()} == {
        "a": {"red", "green", "no"},
        "b": {3, 4, 5},
        "c": {7},
    }


def test_an_index_that_may_be_negative_is_not_made_so() -> None:
    ids = values(
        """w (int64[999] i) => (float[999,4] y) <int64 n = {10}, int64 zero = {0}>
        { l = Less(i, zero) a = Add(i, n) w = Where(l, a, i) y = Gather(t, w) }""",
        t=table(10),
    )["i"]
    assert set(ids) == set(range(10))


def test_a_mask_hides_nothing_whatever_it_is_called() -> None:
    model = bound(BERT, words=table(10), types=table(2), places=table(16))
    feeds = made(model)
    assert (feeds["some"].array == 1).all()
    assert set(feeds["token_type_ids"].array.reshape(-1).tolist()) == {0, 1}
    named = values(
        "m (int64[3] attention_mask, float[3] attnMask, bool[3] pad_mask, float[3] masked_image)"
        "=> (int64[3] a, float[3] b, bool[3] c, float[3] d)"
        "{ a = Neg(attention_mask) b = Neg(attnMask) c = Not(pad_mask) d = Neg(masked_image) }"
    )
    assert named["attention_mask"] == [1, 1, 1]
    assert named["attnMask"] == [1, 1, 1]
    assert named["pad_mask"] == [True, True, True]
    assert named["masked_image"] != [1, 1, 1]


def test_a_length_that_masks_a_sequence_hides_nothing_of_it() -> None:
    text = """l (float[2,7,3] x, int64[2] n) => (float[2,7,3] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] rows = {0}, int64[1] columns = {1},
         int64[1] last = {2}> {
            shape = Shape(x)
            longest = Gather(shape, one)
            all = Range(zero, longest, one)
            row = Unsqueeze(all, rows)
            column = Unsqueeze(n, columns)
            is_there = Less(row, column)
            mask = Cast<to = 1>(is_there)
            wide = Unsqueeze(mask, last)
            y = Mul(x, wide)
        }"""
    assert values(text)["n"] == [7, 7]


def test_conditions_are_true_and_other_booleans_are_mixed() -> None:
    feeds = made(
        """b (bool c, bool[99] m, bool[99] w, float[99] x)
            => (float[99] y, bool[99] z, float[99] v) {
            y = If(c) <then_branch = a () => (float[99] r) { r = Neg(x) },
                       else_branch = b () => (float[99] q) { q = Abs(x) }>
            z = Xor(m, m)
            v = Where(w, x, y)
        }"""
    )
    assert feeds["c"].array.tolist() is True
    assert set(feeds["m"].array.tolist()) == {True, False}
    assert set(feeds["w"].array.tolist()) == {True}


def test_a_value_that_decides_how_much_is_computed_is_noted() -> None:
    feeds = made("t (int64[1] k, float[9] x) => (float[m] y, int64[m] z) { y, z = TopK(x, k) }")
    assert feeds["k"].note == snapshot(
        "the input 'k' decides how much TopK 'y' makes; it was set to 1. Give its real "
        "value as the input k:int64:1:VALUE"
    )
    assert feeds["x"].note is None


@pytest.mark.parametrize(
    ("dtype", "shown"), [("string", "4"), ("bfloat16", "1.0"), ("bool", "True")]
)
def test_a_value_that_decides_is_noted_in_the_form_of_its_type(dtype: str, shown: str) -> None:
    text = f"c ({dtype}[1] n) => (float[k] y) {{ i = Cast<to = 7>(n)  y = ConstantOfShape(i) }}"
    note = known(made(text)["n"].note)
    assert f"; it was set to {shown}. " in note


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("c = Equal(rate, limit)", "16000"),
        ("c = Greater(rate, limit)", "16000"),
        ("c = Less(limit, rate)", "16000"),
        ("e = Equal(rate, limit)  c = Not(e)", "16000"),
        ("r = Sub(rate, limit)  c = Equal(r, limit)", "32000"),
        ("m = Sub(rate, large)  c = Equal(m, limit)", "123472789"),
    ],
)
def test_a_constant_that_decides_a_branch_is_noted(condition: str, shown: str) -> None:
    feeds = made(
        f"""t (int64 rate, float[9] x) => (float[9] y)
        <int64 limit = {{16000}}, int64 large = {{123456789}}> {{
            {condition}
            y = If(c) <then_branch = a () => (float[9] r) {{ r = Neg(x) }},
                       else_branch = b () => (float[9] q) {{ q = Abs(x) }}>
        }}"""
    )
    note = known(feeds["rate"].note)
    assert f"The graph compares it with {shown}" in note
    assert f"rate:int64::{shown}" in note


def test_a_constant_that_ends_a_loop_is_not_noted() -> None:
    feeds = made(
        """t (int64 n, float[9] x) => (float[9] y) <int64 zero = {0}, int64 one = {1}> {
            c = Greater(n, zero)
            m, y = Loop(, c, n, x) <body = b (int64 i, bool go, int64 k, float[9] s)
                => (bool more, int64 l, float[9] t) {
                l = Sub(k, one)
                more = Greater(l, zero)
                t = Neg(s)
            }>
        }"""
    )
    note = known(feeds["n"].note)
    assert "decides whether Loop 'm' runs; it was set to " in note
    assert note.endswith(". Give its real value as the input n:int64::VALUE")


@pytest.mark.parametrize("dtype", ["float", "int64", "int8"])
@pytest.mark.parametrize("term", [np.nan, np.inf, -1e30, 1e30])
def test_a_term_that_no_index_can_have_causes_no_error(dtype: str, term: float) -> None:
    text = f"""f ({dtype}[1] n, float[9] x) => (float[m] y, float[1] z) {{
        f = Cast<to = 1>(n)
        far = Add(f, term)
        i = Cast<to = 7>(far)
        y = ConstantOfShape(i)
        z = Gather(x, i)
    }}"""
    (value,) = values(text, term=np.array([term], np.float32))["n"]
    assert np.isfinite(value)


def test_an_empty_input_has_no_value_to_note() -> None:
    feeds = made(
        """e (int64[0] i, float[2] x) => (float[2] y) <int64 zero = {0}> {
            c = Equal(i, zero)
            n = Cast<to = 7>(c)
            s = ReduceSum<keepdims = 0>(n)
            b = Cast<to = 9>(s)
            y = If(b) <then_branch = t () => (float[2] r) { r = Relu(x) },
                       else_branch = e () => (float[2] q) { q = Neg(x) }>
        }"""
    )
    assert feeds["i"].array.shape == (0,)
    assert feeds["i"].note is None


def test_a_comparison_that_decides_nothing_is_not_noted() -> None:
    feeds = made(
        """t (int64[1] rate, float[1] x) => (bool[1] y) <int64[1] limit = {16000}> {
            y = Equal(rate, limit)
        }"""
    )
    assert feeds["rate"].note is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(float[2,3] x, int64[4] i) => (float[a,b] y) { y = Pad(x, i) }", 0),
        ("(float[2,3] x, float[2] i) => (float[a,b] y) { y = Resize(x, , i) }", 1),
        ("(float[2,3] x, int64[1] i, int64[1] e) => (float[a,b] y) { y = Slice(x, i, e) }", 0),
        ("(float[2,3] x, int64[1] i) => (float[a,b] y) { y = ReduceMax(x, i) }", 0),
        ("(float[6] x, int64[2] i) => (float[a] y, float[b] z) { y, z = Split(x, i) }", 3),
        ("(int64 i) => (float[a] y) { y = HannWindow(i) }", 1),
    ],
)
def test_every_assumed_size_is_noted(text: str, value: float) -> None:
    feed = made(f"m {text}")["i"]
    assert set(feed.array.reshape(-1).tolist()) == {value}
    assert known(feed.note).startswith("the input 'i' decides")


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127), ("int64", 0, 9)]
)
def test_integers_without_a_known_use(dtype: str, low: int, high: int) -> None:
    numbers = values(f"i ({dtype}[9999] x) => ({dtype}[9999] y) {{ y = Identity(x) }}")["x"]
    assert (min(numbers), max(numbers)) == (low, high)


# -- floats


@given_by(
    dtype=st.sampled_from(["float16", "float32", "float64", *ML_TYPES]), seed=st.integers(0, 2**31)
)
def test_floats_are_normal_numbers(dtype: str, seed: int) -> None:
    name = TEXT_TYPES.get(dtype, dtype)
    model = bound(f"f ({name}[500] x) => ({name}[500] y) {{ y = Identity(x) }}")
    array = make_inputs(model.graph, model.inputs, seed)["x"].array
    floats = array.view(ML_TYPES[dtype]) if dtype in ML_TYPES else array
    assert array.dtype == STORED_AS.get(dtype, dtype)
    smallest = smallest_normal(floats.dtype)
    numbers = floats.astype(np.float64)
    assert np.isfinite(numbers).all()
    assert ((numbers == 0) | (np.abs(numbers) >= smallest)).all()
    assert numbers.std() > 0.5


@given_by(dtype=st.sampled_from(sorted(ML_TYPES)), number=st.floats(-6, 6, allow_nan=False))
def test_bits_are_those_of_the_nearest_normal_number(dtype: str, number: float) -> None:
    kind = ML_TYPES[dtype]
    number = abs(number) + 0.01 if dtype == "float8e8m0" else number
    got = float(to_stored(np.array([number]), dtype).view(kind)[0])
    smallest = smallest_normal(kind)
    codes = np.arange(1 << 8 * kind.itemsize).astype(f"uint{8 * kind.itemsize}")
    codes = codes[:16] if dtype == "float4e2m1" else codes
    with np.errstate(invalid="ignore"):
        everything = codes.view(kind).astype(np.float64)
    normal = everything[
        np.isfinite(everything) & ((everything == 0) | (np.abs(everything) >= smallest))
    ]
    # Without a mantissa the exponent is rounded.
    measure = np.log2 if dtype == "float8e8m0" else np.asarray
    nearest = np.abs(measure(normal) - measure(number)).min()
    if dtype == "bfloat16" and abs(number) < smallest:
        return
    assert abs(float(measure(got)) - float(measure(number))) == pytest.approx(nearest, rel=1e-6)


def test_a_large_input_repeats_what_was_drawn_but_never_in_step_with_its_rows() -> None:
    array = made("l (float[3,1024,1024] x) => (float[3,1024,1024] y) { y = Neg(x) }")["x"].array
    assert array.shape == (3, 1024, 1024)
    assert len(np.unique(array[0])) > 1_000_000
    assert not (array[0] == array[1]).all()


# -- seeds


def test_an_input_does_not_depend_on_the_others() -> None:
    alone = values("a (float[5] x) => (float[5] y) { y = Neg(x) }")
    together = values(
        "b (float[7] w, float[5] x) => (float[5] y, float[7] z) { y = Neg(x) z = Neg(w) }"
    )
    assert alone["x"] == together["x"]
    assert together["w"][:5] != together["x"]


def test_the_seed_decides() -> None:
    text = "a (float[5] x) => (float[5] y) { y = Neg(x) }"
    first, again, other = (made(text, seed=seed)["x"].array for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).all()


def test_values_are_the_same_with_every_numpy() -> None:
    """The streams of its legacy generator stay as they are (NEP 19)."""
    made_values = values(
        "a (float[2] x, int64[6] i, string[2] s) => (float[2] y, int64[6] j, string[2] t)"
        "{ y = Neg(x) j = Neg(i) t = Identity(s) }"
    )
    assert made_values == snapshot(
        {
            "x": [-0.9678236842155457, 1.7906100749969482],
            "i": [6, 6, 3, 3, 5, 7],
            "s": ["seven", "rain"],
        }
    )


# -- values from --input


def test_a_given_value_fills_the_input() -> None:
    text = "f (float[2,2] x, int64[3] i, bool b) => (float[2,2] y) { y = Neg(x) }"
    feeds = values(text, "x:f32:2x2:0.25", "i:i64:3:4,5,99", "b:bool::0")
    assert feeds == {"x": [[0.25, 0.25], [0.25, 0.25]], "i": [4, 5, 99], "b": False}


def test_a_given_value_of_a_type_that_numpy_lacks_is_its_bits() -> None:
    feed = made("f (bfloat16[2] x) => (bfloat16[2] y) { y = Neg(x) }", "x:bf16:2:1.5")["x"]
    assert feed.array.view(ml_dtypes.bfloat16).tolist() == [1.5, 1.5]


@pytest.mark.parametrize(
    ("dtype", "value"), [("uint8", "256"), ("int64", "0.5"), ("int4", "8"), ("float8e5m2", "nan")]
)
def test_a_given_value_that_the_type_cannot_hold_is_refused(dtype: str, value: str) -> None:
    text = f"f ({dtype}[2] x) => ({dtype}[2] y) {{ y = Identity(x) }}"
    with pytest.raises(BindingError, match=rf"'x' of the given model is not a valid {dtype}"):
        made(text, f"x:{dtype}:2:{value}")


@pytest.mark.parametrize(
    ("dtype", "opset"),
    [
        ("int4", 21),
        ("uint4", 21),
        pytest.param("int2", 25, marks=unless_1_23("knows no such type")),
        pytest.param("uint2", 25, marks=unless_1_23("knows no such type")),
    ],
)
def test_integers_of_a_part_of_a_byte_reach_the_runtime(
    dtype: str, opset: int, tmp_path: Path
) -> None:
    """The number of elements is odd, so that the last byte is not full."""
    model = bound(parse(f"n ({dtype}[3,9] x) => (float[3,9] y) {{ y = Cast<to = 1>(x) }}", opset))
    (output,) = run(model, tmp_path)
    bits = made(model)["x"].array
    numbers = bits.view(np.uint8 if dtype.startswith("u") else np.int8)
    np.testing.assert_array_equal(output.numpy(), numbers)
    assert len(np.unique(numbers)) > 3


# -- what cannot be sent


def test_a_sequence_is_refused_with_what_to_do() -> None:
    model = bound("s (seq(float[2]) s, int64 i) => (float[2] y) { y = SequenceAt(s, i) }")
    with pytest.raises(BindingError) as caught:
        made(model)
    assert str(caught.value) == snapshot(
        "the input 's' of the model is a sequence, an optional or a map. Only tensors can "
        "be sent to a worker, so this model cannot be measured yet; only its static profile "
        "is possible. Ask for a static profile. To measure it, export it with a tensor for each "
        "element, or time a Python function that runs it with the engine `callable`."
    )


def test_an_input_of_unknown_rank_wants_its_shape() -> None:
    model = parse("r (float[2] x) => (float[2] y) { y = Neg(x) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(BindingError, match="inputs x:float32:SHAPE"):
        made(load_model(open_model(model)))


# -- inputs that are given

TWO = "t (float[n,4] x, int64[n] ids) => (float[n,4] y, int64[n] z) { y = Neg(x) z = Neg(ids) }"


def given_feeds(
    source: GivenSource, text: str = TWO, batch_size: int | None = None
) -> dict[str, Feed]:
    """The inputs of a model, its dimensions bound as the given arrays say."""
    given, file = read_given(source), open_model(parse(text))
    specs = specs_of(given, declared_inputs(file.proto))
    model = load_model(file, Binding(batch_size, inputs=specs))
    return make_inputs(model.graph, model.inputs, 0, given.feeds(model.graph, model.inputs))


def test_given_arrays_bind_the_batch_and_the_rest_is_made() -> None:
    x = np.ones((3, 4), np.float32)
    feeds = given_feeds({"x": x})
    assert (feeds["x"].array == x).all()
    assert feeds["ids"].array.shape == (3,)


def test_a_file_gives_what_was_saved(tmp_path: Path) -> None:
    x, ids = np.ones((3, 4), np.float32), np.array([7, 8, 9])
    np.savez(tmp_path / "in.npz", x=x, ids=ids)
    feeds = given_feeds(tmp_path / "in.npz")
    assert feeds["ids"].array.tolist() == [7, 8, 9]


def test_a_function_gets_types_and_shapes_and_may_leave_inputs_out() -> None:
    asked: dict[str, Any] = {}

    def make(types: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, object]:
        asked.update(types)
        return {"ids": np.arange(5)}

    feeds = given_feeds(make, batch_size=5)
    assert asked == {"x": ("float32", (5, 4)), "ids": ("int64", (5,))}
    assert feeds["ids"].array.tolist() == [0, 1, 2, 3, 4]
    assert feeds["x"].array.shape == (5, 4)


def test_given_integers_are_values_that_shapes_may_depend_on() -> None:
    given = read_given({"s": np.array([2, 6])})
    file = open_model(parse("r (float[3,4] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }"))
    specs = specs_of(given, declared_inputs(file.proto))
    assert load_model(file, Binding(inputs=specs)).tensors["y"].shape == (2, 6)


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        ("bfloat16", np.array([1.5, -2], ml_dtypes.bfloat16)),
        ("bfloat16", np.array([0x3FC0, 0xC000], np.uint16)),
        ("float8e4m3fn", np.array([1.5, -2], ml_dtypes.float8_e4m3fn)),
        ("float32", np.array([1.5, -2], ">f4")),
        ("float32", np.array([1.5, 0, -2, 0], np.float32)[::2]),
    ],
)
def test_arrays_of_every_origin_reach_the_worker_as_the_same_numbers(
    dtype: str, array: Array
) -> None:
    name = TEXT_TYPES.get(dtype, dtype)
    text = f"f ({name}[2] x) => ({name}[2] y) {{ y = Identity(x) }}"
    agent = Agent()
    agent.do_inputs({"x": given_feeds({"x": array}, text)["x"].to_wire()})
    received = agent._feeds[""].arrays["x"]
    assert received.view(ML_TYPES.get(dtype, dtype)).astype(np.float64).tolist() == [1.5, -2]


def test_a_scalar_of_a_type_that_numpy_lacks_stays_a_scalar() -> None:
    feeds = given_feeds(
        {"x": np.array(1.5, ml_dtypes.bfloat16)},
        "s (bfloat16 x) => (bfloat16 y) { y = Identity(x) }",
    )
    assert feeds["x"].array.shape == ()


def test_a_given_number_becomes_a_text_with_all_of_its_digits() -> None:
    feeds = made("t (string x) => (string y) { y = Identity(x) }", "x:string::20261126")
    assert feeds["x"].array.item() == "20261126"


def test_texts_reach_the_worker_as_they_are() -> None:
    text = "s (string[2] x) => (string[2] y) { y = Identity(x) }"
    for array in (np.array(["a", "bé"]), np.array(["a", "bé"], dtype=object)):
        agent = Agent()
        agent.do_inputs({"x": given_feeds({"x": array}, text)["x"].to_wire()})
        assert agent._feeds[""].arrays["x"].tolist() == ["a", "bé"]


def test_arguments_of_a_function_are_given_or_made() -> None:
    specs = (InputSpec("x", "float32", (2,)), InputSpec("n", "int64", (), (3.0,)))
    feeds = make_arguments(specs, 0, read_given({"k": np.ones(2)}))
    assert feeds["n"].array == 3
    assert feeds["x"].array.shape == (2,)
    assert feeds["k"].dtype == "float64"


def test_a_made_argument_of_a_function_may_come_from_another_function() -> None:
    specs = (InputSpec("x", "float32", (2,)),)
    given = read_given(lambda types: {n: np.zeros(s, d) for n, (d, s) in types.items()})
    assert make_arguments(specs, 0, given)["x"].array.tolist() == [0, 0]


# -- errors in what is given


def failure(source: GivenSource, text: str = TWO, batch_size: int | None = None) -> str:
    with pytest.raises(ModelPerfError) as caught:
        given_feeds(source, text, batch_size)
    return str(caught.value)


def test_a_wrong_type_says_how_to_convert() -> None:
    assert failure({"x": np.ones((3, 4))}) == snapshot(
        "the input 'x' of the model is float32, but the mapping of inputs has float64. "
        "Convert it with x.astype('float32')."
    )


def test_a_wrong_type_for_one_that_numpy_lacks_says_how_to_convert() -> None:
    text = "f (bfloat16[2] x) => (bfloat16[2] y) { y = Identity(x) }"
    assert failure({"x": np.ones(2, np.float32)}, text) == snapshot(
        "the input 'x' of the model is bfloat16, but the mapping of inputs has float32. "
        "Convert it with ml_dtypes, or give its bits as an array of uint16."
    )


def test_bytes_that_are_not_text_are_refused() -> None:
    text = "s (string[2] x) => (string[2] y) { y = Identity(x) }"
    assert failure({"x": np.array([b"a", b"\xff"])}, text) == snapshot(
        "the mapping of inputs has bytes in the strings of 'x' that are not UTF-8: b'\\xff'. "
        "Give an array of str."
    )


def test_a_wrong_name_says_which_was_meant() -> None:
    assert failure({"idx": np.ones(3)}) == snapshot(
        "the mapping of inputs has 'idx', but the model has no such input. Did you mean "
        "'ids'? Its inputs: x, ids."
    )


def test_a_wrong_rank_is_refused() -> None:
    assert "has 2 dimensions" in failure({"x": np.ones(3, np.float32)})


def test_a_batch_that_is_asked_for_otherwise_is_refused() -> None:
    assert "given as 8 and as 3" in failure({"x": np.ones((3, 4), np.float32)}, batch_size=8)


def test_a_function_that_makes_another_shape_is_reported() -> None:
    message = failure(lambda _: {"x": np.ones((2, 4), np.float32)}, batch_size=3)
    assert "is 3x4, but the function" in message
    assert "has 2x4" in message


def test_a_function_that_fails_is_reported_with_its_line() -> None:
    def broken(types: Mapping[str, object]) -> dict[str, object]:
        return {"x": types["y"]}

    message = failure(broken)
    line = broken.__code__.co_firstlineno
    assert f"broken ({__file__}:{line})" in message
    assert f"{__file__}:{line + 1}: KeyError: 'y'" in message


@pytest.mark.parametrize("returned", [None, [1, 2], "x"])
def test_a_function_that_returns_no_mapping_is_reported(returned: object) -> None:
    function = cast("MakeInputs", lambda _: returned)
    assert f"returned {type(returned).__name__}" in failure(function)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*nope\.npz"):
        read_given(tmp_path / "nope.npz")


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 but no archive", b"text", b"\x80\x04\x95pickle"]
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "in.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"is not an \.npz file, or is damaged"):
        read_given(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_archive_is_refused(tmp_path: Path, save: Callable[..., None]) -> None:
    path = tmp_path / "in.npz"
    save(path, x=np.random.RandomState(0).rand(30, 40))
    data = bytearray(path.read_bytes())
    data[400:2000] = b"\xff" * 1600
    path.write_bytes(bytes(data))
    with pytest.raises(UsageError, match="damaged"):
        read_given(path)


def test_a_file_of_one_array_has_no_names(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(UsageError, match=r"a single array without a name"):
        read_given(tmp_path / "x.npy")


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    np.savez(tmp_path / "in.npz", x=np.array([Evil()], dtype=object))
    with pytest.raises(UsageError, match=r"Python objects for 'x'"):
        read_given(tmp_path / "in.npz")
    assert not (tmp_path / "ran").exists()


def test_another_kind_of_source_is_refused() -> None:
    with pytest.raises(UsageError, match=r"not as list"):
        read_given([1, 2])  # type: ignore[arg-type]  # what a user might do


# -- what it needs


def test_inputs_are_made_without_onnx() -> None:
    """A profiler module that could reach the file would be a shortcut around the graph."""
    script = (
        "import sys; import pytest_modelperf.profiler.inputs.given;"
        "assert not {'onnx', 'onnxruntime'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
