"""All that an extension needs to say what an operator costs and which types its outputs have.

Extensions import from here; where the names live inside of the package may change.
"""

from __future__ import annotations

from pytest_modelperf.graph.shape_rule import OutputType, ShapeRule
from pytest_modelperf.graph.structure import Node, Tensor, UnknownShapeError
from pytest_modelperf.hookspecs import Operators, hookimpl
from pytest_modelperf.profiler.static.cost import (
    ADD,
    CMP,
    COS,
    DIV,
    EXP,
    LOG,
    MOV,
    MUL,
    POW,
    SIN,
    SQRT,
    TANH,
    Contraction,
    Cost,
    Counter,
)

__all__ = [
    "ADD",
    "CMP",
    "COS",
    "DIV",
    "EXP",
    "LOG",
    "MOV",
    "MUL",
    "POW",
    "SIN",
    "SQRT",
    "TANH",
    "Contraction",
    "Cost",
    "Counter",
    "Node",
    "Operators",
    "OutputType",
    "ShapeRule",
    "Tensor",
    "UnknownShapeError",
    "hookimpl",
]
