"""Graph changes that a release of a model may bring, each small beside the whole model.

Each function takes a model with its weights and returns a changed copy, or None if the model has
no place for the change. The changed model computes the same as before, up to rounding. `a block
more` adds its result on a small scale, so that it changes little.

A change takes the suitable place that is nearest to the middle of the graph, because there it has
neighbours on both sides. The functions know nothing of how changes are judged; parts.py uses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from onnx import (
    AttributeProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
    shape_inference,
)
from real_variants import DECOMPOSITIONS, PREFIX, Cost, Steps, repeat_block

Change: TypeAlias = Callable[[ModelProto], "ModelProto | None"]
Array: TypeAlias = npt.NDArray[Any]
T = TypeVar("T")

# Prefix of the names of everything that is added here; other than the one of real_variants.
NEW = f"{PREFIX}change_"
# Constants up to this number of elements decide shapes, so shape inference sees their values.
_LARGEST_SHAPE = 64
# An inner size grows by an eighth, in steps of so many columns.
_WIDER_PART, _WIDER_STEP = 8, 8
# How much of the result of a repeated block is added to its input.
_RESIDUAL_SCALE = 1e-3
# The most elements of a tensor that a chain of small kernels works on.
_SMALL_TENSOR = 1 << 16
_NARROW, _WIDE = 3, 5
# The dtypes of weights, as against those of shapes and indices.
_WEIGHT_KINDS = (np.dtype(np.float32), np.dtype(np.int8), np.dtype(np.uint8))


@dataclass(frozen=True, slots=True)
class Tensor:
    """Element type and shape of a tensor for a batch of 1; None: a size that is not known."""

    kind: int
    shape: tuple[int | None, ...]

    @property
    def is_float(self) -> bool:
        return self.kind == TensorProto.FLOAT

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The shape, if all of it is known."""
        known = tuple(size for size in self.shape if size is not None)
        return known if len(known) == len(self.shape) else None


def decompose_activation(model: ModelProto) -> ModelProto | None:
    """Replaces one activation by arithmetic that the engine does not fuse."""
    return _rewrite_one(model, _ACTIVATIONS)


def split_normalization(model: ModelProto) -> ModelProto | None:
    """Replaces one normalization by its parts, or breaks the fusion of its parts.

    In a model that has no LayerNormalization, the parts of a normalization are written in another
    way: `x + (-mean)` for `x - mean`, or `x * x` for the square of x.
    """
    return _rewrite_one(model, {"LayerNormalization": DECOMPOSITIONS["LayerNormalization"]}) or (
        _reorder_normalization(model)
    )


def add_transposes(model: ModelProto) -> ModelProto | None:
    """Turns one tensor to channels-last and back, with a copy between that keeps both turns.

    The engine moves a Transpose through every elementwise operator, where both would cancel. It
    does not move one through an Einsum.
    """
    edit = _Edit.of(model)
    for index, name in edit.middle_tensors():
        sizes = edit.tensors[name].sizes
        if sizes is None or len(sizes) not in {3, 4} or min(sizes[1:]) == 1:
            continue
        rank = len(sizes)
        there = (0, *range(2, rank), 1)
        back = tuple(there.index(axis) for axis in range(rank))
        letters = "abcd"[:rank]
        turned, kept, result = (f"{NEW}{step}" for step in ("turned", "kept", "turned_back"))
        added = [
            _node("Transpose", [name], turned, perm=there),
            _node("Einsum", [turned], kept, equation=f"{letters}->{letters}"),
            _node("Transpose", [kept], result, perm=back),
        ]
        return edit.insert_after(index, added, name, result)
    return None


def widen_kernel(model: ModelProto) -> ModelProto | None:
    """Makes one 3x3 convolution 5x5, or else the hidden layer of one MLP an eighth wider."""
    edit = _Edit.of(model)
    for _, node in edit.middle_nodes():
        if _widen_convolution(edit, node):
            return edit.finish()
    for _, node in edit.middle_nodes():
        hidden = _Hidden.around(node, edit)
        if hidden is not None:
            hidden.widen()
            return edit.finish()
    return None


