"""All known operators by name: `Op`, or `domain::Op` outside the standard domain."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_modelperf.graph.operators import (
    attention,
    classic,
    elementwise,
    grouped_attention,
    matmul,
    movement,
    normalization,
    recurrent,
    signals,
    text,
    training,
    transformer,
    windows,
)
from pytest_modelperf.graph.operators.operator import Operator

FAMILIES = (
    attention, classic, elementwise, grouped_attention, matmul, movement, normalization,
    recurrent, signals, text, training, transformer, windows,
)  # fmt: skip

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {op: known for family in FAMILIES for op, known in family.OPERATORS.items()}
)
