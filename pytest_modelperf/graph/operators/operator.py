"""All that is known of an operator, in one record: its cost, its shapes, what its inputs need."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.graph.operators.cost import Counter
from pytest_modelperf.graph.shape_arithmetic import dim
from pytest_modelperf.graph.shape_rule import ShapeRule, shape_of
from pytest_modelperf.graph.structure import Node
from pytest_modelperf.text.escaping import printable


class Demand(Struct, frozen=True):
    """The values that uses of an input ask for: bounds, both included, and the best value.

    `words` are the only texts that they take. `decides` says which work depends on the value: then
    a value from the user is better than any made one. If that is a branch (`is_of_branch`),
    `compared` are the values at which another one runs, by the constants that the graph compares
    it with.
    """

    low: float = -math.inf
    high: float = math.inf
    value: float | None = None
    decides: str = ""
    words: tuple[str, ...] = ()
    compared: tuple[float, ...] = ()
    is_of_branch: bool = False

    def shifted(self, low: float, high: float) -> Demand:
        """The demand on x, if this demand is on x plus something from `low` to `high`."""
        value = None if self.value is None else self.value - low
        return replace(self, low=self.low - low, high=self.high - high, value=value)

    def loosened(self) -> Demand:
        """The demand on x, if this demand is on something computed from x and others."""
        is_bounded = math.isfinite(self.low) and self.value is None
        return replace(self, value=self.low) if is_bounded else self

    def and_also(self, other: Demand) -> Demand:
        """Both demands together; this one alone if they exclude each other."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        if low > high:
            return self
        return Demand(
            low,
            high,
            self.value if self.value is not None else other.value,
            self.decides or other.decides,
            self.words or other.words,
            (*self.compared, *(v for v in other.compared if v not in self.compared)),
            self.is_of_branch or other.is_of_branch,
        )


DemandRule: TypeAlias = Callable[[Node, int], "Demand | None"]


class Operator(Struct, frozen=True):
    """The cost of an operator, the types of its outputs, and the demands on inputs by their place.

    Without a `count`, `uncounted` says why, worded to follow the name of the operator. An operator
    whose shapes onnx infers needs no rule for them.
    """

    count: Counter | None = None
    shapes: ShapeRule | None = None
    demands: Mapping[int, Demand | DemandRule] = field(default_factory=dict)
    uncounted: str = "no rule for this operator"


ZERO, ONE = Demand(value=0), Demand(value=1)
MAKES, KEEPS = "how much {} makes", "how much {} keeps"


def below(size: int | None) -> Demand | None:
    """An index into so many rows; 0 where their number is unknown."""
    if size is None:
        return Demand(low=0, value=0)
    return Demand(low=0, high=size - 1) if size > 0 else None


def along(attribute: str) -> DemandRule:
    """Indices along the axis that an attribute tells."""
    return lambda node, _: below(dim(shape_of(node, 0), node.attr_int(attribute, 0)))


def rows_of(table: int, axis: int = 0) -> DemandRule:
    """Indices of the rows of another input."""
    return lambda node, _: below(dim(shape_of(node, table), axis))


def whole(size: int | None) -> Demand:
    """The whole length, so that nothing is left out."""
    return Demand(low=1, high=math.inf if size is None else size, value=size or 1)


def all_of(table: int, axis: int) -> DemandRule:
    """The whole length of another input."""
    return lambda node, _: whole(dim(shape_of(node, table), axis))


def worded(node: Node, text: str) -> str:
    return text.format(f"{node.op_type} {printable(node.name or node.id)!r}")


def sized(text: str, value: float = 1) -> DemandRule:
    """A number that decides how large the output of a node is."""
    return lambda node, _: Demand(low=0, value=value, decides=worded(node, text))


LENGTH, NO_LENGTH = sized(MAKES), sized(MAKES, 0)