def compute_in_double(model: ModelProto) -> ModelProto | None:
    """Computes one matrix product in double precision."""
    edit = _Edit.of(model)
    for index, node in edit.middle_nodes():
        if node.domain or node.op_type not in {"MatMul", "Gemm"} or not edit.is_float(node):
            continue
        nodes: list[NodeProto] = []
        inputs = []
        for name in node.input:
            if name in edit.weights:
                inputs.append(edit.add_weight("double", edit.weight(name).astype(np.float64)))
            elif name:
                inputs.append(f"{NEW}double_{len(nodes)}")
                nodes.append(_node("Cast", [name], inputs[-1], to=TensorProto.DOUBLE))
        product = NodeProto()
        product.CopyFrom(node)
        del product.input[:], product.output[:]
        product.input.extend(inputs)
        product.output.append(f"{NEW}double_product")
        back = _node("Cast", product.output, node.output[0], to=TensorProto.FLOAT)
        edit.replace(index, [*nodes, product, back])
        return edit.finish()
    return None


def add_output(model: ModelProto) -> ModelProto | None:
    """Makes one intermediate tensor an output of the model."""
    edit = _Edit.of(model)
    for _, name in edit.middle_tensors():
        rank = len(edit.tensors[name].shape)
        if rank >= 2:
            value = helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank)
            edit.model.graph.output.append(value)
            return edit.finish()
    return None


def add_block(model: ModelProto) -> ModelProto | None:
    """Repeats one block beside its result x, as x + 0.001 f(x), with other weights.

    The weights of the copy are those of the block in another order: the engine shares the packed
    form of equal weights, so a copy with equal ones would be faster than a trained one.
    """
    tensors = tensors_of(model)
    made = repeat_block(model, _costs(model, tensors), residual_scale=_RESIDUAL_SCALE)
    if made is None:
        return None
    known = {weight.name for weight in model.graph.initializer}
    for weight in made.graph.initializer:
        values = numpy_helper.to_array(weight) if weight.name not in known else np.empty(0)
        if values.size > 1 and values.dtype in _WEIGHT_KINDS:
            weight.CopyFrom(numpy_helper.from_array(np.roll(values, 1), weight.name))
    return made


def add_kernels(model: ModelProto, pairs: int) -> ModelProto | None:
    """Negates one tensor of moderate size twice, so many times: the time grows with the pairs."""
    edit = _Edit.of(model)
    for index, name in edit.middle_tensors():
        sizes = edit.tensors[name].sizes
        if sizes is None or len(sizes) < 2 or math.prod(sizes) > _SMALL_TENSOR:
            continue
        added: list[NodeProto] = []
        result = name
        for number in range(2 * pairs):
            added.append(_node("Neg", [result], f"{NEW}negated_{number}"))
            result = added[-1].output[0]
        return edit.insert_after(index, added, name, result)
    return None


CHANGES: Mapping[str, Change] = {
    "an activation decomposed": decompose_activation,
    "a pair of transposes": add_transposes,
    "a normalization made of parts": split_normalization,
    "a wider kernel": widen_kernel,
    "a product in double": compute_in_double,
    "an extra output": add_output,
    "a block more": add_block,
}


# -- what is known of a model


def tensors_of(model: ModelProto) -> dict[str, Tensor]:
    """Types and shapes of all tensors that shape inference finds, for a batch of 1."""
    light = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    light.functions.extend(model.functions)
    light.graph.name = model.graph.name
    light.graph.node.extend(model.graph.node)
    light.graph.output.extend(model.graph.output)
    for value in model.graph.input:
        copy = light.graph.input.add()
        copy.CopyFrom(value)
        for size in copy.type.tensor_type.shape.dim:
            if not size.HasField("dim_value"):
                size.dim_value = 1
    for weight in model.graph.initializer:
        if math.prod(weight.dims) <= _LARGEST_SHAPE:
            light.graph.initializer.append(weight)
        else:
            light.graph.initializer.add(
                name=weight.name, dims=weight.dims, data_type=weight.data_type
            )
    graph = shape_inference.infer_shapes(light, data_prop=True).graph
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape"):
            sizes = (
                size.dim_value if size.HasField("dim_value") else None for size in kind.shape.dim
            )
            found[value.name] = Tensor(kind.elem_type, tuple(sizes))
    for weight in model.graph.initializer:
        found[weight.name] = Tensor(weight.data_type, tuple(weight.dims))
    return found


