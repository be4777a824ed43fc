"""Channels that are zero can go: without them a model computes the same.

Random small networks are narrowed; whatever goes is then set to zero in the model as it was, where
it is made: rows of kernels, columns of matrices, biases, scales and shifts. The narrowed model of
that has to give the same outputs as that model itself. Any place that is mistaken for another
shows, for then a channel that counts is taken out, or meets the weights of its neighbour.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from pytest_modelperf.whatif.narrowing import write_narrowed
from pytest_modelperf.whatif.narrowing.narrow import select_channels
from tests.support.graph_models import load
from tests.whatif.test_narrowing import run

Draw: TypeAlias = st.DrawFn
Block: TypeAlias = "Callable[[Net, Draw, str], str]"


class Net:
    """A network while it grows: the names and the widths of its values."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.widths: dict[str, int] = {"x": 3}
        self.count = 0

    def weight(self, *shape: int, low: float = 0.1) -> str:
        """A stored weight, no element of which is near zero."""
        signs = self.rng.choice([-1.0, 1.0], shape)
        return self.store(signs * self.rng.uniform(low, 0.6, shape))

    def store(self, values: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def add(self, op: str, *inputs: str, width: int = 0, **attributes: Any) -> str:  # noqa: ANN401  # make_node takes them so
        self.count += 1
        name = f"t{self.count}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        self.widths[name] = width or self.widths[inputs[0]]
        return name

    def conv(self, x: str, width: int, kernel: int = 1, groups: int = 1) -> str:
        weight = self.weight(width, self.widths[x] // groups, kernel, kernel)
        pads = [kernel // 2] * 4
        bias = self.weight(width)
        return self.add("Conv", x, weight, bias, width=width, pads=pads, group=groups)

    def norm(self, x: str) -> str:
        width = self.widths[x]
        scale, shift = self.weight(width), self.weight(width)
        mean, variance = self.store(np.zeros(width)), self.store(self.rng.uniform(0.5, 2, width))
        return self.add("BatchNormalization", x, scale, shift, mean, variance)

    def model(self, y: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info("x", 1, [2, 3, 4, 4])],
            [helper.make_tensor_value_info(y, 1, None)], self.weights,
        )  # fmt: skip
        return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])


def _plain(net: Net, draw: Draw, x: str) -> str:
    y = net.conv(x, draw(st.integers(2, 20)), draw(st.sampled_from([1, 3])))
    if draw(st.booleans()):
        y = net.norm(y)
    return net.add(draw(st.sampled_from(["Relu", "Tanh", "HardSwish", "LeakyRelu"])), y)


def _residual(net: Net, draw: Draw, x: str) -> str:
    inner = _plain(net, draw, x)
    return net.add("Add", net.conv(inner, net.widths[x], 3), x)


def _depthwise(net: Net, draw: Draw, x: str) -> str:
    width = net.widths[x]
    return net.conv(x, width * draw(st.integers(1, 2)), 3, groups=width)


def _grouped(net: Net, draw: Draw, x: str) -> str:
    groups = draw(st.integers(2, 4))
    y = net.conv(x, groups * draw(st.integers(2, 6)), 1)
    return net.add("Relu", net.conv(y, groups * draw(st.integers(2, 6)), 3, groups=groups))


def _shuffled(net: Net, draw: Draw, x: str) -> str:
    groups, each = draw(st.integers(2, 4)), draw(st.integers(2, 6))
    width = groups * each
    y = net.conv(net.conv(x, width, 1), width, 1, groups=groups)
    apart = net.store([0, groups, each, 4, 4], np.int64)
    y = net.add("Transpose", net.add("Reshape", y, apart), perm=[0, 2, 1, 3, 4])
    y = net.add("Reshape", y, net.store([2, -1, 4, 4], np.int64), width=width)
    return net.conv(y, width, 1, groups=groups)


def _dense(net: Net, draw: Draw, x: str) -> str:
    parts = [x, *(_plain(net, draw, x) for _ in range(draw(st.integers(1, 2))))]
    return net.add("Concat", *parts, axis=1, width=sum(net.widths[p] for p in parts))


def _excited(net: Net, draw: Draw, x: str) -> str:
    squeezed = net.add("Relu", net.conv(net.add("GlobalAveragePool", x), draw(st.integers(1, 8))))
    return net.add("Mul", x, net.add("Sigmoid", net.conv(squeezed, net.widths[x])))


