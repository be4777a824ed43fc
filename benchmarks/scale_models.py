"""Graphs of many thousand nodes in two shapes, and the changes that two of them are compared by.

Names are such as exporters write. Those of a chain were chosen, so that a layer is told by its
name; those of attention are counted up, so that a layer that is put in shifts all behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANGED = 50

Attribute: TypeAlias = "int | Sequence[int]"

_CHANNELS, _SIDE = 4, 4
_LENGTH, _WIDTH, _HEADS = 4, 16, 4
_CHAIN_NODES, _ATTENTION_NODES = 5, 41


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a graph is made of: so many nodes at least, and in what it differs from the first.

    `changed` blocks have another activation, `inserted` says whether one more stands in the middle.
    """

    nodes: int
    seed: int = 0
    changed: int = 0
    is_renamed: bool = False
    has_inserted: bool = False

    def blocks(self, nodes_each: int) -> Sequence[str]:
        """The activation of each block."""
        count = -(-self.nodes // nodes_each)
        activations = ["Relu"] * count
        for index in range(self.changed):
            activations[index * count // self.changed] = "Softplus"
        if self.has_inserted:
            activations.insert(count // 2, "Relu")
        return activations


VARIANTS: Mapping[str, Callable[[Recipe], Recipe]] = {
    "other weights": lambda recipe: replace(recipe, seed=1),
    f"{CHANGED} nodes changed": lambda recipe: replace(recipe, changed=CHANGED),
    "all nodes renamed": lambda recipe: replace(recipe, is_renamed=True),
    "a block put in the middle": lambda recipe: replace(recipe, has_inserted=True),
}


def write_chain(recipe: Recipe, path: Path) -> None:
    """Residual blocks one after the other: Conv 3x3, activation, Mul, Add to its input, Sigmoid.

    Before the first and behind the last stands a Conv, so that all channels in between can go.
    """
    making = _Making(np.random.default_rng(recipe.seed))
    scale = making.weight("scale", np.full((1,), 0.5, np.float32))
    prefix = "trunk/unit" if recipe.is_renamed else "stages/block"
    # A block that is put in has a name of its own, and leaves the others theirs.
    names = [f"{prefix}{index}" for index in range(-(-recipe.nodes // _CHAIN_NODES))]
    if recipe.has_inserted:
        names.insert(len(names) // 2, f"{prefix}_more")
    last = _conv(making, "stem", "x")
    for name, activation in zip(names, recipe.blocks(_CHAIN_NODES), strict=True):
        active = making.node(activation, [_conv(making, name, last)], f"{name}/act")
        scaled = making.node("Mul", [active, scale], f"{name}/scale")
        added = making.node("Add", [scaled, last], f"{name}/add")
        last = making.node("Sigmoid", [added], f"{name}/gate")
    making.write(path, _conv(making, "head", last), (_CHANNELS, _SIDE, _SIDE))


def _conv(making: _Making, name: str, taken: str) -> str:
    kernel = making.random(f"{name}/kernel", _CHANNELS, _CHANNELS, 3, 3)
    return making.node("Conv", [taken, kernel], f"{name}/conv", pads=[1, 1, 1, 1])


def write_attention(recipe: Recipe, path: Path) -> None:
    """Identical layers of four heads that stand side by side, and two products behind them."""
    making = _Making(np.random.default_rng(recipe.seed))
    scale = making.weight("scale", np.full((1,), (_WIDTH // _HEADS) ** -0.5, np.float32))

    def node(op_type: str, inputs: Sequence[str], **attributes: Attribute) -> str:
        number = making.count(op_type)
        name = f"{op_type.lower()}/{number}" if recipe.is_renamed else f"/{op_type}_{number}"
        return making.node(op_type, inputs, name, **attributes)

    def product(left: str, width: int) -> str:
        number = making.count("weight")
        name = f"w.{number}" if recipe.is_renamed else f"onnx::MatMul_{number}"
        return node("MatMul", [left, making.random(name, _WIDTH, width)])

    def head(taken: str) -> str:
        query, key, value = (product(taken, _WIDTH // _HEADS) for _ in range(3))
        turned = node("Transpose", [key], perm=[0, 2, 1])
        scores = node("Mul", [node("MatMul", [query, turned]), scale])
        return node("MatMul", [node("Softmax", [scores], axis=-1), value])

    last = "x"
    for activation in recipe.blocks(_ATTENTION_NODES):
        joined = node("Concat", [head(last) for _ in range(_HEADS)], axis=-1)
        mixed = node("Add", [product(joined, _WIDTH), last])
        active = node(activation, [product(mixed, _WIDTH)])
        centered = node("Sub", [active, node("ReduceMean", [active], axes=[-1], keepdims=1)])
        last = node("Add", [product(centered, _WIDTH), mixed])
    making.write(path, last, (_LENGTH, _WIDTH))


SHAPES: Mapping[str, Callable[[Recipe, Path], None]] = {
    "chain": write_chain,
    "attention": write_attention,
}


@dataclass(slots=True)
class _Making:
    """A graph on its way."""

    draw: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)

    def count(self, what: str) -> int:
        self.counted[what] += 1
        return self.counted[what]

    def node(self, op_type: str, inputs: Sequence[str], name: str, **attributes: Attribute) -> str:
        """The one tensor that the node gives out."""
        output = f"{name}_output_0"
        made = helper.make_node(op_type, inputs, [output], name)
        made.attribute.extend(helper.make_attribute(*each) for each in attributes.items())
        self.nodes.append(made)
        return output

    def random(self, name: str, *shape: int) -> str:
        values = self.draw.normal(0.0, 0.1, shape).astype(np.float32)
        return self.weight(name, values)

    def weight(self, name: str, values: npt.NDArray[np.float32]) -> str:
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def write(self, path: Path, last: str, shape: Sequence[int]) -> None:
        dims: Sequence[int | str] = ("N", *shape)
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n in ("x", last)]
        graph = helper.make_graph(self.nodes, "scale", ends[:1], ends[1:], self.weights)
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        path.write_bytes(model.SerializeToString())
