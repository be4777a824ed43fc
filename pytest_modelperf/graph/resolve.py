"""The types of a graph: from onnx's inference, or node by node if it fails."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from numbers import Integral

import numpy as np
import onnx
from msgspec import Struct
from msgspec.structs import replace
from onnx import TensorProto, TypeProto, defs, numpy_helper, shape_inference

from pytest_modelperf.errors import ExtensionError, MisfitError, ModelError, Remedy
from pytest_modelperf.graph.convert import Call, ParsedGraph, constant_tensor, read_graph, read_type
from pytest_modelperf.graph.scope import CONTROL_FLOW, Scope, output_types, stacked
from pytest_modelperf.graph.shape_rules import OutputType, ShapeRule, concat
from pytest_modelperf.graph.structure import Node, Shape, Tensor, UnknownShapeError
from pytest_modelperf.graph.validity import describe
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_shape

# The inference of onnx 1.23 reads the missing type of an input of these operators, which is invalid
# memory. With known inputs, all but LabelEncoder are safe.
CRASHING = frozenset({
    "DictVectorizer", "EyeLike", "LabelEncoder", "RegexFullMatch", "TreeEnsemble",
})  # fmt: skip
_ALWAYS_CRASHING = frozenset({"LabelEncoder"})

# Before opset 22, the inference of these counted one window too many.
_POOLINGS = frozenset({"AveragePool", "LpPool", "MaxPool"})
RESIZING = frozenset({"Resize", "Upsample"})


def is_trap(call: Call, opset: int, fractions: Container[str]) -> bool:
    """Whether to hide a call from onnx's inference over the whole graph."""
    # The inference crashes on some operators. In a pooling that rounds up, before opset 22 it
    # counts a last window that starts in the end padding, which ONNX Runtime leaves out. If an
    # image is scaled by `fractions`, it rounds down a product that as a float32 rounds up to a
    # whole number.
    if call.op_type in CRASHING:
        return True
    if call.domain:
        return False
    if call.op_type in _POOLINGS:
        return opset < 22 and call.attributes.get("ceil_mode") == 1
    is_scaled = "scales" in call.kinds or any(name in fractions for name in call.inputs)
    return is_scaled and call.op_type in RESIZING