def _costs(model: ModelProto, tensors: Mapping[str, Tensor]) -> dict[str, Cost]:
    """MACs of the products of a model, and the shapes of its float tensors."""
    costs = {}
    for node in model.graph.node:
        made = tensors.get(node.output[0])
        if made is not None:
            costs[node.output[0]] = Cost(
                _macs(node, made, tensors), made.shape if made.is_float else None
            )
    return costs


def _macs(node: NodeProto, made: Tensor, tensors: Mapping[str, Tensor]) -> int:
    if made.sizes is None or node.op_type not in {"Conv", "Gemm", "MatMul", "MatMulInteger"}:
        return 0
    weight = tensors.get(node.input[1])
    sizes = None if weight is None else weight.sizes
    if sizes is None or len(sizes) < 2:
        return 0
    if node.op_type == "Conv":
        depth = math.prod(sizes[1:])
    else:
        is_turned = node.op_type == "Gemm" and _attribute(node, "transB", 0)
        depth = sizes[-1 if is_turned else -2]
    return math.prod(made.sizes) * depth


# -- how a model is edited


def _node(op: str, inputs: Iterable[str], output: str, **attributes: Any) -> NodeProto:  # noqa: ANN401  # as make_node
    return helper.make_node(op, list(inputs), [output], f"{output}_{op}", **attributes)


def _attribute(node: NodeProto, name: str, default: T) -> T:
    for each in node.attribute:
        if each.name == name:
            found: T = helper.get_attribute_value(each)
            return found
    return default


def _set_attribute(node: NodeProto, name: str, value: Sequence[int]) -> None:
    kept = [each for each in node.attribute if each.name != name]
    made: AttributeProto = helper.make_attribute(name, value)
    del node.attribute[:]
    node.attribute.extend([*kept, made])


@dataclass(slots=True)
class _Edit:
    """A copy of a model while it is changed, with its tensors and weights as they were."""

    model: ModelProto
    tensors: Mapping[str, Tensor]
    weights: Mapping[str, TensorProto]
    changed: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, model: ModelProto) -> _Edit:
        copy = ModelProto()
        copy.CopyFrom(model)
        weights = {weight.name: weight for weight in copy.graph.initializer}
        return cls(copy, tensors_of(model), weights)

    @property
    def opset(self) -> int:
        return next(each.version for each in self.model.opset_import if not each.domain)

    def middle_nodes(self) -> Iterator[tuple[int, NodeProto]]:
        """All nodes with their places, those in the middle of the graph first."""
        nodes = list(enumerate(self.model.graph.node))
        middle = (len(nodes) - 1) / 2
        return iter(sorted(nodes, key=lambda each: abs(each[0] - middle)))

    def middle_tensors(self) -> Iterator[tuple[int, str]]:
        """The float tensors that nodes make for other nodes, with the places of their nodes."""
        outputs = {value.name for value in self.model.graph.output}
        fixed = self.fixed()
        read = {name for node in self.model.graph.node for name in node.input}
        for index, node in self.middle_nodes():
            name = node.output[0]
            tensor = self.tensors.get(name)
            is_free = name in read and name not in outputs and name not in fixed
            if tensor is not None and tensor.is_float and is_free:
                yield index, name

    def fixed(self) -> set[str]:
        """The names of tensors that are the same in every inference."""
        found = set(self.weights)
        for node in self.model.graph.node:
            if all(name in found for name in node.input if name):
                found |= set(node.output)
        return found

    def is_float(self, node: NodeProto) -> bool:
        """Whether a node reads and makes float tensors only."""
        names = [name for name in (*node.input, *node.output) if name]
        return all(name in self.tensors and self.tensors[name].is_float for name in names)

    def weight(self, name: str) -> Array:
        return numpy_helper.to_array(self.weights[name])

    def add_weight(self, hint: str, values: Array) -> str:
        """Adds a weight; returns its name."""
        name = f"{NEW}{hint}_weight_{len(self.model.graph.initializer)}"
        self.model.graph.initializer.append(numpy_helper.from_array(values, name))
        return name

    def replace(self, index: int, nodes: Iterable[NodeProto]) -> None:
        """Puts nodes in the place of one."""
        all_nodes = list(self.model.graph.node)
        all_nodes[index : index + 1] = nodes
        del self.model.graph.node[:]
        self.model.graph.node.extend(all_nodes)

    def insert_after(
        self, index: int, added: Sequence[NodeProto], old: str, new: str
    ) -> ModelProto:
        """Puts nodes behind one; all later nodes that read `old` now read `new`."""
        nodes = list(self.model.graph.node)
        for node in nodes[index + 1 :]:
            names = [new if name == old else name for name in node.input]
            del node.input[:]
            node.input.extend(names)
        self.replace(index, [nodes[index], *added])
        return self.finish()

    def finish(self) -> ModelProto:
        """The changed model, without weights that no node reads and shapes that are no more."""
        graph = self.model.graph
        read = {name for node in graph.node for name in node.input}
        read |= {value.name for value in graph.output} | _read_inside(graph.node)
        weights = [each for each in graph.initializer if each.name in read]
        shapes = [each for each in graph.value_info if each.name not in self.changed]
        del graph.initializer[:], graph.value_info[:]
        graph.initializer.extend(weights)
        graph.value_info.extend(shapes)
        return self.model


