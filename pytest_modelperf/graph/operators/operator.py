"""All rules of an operator in one record, and counters of elementwise ones for all families.

The weight of an activation is the sum of the weights in the formula next to it, evaluated as
written in the operator's definition: constants are free, a comparison or a selection is a CMP, a
negation or a subtraction is an ADD. If the formula has branches, both are counted, because
vectorised kernels evaluate both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.graph.operators.cost import (
    ADD,
    CMP,
    DIV,
    EXP,
    FREE,
    LOG,
    MOV,
    MUL,
    POW,
    SQRT,
    TANH,
    Cost,
    Counter,
)
from pytest_modelperf.graph.shape_rules import ShapeRule, dim, has_input, shape_of
from pytest_modelperf.graph.structure import Node, Tensor
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


SIGMOID = ADD + EXP + ADD + DIV  # 1 / (1 + exp(-x))
SOFTPLUS = EXP + ADD + LOG  # log(exp(x) + 1)
# sign(x) * (1 - t * poly4(t) * exp(-x^2)) with t = 1 / (1 + p|x|):
# Abramowitz and Stegun, Handbook of Mathematical Functions, formula 7.1.26.
ERF = (CMP + MUL + ADD + DIV) + (5 * MUL + 4 * ADD) + (MUL + ADD + EXP) + (MUL + ADD) + CMP
# max, x - max, exp, sum, quotient: without subtracting the maximum, exp overflows.
SOFTMAX = CMP + ADD + EXP + ADD + DIV
ACTIVATION_OPS: Mapping[str, int] = {
    "Affine": MUL + ADD,  # a * x + b
    "Celu": 2 * CMP + DIV + EXP + ADD + MUL + ADD,  # max(0, x) + min(0, a * (exp(x / a) - 1))
    "Clip": 2 * CMP,  # min(max(x, low), high)
    "Elu": CMP + EXP + ADD + MUL,  # x if x > 0 else a * (exp(x) - 1)
    "Erf": ERF,
    "FastGelu": 3 * MUL + ADD + MUL + TANH + ADD + 2 * MUL,  # x / 2 * (1 + tanh(c(x + dx^3)))
    "GeGLU": 3 * MUL + ADD + MUL + TANH + ADD + 3 * MUL,  # fastgelu(g) * l; for each pair (g, l)
    "Gelu": DIV + ERF + ADD + 2 * MUL,  # 0.5 * x * (1 + erf(x / sqrt(2)))
    "HardSigmoid": MUL + ADD + 2 * CMP,  # max(0, min(1, a * x + b))
    "HardSwish": MUL + ADD + 2 * CMP + MUL,  # x * hardsigmoid(x)
    "Identity": 0,
    "LeakyRelu": CMP + MUL,  # x if x >= 0 else a * x
    "LogSoftmax": CMP + ADD + EXP + ADD + ADD,  # x - max - log(sum(exp(x - max))), one log per row
    "Mish": SOFTPLUS + TANH + MUL,  # x * tanh(softplus(x))
    "None": 0,
    "PRelu": CMP + MUL,  # x if x >= 0 else slope * x
    "QuickGelu": MUL + SIGMOID + MUL,  # x * sigmoid(a * x)
    "Relu": CMP,  # max(0, x)
    "Relu2": CMP + MUL,  # the square of relu(x)
    "ScaledTanh": MUL + TANH + MUL,  # a * tanh(b * x)
    "Selu": CMP + EXP + MUL + ADD + MUL,  # g * (x if x > 0 else a * exp(x) - a)
    "Shrink": 2 * CMP + ADD,  # x + b below -l, x - b above l, else 0
    "Sigmoid": SIGMOID,
    "Silu": SIGMOID + MUL,  # x * sigmoid(x)
    "Softmax": SOFTMAX,
    "Softplus": SOFTPLUS,
    "Softsign": CMP + ADD + DIV,  # x / (1 + |x|)
    "SwiGLU": 3 * CMP + MUL + SIGMOID + ADD + 2 * MUL,
    # g * sigmoid(a * g) * (l + b), g clamped above, l on both sides; for each pair (g, l)
    "Swish": MUL + SIGMOID + MUL,  # x * sigmoid(a * x)
    "Tanh": TANH,
    "ThresholdedRelu": CMP,  # x if x > a else 0
}


def activation_ops(name: str) -> int:
    """Return the operations per element: 0 without a name, CMP for an unknown name."""
    # ONNX writes names in any case: `relu` in a mixture of experts is `Relu` in an LSTM. An unknown
    # activation must not hide the MACs of the operator that it is fused into.
    return _OPS_BY_LOWER_NAME.get(name.lower(), CMP) if name else 0


_OPS_BY_LOWER_NAME: Mapping[str, int] = {name.lower(): n for name, n in ACTIVATION_OPS.items()}

QUANTIZE = DIV + ADD + 2 * CMP  # clip(x / scale + zero point)
DYNAMIC_QUANTIZE = 2 * CMP + QUANTIZE  # minimum and maximum first
REQUANTIZE = MUL + ADD + 2 * CMP  # clip(accumulator * scale + zero point)
DEQUANTIZE_WEIGHT = ADD + MUL  # (q - zero point) * scale, or a small float decoded and scaled
UNPACKED_FORMATS = frozenset({0, 1, 30})  # packed formats that hold floats as they are
ROTARY = 2 * MUL + ADD  # x * cos + rotated x * sin


def bias_ops(node: Node, bias: int | None, elements: int) -> int:
    """Return one ADD per element of the result if the node has an input at `bias`."""
    return ADD * elements if has_input(node, bias) else 0


def scale_ops(node: Node, factor: str) -> int:
    """Return one MUL per element, unless the attribute `factor` is 1."""
    return 0 if node.attr_float(factor, 1.0) == 1 else MUL


def zero_point_ops(node: Node, operand: int, zero_point: int | None) -> int:
    """Return one ADD per element for a zero point. Constants are shifted once, at load."""
    if not has_input(node, zero_point) or node.input(operand).is_constant:
        return 0
    return ADD * node.input(operand).size


def rms_norm_ops(rows: int, width: int) -> int:
    """Return the operations of x / sqrt(mean(x^2) + epsilon) * scale on `rows` of this width."""
    return rows * (width * (MUL + ADD + MUL + MUL) + DIV + ADD + SQRT + DIV)


UNIFORM = 2 * (MUL + ADD)


def per_output(ops: int) -> Counter:
    """Count `ops` for each element of the first output, with operands broadcast for free."""

    def count(node: Node) -> Cost:
        return elementwise(node.output().size * ops)

    return count


def per_input(ops: int, *, per_output: int = 0) -> Counter:
    """Count `ops` per element of the first input, and `per_output` per one of the first output."""

    def count(node: Node) -> Cost:
        results = node.output().size * per_output if per_output else 0
        return elementwise(node.input(0).size * ops + results)

    return count


def free(_node: Node) -> Cost:
    """Count nothing: another view of the same elements, or bookkeeping that does not read them."""
    return FREE


def elementwise(ops: int) -> Cost:
    return Cost(elementwise_ops=ops)


def elements(tensors: Iterable[Tensor | None]) -> int:
    return sum(tensor.size for tensor in tensors if tensor is not None)


def rows_in(tensor: Tensor) -> int:
    """Count the rows of a tensor: the product of all its dimensions but the last."""
    return prod(tensor.dims[:-1])


def norm_ops(p: int, gathered: int, norms: int) -> int:
    """Return the operations of `norms` p-norms, (sum of |x|^p)^(1/p), of `gathered` elements."""
    if p == 1:
        return gathered * (CMP + ADD)
    if p == 2:
        return gathered * (MUL + ADD) + norms * SQRT
    return gathered * (CMP + POW + ADD) + norms * POW


def ceil_log2(n: int) -> int:
    """Return log2(n) rounded up, and 0 for an n below 2."""
    return (n - 1).bit_length() if n > 1 else 0


# Counts a move of each element of the output.
move = per_output(MOV)
