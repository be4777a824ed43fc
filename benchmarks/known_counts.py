"""Models whose right count is known by hand: the light models of onnx, and one small one per trap.

MACs are the multiply-accumulates of contractions. Where the small models have nothing else in
them, the one figure of onnx_tool (MACs and weighted elementwise operations together) has to be
the same; the models that other tools stumble over as a whole hold a MatMul of known size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper, parser

Array: TypeAlias = npt.NDArray[np.generic]
Figure: TypeAlias = Literal["macs", "total_ops", "params", "sparsity"]


@dataclass(frozen=True, slots=True)
class LightModel:
    """One of the models that the onnx package carries for its own tests, and its right counts."""

    name: str
    macs: int
    params: int

    @property
    def path(self) -> Path:
        return light_model(self.name)


def light_model(name: str) -> Path:
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"


# Params hold running statistics, which are trained, and whatever else is stored as a weight.
LIGHT_MODELS = (
    LightModel("bvlc_alexnet", 654_560_384, 60_965_224),
    LightModel("densenet121", 2_834_161_664, 8_146_152),
    LightModel("inception_v1", 1_431_556_352, 6_998_552),
    LightModel("inception_v2", 2_018_851_840, 11_234_792),
    LightModel("resnet50", 4_089_184_256, 25_610_152),
    LightModel("shufflenet", 124_664_528, 1_420_152),
    LightModel("squeezenet", 349_151_936, 1_235_496),
    LightModel("vgg19", 19_632_062_464, 143_667_240),
    LightModel("zfnet512", 1_481_727_008, 87_250_536),
)


@dataclass(frozen=True, slots=True)
class Trap:
    """One small model, and the one figure of it that is asked for.

    With `at_least`, any figure from there on is right. A `mixed` model has other work beside its
    contractions: who has but one figure for both is right with any that is not less.
    """

    name: str
    figure: Figure
    right: int | str
    graph: str
    weights: Mapping[str, Array] = field(default_factory=dict)
    opset: int = 21
    at_least: bool = False
    mixed: bool = False

    def write(self, path: Path) -> None:
        domains = f'"" : {self.opset}, "local" : 1, "com.microsoft" : 1'
        model = parser.parse_model(f"<ir_version: 10, opset_import: [{domains}]>\n{self.graph}")
        model.graph.initializer.extend(
            numpy_helper.from_array(values, name) for name, values in self.weights.items()
        )
        path.write_bytes(model.SerializeToString())

    def is_right(self, found: int | str | None, *, one_figure: bool) -> bool:
        if self.at_least or (self.mixed and one_figure):
            return isinstance(found, int) and isinstance(self.right, int) and found >= self.right
        return found == self.right


def traps() -> tuple[Trap, ...]:
    """Each with its count worked out beside it."""
    return (
        # Each input element meets a whole kernel
        Trap("ConvTranspose 64 to 32, 4x4, stride 2, on 16x16", "macs", 64 * 32 * 4 * 4 * 16 * 16,
             """g (float[1,64,16,16] x) => (float[1,32,32,32] y) {
                y = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w) }""",
             {"w": _ones(64, 32, 4, 4)}),
        Trap("MatMul with a 1-D right side", "macs", 8 * 16,
             "g (float[8,16] x) => (float[8] y) { y = MatMul(x, w) }",
             {"w": _ones(16)}),
        # Each of the results looks at its window
        Trap("MaxPool 2x2x2", "total_ops", 4 * 4**3 * 2**3,
             """g (float[1,4,8,8,8] x) => (float[1,4,4,4,4] y) {
                y = MaxPool<kernel_shape = [2, 2, 2], strides = [2, 2, 2]>(x) }"""),
        # Steps, batch, gates, (input + hidden) x hidden
        Trap("LSTM without bias", "macs", 5 * 2 * 4 * (3 * 4 + 4 * 4),
             """g (float[5,2,3] x) => (float[5,1,2,4] y) {
                y = LSTM<hidden_size = 4>(x, w, r) }""",
             {"w": _ones(1, 16, 3), "r": _ones(1, 16, 4)}, mixed=True),
        Trap("GRU in both directions", "macs", 2 * 5 * 2 * 3 * (3 * 4 + 4 * 4),
             """g (float[5,2,3] x) => (float[5,2,2,4] y) {
                y = GRU<hidden_size = 4, direction = "bidirectional">(x, w, r, b) }""",
             {"w": _ones(2, 12, 3), "r": _ones(2, 12, 4), "b": _ones(2, 24)}, mixed=True),
        Trap("RNN", "macs", 5 * 2 * (3 * 4 + 4 * 4),
             "g (float[5,2,3] x) => (float[5,1,2,4] y) { y = RNN<hidden_size = 4>(x, w, r) }",
             {"w": _ones(1, 4, 3), "r": _ones(1, 4, 4)}, mixed=True),
        Trap("Einsum ...ij,...jk->...ik", "macs", 2 * 3 * 4 * 5 * 6,
             """g (float[2,3,4,5] a, float[2,3,5,6] b) => (float[2,3,4,6] y) {
                y = Einsum<equation = "...ij,...jk->...ik">(a, b) }"""),
        # Two products, the first result is 2x4
        Trap("Einsum of three operands", "macs", 2 * 3 * 4 + 2 * 4 * 5,
             """g (float[2,3] a, float[3,4] b, float[4,5] c) => (float[2,5] y) {
                y = Einsum<equation = "ij,jk,kl->il">(a, b, c) }"""),
        Trap("QLinearMatMul, batch broadcast from 1 to 3", "macs", 3 * 4 * 5 * 8,
             """g (uint8[1,4,5] a) => (uint8[3,4,8] y) {
                y = QLinearMatMul(a, s, z, b, s, z, s, z) }""",
             {"b": np.ones((3, 5, 8), np.uint8), "s": _scalar(1.0), "z": np.array(0, np.uint8)},
             mixed=True),
        Trap("Erf of 1,000 elements", "total_ops", 1000,
             "g (float[1000] x) => (float[1000] y) { y = Erf(x) }", at_least=True),
        Trap("x squared by Pow, 1,000 elements", "total_ops", 1000,  # one multiplication each
             "g (float[1000] x) => (float[1000] y) { y = Pow(x, two) }",
             {"two": _scalar(2.0)}),
        Trap("a learned scalar", "params", 1,
             "g (float[8] x) => (float[8] y) { y = Mul(x, scale) }",
             {"scale": _scalar(0.7)}),
        Trap("an embedding, 100 x 16", "params", 100 * 16,
             """g (int64[1,8] ids) => (float[1,8,16] y) {
                e = Gather(table, ids)
                y = Relu(e) }""",
             {"table": _ones(100, 16)}),
        Trap("a weight that a node makes by ConstantOfShape", "params", 16 * 8,
             """g (float[2,16] x) => (float[2,8] y) {
                w = ConstantOfShape<value = float[1] {1.0}>(shape)
                y = MatMul(x, w) }""",
             {"shape": np.array([16, 8], np.int64)}),
        Trap("a weight that two nodes use", "params", 16 * 16,
             "g (float[2,16] x) => (float[2,16] y) { h = MatMul(x, w)  y = MatMul(h, w) }",
             {"w": _ones(16, 16)}),
        _after_matmul("a local function", "y = local.wrap(h)", _WRAP_FUNCTION),
        _after_matmul(
            "GroupNormalization",
            "y = GroupNormalization<num_groups = 2>(h, s, s)",
            weights={"s": _ones(4)}),
        _after_matmul(
            "RMSNormalization", "y = RMSNormalization(h, s)", weights={"s": _ones(4)}, opset=23
        ),
        _after_matmul("Mish", "y = Mish(h)"),
        _after_matmul("Selu", "y = Selu(h)"),
        _after_matmul("Celu", "y = Celu(h)"),
        _after_matmul("Mean", "y = Mean(h, h)"),
        Trap("GlobalMaxPool, after a Conv", "macs", 4 * 8 * 4 * 4,
             """g (float[1,8,4,4] x) => (float[1,4,1,1] y) {
                h = Conv(x, w)
                y = GlobalMaxPool(h) }""",
             {"w": _ones(4, 8, 1, 1)}, mixed=True),
        _after_matmul("ReduceLogSumExp", "y = ReduceLogSumExp(h)"),
        _after_matmul("ArgMin", "y = ArgMin(h)"),
        Trap("DynamicQuantizeLinear and MatMulInteger", "macs", 2 * 8 * 4,
             """g (float[2,8] x) => (int32[2,4] y) {
                q, s, z = DynamicQuantizeLinear(x)
                y = MatMulInteger(q, w, z) }""",
             {"w": np.ones((8, 4), np.int8)}),
        Trap("a Loop of 5 trips around a MatMul", "macs", 5 * 2 * 8 * 8,
             """g (float[2,8] x) => (float[2,8] y) {
                y = Loop<body = b (int64 i, bool go, float[2,8] a) => (bool on, float[2,8] c) {
                    on = Identity(go)
                    c = MatMul(a, w) }>(trips, always, x) }""",
             {
                "w": _ones(8, 8),
                "trips": np.array(5, np.int64),
                "always": np.array(True),  # noqa: FBT003  # a value, not a switch
            }),
        # Q K and P V, each 2 heads of 4 x 4 x 8
        Trap("Attention with 2 heads", "macs", 2 * (2 * 4 * 4 * 8),
             """g (float[1,2,4,8] q, float[1,2,4,8] k, float[1,2,4,8] v) => (float[1,2,4,8] y) {
                y = Attention(q, k, v) }""", opset=23),
        Trap("FusedConv of com.microsoft", "macs", 4 * 8 * 8 * 8,
             """g (float[1,8,8,8] x) => (float[1,4,8,8] y) {
                y = com.microsoft.FusedConv<activation = "Relu">(x, w) }""",
             {"w": _ones(4, 8, 1, 1)}),
        Trap("MatMulNBits of com.microsoft, 4 bits", "macs", 2 * 32 * 16,
             """g (float[2,32] x) => (float[2,16] y) {
                y = com.microsoft.MatMulNBits<K = 32, N = 16, bits = 4, block_size = 32>(x, w, s)
            }""",
             {"w": np.ones((16, 1, 16), np.uint8), "s": _ones(16)}),
        Trap("a symbolic batch, taken as 1", "macs", 8 * 4,
             "g (float[N,8] x) => (float[N,4] y) { y = MatMul(x, w) }",
             {"w": _ones(8, 4)}),
        _sparse("weights of which a random 90 % is zero", "90% as 1x1", _scattered_zeros()),
        _sparse("2:4 sparse weights", "50% as 2:4", _two_of_four()),
    )  # fmt: skip


_WRAP_FUNCTION = """
<domain: "local", opset_import: ["" : 21]>
wrap (a) => (b) { b = Identity(a) }
"""


def _after_matmul(
    name: str,
    line: str,
    functions: str = "",
    weights: Mapping[str, Array] | None = None,
    opset: int = 21,
) -> Trap:
    """A MatMul of 2x8 and 8x4, then a line that makes `y` of its result `h`."""
    graph = f"g (float[2,8] x) => (y) {{ h = MatMul(x, w)  {line} }}{functions}"
    weights = {"w": _ones(8, 4), **(weights or {})}
    return Trap(f"{name}, after a MatMul", "macs", 2 * 8 * 4, graph, weights, opset, mixed=True)


def _sparse(name: str, right: str, weights: Array) -> Trap:
    graph = "g (float[1,128] x) => (float[1,128] y) { y = MatMul(x, w) }"
    return Trap(name, "sparsity", right, graph, {"w": weights})


def _scattered_zeros() -> Array:
    """128 x 128 with 90 % of zeros, as near as that comes out whole."""
    values = np.ones(128 * 128, np.float32)
    values[: round(0.9 * values.size)] = 0
    return np.random.default_rng(0).permutation(values).reshape(128, 128)


def _two_of_four() -> Array:
    """128 x 128, with two zeros at random places in every four along the inner dimension."""
    order = np.random.default_rng(0).random((128, 32, 4)).argsort(axis=-1)
    return np.ascontiguousarray((order < 2).astype(np.float32).reshape(128, 128).T)


def _ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def _scalar(value: float) -> Array:
    return np.array(value, np.float32)