def _read_inside(nodes: Iterable[NodeProto]) -> set[str]:
    """The names that the nested graphs of nodes read."""
    found: set[str] = set()
    for node in nodes:
        for each in node.attribute:
            for graph in (each.g, *each.graphs):
                found |= {name for inner in graph.node for name in inner.input}
                found |= _read_inside(graph.node)
    return found


# -- activations and normalizations


def _rewrite_one(
    model: ModelProto, rewrites: Mapping[str, Callable[[Steps], Sequence[NodeProto] | None]]
) -> ModelProto | None:
    """Rewrites one float node of the operators that have a rewriting."""
    edit = _Edit.of(model)
    for index, node in edit.middle_nodes():
        if node.domain or node.op_type not in rewrites or not edit.is_float(node):
            continue
        constants: dict[str, TensorProto] = {}
        nodes = rewrites[node.op_type](Steps(node, constants, edit.opset))
        if nodes is not None:
            edit.model.graph.initializer.extend(constants.values())
            edit.replace(index, nodes)
            return edit.finish()
    return None


def _decompose_relu(steps: Steps) -> list[NodeProto]:
    x = steps.node.input[0]
    total = steps.add("Add", x, steps.add("Abs", x))
    return steps.done(steps.add("Mul", total, steps.number(0.5)))


def _decompose_tanh(steps: Steps) -> list[NodeProto]:
    double = steps.add("Mul", steps.node.input[0], steps.number(2.0))
    spread = steps.add("Mul", steps.add("Sigmoid", double), steps.number(2.0))
    return steps.done(steps.add("Sub", spread, steps.number(1.0)))


def _decompose_hard_swish(steps: Steps) -> list[NodeProto]:
    x = steps.node.input[0]
    line = steps.add("Add", steps.add("Mul", x, steps.number(1 / 6)), steps.number(0.5))
    cut = steps.add("Min", steps.add("Max", line, steps.number(0.0)), steps.number(1.0))
    return steps.done(steps.add("Mul", x, cut))


def _decompose_erf(steps: Steps) -> list[NodeProto]:
    """Erf is odd, so both signs may change; a Gelu that was made of it is not fused any more."""
    return steps.done(steps.add("Neg", steps.add("Erf", steps.add("Neg", steps.node.input[0]))))


_ACTIVATIONS: Mapping[str, Callable[[Steps], Sequence[NodeProto] | None]] = {
    "Clip": DECOMPOSITIONS["Clip"],
    "Erf": _decompose_erf,
    "Gelu": DECOMPOSITIONS["Gelu"],
    "HardSwish": _decompose_hard_swish,
    "Relu": _decompose_relu,
    "Sigmoid": DECOMPOSITIONS["Sigmoid"],
    "Tanh": _decompose_tanh,
}


def _reorder_normalization(model: ModelProto) -> ModelProto | None:
    """Writes the parts of one normalization in another way."""
    edit = _Edit.of(model)
    for rewrite in (_add_negative_mean, _multiply_by_itself):
        for index, node in edit.middle_nodes():
            nodes = rewrite(edit, node) if edit.is_float(node) else None
            if nodes is not None:
                edit.replace(index, nodes)
                return edit.finish()
    return None


