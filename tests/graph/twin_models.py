"""Models of every kind that a twin is made of, small enough to run, with weights large enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.graph_models import parse, random_floats
from tests.support.onnx_text import tensor_of


def trained(*shape: int, seed: int = 0, deviation: float = 0.05) -> npt.NDArray[np.float32]:
    return random_floats(*shape, seed=seed) * np.float32(deviation)


def convolutions() -> onnx.ModelProto:
    """Layers that an engine fuses: a normalization into a convolution, activations behind it."""
    weights: dict[str, npt.NDArray[Any]] = {
        "w1": trained(32, 3, 3, 3), "s": np.abs(random_floats(32, seed=1)) + np.float32(0.5),
        "b": random_floats(32, seed=2), "m": random_floats(32, seed=3),
        "v": np.abs(random_floats(32, seed=4)) + np.float32(0.1),
        "w2": trained(512, 32, 1, 1, seed=5), "b2": trained(512, seed=6),
        "s2": np.abs(random_floats(512, seed=7)) + np.float32(0.5),
        "o2": random_floats(512, seed=8), "m2": random_floats(512, seed=9),
        "v2": (random_floats(512, seed=10) ** 2) + np.float32(0.001),
        "zero": np.array(0, np.float32), "six": np.array(6, np.float32),
    }  # fmt: skip
    return parse(
        """g (float[N, 3, 16, 16] x) => (float[N, 512, 7, 7] y) {
            c1 = Conv <kernel_shape = [3, 3], strides = [2, 2]> (x, w1)
            n1 = BatchNormalization (c1, s, b, m, v)
            r1 = Clip (n1, zero, six)
            c2 = Conv (r1, w2, b2)
            n2 = BatchNormalization (c2, s2, o2, m2, v2)
            y = Relu (n2)
        }""",
        weights,
    )


def transformer() -> onnx.ModelProto:
    """Layer normalization and GELU spelled out, and a causal mask: all known by their constants."""
    weights: dict[str, npt.NDArray[Any]] = {
        "two": np.array(2, np.float32), "eps": np.array(1e-5, np.float32),
        "scale": random_floats(64) + np.float32(1), "shift": random_floats(64, seed=1),
        "root2": np.array(np.sqrt(2), np.float32), "one": np.array(1, np.float32),
        "half": np.array(0.5, np.float32), "w1": trained(64, 256), "b1": trained(256),
        "w2": trained(256, 64), "causal": np.tril(np.ones((1, 48, 48), np.bool_)),
        "low": np.array(-1e9, np.float32), "positions": np.arange(300, dtype=np.int64)[None],
        "table": trained(300, 64), "first": np.array([0]), "last": np.array([48]),
        "axis": np.array([1]),
    }  # fmt: skip
    return parse(
        """g (float[N, 48, 64] x) => (float[N, 48, 64] y) {
            ids = Slice (positions, first, last, axis)
            place = Gather (table, ids)
            x1 = Add (x, place)
            mean = ReduceMean <axes = [-1]> (x1)
            d = Sub (x1, mean)
            p = Pow (d, two)
            var = ReduceMean <axes = [-1]> (p)
            ve = Add (var, eps)
            sd = Sqrt (ve)
            q = Div (d, sd)
            ms = Mul (q, scale)
            n = Add (ms, shift)
            t = Transpose <perm = [0, 2, 1]> (n)
            scores = MatMul (n, t)
            masked = Where (causal, scores, low)
            soft = Softmax <axis = -1> (masked)
            a = MatMul (soft, n)
            f = MatMul (a, w1)
            fb = Add (f, b1)
            e0 = Div (fb, root2)
            e1 = Erf (e0)
            e2 = Add (e1, one)
            e3 = Mul (fb, e2)
            g1 = Mul (e3, half)
            f2 = MatMul (g1, w2)
            y = Add (f2, a)
        }""",
        weights,
        opset=17,
    )


def quantized() -> onnx.ModelProto:
    """A convolution between QuantizeLinear and DequantizeLinear, a scale to each channel."""
    bits = np.random.default_rng(0)
    scales = (np.abs(bits.normal(0.01, 0.002, 512)) + 1e-4).astype(np.float32)
    weights: dict[str, npt.NDArray[Any]] = {
        "w": np.clip(bits.normal(0, 30, (512, 16, 1, 1)), -127, 127).astype(np.int8),
        "ws": scales,
        "wz": np.zeros(512, np.int8),
        "b": bits.integers(-5000, 5000, 512).astype(np.int32),
        # ONNX Runtime makes one kernel of it only if these are the product of the other scales.
        "bs": scales * np.float32(0.02),
        "bz": np.zeros(512, np.int32),
        "s": np.array(0.02, np.float32),
        "z": np.array(128, np.uint8),
    }
    return parse(
        """g (float[N, 16, 8, 8] x) => (float[N, 512, 8, 8] y) {
            xq = QuantizeLinear (x, s, z)
            xd = DequantizeLinear (xq, s, z)
            wd = DequantizeLinear <axis = 0> (w, ws, wz)
            bd = DequantizeLinear <axis = 0> (b, bs, bz)
            c = Conv (xd, wd, bd)
            cq = QuantizeLinear (c, s, z)
            y = DequantizeLinear (cq, s, z)
        }""",
        weights,
    )


def four_bits() -> onnx.ModelProto:
    """Weights of 4 bits: in ONNX's own type, signed and not, and packed into bytes."""
    bits = np.random.default_rng(0)
    model = parse(
        """g (float[N, 128] x) => (float[N, 96] y) {
            wd = DequantizeLinear <axis = 0, block_size = 32> (w, ws)
            ud = DequantizeLinear <axis = 0, block_size = 32> (u, ws, uz)
            wu = Add (wd, ud)
            a = MatMul (x, wu)
            b = com.microsoft.MatMulNBits <K = 128, N = 96, bits = 4, block_size = 32> (x, n, ns)
            y = Add (a, b)
        }""",
        {
            "ws": (np.abs(bits.normal(0.01, 0.002, (4, 96))) + 1e-4).astype(np.float32),
            "n": bits.integers(0, 256, (96, 4, 16)).astype(np.uint8),
            "ns": (np.abs(bits.normal(0.01, 0.002, (96, 4))) + 1e-4).astype(np.float32),
        },
        opset=21,
    )
    model.ir_version = 10
    signed = np.clip(bits.normal(0, 2.5, (128, 96)).round(), -8, 7)
    unsigned = np.clip(bits.normal(8, 2.5, (128, 96)).round(), 0, 15)
    points = np.full((4, 96), 8)
    for name, values, dtype in (
        ("w", signed, ml_dtypes.int4),
        ("u", unsigned, ml_dtypes.uint4),
        ("uz", points, ml_dtypes.uint4),
    ):
        model.graph.initializer.append(tensor_of(values.astype(dtype), name))
    return model


