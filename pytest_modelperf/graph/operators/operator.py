"""All rules of an operator in one record: its cost, its shapes, and demands on its inputs."""

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
    """The values that the uses of an input need: bounds, both included, and the best value.

    `words` are the only texts that the uses accept. `decides` names the work that depends on the
    value, for which a value from the user is better than a made one. If that is a branch
    (`is_of_branch`), `compared` are the values at which another branch runs, taken from the
    constants that the graph compares the input with.
    """

    low: float = -math.inf
    high: float = math.inf
    value: float | None = None
    decides: str = ""
    words: tuple[str, ...] = ()
    compared: tuple[float, ...] = ()
    is_of_branch: bool = False

    def shifted(self, low: float, high: float) -> Demand:
        """Return the demand on x if this one is on x plus something from `low` to `high`."""
        value = None if self.value is None else self.value - low
        return replace(self, low=self.low - low, high=self.high - high, value=value)

    def loosened(self) -> Demand:
        """Return the demand on x if this one is on something computed from x and others."""
        is_bounded = math.isfinite(self.low) and self.value is None
        return replace(self, value=self.low) if is_bounded else self

    def and_also(self, other: Demand) -> Demand:
        """Return both demands together, or only this one if they exclude each other."""
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

    Without a `count`, `uncounted` is the reason, as text that follows the operator's name. If onnx
    infers the shapes of an operator, no rule for them is needed.
    """

    count: Counter | None = None
    shapes: ShapeRule | None = None
    demands: Mapping[int, Demand | DemandRule] = field(default_factory=dict)
    uncounted: str = "no rule for this operator"


ZERO, ONE = Demand(value=0), Demand(value=1)
MAKES, KEEPS = "how much {} makes", "how much {} keeps"


def below(size: int | None) -> Demand | None:
    """Ask for an index into `size` rows, or for 0 if their number is unknown."""
    if size is None:
        return Demand(low=0, value=0)
    return Demand(low=0, high=size - 1) if size > 0 else None


def along(attribute: str) -> DemandRule:
    """Ask for indices along the axis in an attribute."""
    return lambda node, _: below(dim(shape_of(node, 0), node.attr_int(attribute, 0)))


def rows_of(table: int, axis: int = 0) -> DemandRule:
    """Ask for indices of the rows of another input."""
    return lambda node, _: below(dim(shape_of(node, table), axis))


def whole(size: int | None) -> Demand:
    """Ask for the whole length, so that nothing is left out."""
    return Demand(low=1, high=math.inf if size is None else size, value=size or 1)


def all_of(table: int, axis: int) -> DemandRule:
    """Ask for the whole length of another input."""
    return lambda node, _: whole(dim(shape_of(node, table), axis))


def worded(node: Node, text: str) -> str:
    return text.format(f"{node.op_type} {printable(node.name or node.id)!r}")


def sized(text: str, value: float = 1) -> DemandRule:
    """Ask for a number that decides how large the output of a node is."""
    return lambda node, _: Demand(low=0, value=value, decides=worded(node, text))


LENGTH, NO_LENGTH = sized(MAKES), sized(MAKES, 0)