def _add_negative_mean(edit: _Edit, node: NodeProto) -> list[NodeProto] | None:
    """The nodes for the difference of a tensor and its mean, if the node is one."""
    means = {each.output[0] for each in edit.model.graph.node if each.op_type == "ReduceMean"}
    if node.op_type != "Sub" or node.input[1] not in means:
        return None
    negative = _node("Neg", [node.input[1]], f"{NEW}negative_mean")
    return [negative, _node("Add", [node.input[0], negative.output[0]], node.output[0])]


def _multiply_by_itself(edit: _Edit, node: NodeProto) -> list[NodeProto] | None:
    """The node for a square that is then averaged, if the node is one."""
    averaged = {each.input[0] for each in edit.model.graph.node if each.op_type == "ReduceMean"}
    if node.op_type != "Pow" or node.output[0] not in averaged or not _is_square(edit, node):
        return None
    return [_node("Mul", [node.input[0], node.input[0]], node.output[0])]


def _is_square(edit: _Edit, power: NodeProto) -> bool:
    exponent = power.input[1]
    return exponent in edit.weights and bool(np.all(edit.weight(exponent) == 2))


# -- wider kernels


def _widen_convolution(edit: _Edit, node: NodeProto) -> bool:
    """Makes a 3x3 convolution 5x5 with zeros around its weights, if it is one."""
    if (
        node.op_type != "Conv"
        or node.domain
        or _attribute(node, "auto_pad", b"NOTSET") != b"NOTSET"
    ):
        return False
    dequantizer, name = None, node.input[1]
    for each in edit.model.graph.node:
        if name in each.output and each.op_type == "DequantizeLinear":
            dequantizer, name = each, each.input[0]
    dilations: Sequence[int] = _attribute(node, "dilations", ())
    if name not in edit.weights or any(size != 1 for size in dilations):
        return False
    values = edit.weight(name)
    if values.shape[2:] != (_NARROW, _NARROW) or not _has_zero_as_zero(edit, dequantizer):
        return False
    grown = (_WIDE - _NARROW) // 2
    padded = np.pad(values, ((0, 0), (0, 0), (grown, grown), (grown, grown)))
    made = edit.add_weight("wider", padded)
    if dequantizer is None:
        node.input[1] = made
    else:
        edit.changed.add(node.input[1])
        dequantizer.input[0] = made
    pads: Sequence[int] = _attribute(node, "pads", (0, 0, 0, 0))
    _set_attribute(node, "pads", [size + grown for size in pads])
    _set_attribute(node, "kernel_shape", [_WIDE, _WIDE])
    return True


def _has_zero_as_zero(edit: _Edit, dequantizer: NodeProto | None) -> bool:
    """Whether the stored number 0 means 0."""
    if dequantizer is None or len(dequantizer.input) < 3:
        return True
    name = dequantizer.input[2]
    return name in edit.weights and not np.any(edit.weight(name))


# Of these the result is 0 wherever all their inputs are, and each element depends on its like.
_ELEMENTWISE = frozenset(
    {"Add", "Cast", "DynamicQuantizeLinear", "Erf", "Gelu", "HardSwish", "Identity", "Mul",
     "Neg", "Pow", "Relu", "Sigmoid", "Tanh"}
)  # fmt: skip
_PRODUCTS = frozenset({"Gemm", "MatMul", "MatMulInteger"})


