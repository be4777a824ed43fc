"""Nodes built from shapes alone, for the tests of counters."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.graph.operators.cost import Cost
from pytest_modelperf.graph.operators.registry import OPERATORS
from pytest_modelperf.graph.structure import Attribute, Node, Shape, Tensor


def node(
    op: str,
    inputs: Sequence[Shape | Tensor | None],
    outputs: Sequence[Shape | Tensor | None],
    dtype: str = "float32",
    opset: int = 21,
    **attributes: Attribute,
) -> Node:
    """One call of `op`, written as `Op` or `domain::Op`; a shape stands for a tensor of `dtype`.

    None is an input or output that is left out; `unknown("x")` is one without a shape.
    """
    domain, _, op_type = op.rpartition("::")
    return Node(
        name=f"{op_type}_0",
        op_type=op_type,
        domain=domain,
        inputs=tuple(_tensor(f"in{i}", shape, dtype) for i, shape in enumerate(inputs)),
        outputs=tuple(_tensor(f"out{i}", shape, dtype) for i, shape in enumerate(outputs)),
        attributes=attributes,
        opset=opset,
    )


def unknown(name: str = "unknown") -> Tensor:
    """A tensor that is there, of a shape that nobody knows."""
    return Tensor(name)


def cost(call: Node) -> Cost:
    """The cost of a call by the counter of its operator."""
    count = OPERATORS[call.qualified_op].count
    assert count is not None
    return count(call)


def ops(call: Node) -> int:
    """The elementwise operations of a call without contractions."""
    found = cost(call)
    assert found.contractions == ()
    return found.elementwise_ops


def _tensor(name: str, shape: Shape | Tensor | None, dtype: str) -> Tensor | None:
    return Tensor(name, dtype, shape) if isinstance(shape, tuple) else shape
