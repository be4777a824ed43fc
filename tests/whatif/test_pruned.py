"""Pruned models: which weights, exactly how many zeros, and everything else as it was."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from pytest_modelperf.errors import ModelError, OutputError, UsageError
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.operators.registry import OPERATORS
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.whatif.pruned import (
    INTEGER,
    MULTIPLIED,
    Pruned,
    UnprunedWeight,
    write_pruned,
    write_stored,
)
from tests.graph.twin_models import nested
from tests.support.full_disk import room_for
from tests.support.graph_models import parse, random_floats
from tests.support.light_models import LIGHT_MODELS, light_model

PERCEPTRON = """
    g (float[N,8] x) => (float[N,4] y) {
        m = MatMul(x, a)
        s = Add(m, bias)
        r = Relu(s)
        y = Gemm<transB = 1>(r, b, offset)
    }
"""


def perceptron() -> onnx.ModelProto:
    return parse(
        PERCEPTRON,
        {
            "a": random_floats(8, 16),
            "bias": random_floats(16, seed=1),
            "b": random_floats(4, 16, seed=2),
            "offset": random_floats(4, seed=3),
        },
    )


def bind(source: onnx.ModelProto | Path) -> BoundModel:
    return load_model(open_model(source))


def prune(
    source: onnx.ModelProto | Path, folder: Path, share: float, **options: int
) -> tuple[Pruned, onnx.ModelProto]:
    path = folder / "pruned.onnx"
    pruned = write_pruned(bind(source), path, share, **options)
    return pruned, onnx.load(path)


def weights(model: onnx.ModelProto) -> dict[str, npt.NDArray[Any]]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def run(model: onnx.ModelProto, feeds: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options)
    return np.asarray(session.run(None, dict(feeds))[0])


@given(
    values=st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 1e-30]), min_size=1),
    share=st.floats(0, 1, exclude_max=True),
    seed=st.integers(0, 5),
)
@settings(max_examples=40)
def test_exactly_the_share_is_zero_and_the_smallest_weights_go_first(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], share: float, seed: int
) -> None:
    before = np.array(values, np.float32)
    model = parse(
        f"g (float[1,{before.size}] x) => (float[1,1] y) {{ y = MatMul(x, w) }}",
        {"w": before.reshape(-1, 1)},
    )
    done, pruned = prune(model, tmp_path_factory.mktemp("p"), share, seed=seed)
    after = weights(pruned)["w"].reshape(-1)
    wanted = max(round(share * before.size), int((before == 0).sum()))
    assert int((after == 0).sum()) == wanted == done.zeros
    kept, gone = after != 0, (after == 0) & (before != 0)
    np.testing.assert_array_equal(after[kept], before[kept])
    if kept.any() and gone.any():
        assert np.abs(before[kept]).min() >= np.abs(before[gone]).max()


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_floats_of_every_width_are_pruned_by_their_magnitude(
    tmp_path: Path, dtype: npt.DTypeLike
) -> None:
    values = random_floats(20, 10).astype(dtype)
    name = {"float64": "double"}.get(np.dtype(dtype).name, np.dtype(dtype).name)
    text = f"g ({name}[1,20] x) => ({name}[1,10] y) {{ y = MatMul(x, w) }}"
    _, model = prune(parse(text, {"w": values}), tmp_path, 0.75)
    after = weights(model)["w"]
    assert after.dtype == values.dtype
    order = np.argsort(np.abs(values.astype(np.float64)), axis=None, kind="stable")
    assert (after.reshape(-1)[order[:150]] == 0).all()
    assert (after.reshape(-1)[order[150:]] == values.reshape(-1)[order[150:]]).all()


def test_a_constant_weight_gets_its_share_at_places_that_the_seed_chooses(tmp_path: Path) -> None:
    model = parse(
        "g (float[1,10] x) => (float[1,10] y) { y = MatMul(x, w) }",
        {"w": np.ones((10, 10), np.float32)},
    )
    first, again, other = (weights(prune(model, tmp_path, 0.3, seed=s)[1])["w"] for s in (1, 1, 2))
    assert (first == 0).sum() == (other == 0).sum() == 30
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_zeros_that_are_there_stay_and_count(tmp_path: Path) -> None:
    sparse = random_floats(10, 10)
    sparse[:8] = 0
    model = parse("g (float[1,10] x) => (float[1,10] y) { y = MatMul(x, w) }", {"w": sparse})
    done, pruned = prune(model, tmp_path, 0.5)
    assert done == Pruned(weights=1, elements=100, zeros=80, generated=0)
    np.testing.assert_array_equal(weights(pruned)["w"], sparse)


def test_weights_of_products_are_pruned_and_no_others(tmp_path: Path) -> None:
    source = perceptron()
    done, pruned = prune(source, tmp_path, 0.5)
    assert done == Pruned(weights=2, elements=192, zeros=96, generated=0)
    before, after = weights(source), weights(pruned)
    assert [int((after[n] == 0).sum()) for n in ("a", "b")] == [64, 32]
    for name in ("bias", "offset"):
        np.testing.assert_array_equal(after[name], before[name])
    assert pruned.graph.node == source.graph.node
    assert pruned.graph.input == source.graph.input
    assert pruned.graph.output == source.graph.output


def test_a_table_that_is_looked_up_is_not_pruned_unless_it_is_multiplied_with_too(
    tmp_path: Path,
) -> None:
    text = """g (int64[3] ids) => (float[3,20] y) {
        e = Gather(table, ids)
        t = Transpose<perm = [1, 0]>(tied)
        u = Gather(tied, ids)
        s = Add(e, u)
        y = MatMul(s, t)
    }"""
    model = parse(text, {"table": random_floats(20, 5), "tied": random_floats(20, 5, seed=1)})
    done, pruned = prune(model, tmp_path, 0.5)
    assert done.weights == 1
    counts = {name: int((values == 0).sum()) for name, values in weights(pruned).items()}
    assert counts == {"table": 0, "tied": 50}


def test_the_weights_of_recurrent_layers_and_of_bodies_are_pruned(tmp_path: Path) -> None:
    text = """g (float[5,1,4] x, float[1,4] row, bool c) => (float[5,1,1,4] h, float[1,4] z) {
        h = LSTM<hidden_size = 4>(x, w, r, b)
        [branch] z = If(c) <
            then_branch = t () => (float[1,4] a) {
                inner = Constant<value = float[4,4] {
                    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}>()
                a = MatMul(row, inner)
            },
            else_branch = e () => (float[1,4] d) { d = Identity(row) }
        >
    }"""
    model = parse(
        text,
        {
            "w": random_floats(1, 16, 4),
            "r": random_floats(1, 16, 4, seed=1),
            "b": random_floats(1, 32, seed=2),
        },
    )
    done, pruned = prune(model, tmp_path, 0.5)
    after = weights(pruned)
    assert done.weights == 3
    assert [int((after[n] == 0).sum()) for n in ("w", "r", "b")] == [32, 32, 0]
    inner = numpy_helper.to_array(pruned.graph.node[1].attribute[0].g.node[0].attribute[0].t)
    np.testing.assert_array_equal(inner.reshape(-1), [0] * 8 + list(range(9, 17)))
    assert done.zeros == 32 + 32 + 8


def test_weights_that_cannot_be_pruned_are_reported_with_the_reason(tmp_path: Path) -> None:
    text = """g (float[1,4] x) => (float[1,4] y) {
        q = DequantizeLinear(bytes, scale)
        a = MatMul(x, q)
        f = Cast<to = 1>(halves)
        g = Add(f, plain)
        b = MatMul(a, g)
        i = Cast<to = 1>(numbers)
        c = MatMul(b, i)
        d = com.microsoft.MatMulNBits<K = 4, N = 4, bits = 4, block_size = 16>(c, packed, scales)
        y = MatMul(d, free)
    }"""
    model = parse(
        text,
        {
            "bytes": np.ones((4, 4), np.int8), "scale": np.array(0.5, np.float32),
            "halves": np.ones((4, 4), np.float16), "plain": random_floats(4, 4),
            "numbers": np.arange(16).reshape(4, 4), "packed": np.ones((4, 1, 8), np.uint8),
            "scales": np.ones(4, np.float32), "free": random_floats(4, 4, seed=1),
        },
    )  # fmt: skip
    done, _ = prune(model, tmp_path, 0.5)
    assert done.weights == 1
    assert done.skipped == (
        UnprunedWeight("bytes", "it is stored as int8"),
        UnprunedWeight(
            "halves", "the multiplied tensor is computed from it and has other elements"
        ),
        UnprunedWeight("i", "it is computed by a node of type Cast"),
        UnprunedWeight("packed", "it is stored as uint8"),
    )


def test_a_model_without_such_weights_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError,
        match=r"no weight that can be pruned: none of its operators multiplies with one "
        r"\(it has 2 Relu, 1 Add\)",
    ):
        prune(
            parse("g (float[4] x) => (float[4] y) { a = Relu(x) b = Relu(a) y = Add(a, b) }"),
            tmp_path,
            0.5,
        )
    quantized = parse(
        "g (float[1,2] x) => (float[1,2] y) { q = DequantizeLinear(w, s) y = MatMul(x, q) }",
        {"w": np.ones((2, 2), np.int8), "s": np.array(1, np.float32)},
    )
    with pytest.raises(ModelError, match=r"can be pruned: 'w': .* int8\."):
        prune(quantized, tmp_path, 0.5)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("share", [-0.1, 1.0, 90, float("nan")])
def test_a_share_out_of_range_is_refused(tmp_path: Path, share: float) -> None:
    with pytest.raises(UsageError, match="give a number from 0 to 1, and less than 1"):
        prune(perceptron(), tmp_path, share)


def test_every_operator_that_is_listed_is_one_that_is_counted() -> None:
    assert {*MULTIPLIED, *INTEGER} <= OPERATORS.keys()
    assert not set(MULTIPLIED) & set(INTEGER)


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_a_model_without_weights_gets_some_that_it_can_run_with(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pruned.onnx"
    done = write_pruned(bind(light_model(name)), path, 0.8)
    assert done.generated == done.weights
    onnx.checker.check_model(str(path), full_check=True)
    profile = profile_model(str(path), ProfileRequest(sparsity=True)).cases[0].static
    assert profile.macs == LIGHT_MODELS[name].macs
    assert profile.params == LIGHT_MODELS[name].params
    for layer in profile.layers:
        if layer.macs:
            assert layer.sparsity is not None
            assert layer.sparsity.ratio == pytest.approx(0.8, abs=0.01)
    model = onnx.load(path)
    (data,) = model.graph.input
    shape = [dim.dim_value for dim in data.type.tensor_type.shape.dim]
    outputs = run(model, {data.name: random_floats(*shape)})
    assert np.isfinite(outputs).all()
    assert outputs.std() > 0


def test_numbers_that_are_made_keep_the_deviation_through_layers(tmp_path: Path) -> None:
    """Twenty layers with a ReLU after each: He's deviation neither grows nor shrinks."""
    lines = [
        f"w{i} = ConstantOfShape(shape) m{i} = MatMul({f'r{i - 1}' if i else 'x'}, w{i}) "
        f"r{i} = Relu(m{i})"
        for i in range(20)
    ]
    model = parse(
        f"g (float[64,128] x) => (float[64,128] r19) {{ {' '.join(lines)} }}",
        {"shape": np.array([128, 128])},
    )
    path = tmp_path / "stored.onnx"
    assert write_stored(bind(model), path) == 20
    stored = onnx.load(path)
    # The shape of what was filled is not needed any more.
    assert set(weights(stored)) == {f"w{i}" for i in range(20)}
    outputs = run(stored, {"x": random_floats(64, 128)})
    assert 0.1 < outputs.std() < 10
    done, pruned = prune(model, tmp_path, 0.0)
    assert (done.zeros, done.generated) == (0, 20)
    assert weights(pruned).keys() == weights(stored).keys()
    np.testing.assert_array_equal(weights(pruned)["w7"], weights(stored)["w7"])


