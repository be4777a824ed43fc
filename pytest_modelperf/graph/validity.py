"""Refuse an invalid model with a reason: unknown opsets, cycles, and the like.

onnx.checker is not used: it reads external weights and refuses models that engines run.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import onnx
from msgspec import Struct
from onnx import defs

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.convert import (
    MAX_NODES,
    Call,
    ParsedGraph,
    check_text,
    read_calls,
    unified_domain,
)
from pytest_modelperf.graph.model_file import ModelFile, check_stored_size
from pytest_modelperf.graph.stored_tensors import stored_names, with_bodies
from pytest_modelperf.graph.structure import Node
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of, cut_middle

# A name in a sentence is cut beyond this many characters.
_LONGEST_NAME = 300
# Attributes that divide or count, with their least and greatest valid values.
_BOUNDS = (("batch_dims", 0, 64), ("blocksize", 1, 2**16), ("strides", 1, 2**31 - 1))
_EQUATION = re.compile(r"[A-Za-z., ]*(->[A-Za-z. ]*)?")


# If a model imports only other domains, ONNX Runtime adds these at the newest version.
_IMPLIED: Mapping[str, int] = {"ai.onnx.ml": defs.onnx_ml_opset_version(), "com.microsoft": 1}


def import_implied(proto: onnx.ModelProto, block: ParsedGraph) -> None:
    """Import the domains that a model uses without an import, if engines add them implicitly."""
    imported = {entry.domain for entry in proto.opset_import}
    if not imported:
        return
    used = {domain for domain, _ in block.ops}
    used |= {node.domain for each in proto.functions for node in with_bodies(each.node)}
    for domain in sorted(_IMPLIED.keys() & used - imported):
        proto.opset_import.add(domain=domain, version=_IMPLIED[domain])


def check_opsets(proto: onnx.ModelProto, model: str) -> Mapping[str, int]:
    """Return the version of each operator set that the model uses, by domain."""
    check_text(model, *(entry.domain for entry in proto.opset_import))
    opsets = {unified_domain(entry.domain): entry.version for entry in proto.opset_import}
    if not opsets and proto.ir_version < 3:
        # Before IR 3, a model had no opsets and used the first.
        return {"": 1}
    newest = defs.onnx_opset_version()
    version = opsets.get("")
    if version is not None and version > newest:
        raise ModelError(
            f"{model} uses opset {version}; onnx {onnx.__version__} knows 1 to {newest}. "
            "Install a newer onnx: pip install --upgrade onnx"
        )
    for domain, number in opsets.items():
        if not 1 <= number < 2**31:
            raise ModelError(
                f"{model} uses version {number} of the operators of "
                f"{printable(domain or 'ai.onnx')!r}, which does not exist. The file is damaged: "
                "export the model again."
            )
    return opsets


def check_calls(calls: Sequence[Call], opsets: Mapping[str, int], file: ModelFile) -> None:
    """Raise ModelError if a call breaks its operator's schema, on which onnx's inference relies."""
    local = {unified_domain(function.domain) for function in file.proto.functions}
    for domain in dict.fromkeys(call.domain for call in calls):
        if domain not in opsets and domain not in local:
            raise ModelError(
                f"{file.name} has operators of the domain {printable(domain or 'ai.onnx')!r}, but "
                "does not say which version of it. The file is damaged: export the model again."
            )
    checked: set[tuple[str, str, int, int]] = set()
    for call in calls:
        if not call.kinds and "" not in call.inputs:
            # Such calls differ in nothing else, and a large graph has thousands of them.
            form = call.op_type, call.domain, len(call.inputs), len(call.outputs)
            if form in checked:
                continue
            checked.add(form)
        schema = _find_schema(call.op_type, call.domain, opsets.get(call.domain, 1))
        problem = None if schema is None else schema.problem_of(call)
        if problem is not None:
            raise ModelError(
                f"{file.name} calls {describe(call)} {problem}. The file is damaged: export the "
                "model again."
            )
        if len(call.kinds) > len(call.attributes) + len(call.bodies):
            _check_attribute_tensors(call, file)


def _check_attribute_tensors(call: Call, file: ModelFile) -> None:
    what = f"the {printable(call.op_type)} tensor"
    for attribute in call.proto.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            check_stored_size(file, attribute.t, what)
        elif attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
            check_stored_size(file, attribute.sparse_tensor.values, what)


class _Schema(Struct, frozen=True):
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    needed_inputs: tuple[int, ...]
    needed_attributes: frozenset[str]
    kinds: Mapping[str, int]

    def problem_of(self, call: Call) -> str | None:
        given = len(call.inputs)
        if not self.inputs[0] <= given <= self.inputs[1]:
            return f"with {count_of(given, 'input')}; it takes {_span(self.inputs)}"
        if not self.outputs[0] <= len(call.outputs) <= self.outputs[1]:
            return f"for {count_of(len(call.outputs), 'output')}; it has {_span(self.outputs)}"
        if "" in call.inputs:
            for index in self.needed_inputs:
                if index >= given or not call.inputs[index]:
                    return f"without its input {index}"
        missing = self.needed_attributes - call.kinds.keys()
        if missing:
            return f"without its attribute {printable(min(missing))!r}"
        for name, kind in call.kinds.items():
            if self.kinds.get(name, kind) != kind:
                return f"with an attribute {printable(name)!r} of another type than it has"
        return _wrong_value(call)


@cache
def _find_schema(op_type: str, domain: str, version: int) -> _Schema | None:
    try:
        schema = defs.get_schema(op_type, version, domain)
    except defs.SchemaError:
        return None
    single = defs.OpSchema.FormalParameterOption.Single
    return _Schema(
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        tuple(i for i, parameter in enumerate(schema.inputs) if parameter.option == single),
        frozenset(name for name, attribute in schema.attributes.items() if attribute.required),
        {name: _kind_of(attribute) for name, attribute in schema.attributes.items()},
    )


def _kind_of(attribute: defs.OpSchema.Attribute) -> int:
    kind: Any = attribute.type  # an enum, but the stubs omit its value
    return int(kind.value)


def _wrong_value(call: Call) -> str | None:
    """Describe an attribute value that the schema allows but onnx's inference cannot handle."""
    if not call.attributes:
        return None
    axis = call.attributes.get("axis", 0)
    if isinstance(axis, int) and abs(axis) >= 2**31:
        return f"along the axis {axis}"
    equation = call.attributes.get("equation", "")
    if call.op_type == "Einsum" and not _EQUATION.fullmatch(str(equation)):
        return f"with the equation {printable(str(equation))!r}"
    for name, least, most in _BOUNDS:
        value = call.attributes.get(name, least)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and not least <= number <= most:
                return f"with {name}={number}"
    parts = call.attributes.get("num_outputs")
    if call.op_type == "Split" and parts is not None and parts != len(call.outputs):
        return f"for {count_of(len(call.outputs), 'output')} and says num_outputs={parts}"
    return None


