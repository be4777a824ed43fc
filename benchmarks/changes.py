"""Graph changes that a release of a model may bring, each small beside the whole model.

Each function takes a model with its weights and returns a changed copy, or None if the model has
no place for the change. The changed model computes the same as before, up to rounding. A change
takes the suitable place that is nearest to the middle of the graph, because there it has neighbours
on both sides.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, shape_inference
from real_variants import PREFIX, constants_of, copy_of, costs_of, insert_nodes, repeat_block

from pytest_modelperf.graph.stored_tensors import used_names
from pytest_modelperf.profiler.request import ProfileRequest

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
    return _rewrite_one(model, _REWRITES.keys() - {"LayerNormalization"})


def split_normalization(model: ModelProto) -> ModelProto | None:
    """Replaces one normalization by its parts, or breaks the fusion of its parts.

    In a model that has no LayerNormalization, the parts of a normalization are written in another
    way: `x + (-mean)` for `x - mean`, or `x * x` for the square of x.
    """
    return _rewrite_one(model, {"LayerNormalization"}) or _reorder_normalization(model)


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
    if any(_widen_hidden(edit, node) for _, node in edit.middle_nodes()):
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
        product = copy_of(node)
        product.input[:] = inputs
        product.output[:] = [f"{NEW}double_product"]
        back = _node("Cast", product.output, node.output[0], to=TensorProto.FLOAT)
        return edit.replace(index, [*nodes, product, back])
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
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "model.onnx")
        onnx.save(model, path)
        costs = costs_of(path, ProfileRequest())
    made = repeat_block(model, costs, residual_scale=_RESIDUAL_SCALE)
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
        names = [name, *(f"{NEW}negated_{number}" for number in range(2 * pairs))]
        added = [_node("Neg", [old], new) for old, new in pairwise(names)]
        return edit.insert_after(index, added, name, names[-1])
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
    light = copy_of(model)
    for value in light.graph.input:
        for size in value.type.tensor_type.shape.dim:
            if not size.HasField("dim_value"):
                size.dim_value = 1
    del light.graph.value_info[:]
    for weight in light.graph.initializer:
        if math.prod(weight.dims) > _LARGEST_SHAPE:
            weight.ClearField("raw_data")
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


# -- how a model is edited


def _node(op: str, inputs: Iterable[str], output: str, **attributes: Any) -> NodeProto:  # noqa: ANN401  # as make_node
    return helper.make_node(op, list(inputs), [output], f"{output}_{op}", **attributes)


def _attribute(node: NodeProto, name: str, default: T) -> T:
    for each in node.attribute:
        if each.name == name:
            found: T = helper.get_attribute_value(each)
            return found
    return default


@dataclass(frozen=True, slots=True)
class _Edit:
    """A copy of a model while it is changed, with its tensors and weights as they were."""

    model: ModelProto
    tensors: Mapping[str, Tensor]
    weights: Mapping[str, TensorProto]

    @classmethod
    def of(cls, model: ModelProto) -> _Edit:
        copy = copy_of(model)
        return cls(copy, tensors_of(model), {each.name: each for each in copy.graph.initializer})

    @property
    def opset(self) -> int:
        return next(each.version for each in self.model.opset_import if not each.domain)

    def middle_nodes(self) -> list[tuple[int, NodeProto]]:
        """All nodes with their places, those in the middle of the graph first."""
        nodes = list(enumerate(self.model.graph.node))
        middle = (len(nodes) - 1) / 2
        return sorted(nodes, key=lambda each: abs(each[0] - middle))

    def middle_tensors(self) -> Iterator[tuple[int, str]]:
        """The float tensors that nodes make for other nodes, with the places of their nodes."""
        graph = self.model.graph
        read = {name for node in graph.node for name in node.input}
        free = read - {value.name for value in graph.output} - constants_of(graph)
        for index, node in self.middle_nodes():
            tensor = self.tensors.get(node.output[0])
            if tensor is not None and tensor.is_float and node.output[0] in free:
                yield index, node.output[0]

    def is_float(self, node: NodeProto) -> bool:
        """Whether a node reads and makes float tensors only."""
        names = [name for name in (*node.input, *node.output) if name]
        return all(name in self.tensors and self.tensors[name].is_float for name in names)

    def ends_in(self, name: str, size: int) -> bool:
        tensor = self.tensors.get(name)
        return tensor is not None and tensor.shape[-1:] == (size,)

    def weight(self, name: str) -> Array:
        return numpy_helper.to_array(self.weights[name])

    def is_all(self, name: str, number: int) -> bool:
        """Whether a weight holds nothing but a number."""
        return name in self.weights and bool(np.all(self.weight(name) == number))

    def add_weight(self, hint: str, values: Array) -> str:
        """Adds a weight; returns its name."""
        name = f"{NEW}{hint}_weight_{len(self.model.graph.initializer)}"
        self.model.graph.initializer.append(numpy_helper.from_array(values, name))
        return name

    def replace(self, index: int, nodes: Iterable[NodeProto]) -> ModelProto:
        """Puts nodes in the place of one."""
        del self.model.graph.node[index]
        insert_nodes(self.model.graph, index, nodes, {})
        return self.finish()

    def insert_after(
        self, index: int, added: Iterable[NodeProto], old: str, new: str
    ) -> ModelProto:
        """Puts nodes behind one; all later nodes that read `old` now read `new`."""
        insert_nodes(self.model.graph, index + 1, added, {old: new})
        return self.finish()

    def finish(self) -> ModelProto:
        """The changed model, without weights that no node reads, and without former shapes."""
        graph = self.model.graph
        read = set(used_names(self.model))
        weights = [each for each in graph.initializer if each.name in read]
        del graph.initializer[:], graph.value_info[:]
        graph.initializer.extend(weights)
        return self.model


# -- activations and normalizations


class _Steps:
    """The nodes that replace one node, and the constants that they read."""

    def __init__(self, node: NodeProto) -> None:
        self.node = node
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}

    def __call__(self, op: str, *inputs: str | float, **attributes: Any) -> str:  # noqa: ANN401  # as make_node
        """Adds a node, whose numbers among the inputs are constants; returns its output."""
        names = [
            each if isinstance(each, str) else self.store(f"number_{each!r}", np.float32(each))
            for each in inputs
        ]
        output = f"{PREFIX}{self.node.output[0]}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [output], f"{output}_node", **attributes))
        return output

    def store(self, name: str, value: npt.ArrayLike) -> str:
        name = f"{PREFIX}{name}"
        self.constants[name] = numpy_helper.from_array(np.asarray(value), name)
        return name


def _normalize(add: _Steps, x: str, scale: str, shift: str) -> None:
    axis = add.store("last_axis", [-1])
    centred = add("Sub", x, add("ReduceMean", x, axis, keepdims=1))
    variance = add("ReduceMean", add("Mul", centred, centred), axis, keepdims=1)
    above = add("Add", variance, float(_attribute(add.node, "epsilon", 1e-5)))
    width = add("Reciprocal", add("Sqrt", above))
    add("Add", add("Mul", add("Mul", centred, width), scale), shift)


# The last node that each adds makes the result. Erf is odd, so both signs may change; a Gelu that
# was made of it is not fused any more.
_REWRITES: Mapping[str, Callable[..., object]] = {
    "Clip": lambda add, x, low, high: add("Min", add("Max", x, low), high),
    "Erf": lambda add, x: add("Neg", add("Erf", add("Neg", x))),
    "Gelu": lambda add, x: add(
        "Mul", x, add("Add", 0.5, add("Mul", 0.5, add("Erf", add("Mul", x, 0.5**0.5))))
    ),
    "HardSwish": lambda add, x: add(
        "Mul", x, add("Min", add("Max", add("Add", add("Mul", x, 1 / 6), 0.5), 0.0), 1.0)
    ),
    "LayerNormalization": _normalize,
    "Relu": lambda add, x: add("Mul", add("Add", x, add("Abs", x)), 0.5),
    "Sigmoid": lambda add, x: add("Reciprocal", add("Add", add("Exp", add("Neg", x)), 1.0)),
    "Tanh": lambda add, x: add("Sub", add("Mul", add("Sigmoid", add("Mul", x, 2.0)), 2.0), 1.0),
}


def _has_rewrite(node: NodeProto, opset: int) -> bool:
    """Whether a node has the inputs and attributes that its rewrite is made for."""
    if node.op_type == "LayerNormalization" and (
        _attribute(node, "axis", -1) >= 0 or len(node.output) > 1 or opset < 18
    ):
        return False
    inputs = 3 if node.op_type in {"Clip", "LayerNormalization"} else 1
    is_exact = _attribute(node, "approximate", b"none") != b"tanh"
    return is_exact and len(node.input) == inputs and all(node.input)


def _rewrite_one(model: ModelProto, operators: Container[str]) -> ModelProto | None:
    """Rewrites one float node of these operators."""
    edit = _Edit.of(model)
    for index, node in edit.middle_nodes():
        is_chosen = node.op_type in operators and not node.domain
        if is_chosen and edit.is_float(node) and _has_rewrite(node, edit.opset):
            steps = _Steps(node)
            _REWRITES[node.op_type](steps, *node.input)
            steps.nodes[-1].output[0] = node.output[0]
            edit.model.graph.initializer.extend(steps.constants.values())
            return edit.replace(index, steps.nodes)
    return None


def _reorder_normalization(model: ModelProto) -> ModelProto | None:
    """Writes the parts of one normalization in another way."""
    edit = _Edit.of(model)
    nodes = [(index, node) for index, node in edit.middle_nodes() if edit.is_float(node)]
    means = [node for node in edit.model.graph.node if node.op_type == "ReduceMean"]
    results, averaged = {node.output[0] for node in means}, {node.input[0] for node in means}
    for index, node in nodes:
        if node.op_type == "Sub" and node.input[1] in results:
            negative = _node("Neg", [node.input[1]], f"{NEW}negative_mean")
            total = _node("Add", [node.input[0], *negative.output], node.output[0])
            return edit.replace(index, [negative, total])
    for index, node in nodes:
        is_averaged = node.op_type == "Pow" and node.output[0] in averaged
        if is_averaged and edit.is_all(node.input[1], 2):
            return edit.replace(index, [_node("Mul", [node.input[0]] * 2, node.output[0])])
    return None


# -- wider kernels


def _widen_convolution(edit: _Edit, node: NodeProto) -> bool:
    """Makes a 3x3 convolution 5x5 with zeros around its weights, if it is one."""
    is_padded = _attribute(node, "auto_pad", b"NOTSET") == b"NOTSET"
    if node.op_type != "Conv" or node.domain or not is_padded:
        return False
    reader = node
    for each in edit.model.graph.node:
        if node.input[1] in each.output and each.op_type == "DequantizeLinear":
            reader = each
    is_quantized = reader is not node
    name = reader.input[0 if is_quantized else 1]
    dilations: Sequence[int] = _attribute(node, "dilations", ())
    if name not in edit.weights or any(size != 1 for size in dilations):
        return False
    values = edit.weight(name)
    has_zero = not is_quantized or len(reader.input) < 3 or edit.is_all(reader.input[2], 0)
    if values.shape[2:] != (_NARROW, _NARROW) or not has_zero:
        return False
    grown = (_WIDE - _NARROW) // 2
    padded = np.pad(values, ((0, 0), (0, 0), (grown, grown), (grown, grown)))
    reader.input[0 if is_quantized else 1] = edit.add_weight("wider", padded)
    pads: Sequence[int] = _attribute(node, "pads", (0, 0, 0, 0))
    kept = [each for each in node.attribute if each.name not in {"pads", "kernel_shape"}]
    del node.attribute[:]
    node.attribute.extend(
        [
            *kept,
            helper.make_attribute("pads", [size + grown for size in pads]),
            helper.make_attribute("kernel_shape", [_WIDE, _WIDE]),
        ]
    )
    return True


# Of these the result is 0 wherever all their inputs are, and each element depends on its like.
_ELEMENTWISE = frozenset(
    {"Add", "Cast", "DynamicQuantizeLinear", "Erf", "Gelu", "HardSwish", "Identity", "Mul",
     "Neg", "Pow", "Relu", "Sigmoid", "Tanh"}
)  # fmt: skip
_PRODUCTS = frozenset({"Gemm", "MatMul", "MatMulInteger"})


def _widen_hidden(edit: _Edit, product: NodeProto) -> bool:
    """Pads the hidden layer of an MLP that a product leads into, if all around it can be wider.

    From the result of the product, the tensors of its last size are followed both ways. Each way
    has to end in products.
    """
    made = edit.tensors.get(product.output[0])
    size = made.shape[-1] if made is not None and made.shape else None
    if size is None or product.op_type not in _PRODUCTS:
        return False
    graph = edit.model.graph
    outputs = {value.name for value in graph.output}
    makers = {name: node for node in graph.node for name in node.output}
    wide, waiting, has_end = set[str](), [product.output[0]], False
    grown: dict[tuple[str, int], tuple[NodeProto, int]] = {}
    while waiting:
        name = waiting.pop()
        if name in wide:
            continue
        wide.add(name)
        if name in outputs or name not in makers:
            return False
        for node in (makers[name], *(node for node in graph.node if name in node.input)):
            axes = _grown_axes(edit, node, name, size)
            if axes is None:
                return False
            grown |= {(node.output[0], place): (node, axis) for place, axis in axes.items()}
            if node.op_type in _PRODUCTS:
                has_end |= name in node.input
            else:
                waiting += [
                    each
                    for each in (*node.input, node.output[0])
                    if each not in edit.weights and edit.ends_in(each, size)
                ]
    if has_end:
        more = -(-size // (_WIDER_PART * _WIDER_STEP)) * _WIDER_STEP
        for (_, place), (node, axis) in grown.items():
            node.input[place] = _grow(edit, node, place, axis, more)
    return has_end


def _grown_axes(edit: _Edit, node: NodeProto, name: str, size: int) -> dict[int, int] | None:
    """The inputs of a node that grow if the last size of `name` does, each with its axis.

    None if the node cannot follow. A wide tensor is made by a product or goes into one, or lies
    between elementwise nodes and such that only state its size.
    """
    if node.domain:
        return None
    if node.op_type == "Reshape":
        shape = node.input[1]
        is_kept = edit.ends_in(node.input[0], size) and edit.ends_in(node.output[0], size)
        is_stated = shape in edit.weights and edit.weight(shape)[-1] in {size, -1}
        return {1: -1} if is_kept and is_stated else None
    if node.op_type in _ELEMENTWISE:
        stored = [each in edit.weights and edit.ends_in(each, size) for each in node.input]
        return {place: -1 for place, is_stored in enumerate(stored) if is_stored}
    return _grown_weights(edit, node, name, size) if node.op_type in _PRODUCTS else None


def _grown_weights(edit: _Edit, node: NodeProto, name: str, size: int) -> dict[int, int] | None:
    """Of a product, the weight with the axis that gives or takes the size, and the bias."""
    is_maker = name in node.output
    is_turned = node.op_type == "Gemm" and bool(_attribute(node, "transB", 0))
    axis = int(is_maker != is_turned)
    shape = edit.tensors[node.input[1]].shape if node.input[1] in edit.weights else ()
    if len(shape) != 2 or shape[axis] != size:
        return None
    if not is_maker:
        is_plain = node.input[0] == name and not _attribute(node, "transA", 0)
        return {1: axis} if is_plain else None
    # MatMulInteger has zero points where Gemm has its bias.
    bias = node.input[2] if node.op_type == "Gemm" and len(node.input) > 2 else ""
    if bias and bias not in edit.weights:
        return None
    return {1: axis, 2: -1} if edit.ends_in(bias, size) else {1: axis}


def _grow(edit: _Edit, node: NodeProto, place: int, axis: int, more: int) -> str:
    """The name of a weight with zeros added to an axis, or of a shape with a larger last size."""
    values = edit.weight(node.input[place])
    if node.op_type == "Reshape":
        last = values[-1:]
        grown = last if last < 0 else last + more
        return edit.add_weight("shape", np.append(values[:-1], grown))
    widths = [(0, 0)] * values.ndim
    widths[axis] = (0, more)
    return edit.add_weight("wider", np.pad(values, widths))