def test_a_share_of_nothing_computes_the_same(tmp_path: Path) -> None:
    source = perceptron()
    done, pruned = prune(source, tmp_path, 0.0)
    assert done.zeros == 0
    feeds = {"x": random_floats(3, 8)}
    np.testing.assert_array_equal(run(source, feeds), run(pruned, feeds))


def test_weights_in_external_data_are_read_and_taken_into_the_file(tmp_path: Path) -> None:
    source = tmp_path / "source" / "model.onnx"
    source.parent.mkdir()
    onnx.save(perceptron(), source, save_as_external_data=True, location="w.bin", size_threshold=0)
    before = weights(onnx.load(source))
    target = tmp_path / "target"
    target.mkdir()
    done, pruned = prune(source, target, 0.5)
    assert [p.name for p in target.iterdir()] == ["pruned.onnx"]
    assert done.zeros == 96
    after = weights(pruned)
    np.testing.assert_array_equal(after["bias"], before["bias"])
    kept = after["a"] != 0
    np.testing.assert_array_equal(after["a"][kept], before["a"][kept])


def test_a_model_too_large_for_one_file_has_its_weights_next_to_it(tmp_path: Path) -> None:
    source = parse(
        "g (float[N,64] x) => (float[N,64] y) { m = MatMul(x, w) s = Add(m, b) y = MatMul(s, v) }",
        {
            "w": random_floats(64, 64),
            "b": random_floats(64, seed=1),
            "v": random_floats(64, 64, seed=2),
        },
    )
    _, whole = prune(source, tmp_path, 0.5)
    _, split = prune(source, tmp_path, 0.5, max_file_bytes=20_000)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pruned.onnx", "pruned.onnx.data"]
    assert (tmp_path / "pruned.onnx").stat().st_size < 2000
    for name, values in weights(whole).items():
        np.testing.assert_array_equal(weights(split)[name], values)
    with pytest.raises(ModelError, match="an ONNX file can have 100 B at most"):
        prune(source, tmp_path, 0.5, max_file_bytes=100)


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*pruned\.onnx: No such file"):
        write_pruned(bind(perceptron()), tmp_path / "missing" / "pruned.onnx", 0.5)


