"""Writes the small models of the examples, the same ones each time.

python make_models.py FOLDER                   classifier.onnx and encoder.onnx
python make_models.py FOLDER --act HardSwish   the same with a slower activation
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

# HardSwish as old exporters write it: four nodes that run one by one, where a Relu runs inside of
# the Conv before it.
ACTIVATIONS = {
    "Relu": ["[{name}] {out} = Relu({x})"],
    "HardSwish": [
        "[{name}_add] {out}_add = Add({x}, three)",
        "[{name}_clip] {out}_clip = Clip({out}_add, zero, six)",
        "[{name}_mul] {out}_mul = Mul({x}, {out}_clip)",
        "[{name}] {out} = Div({out}_mul, six)",
    ],
}
NUMBERS = {"zero": 0, "three": 3, "six": 6}


def classifier(act: str) -> onnx.ModelProto:
    """Four convolutions with their activations, and a linear layer."""
    random = np.random.default_rng(seed=1)
    weights = {"w_out": random.normal(0, 0.1, (32, 10))}
    nodes, x = [], "image"
    for block in range(4):
        channels = 3 if block == 0 else 32
        weights[f"w{block}"] = random.normal(0, 0.1, (32, channels, 3, 3))
        nodes += [f"[conv{block}] c{block} = Conv<pads = [1,1,1,1]>({x}, w{block})"]
        nodes += activation(act, f"c{block}", f"a{block}", f"{act.lower()}{block}")
        x = f"a{block}"
    nodes += [f"[pool] p = GlobalAveragePool({x})", "[flatten] f = Flatten(p)"]
    nodes += ["[linear] scores = MatMul(f, w_out)"]
    return model(
        "classifier (float[batch,3,32,32] image) => (float[batch,10] scores)", nodes, weights
    )


def encoder(act: str) -> onnx.ModelProto:
    """Tokens to vectors, and two layers that widen and narrow them."""
    random = np.random.default_rng(seed=2)
    weights = {"table": random.normal(0, 0.1, (100, 64))}
    nodes, x = ["[embed] e = Gather(table, tokens)"], "e"
    for layer in range(2):
        weights[f"wide{layer}"] = random.normal(0, 0.1, (64, 256))
        weights[f"narrow{layer}"] = random.normal(0, 0.1, (256, 64))
        nodes += [f"[wide{layer}] h{layer} = MatMul({x}, wide{layer})"]
        nodes += activation(act, f"h{layer}", f"a{layer}", f"{act.lower()}{layer}")
        nodes += [f"[narrow{layer}] n{layer} = MatMul(a{layer}, narrow{layer})"]
        nodes += [f"[add{layer}] y{layer} = Add({x}, n{layer})"]
        x = f"y{layer}"
    return model(f"encoder (int64[batch,seq] tokens) => (float[batch,seq,64] {x})", nodes, weights)


def activation(act: str, x: str, out: str, name: str) -> list[str]:
    return [node.format(x=x, out=out, name=name) for node in ACTIVATIONS[act]]


def model(head: str, nodes: list[str], weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A model from the text of its nodes."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> {head} {{ {" ".join(nodes)} }}'
    made = onnx.parser.parse_model(text)
    used = {name for node in made.graph.node for name in node.input}
    numbers = {name: np.array(number) for name, number in NUMBERS.items() if name in used}
    for name, values in {**weights, **numbers}.items():
        made.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    onnx.checker.check_model(made)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--act", choices=ACTIVATIONS, default="Relu")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for make in (classifier, encoder):
        onnx.save(make(arguments.act), arguments.folder / f"{make.__name__}.onnx")


if __name__ == "__main__":
    main()