class Resolver(Struct, frozen=True):
    """Everything that the nodes of a model share to find their output types."""

    model: str
    opsets: Mapping[str, int]
    opset_imports: list[onnx.OperatorSetIdProto]
    ir_version: int
    rules: Mapping[str, ShapeRule]

    def outputs(self, node: Node, call: Call, scope: Scope) -> tuple[Tensor | None, ...]:
        tensors = node.outputs
        for answer in (
            self._by_rule,
            self._by_onnx,
            self._by_bodies,
            self._by_elements,
            self._by_declaration,
        ):
            types = answer(node, call, scope)
            tensors = tuple(
                refined(tensor, types[index])
                if tensor is not None and index < len(types)
                else tensor
                for index, tensor in enumerate(tensors)
            )
            if all(tensor is None or tensor.is_complete for tensor in tensors):
                break
        return tensors

    def _by_rule(self, node: Node, _: Call, scope: Scope) -> Sequence[OutputType | None]:
        custom = self.rules.get(node.qualified_op)
        rule = custom or _find_rule(node.qualified_op)
        if rule is None:
            return ()
        inputs = tuple(None if t is None else _with_value(t, scope) for t in node.inputs)
        try:
            types = tuple(rule(replace(node, inputs=inputs)))
        except UnknownShapeError:
            return ()
        except Exception as error:
            if custom is None:
                raise
            raise ExtensionError(
                f"the shape rule registered for {printable(node.qualified_op)} failed on "
                f"{printable(node.name or node.id)!r}: {type(error).__name__}: "
                f"{printable(str(error))}"
            ) from error
        if custom is None:
            return types
        _require_output_types(types, node)
        return [None if found is None else _with_plain_sizes(found) for found in types]

    def _by_onnx(self, node: Node, call: Call, scope: Scope) -> Sequence[OutputType | None]:
        if node.op_type in CONTROL_FLOW and not node.domain:
            return ()
        unknown = any(t is not None and t.dtype is None for t in node.inputs)
        if node.op_type in _ALWAYS_CRASHING or (node.op_type in CRASHING and unknown):
            return ()
        try:
            schema = defs.get_schema(node.op_type, self.opsets.get(node.domain, 1), node.domain)
        except defs.SchemaError:
            return ()
        names = [name for name in call.inputs if name]
        try:
            found = shape_inference.infer_node_outputs(
                schema,
                call.proto,
                {name: scope.type_of(name) or TypeProto() for name in names},
                _small_values(names, scope),
                opset_imports=self.opset_imports,
                ir_version=self.ir_version,
            )
        except shape_inference.InferenceError as error:
            if all(t is None or t.is_complete for t in node.inputs):
                raise self._misfit(node, call, error) from error
            return ()
        except Exception:  # noqa: BLE001  # onnx raises a dozen kinds, all meaning "cannot tell"
            return ()
        for name, kind in found.items():
            if kind.WhichOneof("value") != "tensor_type":
                scope.types[name] = kind
        return tuple(read_type(found.get(name)) for name in call.outputs)

    def _misfit(self, node: Node, call: Call, error: Exception) -> MisfitError:
        shapes = [t.shape for t in node.inputs if t is not None]
        taken = " and ".join(map(format_shape, shapes))
        reason = printable(str(error).strip().splitlines()[-1])[:200]
        return MisfitError(
            f"the shapes of {self.model} do not fit together in {describe(call)}, which takes "
            f"{taken}: {reason}.",
            Remedy(
                "Give other sizes with {dims} or {inputs}, or check the model with "
                "onnx.checker.check_model."
            ),
            where=describe(call),
            sizes=_differing(shapes),
        )

    def _by_bodies(self, node: Node, _: Call, __: Scope) -> Sequence[OutputType | None]:
        return output_types(node)

    def _by_elements(self, node: Node, call: Call, scope: Scope) -> Sequence[OutputType | None]:
        source = scope.producers.get(call.inputs[0]) if call.inputs else None
        if node.op_type != "ConcatFromSequence" or source is None:
            return ()
        found = [scope.find(name) for name in source.inputs]
        elements = [t for t in found if t is not None and t.shape is not None]
        if source.op_type != "SequenceConstruct" or not elements or len(elements) < len(found):
            return ()
        axis, first = node.attr_int("axis", 0), elements[0]
        if node.attr_int("new_axis", 0):
            return (stacked(first, len(elements), axis),)
        return (OutputType(first.dtype, concat([t.shape for t in elements], axis)),)

    def _by_declaration(self, _: Node, call: Call, scope: Scope) -> Sequence[OutputType | None]:
        return tuple(read_type(scope.declared.get(name)) for name in call.outputs)


def _find_rule(op: str) -> ShapeRule | None:
    # A model whose shapes are all known needs no rules, and importing them takes as long as reading
    # a small model.
    from pytest_modelperf.graph.operators.registry import OPERATORS

    return OPERATORS[op].shapes if op in OPERATORS else None


def _small_values(names: Sequence[str], scope: Scope) -> dict[str, TensorProto]:
    values = {name: scope.value_of(name) for name in names}
    return {
        name: numpy_helper.from_array(value, name)
        for name, value in values.items()
        if value is not None and value.dtype.kind in "iubf"
    }


def _differing(shapes: Iterable[Shape | None]) -> tuple[int, ...]:
    """Return the sizes at the axes, counted from the end, at which the shapes differ."""
    axes = zip_longest(*(reversed(shape) for shape in shapes if shape))
    known = ([size for size in sizes if size is not None] for sizes in axes)
    differing = (sizes for sizes in known if len(set(sizes)) > 1)
    return tuple(dict.fromkeys(chain.from_iterable(differing)))


def refined(tensor: Tensor, more: Tensor | OutputType | None) -> Tensor:
    """Return `tensor` with additional facts from `more`. Known facts stay."""
    if more is None:
        return tensor
    shape = tensor.shape
    if shape is None:
        shape = more.shape
    elif more.shape is not None and len(more.shape) == len(shape):
        shape = tuple(b if a is None else a for a, b in zip(shape, more.shape, strict=True))
    return replace(tensor, dtype=tensor.dtype or more.dtype, shape=shape)


