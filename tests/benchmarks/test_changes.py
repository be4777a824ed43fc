"""The graph changes of the benchmark of parts: where they apply, and what they leave the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import changes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from changes import CHANGES, NEW, add_kernels, tensors_of
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper
from real_variants import PREFIX
from verdicts import chain
from yolo_model import yolo_model

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'

# Weights without values are drawn by `parse`.
CONVOLUTIONS = f"""{HEAD}
convolutions (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y)
<float[4, 4, 3, 3] w0, float[4, 4, 3, 3] w1, float[4, 4, 3, 3] w2, float[4, 4, 1, 1] w3>
{{
  c0 = Conv <pads = [1, 1, 1, 1]> (x, w0)
  r0 = {{activation}} (c0)
  c1 = Conv <pads = [1, 1, 1, 1], kernel_shape = [3, 3]> (r0, w1)
  a1 = Add (c1, r0)
  r1 = {{activation}} (a1)
  c2 = Conv <pads = [1, 1, 1, 1]> (r1, w2)
  r2 = {{activation}} (c2)
  y = Conv (r2, w3)
}}"""

ENCODER = f"""{HEAD}
encoder (float[batch, 6, 16] x) => (float[batch, 6, 16] y)
<float[16] scale, float[16] shift, float[16, 32] wide, float[32] bias, float[32, 16] narrow,
 float[16, 16] first, float[16, 16] last>
{{
  x0 = MatMul (x, first)
  n = LayerNormalization (x0, scale, shift)
  h = MatMul (n, wide)
  b = Add (h, bias)
  g = Gelu (b)
  o = MatMul (g, narrow)
  r = Add (o, x0)
  t = Tanh (r)
  y = MatMul (t, last)
}}"""

# An MLP with a gate, of which both products into the hidden layer grow together.
GATED = f"""{HEAD}
gated (float[2, 16] x) => (float[2, 16] y)
<float[16, 32] gate, float[32, 16] up, float[32] bias, float[32, 16] down,
 int64[2] same = {{0, 32}}>
{{
  n = Neg (x)
  a = MatMul (n, gate)
  s = Sigmoid (a)
  m = Mul (a, s)
  b = Gemm <transB = 1> (n, up, bias)
  k = Mul (m, b)
  f = Reshape (k, same)
  d = MatMul (f, down)
  y = Add (d, x)
}}"""

# A norm whose parts the engine joins, and one whose parts it does not.
NORM_PARTS = f"""{HEAD}
parts (float[2, 16] x) => (float[2, 16] y)
<float[16] scale, float[16] shift, float two = {{2}}, float least = {{0.00001}},
 int64[1] last = {{-1}}>
{{
  n = Neg (x)
  mean = ReduceMean (n, last)
  centred = Sub (n, mean)
  square = Pow (centred, two)
  variance = ReduceMean (square, last)
  above = Add (variance, least)
  width = Sqrt (above)
  normed = Div (centred, width)
  scaled = Mul (normed, scale)
  z = Add (scaled, shift)
  y = Tanh (z)
}}"""
ROOT_MEAN_SQUARE = f"""{HEAD}
squares (float[2, 16] x) => (float[2, 16] y)
<float two = {{2}}, float least = {{0.00001}}, int64[1] last = {{-1}}>
{{
  n = Neg (x)
  square = Pow (n, two)
  mean = ReduceMean (square, last)
  above = Add (mean, least)
  width = Sqrt (above)
  y = Div (n, width)
}}"""

QUANTIZED = f"""{HEAD}
quantized (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y)
<int8[4, 4, 3, 3] w, float scale = {{0.01}}, int8 zero = {{0}}>
{{
  n = Neg (x)
  d = DequantizeLinear (w, scale, zero)
  y = Conv <pads = [1, 1, 1, 1]> (n, d)
}}"""

ELEMENTWISE = f"""{HEAD}
elementwise (float[1, 4, 6] x) => (float[1, 4, 6] y)
{{
  a = Neg (x)
  b = Tanh (a)
  y = Neg (b)
}}"""

PLAIN = f"""{HEAD}
plain (int64[1, 3] tokens) => (int64[1, 3] y)
{{
  n = Neg (tokens)
  y = Abs (n)
}}"""


def parse(text: str, activation: str = "Relu") -> ModelProto:
    """The model of a text, with drawn values for the weights that have none."""
    model = onnx.parser.parse_model(text.replace("{activation}", activation))
    random = np.random.default_rng(5)
    # The parser takes what has no values for the shape of a tensor that a node makes.
    for value in model.graph.value_info:
        kind = value.type.tensor_type
        shape = tuple(size.dim_value for size in kind.shape.dim)
        drawn = random.normal(0, 0.3, shape)
        if kind.elem_type == onnx.TensorProto.INT8:
            values = np.rint(99 * drawn).astype(np.int8)
        else:
            values = drawn.astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, value.name))
    del model.graph.value_info[:]
    onnx.checker.check_model(model)
    return model


def run(model: ModelProto) -> list[NDArray[np.generic]]:
    """The outputs of the engine, for inputs that are the same for every model."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {}
    for each in session.get_inputs():
        shape = [size if isinstance(size, int) else 1 for size in each.shape]
        drawn = np.random.default_rng(7).standard_normal(shape)
        feed[each.name] = drawn.astype(np.float32 if "float" in each.type else np.int64)
    return list(session.run(None, feed))


def kernels(model: ModelProto, folder: Path) -> Counter[str]:
    """The operators that the engine really runs."""
    path = folder / "plan.onnx"
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    ort.InferenceSession(model.SerializeToString(), options, providers=providers)
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def changed(model: ModelProto, change: str) -> ModelProto:
    before = model.SerializeToString()
    made = CHANGES[change](model)
    assert model.SerializeToString() == before, "the model itself was changed"
    assert made is not None
    onnx.checker.check_model(made)
    return made


