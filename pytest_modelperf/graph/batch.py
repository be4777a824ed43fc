"""Run a model at a batch size other than the stored one, or report what prevents it.

Old exporters fix the batch in the input and again in the target of every Reshape. If such a target
and its data both start with the old batch, the target is changed. A comparison of the shapes at
both sizes finds every other node that keeps the old size, and an error names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import onnx
from onnx import NodeProto, numpy_helper

from pytest_modelperf.errors import BindingError, Remedy
from pytest_modelperf.graph.binding import BoundInputs
from pytest_modelperf.graph.shape_rules import ints_of
from pytest_modelperf.graph.structure import Graph, Node, Shape, Value, is_open
from pytest_modelperf.graph.validity import describe_node
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_shape


def follow_batch(proto: onnx.ModelProto, before: Graph, bound: BoundInputs) -> tuple[str, ...]:
    """Change the Reshape targets of `proto` to the new batch, and return the nodes' names."""
    import numpy as np

    factor = _factor(before, bound)
    if factor is None:
        return ()
    old, new = factor
    nodes = {node.id: node for node in before.nodes if node.op_type == "Reshape"}
    changed = []
    for node in proto.graph.node:
        built = nodes.get(node.output[0]) if node.op_type == "Reshape" and node.output else None
        target = _followed(built, old, new) if built is not None else None
        if target is None:
            continue
        _set_target(proto.graph, node, np.asarray(target, np.int64))
        changed.append(node.name or node.output[0])
    return tuple(changed)


def verify_rebound(before: Graph, after: Graph, bound: BoundInputs, model: str) -> None:
    """Raise BindingError if the graph keeps its own batch size."""
    known = {t.name: t.shape for node in before.nodes for t in node.outputs if t is not None}
    known.update((tensor.name, tensor.shape) for tensor in before.inputs)
    for node in after.nodes:
        for tensor in node.outputs:
            if tensor is None or known.get(tensor.name) is None:
                continue
            if tensor.shape is None or _lost(known[tensor.name], tensor.shape):
                raise refusal(describe_node(node), bound, model)
        if not (_keeps_elements(node) and _keeps_leading(node, known) and _keeps_states(node)):
            raise refusal(describe_node(node), bound, model)
    factor = _factor(before, bound)
    for old, new in zip(before.outputs, after.outputs, strict=True):
        if factor is None or not old.shape or not new.shape or new.is_constant:
            continue
        if old.shape[0] == factor[0] and new.shape[0] != factor[1]:
            holder = _first_holder(known, after)
            place = describe_node(holder) if holder else f"the output {printable(new.name)!r}"
            raise refusal(place, bound, model)


# The operators that `find_misfits` checks.
_CHECKED = frozenset({"Conv", "Reshape"})


def find_misfits(graph: Graph) -> Iterator[str]:
    """Describe the Reshapes that lose or add elements, and a Conv whose input is too small."""
    checked = [node for node in _surely_run(graph) if node.op_type in _CHECKED]
    wrong = [node for node in checked if not _keeps_elements(node)]
    if wrong:
        data, result = wrong[0].inputs[0], wrong[0].outputs[0]
        shapes = [() if t is None or t.shape is None else t.shape for t in (data, result)]
        made_of, made = map(format_shape, shapes)
        more = f", and {len(wrong) - 1} more do likewise" if len(wrong) > 1 else ""
        yield (
            f"no engine runs the model at these sizes: {describe_node(wrong[0])} makes {made} of "
            f"{made_of}{more}"
        )
    for node in checked:
        room = _room(node)
        if any(size is not None and size < reach for size, reach in room):
            sizes, reaches = (format_shape(each) for each in zip(*room, strict=True))
            yield (
                f"no engine runs the model at these sizes: the window of {describe_node(node)} is "
                f"{reaches}, and its padded input {sizes}"
            )
            return


def refusal(place: str, bound: BoundInputs, model: str) -> BindingError:
    """Return the error that names what keeps the model's own sizes."""
    if bound.changed_inputs:
        name = bound.changed_inputs[0]
        return BindingError(
            f"{model} cannot run with the input {printable(name)!r} as "
            f"{format_shape(bound.shapes[name])}: {place} holds on to the model's own size.",
            Remedy("Give {inputs} the sizes that the model declares."),
        )
    return BindingError(
        f"{model} cannot run at batch {bound.batch_size}: its own batch size is written into "
        f"{place}.",
        Remedy("Export the model with a dynamic batch dimension, or leave {batch} out."),
    )