def cast_from(dtype: npt.DTypeLike, opset: int = 21) -> Callable[[], onnx.ModelProto]:
    """A weight of a type that is cast before it is multiplied with."""

    def build() -> onnx.ModelProto:
        model = parse(
            """g (float[N, 64] x) => (float[N, 80] y) {
                c = Cast <to = 1> (w)
                y = MatMul (x, c)
            }""",
            {"w": trained(64, 80, deviation=0.5).astype(dtype)},
            opset=opset,
        )
        model.ir_version = 10
        return model

    return build


def of_type(dtype: str) -> Callable[[], onnx.ModelProto]:
    name = {"float64": "double"}.get(dtype, dtype)
    return lambda: parse(
        f"g ({name}[N, 64] x) => ({name}[N, 80] y) {{ m = MatMul (x, w)  y = Add (m, b) }}",
        {"w": trained(64, 80).astype(dtype), "b": trained(80).astype(dtype)},
    )


def nested() -> onnx.ModelProto:
    """Weights in bodies, in a function, in Constant nodes, made by nodes, and shared by two."""
    model = parse(
        """g (bool c, float[N, 40] x) => (float[N, 40] y) {
            k = Constant <value = float[40] {1}> ()
            s = ConstantOfShape <value = float[1] {0.25}> (shape)
            h = If (c) <
                then_branch = t () => (u) { u = MatMul (x, w) },
                else_branch = e () => (v) { r = MatMul (x, w)  v = MatMul (r, inner) }
            >
            hs = MatMul (h, s)
            hk = Mul (hs, k)
            y = custom.scaled (hk)
        }""",
        {"w": trained(40, 40), "shape": np.array([40, 40])},
    )
    (constant,) = (n for n in model.graph.node if n.output[0] == "k")
    (attribute,) = constant.attribute
    attribute.t.CopyFrom(numpy_helper.from_array(trained(1, 40, seed=2)))
    (branches,) = (n for n in model.graph.node if n.op_type == "If")
    otherwise = next(a.g for a in branches.attribute if a.name == "else_branch")
    otherwise.initializer.append(numpy_helper.from_array(trained(40, 40, seed=3), "inner"))
    nodes = [
        helper.make_node("Constant", [], ["f"], value=numpy_helper.from_array(trained(40, 40))),
        helper.make_node(
            "Constant", [], ["l"], value_floats=[float(v) for v in trained(1, 1000)[0]]
        ),
        helper.make_node("ReduceMean", ["l"], ["lm"], keepdims=0),
        helper.make_node("MatMul", ["a", "f"], ["af"]),
        helper.make_node("Add", ["af", "lm"], ["r"]),
    ]
    model.functions.append(
        helper.make_function("custom", "scaled", ["a"], ["r"], nodes, model.opset_import)
    )
    return model


