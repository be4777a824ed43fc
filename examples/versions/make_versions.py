"""Writes two pairs of models to compare, the same ones each time.

python make_versions.py FOLDER

classifier-fp32.onnx, classifier-int8.onnx   a residual network, and the same quantized
encoder-v1.onnx, encoder-v2.onnx             a transformer, and the same with another activation
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

IMAGE, CLASSES = 96, 100
WIDTHS = (32, 64, 128)
HIDDEN, HEADS, LAYERS, WORDS = 128, 4, 4, 1000

# Erf is what exporters write for an exact GELU: an engine puts it back together. The approximation
# by tanh stays in pieces, each of which goes through memory once.
GELU = {
    "exact": """
        {n}_d = Div({x}, sqrt2) {n}_e = Erf({n}_d) {n}_p = Add({n}_e, one)
        {n}_m = Mul({x}, {n}_p) {n} = Mul({n}_m, half)""",
    "tanh": """
        {n}_c = Pow({x}, three) {n}_s = Mul({n}_c, cubic) {n}_a = Add({x}, {n}_s)
        {n}_f = Mul({n}_a, scale) {n}_t = Tanh({n}_f) {n}_p = Add({n}_t, one)
        {n}_m = Mul({x}, {n}_p) {n} = Mul({n}_m, half)""",
}
NUMBERS = {
    "sqrt2": 2**0.5,
    "one": 1,
    "half": 0.5,
    "three": 3,
    "cubic": 0.044715,
    "scale": (2 / np.pi) ** 0.5,
}


class Weights:
    """Random weights by their names, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.stored: dict[str, np.ndarray] = {}

    def make(self, name: str, *shape: int) -> str:
        fan_in = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        self.stored[name] = self.random.normal(0, (2 / fan_in) ** 0.5, shape)
        return name


def classifier() -> onnx.ModelProto:
    """Three stages of two residual blocks each, and a linear layer."""
    weights, nodes, x, channels = Weights(seed=1), [], "image", 3
    nodes += conv(weights, "stem", x, channels, WIDTHS[0], stride=2)
    x, channels = "stem", WIDTHS[0]
    for stage, width in enumerate(WIDTHS):
        for block in range(2):
            name = f"stage{stage}_block{block}"
            stride = 2 if block == 0 and stage else 1
            nodes += conv(weights, f"{name}_a", x, channels, width, stride)
            nodes += conv(weights, f"{name}_b", f"{name}_a", width, width, act=False)
            short = x
            if (channels, stride) != (width, 1):
                short = f"{name}_short"
                nodes += conv(weights, short, x, channels, width, stride, kernel=1, act=False)
            nodes += [f"{name}_sum = Add({name}_b, {short})", f"{name} = Relu({name}_sum)"]
            x, channels = name, width
    weights.make("w_out", channels, CLASSES)
    nodes += [f"pool = GlobalAveragePool({x})", "flat = Flatten(pool)"]
    nodes += ["scores = MatMul(flat, w_out)"]
    head = f"(float[batch,3,{IMAGE},{IMAGE}] image) => (float[batch,{CLASSES}] scores)"
    return model(f"classifier {head}", nodes, weights)


def conv(  # noqa: PLR0913, PLR0917  # as many as a convolution has
    weights: Weights,
    name: str,
    x: str,
    channels: int,
    width: int,
    stride: int = 1,
    kernel: int = 3,
    *,
    act: bool = True,
) -> list[str]:
    weight = weights.make(f"{name}_w", width, channels, kernel, kernel)
    pad = kernel // 2
    out = f"{name}_conv" if act else name
    pads, strides = f"[{pad},{pad},{pad},{pad}]", f"[{stride},{stride}]"
    nodes = [f"{out} = Conv<pads = {pads}, strides = {strides}>({x}, {weight})"]
    return [*nodes, f"{name} = Relu({out})"] if act else nodes