class _Hidden:
    """The hidden layer of an MLP: the products into it and out of it, and what lies between.

    `wide` are the tensors whose last size is that of the layer; `between` are the elementwise nodes
    that read or make them, and `shapes` the nodes that only state the size anew.
    """

    def __init__(self, edit: _Edit, size: int) -> None:
        self.edit = edit
        self.size = size
        self.wide: set[str] = set()
        self.before: dict[str, NodeProto] = {}
        self.after: dict[str, NodeProto] = {}
        self.between: dict[str, NodeProto] = {}
        self.shapes: dict[str, NodeProto] = {}
        self._waiting: list[str] = []

    @classmethod
    def around(cls, product: NodeProto, edit: _Edit) -> _Hidden | None:
        """The hidden layer that a product leads into, if all around it can be made wider."""
        made = edit.tensors.get(product.output[0])
        size = made.shape[-1] if made is not None and made.shape else None
        if size is None or product.op_type not in _PRODUCTS:
            return None
        hidden = cls(edit, size)
        return hidden if hidden._reaches_products(product.output[0]) else None

    def _reaches_products(self, start: str) -> bool:
        """Follows the wide tensors both ways; False if one ends elsewhere than in a product."""
        graph = self.edit.model.graph
        outputs = {value.name for value in graph.output}
        makers = {name: node for node in graph.node for name in node.output}
        self._waiting.append(start)
        while self._waiting:
            name = self._waiting.pop()
            if name in self.wide:
                continue
            self.wide.add(name)
            if name in outputs or name not in makers or not self._takes_maker(makers[name]):
                return False
            if not all(self._takes_reader(node, name) for node in graph.node if name in node.input):
                return False
        return bool(self.after)

    def _takes_maker(self, node: NodeProto) -> bool:
        if node.op_type not in _PRODUCTS:
            return self._takes_between(node)
        self.before[node.output[0]] = node
        # MatMulInteger has zero points where Gemm has its bias.
        bias = node.input[2] if node.op_type == "Gemm" and len(node.input) > 2 else ""
        has_fixed_bias = not bias or bias in self.edit.weights
        return self._has_weight(node, _columns(node)) and has_fixed_bias

    def _takes_reader(self, node: NodeProto, name: str) -> bool:
        if node.op_type not in _PRODUCTS:
            return self._takes_between(node)
        self.after[node.output[0]] = node
        is_plain = node.input[0] == name and not _attribute(node, "transA", 0)
        return is_plain and self._has_weight(node, _rows(node))

    def _takes_between(self, node: NodeProto) -> bool:
        if node.domain:
            return False
        if node.op_type == "Reshape":
            self.shapes[node.output[0]] = node
            self._waiting += [node.input[0], node.output[0]]
            return _ends_in(self.edit, node.input[0], self.size) and self._states_size(node)
        if node.op_type not in _ELEMENTWISE:
            return False
        self.between[node.output[0]] = node
        self._waiting += [
            name
            for name in (*node.input, node.output[0])
            if name not in self.edit.weights and _ends_in(self.edit, name, self.size)
        ]
        return True

    def _has_weight(self, node: NodeProto, axis: int) -> bool:
        if node.domain or node.input[1] not in self.edit.weights:
            return False
        shape = self.edit.tensors[node.input[1]].shape
        return len(shape) == 2 and shape[axis] == self.size

    def _states_size(self, node: NodeProto) -> bool:
        """Whether a Reshape keeps the last size, and says so by a constant."""
        shape = node.input[1]
        if shape not in self.edit.weights or not _ends_in(self.edit, node.output[0], self.size):
            return False
        return bool(self.edit.weight(shape)[-1] in {self.size, -1})

    def widen(self) -> None:
        """Pads the weights with zeros, and states the new size wherever it is stated."""
        edit = self.edit
        part = -(-self.size // _WIDER_PART)
        more = -(-part // _WIDER_STEP) * _WIDER_STEP
        edit.changed |= self.wide
        for node in self.before.values():
            self._pad(node, 1, _columns(node), more)
            if node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]:
                self._pad(node, 2, -1, more)
        for node in self.after.values():
            self._pad(node, 1, _rows(node), more)
        for node in self.between.values():
            for place, name in enumerate(node.input):
                if name in edit.weights and _ends_in(edit, name, self.size):
                    self._pad(node, place, -1, more)
        for node in self.shapes.values():
            shape = edit.weight(node.input[1]).copy()
            if shape[-1] == self.size:
                shape[-1] += more
                node.input[1] = edit.add_weight("shape", shape)

    def _pad(self, node: NodeProto, place: int, axis: int, more: int) -> None:
        values = self.edit.weight(node.input[place])
        if values.ndim and values.shape[axis] == self.size:
            widths = [(0, 0)] * values.ndim
            widths[axis] = (0, more)
            node.input[place] = self.edit.add_weight("wider", np.pad(values, widths))


def _columns(product: NodeProto) -> int:
    """The axis of the weight of a product that gives the last size of its result."""
    return 0 if product.op_type == "Gemm" and _attribute(product, "transB", 0) else 1


def _rows(product: NodeProto) -> int:
    """The axis of the weight of a product that is summed over."""
    return 1 - _columns(product)


def _ends_in(edit: _Edit, name: str, size: int) -> bool:
    tensor = edit.tensors.get(name)
    return tensor is not None and bool(tensor.shape) and tensor.shape[-1] == size