def test_a_disk_that_fills_up_leaves_no_half_model(tmp_path: Path) -> None:
    with room_for(500), pytest.raises(OutputError, match="File too large"):
        prune(perceptron(), tmp_path, 0.5, max_file_bytes=800)
    assert not list(tmp_path.iterdir())


def test_the_weights_of_local_functions_are_pruned(tmp_path: Path) -> None:
    source = nested()
    done, pruned = prune(source, tmp_path, 0.5)
    assert (done.weights, done.generated) == (4, 1)
    onnx.checker.check_model(pruned)
    feeds = {"c": np.array(1, np.bool_), "x": random_floats(2, 40)}
    assert run(pruned, feeds).shape == run(source, feeds).shape


def test_another_batch_size_is_written_as_it_runs(tmp_path: Path) -> None:
    text = """g (float[1,8] x) => (float[1,2,2] y) {
        m = MatMul(x, w)
        y = Reshape(m, shape)
    }"""
    model = parse(text, {"w": random_floats(8, 4), "shape": np.array([1, 2, 2])})
    path = tmp_path / "pruned.onnx"
    write_pruned(load_model(open_model(model), Binding(batch_size=3)), path, 0.5)
    assert run(onnx.load(path), {"x": random_floats(3, 8)}).shape == (3, 2, 2)
