"""The names that an extension imports: the hooks, the cost and shapes of operators, and engines.

Names in other modules of the package may change; those in this one do not. An example, for an
operator that multiplies x by W and takes the tanh of the product:

    from pytest_modelperf.extensions import TANH, Contraction, Cost, OutputType

    def count(node):
        x, weight = node.input(0), node.input(1)
        results = x.size // x.dims[-1] * weight.dims[-1]
        product = Contraction(macs=results * x.dims[-1], operands=(0, 1))
        return Cost((product,), elementwise_ops=results * TANH)

    def shapes(node):
        x, weight = node.input(0), node.input(1)
        return (OutputType(x.dtype, (*x.dims[:-1], weight.dims[-1])),)

    def modelperf_register_operators(operators):
        operators.register("my.ops::TanhLinear", count=count, shapes=shapes)

    def modelperf_register_engines(engines):
        engines.register("name", module="package.module", install="pip install runtime")

`Engine` describes what the module of an engine has to define. Every class here has a docstring.
"""

from __future__ import annotations

from pytest_modelperf.graph.operators.cost import (
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
from pytest_modelperf.graph.shape_rules import OutputType, ShapeRule
from pytest_modelperf.graph.structure import Node, Tensor, UnknownShapeError
from pytest_modelperf.profiler.engines.contract import (
    Engine,
    ModelRef,
    ProfiledSession,
    Session,
    StepPlan,
    Steps,
)
from pytest_modelperf.profiler.hookspecs import Engines, Operators, hookimpl

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
    "Engine",
    "Engines",
    "ModelRef",
    "Node",
    "Operators",
    "OutputType",
    "ProfiledSession",
    "Session",
    "ShapeRule",
    "StepPlan",
    "Steps",
    "Tensor",
    "UnknownShapeError",
    "hookimpl",
]