def _span(bounds: tuple[int, int]) -> str:
    least, most = bounds
    if least == most:
        return str(least)
    return f"{least} or more" if most >= 2**31 - 1 else f"{least} to {most}"


def check_stored_tensors(block: ParsedGraph, file: ModelFile) -> None:
    """Raise ModelError if an initializer lacks data that it claims, or has an invalid name."""
    graph = block.proto
    for tensor in graph.initializer:
        check_text(file.name, tensor.name)
        check_stored_size(file, tensor, "the weight")
    for sparse in graph.sparse_initializer:
        check_text(file.name, sparse.values.name)
        check_stored_size(file, sparse.values, "the sparse weight")
        check_stored_size(file, sparse.indices, "the indices of the sparse weight")
    for infos in (graph.input, graph.output, graph.value_info):
        check_text(file.name, *(info.name for info in infos))
    for info in graph.input:
        if info.type.HasField("tensor_type"):
            check_text(file.name, *(dim.dim_param for dim in info.type.tensor_type.shape.dim))


# The domain, the name and the overload of a local function, as a node refers to it.
_FunctionKey: TypeAlias = tuple[str, str, str]
# The deepest nesting of local functions. Exporters nest about ten.
MAX_FUNCTION_DEPTH = 200


def check_functions(file: ModelFile) -> None:
    """Raise ModelError if local functions call themselves or unfold to too many nodes."""
    for function in file.proto.functions:
        check_text(file.name, function.name, function.domain, *function.input, *function.output)
        read_calls(function.node, file.name)
    functions = {(unified_domain(f.domain), f.name, f.overload): f for f in file.proto.functions}
    sizes: dict[_FunctionKey, int] = {}

    def unfolded(key: _FunctionKey, path: tuple[_FunctionKey, ...]) -> int:
        if key in sizes:
            return sizes[key]
        if key in path or len(path) > MAX_FUNCTION_DEPTH:
            raise ModelError(
                f"{file.name} has a local function {printable(key[1])!r} that "
                + (
                    "calls itself. The file is damaged: export the model again."
                    if key in path
                    else f"nests more than {MAX_FUNCTION_DEPTH} deep."
                )
            )
        total = 0
        for call in _called(functions[key].node):
            total += unfolded(call, (*path, key)) if call in functions else 1
        sizes[key] = total
        return total

    calls = _called(file.proto.graph.node)
    total = sum(unfolded(call, ()) if call in functions else 1 for call in calls)
    if total > MAX_NODES:
        raise ModelError(
            f"{file.name} would have {total:,} nodes with its local functions unfolded; "
            f"{MAX_NODES:,} is the limit."
        )