def _skipped(net: Net, draw: Draw, x: str) -> str:
    """Down, up by a transposed convolution, and joined with what was there before."""
    down = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    inner = _plain(net, draw, down)
    width = draw(st.integers(2, 8))
    kernel = net.weight(net.widths[inner], width, 2, 2)
    up = net.add("ConvTranspose", inner, kernel, width=width, strides=[2, 2])
    return net.add("Concat", up, x, axis=1, width=width + net.widths[x])


def _gated(net: Net, draw: Draw, x: str) -> str:
    """Halves of one layer multiplied, taken by Slices."""
    half = draw(st.integers(2, 8))
    both = net.conv(x, 2 * half)
    axis = net.store([1], np.int64)
    bounds = [net.store([bound], np.int64) for bound in (0, half, 2 * half)]
    low = net.add("Slice", both, bounds[0], bounds[1], axis, width=half)
    high = net.add("Slice", both, bounds[1], bounds[2], axis, width=half)
    return net.add("Mul", low, net.add("Tanh", high))


def _attended(net: Net, draw: Draw, x: str) -> str:
    """Attention over the places of an image, with heads, as matrices."""
    heads, size = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    width = net.widths[x]
    flat = net.add("Reshape", x, net.store([2, width, 16], np.int64))
    rows = net.add("Transpose", flat, perm=[0, 2, 1], width=width)
    apart = net.store([2, 16, heads, size], np.int64)
    q, k, v = (
        net.add(
            "Transpose",
            net.add("Reshape", net.add("MatMul", rows, net.weight(width, heads * size)), apart),
            perm=perm,
        )
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = net.add("Softmax", net.add("MatMul", q, k), axis=-1)
    mixed = net.add("Transpose", net.add("MatMul", scores, v), perm=[0, 2, 1, 3])
    joined = net.add("Reshape", mixed, net.store([2, 16, heads * size], np.int64))
    wide = draw(st.integers(2, 9))
    out = net.add("MatMul", joined, net.weight(heads * size, wide), width=wide)
    back = net.add("Transpose", out, perm=[0, 2, 1])
    return net.add("Reshape", back, net.store([2, wide, 4, 4], np.int64))


BLOCKS = (
    _plain, _residual, _depthwise, _grouped, _shuffled, _dense, _excited, _skipped, _gated,
    _attended,
)  # fmt: skip


@st.composite
def networks(draw: Draw, first: Block) -> onnx.ModelProto:
    """A stem, a block and perhaps others, and a classifier over what is flattened."""
    net = Net(draw(st.integers(0, 99)))
    x = _plain(net, draw, "x")
    for block in (first, *draw(st.lists(st.sampled_from(BLOCKS), max_size=2))):
        x = block(net, draw, x)
    flat = net.add("Flatten", x, width=net.widths[x] * 16)
    classes = net.weight(5, net.widths[flat])
    return net.model(net.add("Gemm", flat, classes, net.weight(5), transB=1, width=5))


@pytest.mark.parametrize("block", BLOCKS)
@settings(max_examples=5, derandomize=True)
@given(st.data(), st.sampled_from([0.5, 0.3, 0.8]))
def test_a_model_without_its_zeros_computes_the_same(
    block: Block, data: st.DataObject, share: float
) -> None:
    model = data.draw(networks(block))
    choice = select_channels(load(model), share)
    # A share of a few channels can be zero channels.
    assume(choice.selection.groups)
    plan = choice.plan
    made = {made.weight for made in plan.related.findings.made}
    zeroed = onnx.ModelProto()
    zeroed.CopyFrom(model)
    for tensor in zeroed.graph.initializer:
        values = numpy_helper.to_array(tensor).copy()
        if values.dtype != np.float32:
            continue
        for axis, size in enumerate(values.shape):
            if values.ndim == 1 or (tensor.name, axis) in made:
                gone = np.setdiff1d(np.arange(size), plan.kept(tensor.name, axis))
                values[(slice(None),) * axis + (gone,)] = 0
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "n.onnx"
        result = write_narrowed(load(zeroed), path, share)
        narrowed = onnx.load(str(path))
    onnx.checker.check_model(narrowed, full_check=True)
    assert 0 < result.channels_after < result.channels_before
    (before,), (after,) = run(zeroed), run(narrowed)
    np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-4)
