"""Counters of operators that do the same to every element, made from the weight of one element."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_modelperf.graph.structure import Node, Tensor
from pytest_modelperf.profiler.counting.cost import FREE, Cost, Counter


def per_output_element(ops: int) -> Counter:
    """`ops` for each element of the first output; operands are broadcast to it for nothing."""

    def count(node: Node) -> Cost:
        return elementwise(node.output().size * ops)

    return count


def per_input_element(ops: int, *, per_output: int = 0) -> Counter:
    """`ops` for each element of the first input, and `per_output` for each of the first output."""

    def count(node: Node) -> Cost:
        results = node.output().size * per_output if per_output else 0
        return elementwise(node.input(0).size * ops + results)

    return count


def free(_node: Node) -> Cost:
    """No cost: another view of the same elements, or bookkeeping that does not read them."""
    return FREE


def elementwise(ops: int) -> Cost:
    """A cost without contractions."""
    return Cost(elementwise_ops=ops)


def elements(tensors: Iterable[Tensor | None]) -> int:
    """Elements of all the tensors that are there."""
    return sum(tensor.size for tensor in tensors if tensor is not None)
