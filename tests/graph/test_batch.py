"""A model with a fixed batch runs at another one, or says which node holds on to its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from pytest_modelperf.errors import BindingError
from pytest_modelperf.graph.binding import Binding, parse_input_spec
from pytest_modelperf.graph.copies import write_shaped_model
from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.structure import Shape
from tests.support.graph_models import load, parse, random_floats, shapes, zeros
from tests.support.light_models import LIGHT_MODELS, light_model


@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_every_tensor_of_a_light_model_follows_the_batch(name: str) -> None:
    file = open_model(light_model(name))
    one, four = load_model(file, Binding(1)), load_model(file, Binding(4))

    assert one.rewritten == ()
    for before, after in zip(one.graph.nodes, four.graph.nodes, strict=True):
        old, new = before.output().dims, after.output().dims
        # ShuffleNet puts groups between batch and channels: the batch leads nevertheless.
        assert new == (old[0] * 4, *old[1:]), before.name or before.id
    assert _params(four) == _params(one)


def _params(model: BoundModel) -> dict[str, int]:
    return {w.name: w.params for w in model.graph.weights.values() if w.params}


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", ["shufflenet", "squeezenet"])
def test_onnxruntime_returns_the_predicted_shapes_at_another_batch(
    name: str, tmp_path: Path
) -> None:
    """Every tensor is given out by the written model, and looked at."""
    bound = load_model(open_model(light_model(name)), Binding(2))
    names = [node.id for node in bound.graph.nodes]
    path = tmp_path / "model.onnx"
    write_shaped_model(bound, path, names)

    session, single = (_session(source) for source in (path, light_model(name)))
    (declared,) = session.get_inputs()
    feed = random_floats(*bound.graph.inputs[0].dims)
    outputs = session.run(names, {declared.name: feed})

    assert [o.shape for o in outputs] == [bound.tensors[n].shape for n in names]
    np.testing.assert_allclose(
        session.run(None, {declared.name: feed})[0][:1],
        single.run(None, {declared.name: feed[:1]})[0],
        rtol=1e-3, atol=1e-5,
    )  # fmt: skip


FOLLOWED: dict[str, tuple[str, int, dict[str, Shape]]] = {
    "a reshape target that leads with the batch":
        ("""g (float[1, 4, 6] x) => (y) <int64[2] flat = {1, 24}> {
            r = Relu (x)
            [flatten] y = Reshape (r, flat)
        }""", 5, {"y": (5, 24)}),
    "a batch folded into another dimension":
        ("""g (float[2, 4, 6] x) => (y, z) <int64[2] fold = {8, 6}, int64[3] back = {2, 4, 6}> {
            y = Reshape (x, fold)
            z = Reshape (y, back)
        }""", 10, {"y": (40, 6), "z": (10, 4, 6)}),
    "inputs that share their batch":
        ("g (float[2, 4] a, float[2, 4] b) => (y) { y = Concat <axis = 1> (a, b) }", 7,
         {"a": (7, 4), "b": (7, 4), "y": (7, 8)}),
    "the sizes that a body declares":
        ("""g (bool c, float[1, 4] x) => (float[1, 4] y) {
            z = If (c) <
                then_branch = t () => (float[1, 4] a) { a = Relu (x) },
                else_branch = e () => (float[1, 4] b) { b = Exp (x) }
            >
            y = Sigmoid (z)
        }""", 3, {"z": (3, 4), "y": (3, 4)}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "batch", "known"), FOLLOWED.values(), ids=FOLLOWED)
def test_shapes_that_follow_the_batch(text: str, batch: int, known: dict[str, Shape]) -> None:
    bound = load(text, Binding(batch))
    assert {name: bound.tensors[name].shape for name in known} == known
    reshaped = [node for node in bound.graph.nodes if node.op_type == "Reshape"]
    assert bound.rewritten == tuple(node.name or node.id for node in reshaped)


def test_a_reshape_attribute_of_an_old_operator_set_follows_too() -> None:
    text = "g (float[2, 4, 6] x) => (y) { [flatten] y = Reshape <shape = [2, 24]> (x) }"
    assert shapes(load(text, Binding(6), opset=1), "y") == [(6, 24)]


def test_a_target_that_other_nodes_share_changes_for_the_batch_alone() -> None:
    """A constant may be the target of two Reshapes, one of which is of a weight."""
    bound = load(
        parse(
            """g (float[1, 24] x) => (y) <int64[3] t = {1, 4, 6}> {
            y0 = Reshape (x, t)
            w0 = Reshape (w, t)
            y = Add (y0, w0)
        }""",
            {"w": zeros(24)},
        ),
        Binding(3),
    )
    assert shapes(bound, "y0", "w0", "y") == [(3, 4, 6), (1, 4, 6), (3, 4, 6)]


@pytest.mark.parametrize("target", ["-1, 24", "0, 24", "0, -1"])
def test_a_target_that_follows_by_itself_is_left_alone(target: str) -> None:
    bound = load(
        f"g (float[1, 4, 6] x) => (y) <int64[2] t = {{{target}}}> {{ y = Reshape (x, t) }}",
        Binding(5),
    )
    assert shapes(bound, "y") == [(5, 24)]
    assert bound.rewritten == ()


def test_the_model_as_it_is_is_not_rewritten() -> None:
    text = "g (float[1, 4, 6] x) => (y) <int64[2] t = {1, 24}> { y = Reshape (x, t) }"
    assert load(text).rewritten == load(text, Binding(1)).rewritten == ()


def test_a_symbolic_batch_is_never_rewritten_even_if_a_target_leads_with_one() -> None:
    bound = load(
        """g (float[N, 4, 6] x) => (y) <int64[3] t = {1, 1, 6}> {
        m = ReduceMean <axes = [0, 1], keepdims = 1> (x)
        y = Reshape (m, t)
    }""",
        Binding(5),
        opset=13,
    )
    assert bound.rewritten == ()
    assert shapes(bound, "y") == [(1, 1, 6)]


def test_a_class_token_of_batch_one_is_refused_by_name() -> None:
    model = parse(
        "g (float[1, 16, 8] x) => (y) { [add_token] y = Concat <axis = 1> (token, x) }",
        {"token": zeros(1, 1, 8)},
    )
    assert shapes(load(model), "y") == [(1, 17, 8)]
    with pytest.raises(
        BindingError, match=r"cannot run at batch 4.*Concat 'add_token'.*dynamic batch"
    ):
        load(model, Binding(4))


def test_a_recurrent_state_of_batch_one_is_refused_by_name() -> None:
    model = parse(
        """g (float[1, 5, 8] x) => (y) {
        seq = Transpose <perm = [1, 0, 2]> (x)
        [lstm] y, h, c = LSTM <hidden_size = 4> (seq, w, r, , , h0, c0)
    }""",
        {"w": zeros(1, 16, 8), "r": zeros(1, 16, 4), "h0": zeros(1, 1, 4), "c0": zeros(1, 1, 4)},
    )
    assert shapes(load(model), "y") == [(5, 1, 1, 4)]
    with pytest.raises(BindingError, match=r"cannot run at batch 4.*LSTM 'lstm'"):
        load(model, Binding(4))


@pytest.mark.parametrize(
    "text",
    [
        """g (float[1, 8] x) => (y) <int64[3] t = {1, 3, 8}, int64[1] axes = {0}> {
            [over] m = ReduceMax <keepdims = 1> (x, axes)
            y = Expand (m, t)
        }""",
        """g (float[1, 2] x, float least) => (y, lowest) <float zero = {0}> {
            shape = Shape (x)
            lowest = Max (least, zero)
            r = Relu (x)
            [over] y = ReduceMax <keepdims = 1> (r)
        }""",
    ],
    ids=["a reduction", "a shape and an input without a batch hold on to none"],
)
def test_a_reduction_over_the_batch_is_refused_by_name(text: str) -> None:
    with pytest.raises(BindingError, match=r"cannot run at batch 4.*ReduceMax 'over'"):
        load(text, Binding(4))


@pytest.mark.parametrize("size", ["2, 4, 6", "1, 8, 6"])
def test_a_reshape_that_hides_the_batch_is_refused_by_name(size: str) -> None:
    """The -1 would take the images up into their elements, and the model would run and mix them."""
    with pytest.raises(BindingError, match=r"cannot run at batch 10.*Reshape 'fold'"):
        load(
            f"g (float[{size}] x) => (y) <int64[2] t = {{8, -1}}> {{ [fold] y = Reshape (x, t) }}",
            Binding(10),
        )


def test_heads_that_are_folded_behind_the_length_are_refused() -> None:
    """Attention with the length first, as torch's MultiheadAttention has it at a fixed batch.

    The target (length, heads, width) leads with the length, which must not grow in its place.
    """
    with pytest.raises(BindingError, match="cannot run at batch 3"):
        load(
            """g (float[1, 5, 8] x) => (y) <int64[3] split = {5, 2, 4}, int64[3] join = {5, 1, 8}> {
            first = Transpose <perm = [1, 0, 2]> (x)
            heads = Reshape (first, split)
            q = Transpose <perm = [1, 0, 2]> (heads)
            k = Transpose <perm = [1, 2, 0]> (heads)
            scores = MatMul (q, k)
            mixed = MatMul (scores, q)
            back = Transpose <perm = [1, 0, 2]> (mixed)
            joined = Reshape (back, join)
            y = Transpose <perm = [1, 0, 2]> (joined)
        }""",
            Binding(3),
        )


def test_an_input_given_whole_at_another_size_is_checked_too() -> None:
    text = """g (float[1, 3, 8, 8] x) => (y) <int64[2] t = {1, 192}> {
        [flatten] f = Reshape (x, t)
        y = MatMul (f, w)
    }"""
    model = parse(text, {"w": zeros(192, 5)})
    with pytest.raises(BindingError, match=r"flatten|MatMul"):
        load(model, Binding(inputs=(parse_input_spec("x:f32:1x3x16x16"),)))


def test_a_fully_convolutional_model_takes_an_image_of_another_size() -> None:
    model = parse(
        "g (float[1, 3, 8, 8] x) => (float[1, 4, 6, 6] y) { y = Conv (x, w) }",
        {"w": zeros(4, 3, 3, 3)},
    )
    bound = load(model, Binding(inputs=(parse_input_spec("x:f32:1x3x20x30"),)))
    assert shapes(bound, "y") == [(1, 4, 18, 28)]
