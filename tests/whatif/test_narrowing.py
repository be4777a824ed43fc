"""Fewer channels: what goes together goes together, and the MACs fall as computed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from pytest_modelperf.errors import ModelError, OutputError
from pytest_modelperf.graph.binding import Binding, InputSpec
from pytest_modelperf.graph.load import load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.request import profile_model
from pytest_modelperf.whatif.narrowing import Narrowed, UnchangedLayer, write_narrowed
from pytest_modelperf.whatif.narrowing.selection import kept_count
from tests.support.graph_models import load, parse, random_floats
from tests.support.known import known
from tests.support.light_models import LIGHT_MODELS, light_model
from tests.support.small_models import save_beside

Shapes = Mapping[str, tuple[int, ...]]


def model_of(
    text: str, weights: Mapping[str, tuple[int, ...] | npt.NDArray[Any]], opset: int = 18
) -> onnx.ModelProto:
    """The model with weights of these values, or with random ones of these shapes."""
    values = {
        name: random_floats(*given, seed=seed) if isinstance(given, tuple) else given
        for seed, (name, given) in enumerate(weights.items())
    }
    return parse(text, values, opset=opset)


def narrow(model: onnx.ModelProto, folder: Path, share: float = 0.5) -> Narrowed:
    """The model narrowed to `n.onnx`, which is checked, and runs with the shapes that it had."""
    bound = load(model)
    result = write_narrowed(bound, folder / "n.onnx", share)
    onnx.checker.check_model(str(folder / "n.onnx"), full_check=True)
    before, after = run(model), run(onnx.load(str(folder / "n.onnx")))
    assert [a.shape for a in after] == [b.shape for b in before]
    assert all(np.isfinite(a).all() for a in after)
    return result


def run(model: onnx.ModelProto) -> list[npt.NDArray[np.float32]]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options)
    rng = np.random.default_rng(1)
    feeds = {
        i.name: rng.integers(0, 4, i.shape)
        if i.type == "tensor(int64)"
        else rng.standard_normal(i.shape).astype(np.float32)
        for i in session.get_inputs()
    }
    return list(session.run(None, feeds))


def macs(source: onnx.ModelProto | Path) -> int:
    total = profile_model(source).cases[0].static.macs
    return known(total)


def shapes_of(path: Path) -> dict[str, tuple[int, ...]]:
    return {t.name: tuple(t.dims) for t in onnx.load(str(path)).graph.initializer}


def test_a_residual_stream_is_one_group(tmp_path: Path) -> None:
    """Three convolutions write 16 channels of one stream: 8 of them go from all three at once."""
    model = model_of(
        """g (float[1, 3, 8, 8] x) => (float[1, 5] y) {
            a = Conv <pads = [1, 1, 1, 1]> (x, w0, b0)
            r = Relu (a)
            c = Conv <pads = [1, 1, 1, 1]> (r, w1)
            n = BatchNormalization (c, s, t, m, v)
            d = Relu (n)
            e = Conv (d, w2)
            f = Add (e, r)
            p = GlobalAveragePool (f)
            q = Flatten (p)
            y = Gemm <transB = 1> (q, w3)
        }""",
        {
            "w0": (16, 3, 3, 3), "b0": (16,), "w1": (32, 16, 3, 3), "s": (32,), "t": (32,),
            "m": (32,), "w2": (16, 32, 1, 1), "w3": (5, 16), "v": np.ones(32, np.float32),
        },
    )  # fmt: skip
    result = narrow(model, tmp_path)

    before = 64 * (16 * 3 * 9 + 32 * 16 * 9 + 16 * 32) + 5 * 16
    after = 64 * (8 * 3 * 9 + 16 * 8 * 9 + 8 * 16) + 5 * 8
    assert (macs(model), macs(tmp_path / "n.onnx")) == (before, after)
    # Two groups: the stream of 16 and the 32 between. Four convolutions and a Gemm, one of BN.
    assert (result.channels_before, result.channels_after, result.layers) == (48, 24, 5)
    assert result.kept == (UnchangedLayer("y", "'y' is an output of the model"),)


def test_a_depthwise_convolution_loses_groups(tmp_path: Path) -> None:
    """Two outputs for each input: a channel that goes takes both of its outputs along."""
    model = model_of(
        """g (float[1, 3, 8, 8] x) => (y) {
            a = Conv (x, w0)
            b = Clip (a, lo, hi)
            c = Conv <group = 16, pads = [1, 1, 1, 1]> (b, w1, b1)
            y = Conv (c, w2)
        }""",
        {
            "w0": (16, 3, 1, 1), "w1": (32, 1, 3, 3), "b1": (32,), "w2": (5, 32, 1, 1),
            "lo": np.array(0.0, np.float32), "hi": np.array(6.0, np.float32),
        },
    )  # fmt: skip
    narrow(model, tmp_path)

    (depthwise,) = (n for n in onnx.load(str(tmp_path / "n.onnx")).graph.node if n.output[0] == "c")
    assert {a.name: a.i for a in depthwise.attribute}["group"] == 8
    assert macs(tmp_path / "n.onnx") == 64 * (8 * 3 + 16 * 9 + 5 * 16)


def test_each_block_of_a_grouped_convolution_loses_as_much(tmp_path: Path) -> None:
    model = model_of(
        """g (float[1, 3, 8, 8] x) => (y) {
            a = Conv (x, w0)
            b = Relu (a)
            c = Conv <group = 4> (b, w1)
            y = Conv (c, w2)
        }""",
        {"w0": (32, 3, 1, 1), "w1": (16, 8, 1, 1), "w2": (5, 16, 1, 1)},
    )
    narrow(model, tmp_path, 0.25)
    shapes = shapes_of(tmp_path / "n.onnx")
    assert shapes == {"w0": (24, 3, 1, 1), "w1": (12, 6, 1, 1), "w2": (5, 12, 1, 1)}
    assert macs(tmp_path / "n.onnx") == 64 * (24 * 3 + 12 * 6 + 5 * 12)


@pytest.mark.parametrize(
    "weight", ["k = Reshape (w1, same)", "k = DequantizeLinear <axis = 0> (q1, scales)"]
)
def test_each_block_with_a_computed_weight_loses_as_much(tmp_path: Path, weight: str) -> None:
    """Without the blocks, 3 of 16 rows in 4 blocks would be left."""
    model = model_of(
        f"""g (float[1, 3, 8, 8] x) => (y) <int64[4] same = {{16, 2, 1, 1}}> {{
            a = Conv (x, w0)
            {weight}
            c = Conv <group = 4> (a, k)
            y = Conv (c, w2)
        }}""",
        {
            "w0": (8, 3, 1, 1), "w1": (16, 2, 1, 1), "w2": (5, 16, 1, 1),
            "q1": np.round(10 * random_floats(16, 2, 1, 1)).astype(np.int8),
            "scales": np.full(16, 0.1, np.float32),
        },
    )  # fmt: skip
    narrow(model, tmp_path, 0.8)
    assert macs(tmp_path / "n.onnx") == 64 * (8 * 3 + 4 * 2 + 5 * 4)


def test_a_channel_shuffle_keeps_its_groups(tmp_path: Path) -> None:
    """3 groups of 5 shuffled: the next groups cut across what was shuffled together."""
    model = model_of(
        """g (float[1, 4, 6, 6] x) => (y)
        <int64[5] t = {1, 3, 5, 6, 6}, int64[4] u = {0, 15, 6, 6}> {
            a = Conv (x, w0)
            b = Conv <group = 3> (a, w1)
            c = Reshape (b, t)
            d = Transpose <perm = [0, 2, 1, 3, 4]> (c)
            e = Reshape (d, u)
            f = Conv <group = 15, pads = [1, 1, 1, 1]> (e, w2)
            h = Conv <group = 3> (f, w3)
            y = Conv (h, w4)
        }""",
        {
            "w0": (12, 4, 1, 1), "w1": (15, 4, 1, 1), "w2": (15, 1, 3, 3), "w3": (12, 5, 1, 1),
            "w4": (2, 12, 1, 1),
        },
    )  # fmt: skip
    narrow(model, tmp_path, 0.4)
    # Behind the shuffle place 0 of each group is in the first block, 1 in the first and second, 2
    # in the second, 3 in the second and third, 4 in the third. Of two only 1 and 3 are even.
    assert shapes_of(tmp_path / "n.onnx") == {
        "w0": (9, 4, 1, 1), "w1": (9, 3, 1, 1), "w2": (9, 1, 3, 3), "w3": (9, 3, 1, 1),
        "w4": (2, 9, 1, 1),
    }  # fmt: skip
    whole, kept = (
        next(numpy_helper.to_array(t) for t in m.graph.initializer if t.name == "w2")
        for m in (model, onnx.load(str(tmp_path / "n.onnx")))
    )
    np.testing.assert_array_equal(kept, whole[[0, 1, 2, 6, 7, 8, 12, 13, 14]])
    assert macs(tmp_path / "n.onnx") == 36 * (9 * 4 + 9 * 3 + 9 * 9 + 9 * 3 + 2 * 9)


class Case(NamedTuple):
    """A model, and what is known of it with half of its channels."""

    text: str
    weights: Shapes
    shapes: Shapes | None = None
    macs: int | None = None
    channels: tuple[int, int] | None = None
    opset: int = 18


NARROWED: dict[str, Case] = {
    # A dense block: what is appended is taken by all that follows.
    "concatenated layers are groups of their own": Case(
        """g (float[1, 3, 8, 8] x) => (y) {
            a = Conv (x, w0)
            b = Conv (a, w1)
            c = Concat <axis = 1> (a, b)
            n = Relu (c)
            d = Conv (n, w2)
            e = Concat <axis = 1> (c, d)
            y = Conv (e, w3)
        }""",
        {"w0": (16, 3, 1, 1), "w1": (8, 16, 1, 1), "w2": (8, 24, 1, 1), "w3": (5, 32, 1, 1)},
        channels=(32, 16), macs=64 * (8 * 3 + 4 * 8 + 4 * 12 + 5 * 16),
    ),
    "squeeze and excite follows the channels that it scales": Case(
        """g (float[1, 3, 8, 8] x) => (y) {
            a = Conv (x, w0)
            s = ReduceMean <axes = [2, 3]> (a)
            b = Conv (s, w1, b1)
            r = Relu (b)
            c = Conv (r, w2)
            h = HardSigmoid (c)
            m = Mul (a, h)
            y = Conv (m, w3)
        }""",
        {"w0": (16, 3, 1, 1), "w1": (4, 16, 1, 1), "b1": (4,), "w2": (16, 4, 1, 1),
         "w3": (5, 16, 1, 1)},
        channels=(20, 10), macs=64 * 8 * 3 + 2 * 8 + 8 * 2 + 64 * 5 * 8, opset=17,
    ),
    "a decoder with a skip": Case(
        """g (float[1, 3, 8, 8] x) => (y) {
            a = Conv <pads = [1, 1, 1, 1]> (x, w0)
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
            b = Conv (p, w1)
            u = ConvTranspose <strides = [2, 2]> (b, w2, b2)
            c = Concat <axis = 1> (u, a)
            y = Conv (c, w3)
        }""",
        {"w0": (8, 3, 3, 3), "w1": (16, 8, 1, 1), "w2": (16, 4, 2, 2), "b2": (4,),
         "w3": (2, 12, 1, 1)},
        shapes={"w2": (8, 2, 2, 2)}, macs=64 * 4 * 27 + 16 * 8 * 4 + 16 * 8 * 2 * 4 + 64 * 2 * 6,
    ),
    "a flattened channel has one row for each of its places": Case(
        """g (float[2, 3, 4, 5] x) => (y) <int64[2] t = {2, 160}> {
            a = Conv (x, w0)
            f = Reshape (a, t)
            m = MatMul (f, w1)
            y = Add (m, b)
        }""",
        {"w0": (8, 3, 1, 1), "w1": (160, 6), "b": (6,)}, shapes={"w1": (80, 6)},
    ),
    # One matrix for all three, taken apart by a Reshape to [3, heads, size] and by Gather.
    "fused query, key and value": Case(
        """g (float[1, 5, 16] x) => (float[1, 5, 16] y)
        <int64[5] t = {1, 5, 3, 4, 4}, int64[3] u = {1, 5, 16}, int64 i0 = {0}, int64 i1 = {1},
         int64 i2 = {2}> {
            a = MatMul (x, w)
            r = Reshape (a, t)
            m = Transpose <perm = [2, 0, 3, 1, 4]> (r)
            q = Gather <axis = 0> (m, i0)
            k = Gather <axis = 0> (m, i1)
            v = Gather <axis = 0> (m, i2)
            kt = Transpose <perm = [0, 1, 3, 2]> (k)
            s = MatMul (q, kt)
            p = Softmax <axis = -1> (s)
            c = MatMul (p, v)
            ct = Transpose <perm = [0, 2, 1, 3]> (c)
            cr = Reshape (ct, u)
            y = MatMul (cr, wo)
        }""",
        {"w": (16, 48), "wo": (16, 16)}, shapes={"w": (16, 24), "wo": (8, 16)},
    ),
    # Grouped queries: 4 heads and 2 pairs of keys and values; half is one pair and two heads.
    "heads that share keys go with them": Case(
        """g (float[1, 5, 16] x) => (float[1, 5, 16] y)
        <int64[4] t = {1, 5, 4, 4}, int64[4] tk = {1, 5, 2, 4}, int64[1] two = {2},
         int64[5] e = {1, 2, 2, 5, 4}, int64[4] r = {1, 4, 5, 4}, int64[3] u = {1, 5, 16}> {
            q = MatMul (x, wq)
            k = MatMul (x, wk)
            qr = Reshape (q, t)
            kr = Reshape (k, tk)
            qt = Transpose <perm = [0, 2, 1, 3]> (qr)
            kt = Transpose <perm = [0, 2, 1, 3]> (kr)
            ku = Unsqueeze (kt, two)
            ke = Expand (ku, e)
            kh = Reshape (ke, r)
            km = Transpose <perm = [0, 1, 3, 2]> (kh)
            s = MatMul (qt, km)
            p = Softmax <axis = -1> (s)
            c = MatMul (p, kh)
            ct = Transpose <perm = [0, 2, 1, 3]> (c)
            cr = Reshape (ct, u)
            y = MatMul (cr, wo)
        }""",
        {"wq": (16, 16), "wk": (16, 8), "wo": (16, 16)}, shapes={"wq": (16, 8), "wk": (16, 4)},
    ),
    # A depthwise convolution, and a Slice with a column for each number other than 0.
    "nodes of unknown shapes stay as they are": Case(
        """g (float[1, 3, 4, 4] x) => (y, z) <int64[1] zero = {0}, int64[1] two = {2}> {
            a = Conv (x, w0)
            y = Conv (a, w1)
            n = NonZero (x)
            f = Cast <to = 1> (n)
            u = Unsqueeze (f, zero)
            c = Conv <group = 4> (u, w2)
            z = Slice (c, zero, two, two)
        }""",
        {"w0": (16, 3, 1, 1), "w1": (2, 16, 1, 1), "w2": (4, 1, 1)}, channels=(16, 8),
    ),
    "the bounds of a slice keep their type": Case(
        """g (float[1, 3, 4, 4] x) => (y)
        <int32[1] one = {1}, int32[1] zero = {0}, int32[1] eight = {8}, int32[1] end = {99}> {
            a = Conv (x, w0)
            l = Slice (a, zero, eight, one)
            r = Slice (a, eight, end, one)
            m = Mul (l, r)
            y = Conv (m, w1)
        }""",
        {"w0": (16, 3, 1, 1), "w1": (2, 8, 1, 1)}, macs=16 * (8 * 3 + 2 * 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NARROWED.values(), ids=NARROWED)
def test_a_narrowed_model_has_the_channels_shapes_and_macs_computed_by_hand(
    case: Case, tmp_path: Path
) -> None:
    result = narrow(model_of(case.text, case.weights, case.opset), tmp_path)
    shapes = shapes_of(tmp_path / "n.onnx")
    wanted = case.shapes or {}
    assert {name: shapes[name] for name in wanted} == wanted
    assert case.macs in {None, macs(tmp_path / "n.onnx")}
    assert case.channels in {None, (result.channels_before, result.channels_after)}


_ATTENTION = """g (float[2, 5, 32] x) => (float[2, 5, 32] y)
    <int64[4] t = {2, 5, 4, 8}, int64[3] u = {0, 0, -1}, float d = {0.35}> {
        q = MatMul (x, wq)
        qb = Add (q, bq)
        k = MatMul (x, wk)
        v = MatMul (x, wv)
        qr = Reshape (qb, t)
        kr = Reshape (k, t)
        vr = Reshape (v, t)
        qt = Transpose <perm = [0, 2, 1, 3]> (qr)
        kt = Transpose <perm = [0, 2, 3, 1]> (kr)
        vt = Transpose <perm = [0, 2, 1, 3]> (vr)
        s = MatMul (qt, kt)
        z = Mul (s, d)
        p = Softmax <axis = -1> (z)
        c = MatMul (p, vt)
        ct = Transpose <perm = [0, 2, 1, 3]> (c)
        cr = Reshape (ct, u)
        o = MatMul (cr, wo)
        h = Add (o, x)
        l = LayerNormalization (h, g1)
        i = MatMul (l, w1)
        j = Gelu (i)
        e = MatMul (j, w2)
        y = Add (e, h)
    }"""
_ATTENTION_WEIGHTS = {
    "wq": (32, 32), "bq": (32,), "wk": (32, 32), "wv": (32, 32), "wo": (32, 32), "g1": (32,),
    "w1": (32, 64), "w2": (64, 32),
}  # fmt: skip


def test_attention_loses_whole_heads(tmp_path: Path) -> None:
    model = model_of(_ATTENTION, _ATTENTION_WEIGHTS, opset=20)
    result = narrow(model, tmp_path)

    shapes = shapes_of(tmp_path / "n.onnx")
    assert shapes["wq"] == shapes["wk"] == shapes["wv"] == (32, 16)
    assert (shapes["bq"], shapes["wo"], shapes["w1"]) == ((16,), (16, 32), (32, 32))
    projections = 2 * 5 * 32 * 16 * 4
    assert macs(tmp_path / "n.onnx") == projections + 2 * 2 * 2 * 25 * 8 + 2 * 5 * 32 * 32 * 2
    # Two of four heads of 8, and half of the inner width. The stream is an input and an output.
    assert (result.channels_before, result.channels_after) == (96, 48)
    assert [kept.name for kept in result.kept] == ["o", "e"]


def test_targets_that_are_computed_from_shapes_are_written_down(tmp_path: Path) -> None:
    """Exporters write such a Reshape: batch and length of the data, and a constant head size."""
    computed = _ATTENTION.replace(
        "qr = Reshape (qb, t)",
        """n = Shape (qb)
        n0 = Slice (n, i0, i2)
        n1 = Concat <axis = 0> (n0, hd)
        qr = Reshape (qb, n1)""",
    ).replace(
        "int64[4] t", "int64[1] i0 = {0}, int64[1] i2 = {2}, int64[2] hd = {4, 8}, int64[4] t"
    )
    model = model_of(computed, _ATTENTION_WEIGHTS, opset=20)
    narrow(model, tmp_path)
    assert shapes_of(tmp_path / "n.onnx")["wq"] == (32, 16)


@pytest.mark.parametrize("opset", [11, 17, 18])
def test_parts_and_bounds_follow(tmp_path: Path, opset: int) -> None:
    """A gated unit by Split, and one by two Slices: both halves lose the same places."""
    split = {
        11: "u, v = Split <axis = 1, split = [8, 8]> (a)",
        17: "u, v = Split <axis = 1> (a)",
        18: "u, v = Split <axis = 1, num_outputs = 2> (a)",
    }[opset]
    model = model_of(
        f"""g (float[1, 3, 4, 4] x) => (y)
        <int64[1] one = {{1}}, int64[1] zero = {{0}}, int64[1] eight = {{8}}, int64[1] end = {{99}}>
        {{
            a = Conv (x, w0)
            {split}
            h = Sigmoid (v)
            m = Mul (u, h)
            b = Conv (m, w1)
            l = Slice (b, zero, eight, one)
            r = Slice (b, eight, end, one)
            n = Mul (l, r)
            y = Conv (n, w2)
        }}""",
        {"w0": (16, 3, 1, 1), "w1": (16, 8, 1, 1), "w2": (2, 8, 1, 1)},
        opset=opset,
    )
    narrow(model, tmp_path)
    assert macs(tmp_path / "n.onnx") == 16 * (8 * 3 + 8 * 4 + 2 * 4)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("batch", [1, 2])
def test_an_only_channel_is_not_squeezed_away(tmp_path: Path, batch: int, opset: int) -> None:
    model = model_of(
        f"""g (float[{batch}, 3, 4, 4] x) => (y) {{
            a = Conv (x, w0)
            p = GlobalAveragePool (a)
            s = Squeeze (p)
            n = Squeeze (s)
            y = MatMul (n, w1)
        }}""",
        {"w0": (4, 3, 1, 1), "w1": (4, 5)},
        opset=opset,
    )
    result = narrow(model, tmp_path, 0.9)
    assert (result.channels_before, result.channels_after) == (4, 1)


@pytest.mark.parametrize(
    "halves",
    [
        "l, r = Split <axis = 1, num_outputs = 2> (a)",
        "l = Slice (a, zero, four, one) r = Slice (a, four, end, one)",
    ],
)
def test_no_part_of_a_layer_is_left_empty(tmp_path: Path, halves: str) -> None:
    """All weak channels are in one half, and no weight distinguishes the halves."""
    weak = np.repeat(np.array([1, 0.01], np.float32), 4).reshape(8, 1, 1, 1)
    model = model_of(
        f"""g (float[1, 3, 4, 4] x) => (y)
        <int64[1] one = {{1}}, int64[1] zero = {{0}}, int64[1] four = {{4}}, int64[1] end = {{99}}>
        {{
            a = Conv (x, w0)
            {halves}
            m = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r)
            c = Concat <axis = 1> (l, m)
            y = Conv (c, w1)
        }}""",
        {"w0": random_floats(8, 3, 1, 1) * weak, "w1": (2, 8, 1, 1)},
    )
    narrow(model, tmp_path)
    assert shapes_of(tmp_path / "n.onnx")["w0"] == (4, 3, 1, 1)


def test_shape_constants_are_updated_if_they_contain_channels(tmp_path: Path) -> None:
    """Resize to sizes, Expand and Pad, a group normalization as exporters write it."""
    model = model_of(
        """g (float[1, 3, 4, 4] x) => (y)
        <int64[4] z = {1, 16, 8, 8}, int64[8] e = {0, 0, 1, 1, 0, 0, 1, 1},
         int64[3] t = {0, 4, -1}, int64[4] u = {1, 16, 10, 10}> {
            a = Conv (x, w0)
            r = Resize <mode = "nearest"> (a, , , z)
            p = Pad (r, e)
            f = Reshape (p, t)
            i = InstanceNormalization (f, s, b)
            k = Reshape (i, u)
            m = Mul (k, c)
            v = Expand (o, u)
            n = Add (m, v)
            y = Conv (n, w1)
        }""",
        {"w0": (16, 3, 1, 1), "s": (4,), "b": (4,), "c": (16, 1, 1), "o": (16, 1, 1),
         "w1": (2, 16, 1, 1)},
    )  # fmt: skip
    narrow(model, tmp_path)
    # Two of the four groups that are normalized together, each of 4 channels.
    shapes = shapes_of(tmp_path / "n.onnx")
    assert {name: shapes[name] for name in ("w0", "s", "b", "c", "o", "w1")} == {
        "w0": (8, 3, 1, 1), "s": (2,), "b": (2,), "c": (8, 1, 1), "o": (8, 1, 1),
        "w1": (2, 8, 1, 1),
    }  # fmt: skip
    assert macs(tmp_path / "n.onnx") == 16 * 8 * 3 + 100 * 2 * 8


@pytest.mark.parametrize(
    ("stored", "zeros"),
    [(np.int8, [0] * 16), (np.uint8, [128] * 16), (np.uint8, range(10, 170, 10))],
)
def test_weights_behind_nodes_of_constants_are_cut_where_they_are_stored(
    tmp_path: Path, stored: npt.DTypeLike, zeros: Sequence[int]
) -> None:
    """A matrix of 8-bit integers with a scale for each column, and one that is transposed."""
    rng = np.random.default_rng(0)
    model = model_of(
        """g (float[2, 6] x) => (y) {
            d = DequantizeLinear <axis = 1> (w8, s, z)
            a = MatMul (x, d)
            t = Transpose (w1)
            b = MatMul (a, t)
            y = MatMul (b, w2)
        }""",
        {
            "w1": (8, 16), "w2": (8, 3),
            "w8": (rng.integers(-9, 9, (6, 16)) + zeros).astype(stored),
            "s": rng.random(16, np.float32), "z": np.array(zeros, stored),
        },
    )  # fmt: skip
    narrow(model, tmp_path)
    assert shapes_of(tmp_path / "n.onnx") == {
        "w1": (4, 8), "w2": (4, 3), "w8": (6, 8), "s": (8,), "z": (8,),
    }  # fmt: skip
    cut = {t.name: t for t in onnx.load(str(tmp_path / "n.onnx")).graph.initializer}
    assert cut["w8"].data_type == model.graph.initializer[2].data_type
    # The channels whose columns of real numbers are the smallest went.
    w8, scale, zero = map(numpy_helper.to_array, model.graph.initializer[2:])
    norms = np.square((w8.astype(float) - zero) * scale).sum(axis=0)
    wanted = np.sort(np.argsort(norms, kind="stable")[8:])
    np.testing.assert_array_equal(numpy_helper.to_array(cut["w8"]), w8[:, wanted])


def test_the_weakest_channels_go_and_the_first_of_equal_ones(tmp_path: Path) -> None:
    w = np.array([[3, 1, 1, 2, 1, 5]] * 2, np.float32)
    text = "g (float[1, 2] x) => (y) { a = MatMul (x, w)  y = MatMul (a, v) }"
    model = model_of(text, {"v": (6, 2), "w": w})
    narrow(model, tmp_path, 1 / 3)
    stored = {t.name: t for t in onnx.load(str(tmp_path / "n.onnx")).graph.initializer}
    np.testing.assert_array_equal(numpy_helper.to_array(stored["w"])[0], [3, 2, 1, 5])


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("b = custom.Mystery (a)", "is an operator that is not known to work with fewer channels"),
        ("b = LRN <size = 3> (a)", "normalizes each channel by its neighbours"),
        ("b = Softmax <axis = 1> (a)", "sums over it"),
        ("b = GroupNormalization <num_groups = 2> (a, s, s)", "averages over groups of it"),
        ("b = ReduceMean <keepdims = 1> (a, one)", "reduces it"),
        ("b = DepthToSpace <blocksize = 2> (a)", "is an operator that is not known"),
        (("b = If (c) <then_branch = t () => (u) { u = Relu (a) }, else_branch = e () => (v) "
         "{ v = Neg (a) }>"), "uses it inside"),
    ],
)  # fmt: skip
def test_unsafe_channels_are_kept_with_the_reason(tmp_path: Path, node: str, reason: str) -> None:
    # onnx does not infer what a GroupNormalization gives, so the model says it.
    known = ", float[1, 8, 4, 4] b" if "Group" in node else ""
    bound = load(
        model_of(
            f"""g (float[1, 3, 4, 4] x, bool c) => (y) <int64[1] one = {{1}}{known}> {{
                a = Conv (x, w)
                {node}
                y = Relu (b)
            }}""",
            {"w": (8, 3, 1, 1), "s": (8,)},
            opset=21,
        )
    )
    with pytest.raises(ModelError, match=f"cannot be narrowed: a: .*{reason}"):
        write_narrowed(bound, tmp_path / "n.onnx", 0.5)
    assert not (tmp_path / "n.onnx").exists()


def test_a_recurrent_layer_keeps_its_width_and_what_it_reads(tmp_path: Path) -> None:
    model = model_of(
        """g (float[5, 1, 4] x) => (y) <int64[1] one = {1}> {
            a = MatMul (x, w0)
            l = LSTM <hidden_size = 6> (a, w, r)
            s = Squeeze (l, one)
            b = MatMul (s, w1)
            y = MatMul (b, w2)
        }""",
        {"w0": (4, 8), "w": (1, 24, 8), "r": (1, 24, 6), "w1": (6, 8), "w2": (8, 2)},
    )
    result = narrow(model, tmp_path)
    shapes = shapes_of(tmp_path / "n.onnx")
    assert (shapes["w0"], shapes["w1"], shapes["w2"]) == ((4, 8), (6, 4), (4, 2))
    assert result.kept[0] == UnchangedLayer(
        "a", "LSTM 'l' is an operator that is not known to work with fewer channels"
    )


def test_a_weight_in_two_roles_ties_both_layers(tmp_path: Path) -> None:
    """W and its transpose: rows of one are columns of the other, and the outer width is pinned."""
    model = model_of(
        """g (float[1, 6] x) => (float[1, 6] y) {
            a = MatMul (x, w)
            b = Relu (a)
            y = Gemm <transB = 1> (b, w)
        }""",
        {"w": (6, 16)},
    )
    narrow(model, tmp_path)
    assert shapes_of(tmp_path / "n.onnx") == {"w": (6, 8)}


def test_weights_that_nodes_make_get_another_shape(tmp_path: Path) -> None:
    model = parse(
        """g (float[1, 3, 4, 4] x) => (y)
        <int64[4] s0 = {16, 3, 1, 1}, int64[4] s1 = {16, 16, 1, 1}, int64[4] s2 = {2, 16, 1, 1}> {
            w0 = ConstantOfShape <value = float[1] {0.5}> (s0)
            w1 = ConstantOfShape <value = float[1] {0.25}> (s1)
            w2 = ConstantOfShape (s2)
            a = Conv (x, w0)
            b = Conv (a, w1)
            y = Conv (b, w2)
        }"""
    )
    narrow(model, tmp_path)
    assert macs(tmp_path / "n.onnx") == 16 * (8 * 3 + 8 * 8 + 2 * 8)
    # The old shapes are gone.
    assert shapes_of(tmp_path / "n.onnx") == {}


def test_weights_in_constant_nodes_are_cut(tmp_path: Path) -> None:
    """Some exporters write each weight as a Constant node."""
    model = parse(
        """g (float[1, 2] x) => (y) {
            w = Constant <value = float[2, 4] {1, 2, 3, 4, 5, 6, 7, 8}> ()
            a = MatMul (x, w)
            v = Constant <value = float[4, 1] {1, 2, 3, 4}> ()
            y = MatMul (a, v)
        }"""
    )
    narrow(model, tmp_path)
    nodes = onnx.load(str(tmp_path / "n.onnx")).graph.node
    weights = [node.attribute[0].t for node in nodes if node.op_type == "Constant"]
    assert [tuple(weight.dims) for weight in weights] == [(2, 2), (2, 1)]


_CHAIN = "g (float[1, 64] x) => (y) { a = MatMul (x, w)  b = Relu (a)  y = MatMul (b, v) }"
_CHAIN_WEIGHTS = {"w": (64, 128), "v": (128, 64)}


@pytest.mark.parametrize("outside", [False, True])
def test_weights_in_external_data(tmp_path: Path, *, outside: bool) -> None:
    """They come into the model, or into a file next to it if it would be too large."""
    model = model_of(_CHAIN, _CHAIN_WEIGHTS)
    onnx.save(model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="m.bin")
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / "n.onnx"
    bound = load_model(open_model(tmp_path / "m.onnx"))
    write_narrowed(bound, target, 0.5, max_file_bytes=4096 if outside else 2**31 - 1)

    names = sorted(p.name for p in target.parent.iterdir())
    assert names == (["n.onnx", "n.onnx.data"] if outside else ["n.onnx"])
    onnx.checker.check_model(str(target), full_check=True)
    write_narrowed(load(model_of(_CHAIN, _CHAIN_WEIGHTS)), tmp_path / "plain.onnx", 0.5)
    plain, written = onnx.load(str(tmp_path / "plain.onnx")), onnx.load(str(target))
    for one, other in zip(plain.graph.initializer, written.graph.initializer, strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(one), numpy_helper.to_array(other))
    session = ort.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": random_floats(1, 64)})[0].shape == (1, 64)


def test_external_data_of_a_body_come_into_the_model(tmp_path: Path) -> None:
    """A tensor of a body is not cut, but the model is in another folder."""
    model = model_of(
        """g (float[1, 64] x, bool c) => (y) {
            a = MatMul (x, w)
            b = Relu (a)
            d = MatMul (b, v)
            y = If (c) <
                then_branch = t () => (p) <float[1, 64] k> { p = Add (d, k) },
                else_branch = e () => (q) { q = Identity (d) }
            >
        }""",
        _CHAIN_WEIGHTS,
    )
    (body,) = (a.g for a in model.graph.node[-1].attribute if a.name == "then_branch")
    body.initializer.append(numpy_helper.from_array(random_floats(1, 64), "k"))
    save_beside(model, tmp_path / "m.onnx")
    target = tmp_path / "out" / "n.onnx"
    target.parent.mkdir()
    result = write_narrowed(load_model(open_model(tmp_path / "m.onnx")), target, 0.5)
    assert result.channels_after == 64
    session = ort.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    feeds = {"x": random_floats(1, 64), "c": np.array(1, np.bool_)}
    assert session.run(None, feeds)[0].shape == (1, 64)


def test_the_external_data_of_a_model_never_overwrites_that_of_another(tmp_path: Path) -> None:
    model = model_of(_CHAIN, _CHAIN_WEIGHTS)
    onnx.save(model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="n.onnx.data")
    bound = load_model(open_model(tmp_path / "m.onnx"))
    with pytest.raises(OutputError, match=r"n\.onnx\.data holds the weights of m\.onnx"):
        write_narrowed(bound, tmp_path / "n.onnx", 0.5, max_file_bytes=4096)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, "bfloat16"])
def test_weights_keep_their_type(tmp_path: Path, dtype: npt.DTypeLike) -> None:
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    name = "double" if dtype == np.float64 else np.dtype(kind).name
    values = {n: random_floats(*shape).astype(kind) for n, shape in _CHAIN_WEIGHTS.items()}
    model = parse(_CHAIN.replace("float[", f"{name}["), values)
    write_narrowed(load(model), tmp_path / "n.onnx", 0.5)
    onnx.checker.check_model(str(tmp_path / "n.onnx"), full_check=True)
    for tensor in onnx.load(str(tmp_path / "n.onnx")).graph.initializer:
        assert tensor.data_type == model.graph.initializer[0].data_type
        assert numpy_helper.to_array(tensor).dtype == kind


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 2.0, float("nan")])
def test_a_share_is_between_0_and_1(tmp_path: Path, share: float) -> None:
    with pytest.raises(ModelError, match="has to be between 0 and 1"):
        write_narrowed(load(model_of(_CHAIN, _CHAIN_WEIGHTS)), tmp_path / "n.onnx", share)


def test_nothing_to_narrow_without_layers(tmp_path: Path) -> None:
    bound = load("g (float[1, 4] x) => (y) { y = Relu (x) }")
    with pytest.raises(ModelError, match=r"narrowed: no layer with weights has channels\."):
        write_narrowed(bound, tmp_path / "n.onnx", 0.5)


def test_a_shape_that_is_an_input_stays_one(tmp_path: Path) -> None:
    model = model_of(
        """g (float[1, 3, 4, 4] x, int64[2] shape) => (y) <int64[2] target = {1, 8}> {
            a = Conv (x, w0)
            p = GlobalAveragePool (a)
            r = Reshape (p, target)
            q = Reshape (p, shape)
            s = Add (r, q)
            y = MatMul (s, w1)
        }""",
        {"w0": (8, 3, 1, 1), "w1": (8, 5)},
    )
    given = Binding(inputs=(InputSpec("shape", "int64", (2,), (1, 8)),))
    result = write_narrowed(load(model, given), tmp_path / "n.onnx", 0.5)
    assert (result.channels_before, result.channels_after) == (8, 4)
    narrowed = onnx.load(str(tmp_path / "n.onnx"))
    assert [info.name for info in narrowed.graph.input] == ["x", "shape"]


def test_one_channel_is_left(tmp_path: Path) -> None:
    narrow(model_of(_CHAIN, _CHAIN_WEIGHTS), tmp_path, 0.999)
    assert shapes_of(tmp_path / "n.onnx")["w"] == (64, 1)


def test_a_folder_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*n\.onnx"):
        write_narrowed(load(model_of(_CHAIN, _CHAIN_WEIGHTS)), tmp_path / "no" / "n.onnx", 0.5)


# MACs of some layers at half the width, by the shape of their output and of their window.
_BY_HAND = {
    # The stem, the last 3x3, and the classifier; nothing is pinned between.
    "resnet50": {
        "r0": 32 * 112 * 112 * 3 * 49, "r165": 256 * 7 * 7 * 256 * 9, "r174": 1000 * 1024,
    },
    "vgg19": {"r0": 32 * 224 * 224 * 3 * 9, "r38": 2048 * 256 * 7 * 7, "r46": 1000 * 2048},
    "squeezenet": {"r0": 32 * 111 * 111 * 3 * 9, "r63": 1000 * 13 * 13 * 256},
    # The second layer takes the 32 channels of the stem and the 16 that the first one adds.
    "densenet121": {"r21": 16 * 56 * 56 * 64 * 9, "r29": 64 * 56 * 56 * 48, "fc6_1": 1000 * 512},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_a_light_model_of_half_the_width_is_valid_runs_and_does_less(
    name: str, tmp_path: Path
) -> None:
    target = tmp_path / "n.onnx"
    bound = load_model(open_model(light_model(name)))
    result = write_narrowed(bound, target, 0.5)

    onnx.checker.check_model(str(target), full_check=True)
    profile = profile_model(target).cases[0].static
    found = {layer.id: layer.macs for layer in profile.layers}
    assert {layer: found[layer] for layer in _BY_HAND.get(name, {})} == _BY_HAND.get(name, {})
    assert known(profile.macs) < 0.7 * LIGHT_MODELS[name].macs
    assert 0.4 < result.channels_after / result.channels_before < 0.6
    # Every layer can be found again by its name.
    assert {n.id for n in bound.graph.nodes} == set(found)

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(target), options)
    (given,) = session.get_inputs()
    assert tuple(given.shape) == bound.graph.inputs[0].dims
    (output,) = session.run(None, {given.name: np.ones(given.shape, np.float32)})
    assert output.shape == bound.graph.outputs[0].dims


@pytest.mark.parametrize(
    ("count", "share", "kept"),
    [(64, 0.5, 32), (100, 0.25, 72), (10, 0.5, 5), (12, 0.5, 6), (200, 0.1, 184), (3, 0.9, 1),
     (16, 0.01, 16), (1000, 0.5, 504)],
)  # fmt: skip
def test_how_many_stay(count: int, share: float, kept: int) -> None:
    assert kept_count(count, share) == kept