def _factor(before: Graph, bound: BoundInputs) -> tuple[int, int] | None:
    for tensor in before.inputs:
        shape = bound.shapes.get(tensor.name)
        if shape and tensor.shape and tensor.shape[0] is not None and tensor.shape[0] != shape[0]:
            return tensor.shape[0], shape[0]
    return None


def _followed(node: Node, old: int, new: int) -> Sequence[int] | None:
    data = node.optional_input(0)
    if data is None or data.is_constant or not data.shape:
        return None
    target = ints_of(node, 1) or node.attr_ints("shape")
    if not target or target[0] <= 0 or data.shape[0] is None:
        return None
    if target[0] % old or data.shape[0] % old:
        return None
    if -1 in target and target[0] != data.shape[0]:
        return None
    return [target[0] // old * new, *target[1:]]


def _set_target(graph: onnx.GraphProto, node: NodeProto, target: Value) -> None:
    for attribute in node.attribute:
        if attribute.name == "shape":
            # Opsets below 5 have the target as an attribute.
            attribute.ints[:] = target.tolist()
            return
    # The old target may serve other nodes too, so this one gets its own.
    name = f"{node.output[0]}/target"
    graph.initializer.append(numpy_helper.from_array(target, name))
    node.input[1] = name


def _lost(old: Shape | None, new: Shape) -> bool:
    if old is None or None in old:
        return False
    return len(old) != len(new) or None in new


def _keeps_elements(node: Node) -> bool:
    data, result = node.optional_input(0), node.outputs[0] if node.outputs else None
    if node.op_type != "Reshape" or data is None or result is None:
        return True
    return is_open(data) or is_open(result) or data.size == result.size


def _surely_run(graph: Graph) -> Iterator[Node]:
    """Yield the nodes that always run, without those of branches and loops that may be skipped."""
    for node in graph.nodes:
        yield node
        if len(node.bodies) == 1 and node.trips:
            for body in node.bodies.values():
                yield from _surely_run(body)


def _room(node: Node) -> tuple[tuple[int | None, int], ...]:
    """Return the padded size and the reach of the window along each axis of a Conv, if known."""
    # Shape inference rounds by the stride, so it may count a window that is larger than the input.
    data, weight = node.optional_input(0), node.optional_input(1)
    if node.qualified_op != "Conv" or data is None or weight is None or data.shape is None:
        return ()
    auto_pad = node.attr_str("auto_pad", "NOTSET")
    if not weight.has_known_shape or auto_pad.startswith("SAME"):
        return ()
    kernel, count = weight.dims[2:], len(data.shape) - 2
    pads = (node.attr_ints("pads") if auto_pad == "NOTSET" else ()) or (0,) * (2 * count)
    dilations = node.attr_ints("dilations") or (1,) * count
    ends = zip(data.shape[2:], pads[:count], pads[count:], strict=False)
    sizes = [None if size is None else size + first + last for size, first, last in ends]
    reaches = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=False)]
    return tuple(zip(sizes, reaches, strict=False))


def _keeps_leading(node: Node, before: Mapping[str, Shape | None]) -> bool:
    """Whether a Reshape keeps the batch first: its -1 could absorb it and mix the images."""
    data, result = node.optional_input(0), node.outputs[0] if node.outputs else None
    if node.op_type != "Reshape" or data is None or result is None:
        return True
    old_data, old_result = before.get(data.name), before.get(result.name)
    if not (old_data and old_result and data.shape and result.shape):
        return True
    return old_data[0] == data.shape[0] or old_result[0] != result.shape[0]


def _keeps_states(node: Node) -> bool:
    """Whether the states of a recurrent operator have its batch size, which onnx does not check."""
    data = node.optional_input(0)
    if node.op_type not in ("GRU", "LSTM", "RNN") or data is None or not data.shape:
        return True
    axis = 0 if node.attr_int("layout", 0) else 1
    states = [node.optional_input(index) for index in (5, 6)]
    return all(
        state is None or not state.shape or state.shape[axis] in (data.shape[axis], None)
        for state in states
    )


def _first_holder(before: Mapping[str, Shape | None], after: Graph) -> Node | None:
    """Return the first node whose inputs grew with the batch while its output did not."""
    grown = {t.name for t in after.inputs if t.shape != before.get(t.name)}
    for node in after.nodes:
        if not any(t is not None and t.name in grown for t in node.inputs):
            continue
        output = node.outputs[0] if node.outputs else None
        if node.op_type in {"Shape", "Size"} or output is None or is_open(output):
            continue
        old = before.get(output.name)
        if old is not None and None not in old and prod(old) == output.size:  # type: ignore[arg-type]  # no None left
            return node
        grown.add(output.name)
    return None