def _require_output_types(types: Sequence[object], node: Node) -> None:
    for found in types:
        if found is None or (isinstance(found, OutputType) and _is_type(found)):
            continue
        raise ExtensionError(
            f"the shape rule registered for {printable(node.qualified_op)} returned "
            f"{printable(repr(found))} for {printable(node.name or node.id)!r}; it must return one "
            "OutputType per output: a name such as 'float32', and a tuple of whole numbers, with "
            "None for what is unknown."
        )


def _is_type(found: OutputType) -> bool:
    shape: object = found.shape
    # A size may have a type of numpy.
    return shape is None or (
        isinstance(shape, tuple | list)
        and all(d is None or (isinstance(d, Integral) and int(d) >= 0) for d in shape)
    )


def _with_plain_sizes(found: OutputType) -> OutputType:
    """Return the type with a tuple of Python's numbers as its shape."""
    if found.shape is None:
        return found
    sizes = tuple(None if size is None else int(size) for size in found.shape)
    return OutputType(found.dtype, sizes)


def _with_value(tensor: Tensor, scope: Scope) -> Tensor:
    if tensor.value is not None:
        return tensor
    value = scope.value_of(tensor.name)
    return tensor if value is None else replace(tensor, value=value)


# -- the types of a graph from onnx's inference


def infer_types(
    model: str, proto: onnx.ModelProto, block: ParsedGraph, opsets: Mapping[str, int]
) -> dict[str, TypeProto]:
    """Infer the types of a model, whose calls are `block`, by onnx's inference over it all."""
    # Its data propagation is off, because it handles every vector element by element. The values
    # that it would find are computed later, for the nodes that need them.
    try:
        graph = onnx.shape_inference.infer_shapes(_without_traps(proto, block, opsets)).graph
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        first = printable(str(error).strip().splitlines()[0] if str(error) else repr(error))
        raise ModelError(
            f"the shapes of {model} do not fit together: {first[:300]}.",
            Remedy(
                "Check the model with onnx.checker.check_model, or give {inputs}.",
                inputs="name:dtype:shape",
            ),
        ) from error
    infos = (*graph.value_info, *graph.output, *graph.input)
    return {info.name: info.type for info in infos}


def _without_traps(
    proto: onnx.ModelProto, block: ParsedGraph, opsets: Mapping[str, int]
) -> onnx.ModelProto:
    """Return a copy without the operators on which inference crashes or errs."""
    if not block.has_any(CRASHING | _POOLINGS | RESIZING):
        return proto
    opset, fractions = opsets.get("", 0), frozenset(_fractional_scales(block))
    if not any(is_trap(call, opset, fractions) for inner in block.walk() for call in inner.calls):
        return proto
    # The copy gives them a domain that onnx does not know. Each is inferred on its own later, when
    # its inputs are known.
    hidden = "hidden"
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    copy.opset_import.add(domain=hidden, version=1)
    for inner in read_graph(copy.graph, "").walk():
        for call in inner.calls:
            if is_trap(call, opset, fractions):
                call.proto.domain = hidden
    return copy


def _fractional_scales(block: ParsedGraph) -> Iterator[str]:
    calls = [call for inner in block.walk() for call in inner.calls]
    taken = {name for call in calls if call.op_type in RESIZING for name in call.inputs}
    if not taken:
        return
    stored = {t.name: t for inner in block.walk() for t in inner.proto.initializer}
    for call in calls:
        if call.op_type == "Constant" and not taken.isdisjoint(call.outputs):
            for attribute in call.proto.attribute:
                tensor = attribute.t if attribute.HasField("t") else constant_tensor(attribute)
                stored |= {} if tensor is None else {call.outputs[0]: tensor}
    for name in taken & stored.keys():
        tensor = stored[name]
        is_here = tensor.data_location != onnx.TensorProto.EXTERNAL
        if is_here and tensor.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(tensor)
            if (values != np.rint(values)).any():
                yield name
