"""The cost of one run of an operator, as its counter reports it.

A *contraction* is a sum of products over an index that the result does not have:
convolutions, matrix products, attention, recurrences. Its multiply-accumulates are MACs.
Everything else is *elementwise*, weighted by the cost of its instruction. The weights are those
of onnx_tool 1.0.1 (https://github.com/ThanatosShinji/onnx-tool), so that you can compare
`macs + elementwise_ops` with what it prints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from pytest_modelperf.graph.structure import Node

MUL = ADD = CMP = MOV = 1
DIV = 4
SQRT = 24
EXP = POW = 32
TANH = 38
SIN = COS = 39
LOG = 43


class Contraction(Struct, frozen=True):
    """MACs of one product of two operands.

    `operands` are the indexes of the multiplied inputs of the node. None is a value that exists
    only inside the node (attention's probabilities, a recurrence's hidden state).
    The backward pass costs `macs` once more for each operand that needs a gradient.
    """

    macs: int
    operands: tuple[int | None, int | None]


class Cost(Struct, frozen=True):
    """The contractions and weighted elementwise operations of one call."""

    contractions: tuple[Contraction, ...] = ()
    elementwise_ops: int = 0

    @property
    def macs(self) -> int:
        return sum([contraction.macs for contraction in self.contractions])

    @property
    def is_negative(self) -> bool:
        """Whether a count is below zero, which follows from invalid attributes."""
        return self.elementwise_ops < 0 or any([each.macs < 0 for each in self.contractions])  # noqa: C419  # faster

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.contractions + other.contractions, self.elementwise_ops + other.elementwise_ops
        )

    def plus(self, elementwise_ops: int) -> Cost:
        return self + Cost(elementwise_ops=elementwise_ops)


FREE = Cost()

Counter: TypeAlias = Callable[[Node], Cost]
