"""Writes a small decoder as language models are: RMSNorm, rotary positions, grouped heads, a cache.

python make_decoder.py FOLDER                  decoder.onnx
python make_decoder.py FOLDER --layers 5       the same with more layers
python make_decoder.py FOLDER --capacity 128   the same with a cache of a fixed length
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from msgspec import Struct
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
_MAX_POSITIONS = 4096


class DecoderShape(Struct, frozen=True):
    """What decoder to make.

    `capacity` is the length of a static cache; None: the cache grows, named as Optimum names it.
    `last_token_work` and `other_tokens_work` are columns of a product that only the last token or
    only the others pass through: the first weighs in a step, the second in a prefill alone.
    """

    layers: int = 2
    hidden: int = 32
    heads: int = 4
    kv_heads: int = 2
    vocabulary: int = 64
    capacity: int | None = None
    last_token_work: int = 0
    other_tokens_work: int = 0

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


def make_decoder(shape: DecoderShape | None = None, seed: int = 0) -> onnx.ModelProto:
    """The model, with weights from a seed."""
    return _Writer(shape or DecoderShape(), seed).model()


class _Writer:
    """The nodes and weights of one decoder."""

    def __init__(self, shape: DecoderShape, seed: int) -> None:
        self.shape = shape
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.scope = ""

    def model(self) -> onnx.ModelProto:
        shape = self.shape
        is_static = shape.capacity is not None
        seen = shape.capacity if is_static else "past_sequence_length + sequence_length"
        self.take("input_ids", INT64, "batch_size", "sequence_length")
        self.take("attention_mask", INT64, "batch_size", seen)
        self.take("position_ids", INT64, "batch_size", "sequence_length")
        if is_static:
            self.take("cache_position", INT64, "sequence_length")
        embedding = self.weight("embed_tokens", shape.vocabulary, shape.hidden)
        x = self.add("Gather", embedding, "input_ids")
        bias = self.attention_bias()
        cosine, sine = self.rotary_tables()
        for layer in range(shape.layers):
            self.scope = f"layers.{layer}/"
            x = self.add(
                "Add", x, self.attention(layer, self.norm("input_norm", x), bias, cosine, sine)
            )
            x = self.add("Add", x, self.gated(self.norm("post_norm", x)))
        self.scope = ""
        if shape.last_token_work:
            x = self.with_work(x, shape.last_token_work, on_last=True)
        if shape.other_tokens_work:
            x = self.with_work(x, shape.other_tokens_work, on_last=False)
        head = self.weight("lm_head", shape.hidden, shape.vocabulary)
        self.add("MatMul", self.norm("norm", x), head, output="logits")
        self.give("logits", "batch_size", "sequence_length", shape.vocabulary)
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, self.stored)
        opsets = [helper.make_opsetid("", 18)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        onnx.checker.check_model(model)
        return model

    # -- parts

    def norm(self, name: str, x: str) -> str:
        mean = self.add("ReduceMean", self.add("Mul", x, x), self.integers([-1]), keepdims=1)
        root = self.add("Sqrt", self.add("Add", mean, self.constant(np.float32(1e-6))))
        scale = self.constant(np.ones(self.shape.hidden, np.float32), name)
        return self.add("Mul", self.add("Div", x, root), scale)

    def attention(self, layer: int, x: str, bias: str, cosine: str, sine: str) -> str:
        s = self.shape
        size, groups = s.head_size, s.heads // s.kv_heads
        query = self.split_heads(self.product("q_proj", x, s.hidden, s.hidden), s.heads)
        key = self.split_heads(self.product("k_proj", x, s.hidden, s.kv_heads * size), s.kv_heads)
        value = self.split_heads(self.product("v_proj", x, s.hidden, s.kv_heads * size), s.kv_heads)
        query, key = self.rotated(query, cosine, sine), self.rotated(key, cosine, sine)
        key = self.cached(f"{layer}.key", key)
        value = self.cached(f"{layer}.value", value)
        # All heads of a group see the same keys: [batch, kv_heads, group, tokens, size].
        query = self.add("Reshape", query, self.integers([0, s.kv_heads, groups, -1, size]))
        key = self.add(
            "Unsqueeze", self.add("Transpose", key, perm=[0, 1, 3, 2]), self.integers([2])
        )
        value = self.add("Unsqueeze", value, self.integers([2]))
        scores = self.add("MatMul", query, key)
        scores = self.add("Mul", scores, self.constant(np.float32(size**-0.5)))
        seen = self.add("Softmax", self.add("Add", scores, bias), axis=-1)
        mixed = self.add("MatMul", seen, value)
        mixed = self.add("Reshape", mixed, self.integers([0, s.heads, -1, size]))
        joined = self.add("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.add("Reshape", joined, self.integers([0, 0, s.hidden]))
        return self.product("o_proj", joined, s.hidden, s.hidden)

    def gated(self, x: str) -> str:
        hidden, inner = self.shape.hidden, self.shape.hidden * 3
        gate = self.product("gate_proj", x, hidden, inner)
        gate = self.add("Mul", gate, self.add("Sigmoid", gate))
        up = self.product("up_proj", x, hidden, inner)
        return self.product("down_proj", self.add("Mul", gate, up), inner, hidden)

    def split_heads(self, x: str, heads: int) -> str:
        parted = self.add("Reshape", x, self.integers([0, 0, heads, self.shape.head_size]))
        return self.add("Transpose", parted, perm=[0, 2, 1, 3])

    def rotary_tables(self) -> tuple[str, str]:
        """Cosine and sine at each position: [batch, 1, tokens, size]."""
        half = self.shape.head_size // 2
        frequencies = 10_000.0 ** -(np.arange(half) / half)
        angles = np.outer(np.arange(_MAX_POSITIONS), frequencies)
        both = np.concatenate([angles, angles], axis=1).astype(np.float32)
        cosine, sine = (
            self.add(
                "Unsqueeze",
                self.add("Gather", self.constant(table, name), "position_ids"),
                self.integers([1]),
            )
            for name, table in (("cosine", np.cos(both)), ("sine", np.sin(both)))
        )
        return cosine, sine

    def rotated(self, x: str, cosine: str, sine: str) -> str:
        half = self.shape.head_size // 2
        low, high = self.fresh("low"), self.fresh("high")
        self.nodes.append(
            helper.make_node("Split", [x, self.integers([half, half])], [low, high], low, axis=-1)
        )
        turned = self.add("Concat", self.add("Neg", high), low, axis=-1)
        return self.add("Add", self.add("Mul", x, cosine), self.add("Mul", turned, sine))

    def cached(self, name: str, new: str) -> str:
        """The cache with the new entries, which is also an output."""
        s = self.shape
        past, present = f"past_key_values.{name}", f"present.{name}"
        fixed: list[int | str] = ["batch_size", s.kv_heads, s.capacity or "", s.head_size]
        if s.capacity is None:
            grown: list[int | str] = [*fixed]
            fixed[2], grown[2] = "past_sequence_length", "past_sequence_length + sequence_length"
            self.take(past, FLOAT, *fixed)
            self.give(present, *grown)
            return self.add("Concat", past, new, axis=2, output=present)
        self.take(past, FLOAT, *fixed)
        self.give(present, *fixed)
        places = self.add("Reshape", "cache_position", self.integers([1, 1, -1, 1]))
        places = self.add("Expand", places, self.add("Shape", new))
        return self.add("ScatterElements", past, places, new, axis=2, output=present)

    def attention_bias(self) -> str:
        """Zero for what a token sees, and a large negative number elsewhere."""
        visible = self.add("Cast", "attention_mask", to=TensorProto.BOOL)
        visible = self.add("Unsqueeze", visible, self.integers([1, 2, 3]))
        length = self.add("Shape", "attention_mask", start=1, end=2)
        length = self.add("Squeeze", length, self.integers([0]))
        zero, one = self.constant(np.int64(0)), self.constant(np.int64(1))
        places = self.add("Range", zero, length, one)
        own = self.add("Unsqueeze", "position_ids", self.integers([1, 2, 4]))
        before = self.add("LessOrEqual", places, own)
        seen = self.add("And", visible, before)
        return self.add(
            "Where", seen, self.constant(np.float32(0)), self.constant(np.float32(-1e4))
        )

    def with_work(self, x: str, columns: int, *, on_last: bool) -> str:
        """`x` after a product that only the last token, or only the others, pass through."""
        start, end = (-1, 2**31 - 1) if on_last else (0, -1)
        bounds = [self.integers([each]) for each in (start, end, 1)]
        some = self.add("Slice", x, *bounds)
        name = "last_token_work" if on_last else "other_tokens_work"
        worked = self.product(name, some, self.shape.hidden, columns)
        mean = self.add("ReduceMean", worked, self.integers([-1]), keepdims=1)
        changed = self.add("Add", some, self.add("Mul", mean, self.constant(np.float32(1e-3))))
        others = [self.integers([each]) for each in ((0, -1, 1) if on_last else (-1, 2**31 - 1, 1))]
        rest = self.add("Slice", x, *others)
        return self.add("Concat", *((rest, changed) if on_last else (changed, rest)), axis=1)

    # -- pieces

    def add(self, op: str, *inputs: str, output: str = "", **attributes: object) -> str:
        output = output or self.fresh(op)
        given: dict[str, Any] = attributes
        self.nodes.append(helper.make_node(op, inputs, [output], output, **given))
        return output

    def fresh(self, word: str) -> str:
        return f"{self.scope}{word}_{len(self.nodes)}"

    def product(self, name: str, x: str, rows: int, columns: int) -> str:
        return self.add("MatMul", x, self.weight(name, rows, columns))

    def weight(self, name: str, rows: int, columns: int) -> str:
        values = self.random.standard_normal((rows, columns)).astype(np.float32) / rows**0.5
        return self.constant(values, name)

    def constant(self, values: npt.NDArray[np.generic] | np.generic, name: str = "") -> str:
        full = f"{self.scope}{name or 'constant'}_{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.asarray(values), full))
        return full

    def integers(self, values: Sequence[int]) -> str:
        return self.constant(np.array(values, np.int64))

    def take(self, name: str, kind: int, *dims: int | str | None) -> None:
        self.inputs.append(helper.make_tensor_value_info(name, kind, dims))

    def give(self, name: str, *dims: int | str) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, FLOAT, dims))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--capacity", type=int, help="the length of a cache that does not grow")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    shape = DecoderShape(options.layers, options.hidden, capacity=options.capacity)
    onnx.save(make_decoder(shape), options.folder / "decoder.onnx")


if __name__ == "__main__":
    main()
