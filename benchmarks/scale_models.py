"""Graphs of many thousand nodes in two shapes, and the changes that two of them are compared by.

Names are such as exporters write. Those of a chain were chosen, so that a layer is told by its
name; those of attention are counted up, so that a layer that is put in shifts all behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from draft import Draft

CHANGED = 50

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

    A Conv comes before the first and after the last, so that all channels in between can go.
    """
    draft = Draft(recipe.seed)
    scale = draft.store(np.full(1, 0.5, np.float32), "scale")
    prefix = "trunk/unit" if recipe.is_renamed else "stages/block"
    # A block that is put in has a name of its own, and leaves the others theirs.
    names = [f"{prefix}{index}" for index in range(-(-recipe.nodes // _CHAIN_NODES))]
    if recipe.has_inserted:
        names.insert(len(names) // 2, f"{prefix}_more")
    last = _conv(draft, "stem", "x")
    for name, activation in zip(names, recipe.blocks(_CHAIN_NODES), strict=True):
        active = draft.add(activation, _conv(draft, name, last), name=f"{name}/act")
        scaled = draft.add("Mul", active, scale, name=f"{name}/scale")
        added = draft.add("Add", scaled, last, name=f"{name}/add")
        last = draft.add("Sigmoid", added, name=f"{name}/gate")
    model = draft.model(_conv(draft, "head", last), ["N", _CHANNELS, _SIDE, _SIDE])
    path.write_bytes(model.SerializeToString())


def _conv(draft: Draft, name: str, taken: str) -> str:
    kernel = draft.drawn(_CHANNELS, _CHANNELS, 3, 3, scale=0.1, name=f"{name}/kernel")
    return draft.add("Conv", taken, kernel, name=f"{name}/conv", pads=[1, 1, 1, 1])


def write_attention(recipe: Recipe, path: Path) -> None:
    """Identical layers of four heads next to each other, and two products after them."""
    draft, counted = Draft(recipe.seed), Counter[str]()
    scale = draft.store(np.full(1, (_WIDTH // _HEADS) ** -0.5, np.float32), "scale")

    def node(op: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401  # as make_node
        counted[op] += 1
        number = counted[op]
        name = f"{op.lower()}/{number}" if recipe.is_renamed else f"/{op}_{number}"
        return draft.add(op, *inputs, name=name, **attributes)

    def product(left: str, width: int) -> str:
        number = len(draft.weights)
        name = f"w.{number}" if recipe.is_renamed else f"onnx::MatMul_{number}"
        return node("MatMul", left, draft.drawn(_WIDTH, width, scale=0.1, name=name))

    def head(taken: str) -> str:
        query, key, value = (product(taken, _WIDTH // _HEADS) for _ in range(3))
        turned = node("Transpose", key, perm=[0, 2, 1])
        scores = node("Mul", node("MatMul", query, turned), scale)
        return node("MatMul", node("Softmax", scores, axis=-1), value)

    last = "x"
    for activation in recipe.blocks(_ATTENTION_NODES):
        joined = node("Concat", *(head(last) for _ in range(_HEADS)), axis=-1)
        mixed = node("Add", product(joined, _WIDTH), last)
        active = node(activation, product(mixed, _WIDTH))
        centered = node("Sub", active, node("ReduceMean", active, axes=[-1], keepdims=1))
        last = node("Add", product(centered, _WIDTH), mixed)
    path.write_bytes(draft.model(last, ["N", _LENGTH, _WIDTH]).SerializeToString())


SHAPES: Mapping[str, Callable[[Recipe, Path], None]] = {
    "chain": write_chain,
    "attention": write_attention,
}