def _called(nodes: Iterable[onnx.NodeProto]) -> Iterator[_FunctionKey]:
    for node in with_bodies(nodes):
        yield unified_domain(node.domain), node.op_type, node.overload


def execution_order(calls: Sequence[Call], available: Container[str], model: str) -> Sequence[Call]:
    """Sort the calls so that each follows those whose outputs it uses. The sort is stable.

    `available` are the names that exist before the first node runs. The ModelError names the nodes
    of a cycle, a tensor that no node makes, or one that two nodes make.
    """
    producer: dict[str, int] = {}
    in_order = True
    for index, call in enumerate(calls):
        if in_order:
            for name in call.inputs if not call.bodies else captured_names(call):
                if name and name not in producer and name not in available:
                    in_order = False
                    break
        for name in call.outputs:
            if not name:
                continue
            if name in producer:
                raise ModelError(
                    f"{model} makes the tensor {printable(name)!r} twice, in "
                    f"{describe(calls[producer[name]])} and in {describe(call)}. "
                    "The file is damaged: export the model again."
                )
            producer[name] = index
    return calls if in_order else _topological(calls, producer, available, model)


def _topological(
    calls: Sequence[Call], producer: Mapping[str, int], available: Container[str], model: str
) -> Sequence[Call]:
    waiting: list[int] = []
    users: dict[int, list[int]] = {}
    for index, call in enumerate(calls):
        sources = set()
        for name in captured_names(call):
            if not name or (name not in producer and name in available):
                continue
            if name not in producer:
                raise ModelError(
                    f"{model} takes the tensor {printable(name)!r} in {describe(call)}, "
                    "but no node makes it. The file is damaged: export the model again."
                )
            sources.add(producer[name])
        waiting.append(len(sources))
        for source in sources:
            users.setdefault(source, []).append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order: list[Call] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(calls[index])
        for user in users.get(index, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(calls):
        stuck = [describe(calls[i]) for i, count in enumerate(waiting) if count > 0]
        raise ModelError(
            f"{model} has a cycle: {', '.join(stuck[:4])}{', ...' if len(stuck) > 4 else ''} "
            "wait for one another's outputs. The file is damaged: export the model again."
        )
    return order


def captured_names(call: Call) -> Iterator[str]:
    """Yield the names that a call takes from its graph, including those that its bodies use."""
    yield from call.inputs
    for body in call.bodies.values():
        yield from _outer_names(body)


def _outer_names(body: ParsedGraph) -> Iterator[str]:
    graph = body.proto
    inner = stored_names(graph)
    inner.update(info.name for info in graph.input)
    for call in body.calls:
        inner.update(call.outputs)
    for call in body.calls:
        yield from (name for name in captured_names(call) if name not in inner)
    yield from (output.name for output in graph.output if output.name not in inner)


def describe(call: Call) -> str:
    """Return the name of a node in errors: `Conv 'conv1'`, or its output if it has no name."""
    name = call.proto.name or next((o for o in call.outputs if o), "")
    return f"{printable(call.op_type)} {printable(cut_middle(name, _LONGEST_NAME))!r}"


def describe_node(node: Node) -> str:
    name = cut_middle(node.name or node.id, _LONGEST_NAME)
    return f"{printable(node.op_type)} {printable(name)!r}"