def assert_computes_the_same(before: ModelProto, after: ModelProto, atol: float = 1e-5) -> None:
    for old, new in zip(run(before), run(after), strict=False):
        assert np.allclose(old, new, atol=atol)


MODELS = {
    "convolutions": lambda: parse(CONVOLUTIONS),
    "encoder": lambda: parse(ENCODER),
    "gated": lambda: parse(GATED),
    "chain": lambda: chain(20, 0),
}
PLACES = {
    "an activation decomposed": ("convolutions", "encoder", "gated"),
    "a pair of transposes": ("convolutions", "encoder"),
    "a normalization made of parts": ("encoder",),
    "a wider kernel": ("convolutions", "encoder", "gated"),
    "a product in double": ("encoder", "gated"),
    "an extra output": ("convolutions", "encoder", "gated"),
    "a block more": ("chain",),
}


@pytest.mark.parametrize(
    ("change", "name"),
    [(change, name) for change, names in PLACES.items() for name in names],
)
def test_a_changed_model_computes_the_same_by_other_kernels_or_sizes(
    change: str, name: str, tmp_path: Path
) -> None:
    model = MODELS[name]()
    made = changed(model, change)
    assert_computes_the_same(model, made, 2e-2 if change == "a block more" else 1e-5)
    old, new = kernels(model, tmp_path), kernels(made, tmp_path)
    if change == "a wider kernel":
        assert old == new
        assert made.ByteSize() > model.ByteSize()
    elif change == "an extra output":
        assert len(made.graph.output) == len(model.graph.output) + 1
    else:
        assert new.total() > old.total()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_without_a_place_is_none(change: str) -> None:
    assert CHANGES[change](parse(PLAIN)) is None
    assert set(PLACES) == set(CHANGES)


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "Gelu", "Tanh", "HardSwish", "Erf"])
def test_each_activation_is_made_of_parts(activation: str, tmp_path: Path) -> None:
    model = parse(CONVOLUTIONS, activation)
    made = changed(model, "an activation decomposed")
    assert_computes_the_same(model, made)
    assert kernels(made, tmp_path).total() > kernels(model, tmp_path).total()


@pytest.mark.parametrize(
    ("text", "lost", "found"),
    [(NORM_PARTS, "LayerNormalization", "Neg"), (ROOT_MEAN_SQUARE, "Pow", "Mul")],
    ids=["joined", "not joined"],
)
def test_a_norm_in_parts_is_written_in_another_way(
    text: str, lost: str, found: str, tmp_path: Path
) -> None:
    model = parse(text)
    made = changed(model, "a normalization made of parts")
    assert_computes_the_same(model, made)
    old, new = kernels(model, tmp_path), kernels(made, tmp_path)
    assert old[lost] > new[lost]
    assert new[found] > old[found]


def test_both_transposes_and_the_copy_are_kernels(tmp_path: Path) -> None:
    model = parse(ELEMENTWISE)
    added = kernels(changed(model, "a pair of transposes"), tmp_path) - kernels(model, tmp_path)
    assert added == Counter({"Transpose": 2, "Einsum": 1})


def test_a_quantized_kernel_grows_by_zeros_too(tmp_path: Path) -> None:
    model = parse(QUANTIZED)
    made = changed(model, "a wider kernel")
    assert_computes_the_same(model, made)
    assert [tuple(w.dims) for w in made.graph.initializer if NEW in w.name] == [(4, 4, 5, 5)]
    assert kernels(model, tmp_path) == kernels(made, tmp_path)


def test_all_dimensions_of_the_hidden_size_grow_together() -> None:
    made = changed(parse(GATED), "a wider kernel")
    weights = {tuple(weight.dims) for weight in made.graph.initializer}
    assert weights == {(16, 40), (40, 16), (40,), (2,)}


def test_a_size_that_an_output_shows_does_not_grow() -> None:
    seen = GATED.replace("(float[2, 16] y)", "(float[2, 16] y, float[2, 32] k)")
    assert CHANGES["a wider kernel"](parse(seen)) is None


def test_a_repeated_block_has_other_weights() -> None:
    made = changed(chain(20, 0), "a block more")
    weights = {w.name: numpy_helper.to_array(w) for w in made.graph.initializer}
    copies = [name for name in weights if name.startswith(f"{PREFIX}again_")]
    assert copies
    for name in copies:
        values = weights[name.removeprefix(f"{PREFIX}again_")]
        assert not np.array_equal(weights[name], values)
        assert sorted(weights[name].ravel()) == sorted(values.ravel())


def test_each_pair_of_small_kernels_is_two_more(tmp_path: Path) -> None:
    model = parse(CONVOLUTIONS)
    some, more = (add_kernels(model, pairs) for pairs in (1, 4))
    assert some is not None
    assert more is not None
    assert_computes_the_same(model, more)
    assert kernels(more, tmp_path) - kernels(some, tmp_path) == Counter({"Neg": 6})
    assert add_kernels(parse(PLAIN), 1) is None


def test_shapes_are_those_of_a_batch_of_one() -> None:
    found = tensors_of(parse(ENCODER))
    assert found["h"] == changes.Tensor(onnx.TensorProto.FLOAT, (1, 6, 32))
    assert found["wide"].sizes == (16, 32)


def test_the_detector_has_a_place_for_what_convolutions_have() -> None:
    model = yolo_model()
    onnx.checker.check_model(model, full_check=True)
    (found,) = run(model)
    assert found.shape == (1, 84, 2100)
    assert np.isfinite(found).all()
    places = {change for change, apply in CHANGES.items() if apply(model) is not None}
    assert places == set(CHANGES) - {"a normalization made of parts"}