def encoder(gelu: str) -> onnx.ModelProto:
    """Four layers of attention and two products with an activation in between."""
    weights, x = Weights(seed=2), "embed"
    weights.make("words", WORDS, HIDDEN)
    nodes = ["embed = Gather(words, tokens)"]
    split = {"heads": [0, 0, HEADS, HIDDEN // HEADS], "joined": [0, 0, HIDDEN]}
    for layer in range(LAYERS):
        n = f"layer{layer}"
        for part in "qkv":
            weights.make(f"{n}_w{part}", HIDDEN, HIDDEN)
            order = "[0,2,3,1]" if part == "k" else "[0,2,1,3]"
            nodes += [
                f"{n}_{part}1 = MatMul({x}, {n}_w{part})",
                f"{n}_{part}2 = Reshape({n}_{part}1, heads)",
                f"{n}_{part} = Transpose<perm = {order}>({n}_{part}2)",
            ]
        weights.make(f"{n}_wo", HIDDEN, HIDDEN)
        weights.make(f"{n}_wide", HIDDEN, 4 * HIDDEN)
        weights.make(f"{n}_narrow", 4 * HIDDEN, HIDDEN)
        weights.stored[f"{n}_norm1"] = weights.stored[f"{n}_norm2"] = np.ones(HIDDEN)
        nodes += [
            f"{n}_score = MatMul({n}_q, {n}_k)",
            f"{n}_soft = Softmax<axis = -1>({n}_score)",
            f"{n}_mix = MatMul({n}_soft, {n}_v)",
            f"{n}_back = Transpose<perm = [0,2,1,3]>({n}_mix)",
            f"{n}_joined = Reshape({n}_back, joined)",
            f"{n}_out = MatMul({n}_joined, {n}_wo)",
            f"{n}_sum1 = Add({x}, {n}_out)",
            f"{n}_y = LayerNormalization<axis = -1>({n}_sum1, {n}_norm1)",
            f"{n}_up = MatMul({n}_y, {n}_wide)",
            GELU[gelu].format(n=f"{n}_gelu", x=f"{n}_up"),
            f"{n}_down = MatMul({n}_gelu, {n}_narrow)",
            f"{n}_sum2 = Add({n}_y, {n}_down)",
            f"{n} = LayerNormalization<axis = -1>({n}_sum2, {n}_norm2)",
        ]
        x = n
    head = f"(int64[batch,seq] tokens) => (float[batch,seq,{HIDDEN}] {x})"
    return model(f"encoder {head}", nodes, weights, split)


def model(
    head: str, nodes: list[str], weights: Weights, shapes: dict[str, list[int]] | None = None
) -> onnx.ModelProto:
    """A model from the text of its nodes."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> {head} {{ {" ".join(nodes)} }}'
    made = onnx.parser.parse_model(text)
    for node in made.graph.node:
        node.name = node.output[0]
    used = {name for node in made.graph.node for name in node.input}
    numbers = {name: np.array(number) for name, number in NUMBERS.items() if name in used}
    for name, values in {**weights.stored, **numbers}.items():
        made.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    for name, sizes in (shapes or {}).items():
        made.graph.initializer.append(numpy_helper.from_array(np.array(sizes), name))
    onnx.checker.check_model(made)
    return made


class Images(CalibrationDataReader):
    """What the ranges of activations are looked up with: noise, from a seed."""

    def __init__(self) -> None:
        random = np.random.default_rng(seed=3)
        images = (random.normal(size=(1, 3, IMAGE, IMAGE)).astype(np.float32) for _ in range(8))
        self.feeds: Iterator[dict[str, np.ndarray]] = ({"image": image} for image in images)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


def quantize(path: Path, to: Path) -> None:
    """The model in 8 bits, by ONNX Runtime's own tool.

    It advises to prepare the model first, which brings nothing here: the shapes are inferred, and
    there is no batch normalization left to fold.
    """
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        shaped = Path(folder) / "shaped.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(onnx.load(path)), shaped)
        quantize_static(
            shaped,
            to,
            Images(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(classifier(), folder / "classifier-fp32.onnx")
    quantize(folder / "classifier-fp32.onnx", folder / "classifier-int8.onnx")
    onnx.save(encoder("exact"), folder / "encoder-v1.onnx")
    onnx.save(encoder("tanh"), folder / "encoder-v2.onnx")
    print(f"wrote 4 models to {folder}")  # noqa: T201  # a script


if __name__ == "__main__":
    main()
