"""Whether the work of a graph depends on the values that run through it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TypeAlias

from pytest_modelperf.graph.structure import Graph, Node, Tensor

# The inputs whose values decide how much these compute, how long it takes, or in which order they
# read memory.
_DECIDING: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("If", "NonZero", "TopK", "Unique"), (0,)),
    **dict.fromkeys(("Loop", "NonMaxSuppression"), (0, 1)),
    **dict.fromkeys(
        ("Compress", "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"),
        (1,),
    ),
}  # fmt: skip
# What these ran, a run tells: which body, and how often.
CONTROL_FLOW = frozenset({"If", "Loop"})
# These return the shape of their input, which does not depend on its values.
_OF_SHAPE = frozenset({"Shape", "Size"})

# What each value is computed from, None if that is a float or not known. A value that is not there
# is an input or a constant.
_Sources: TypeAlias = "Mapping[str, tuple[Tensor, ...] | None]"


def find_data_dependence(graph: Graph, apart_from: Container[str] = ()) -> str | None:
    """The operator whose work depends on data: `TopK`.

    None if there is none but those that are left apart. Inputs of the model, constants, and
    integers that are computed from them or from shapes are no data: they are the same in two models
    of which an engine makes one plan. So neither a Loop that counts to a size nor a Scan depends on
    data. A Scan of opset 8 does: it is given the lengths of sequences.
    """
    return next((op for op in _deciding(graph, {}) if op not in apart_from), None)


def _deciding(graph: Graph, around: _Sources) -> Iterator[str]:
    """The operators whose work depends on data, those in bodies included."""
    sources = {**around, **dict(_sources_in(graph))}
    for node in graph.nodes:
        deciding = [node.optional_input(index) for index in _DECIDING.get(node.op_type, ())]
        is_of_lengths = node.op_type == "Scan" and node.opset == 8
        if is_of_lengths or any(_is_data(tensor, sources) for tensor in _present(deciding)):
            yield node.op_type
        for body in node.bodies.values():
            inner = {**sources, **dict(_sources_in(body)), **dict(_carried(node, body))}
            conditions = body.outputs[:1] if node.op_type == "Loop" else ()
            if any(_is_data(tensor, inner) for tensor in conditions):
                yield node.op_type
            yield from _deciding(body, inner)


def _sources_in(graph: Graph) -> Iterator[tuple[str, tuple[Tensor, ...] | None]]:
    """The values that nodes make, each with what it is computed from."""
    for node in graph.nodes:
        taken: tuple[Tensor, ...] | None = _present(node.inputs)
        if node.op_type in _OF_SHAPE:
            taken = ()
        elif node.bodies:
            # What a body computes it from is known inside of the body only.
            taken = None
        for tensor in _present(node.outputs):
            # Exporters compare integers as floats.
            is_computed = tensor.is_float and node.op_type != "Cast"
            yield tensor.name, None if is_computed else taken


def _carried(node: Node, body: Graph) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """The inputs of a body, each with its values on the first trip and on later ones."""
    # The body of a Loop counts the trips for itself: its outputs begin with the condition.
    shift = 1 if node.op_type == "Loop" else 0
    for index, tensor in enumerate(body.inputs):
        later = body.outputs[index - shift : index - shift + 1] if index >= shift else ()
        yield tensor.name, (*_present(node.inputs[index : index + 1]), *later)


def _is_data(tensor: Tensor, sources: _Sources) -> bool:
    """Whether a value is a float, or follows from computed floats or from trained integers."""
    if tensor.is_float:
        return True
    seen: set[str] = set()
    waiting = [tensor]
    while waiting:
        each = waiting.pop()
        if each.name in seen:
            continue
        seen.add(each.name)
        if each.name not in sources:
            if each.weights and each.value is None and each is not tensor:
                return True
            continue
        taken = sources[each.name]
        if taken is None or each.dtype is None:
            return True
        waiting += taken
    return False


def _present(tensors: Iterable[Tensor | None]) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in tensors if tensor is not None)
