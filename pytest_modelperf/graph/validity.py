"""Refuse, with a reason, a model that cannot be understood: unknown opsets, cycles, and the like.

onnx.checker is not used: it reads external weights and refuses models that engines run.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

import onnx
from onnx import NodeProto, defs

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.model_file import ModelFile
from pytest_modelperf.units import printable

# Local functions and bodies unfold; a crafted file could do so without end.
MAX_NODES = 1_000_000
# Bodies within bodies. Real models stay below 5.
MAX_BODY_DEPTH = 32


def check_opsets(file: ModelFile) -> Mapping[str, int]:
    """The version of each operator set that the model uses, by domain."""
    proto = file.proto
    opsets = {_domain(entry.domain): entry.version for entry in proto.opset_import}
    newest = defs.onnx_opset_version()
    version = opsets.get("")
    if version is not None and not 1 <= version <= newest:
        raise ModelError(
            f"{file.name} uses opset {version}; onnx {onnx.__version__} knows 1 to {newest}. "
            + (
                "Install a newer onnx: pip install --upgrade onnx"
                if version > newest
                else "The file is damaged: export the model again."
            )
        )
    functions = {_domain(f.domain) for f in proto.functions}
    for domain in {_domain(node.domain) for node in proto.graph.node}:
        if domain not in opsets and domain not in functions:
            if domain == "" and proto.ir_version < 3:
                # Before IR 3 a model named no operator sets and meant the first.
                opsets[""] = 1
                continue
            raise ModelError(
                f"{file.name} has operators of the domain {printable(domain or 'ai.onnx')!r}, "
                "but does not say which version of it. The file is damaged: export the model "
                "again."
            )
    return opsets


def check_functions(file: ModelFile) -> None:
    """Raise ModelError where local functions call themselves or unfold without bounds."""
    functions = {(_domain(f.domain), f.name): f for f in file.proto.functions}
    sizes: dict[tuple[str, str], int] = {}

    def unfolded(key: tuple[str, str], path: tuple[tuple[str, str], ...]) -> int:
        if key in sizes:
            return sizes[key]
        if key in path or len(path) > MAX_BODY_DEPTH:
            raise ModelError(
                f"{file.name} has a local function {printable(key[1])!r} that calls itself."
            )
        total = 0
        for node in functions[key].node:
            call = (_domain(node.domain), node.op_type)
            total += unfolded(call, (*path, key)) if call in functions else 1
        sizes[key] = total
        return total

    calls = ((_domain(n.domain), n.op_type) for n in file.proto.graph.node)
    total = sum(unfolded(call, ()) if call in functions else 1 for call in calls)
    if total > MAX_NODES:
        raise ModelError(
            f"{file.name} would have {total:,} nodes with its local functions unfolded; "
            f"{MAX_NODES:,} is the limit."
        )


def execution_order(
    nodes: Sequence[NodeProto], available: Container[str], model: str
) -> Sequence[NodeProto]:
    """The nodes so that each stands behind those whose outputs it takes; stable.

    `available` are the names that exist before the first node runs. ModelError names the nodes
    of a cycle, a tensor that nothing makes, or one that two nodes make.
    """
    producer: dict[str, int] = {}
    sorted_already = True
    made: set[str] = set()
    for index, node in enumerate(nodes):
        if sorted_already:
            sorted_already = all(
                not name or name in made or name in available for name in captured_names(node)
            )
        for name in node.output:
            if not name:
                continue
            if name in producer:
                raise ModelError(
                    f"{model} makes the tensor {printable(name)!r} twice, in "
                    f"{describe(nodes[producer[name]])} and in {describe(node)}. "
                    "The file is damaged: export the model again."
                )
            producer[name] = index
            made.add(name)
    if sorted_already:
        return nodes
    return _topological(nodes, producer, available, model)


def _topological(
    nodes: Sequence[NodeProto],
    producer: Mapping[str, int],
    available: Container[str],
    model: str,
) -> Sequence[NodeProto]:
    import heapq

    waiting: list[int] = []
    users: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        sources = set()
        for name in captured_names(node):
            if not name or name in available:
                continue
            if name not in producer:
                raise ModelError(
                    f"{model} takes the tensor {printable(name)!r} in {describe(node)}, "
                    "but nothing makes it. The file is damaged: export the model again."
                )
            sources.add(producer[name])
        waiting.append(len(sources))
        for source in sources:
            users.setdefault(source, []).append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order: list[NodeProto] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(nodes[index])
        for user in users.get(index, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        stuck = [describe(nodes[i]) for i, count in enumerate(waiting) if count > 0]
        raise ModelError(
            f"{model} has a cycle: {', '.join(stuck[:4])}{', ...' if len(stuck) > 4 else ''} "
            "wait for one another's outputs."
        )
    return order


def captured_names(node: NodeProto) -> Iterator[str]:
    """The names that a node takes from its graph, those that its bodies reach out for included."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield from _outer_names(attribute.g, 1)
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            for body in attribute.graphs:
                yield from _outer_names(body, 1)


def _outer_names(body: onnx.GraphProto, depth: int) -> Iterator[str]:
    if depth > MAX_BODY_DEPTH:
        raise ModelError(f"bodies of control flow nest deeper than {MAX_BODY_DEPTH} levels.")
    inner = {i.name for i in body.input} | {i.name for i in body.initializer}
    inner |= {i.values.name for i in body.sparse_initializer}
    inner |= {name for node in body.node for name in node.output}
    for node in body.node:
        for name in captured_names(node):
            if name not in inner:
                yield name
    for output in body.output:
        if output.name not in inner:
            yield output.name


def describe(node: NodeProto) -> str:
    """A node as an error names it: `Conv 'conv1'`, or by its output where it has no name."""
    name = node.name or next((o for o in node.output if o), "")
    return f"{printable(node.op_type)} {printable(name)!r}"


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