def sparse(rank: int = 1, nonzeros: int = 9000) -> onnx.ModelProto:
    """A weight of which only the values that are not zero are stored."""
    model = parse("g (float[N, 200] x) => (float[N, 300] y) { y = MatMul (x, w) }")
    generator = np.random.default_rng(0)
    places = np.sort(generator.choice(200 * 300, nonzeros, replace=False)).astype(np.int64)
    indices = places if rank == 1 else np.stack(np.divmod(places, 300), axis=1)
    values = generator.normal(0, 0.1, nonzeros).astype(np.float32)
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            numpy_helper.from_array(values, "w"),
            numpy_helper.from_array(np.ascontiguousarray(indices)),
            [200, 300],
        )
    )
    return model


def typed_fields() -> onnx.ModelProto:
    """Weights that are not in raw_data: packed floats, and others with a number to an element."""
    model = parse(
        """g (float[N, 64] x) => (float[N, 80] y) {
            c = Cast <to = 1> (h)
            m = MatMul (x, w)
            d = MatMul (x, c)
            y = Add (m, d)
        }"""
    )
    floats = trained(64, 80)
    halves = trained(64, 80, seed=1).astype(np.float16)
    for name, kind, values in (
        ("w", TensorProto.FLOAT, floats),
        ("h", TensorProto.FLOAT16, halves),
    ):
        stored = helper.make_tensor(name, kind, [64, 80], values.reshape(-1).tolist())
        assert not stored.raw_data
        model.graph.initializer.append(stored)
    return model


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "convolutions": convolutions, "transformer": transformer, "quantized": quantized,
    "4 bits": four_bits, "float16": of_type("float16"), "float64": of_type("float64"),
    "bfloat16": cast_from(ml_dtypes.bfloat16), "float8": cast_from(ml_dtypes.float8_e4m3fn),
    "nested": nested, "sparse": sparse, "sparse, places in coordinates": lambda: sparse(2),
    "typed fields": typed_fields,
}  # fmt: skip
