"""The steps of a plan are connected by their tensors, and found again in a profile."""

from __future__ import annotations

from pytest_modelperf.graph.structure import PlanGraph, PlanNode
from pytest_modelperf.profiler.measurements import Kernel
from pytest_modelperf.profiler.plan_steps import feeding_steps, step_indexes


def _step(name: str, op_type: str, inputs: str, outputs: str, **bodies: PlanGraph) -> PlanNode:
    return PlanNode(name, op_type, "", tuple(inputs.split()), tuple(outputs.split()), bodies)


def _kernel(name: str, op_type: str) -> Kernel:
    return Kernel(name=name, op_type=op_type, self_ns=(1.0,))


_BODY = PlanGraph((_step("inner", "Add", "carried b", "sum"), _step("", "Relu", "sum", "out")))
_PLAN = PlanGraph(
    (
        _step("a", "Conv", "x w", "a"),
        _step("", "Relu", "a", "b"),
        _step("loop", "Loop", "n a", "l", body=_BODY),
        _step("", "Relu", "l", "y"),
    )
)


def test_a_step_is_fed_by_those_that_make_its_inputs_and_those_of_its_bodies() -> None:
    assert feeding_steps(_PLAN) == ((), (0,), (0, 1), (2,))


def test_a_tensor_that_is_read_twice_is_one_line() -> None:
    plan = PlanGraph((_step("a", "Relu", "x", "a"), _step("b", "Mul", "a a", "b")))
    assert feeding_steps(plan) == ((), (0,))


def test_kernels_are_found_by_name_or_by_their_order_and_in_a_body_at_its_step() -> None:
    kernels = [
        _kernel("a", "Conv"),
        _kernel("Relu_1", "Relu"),
        _kernel("inner", "Add"),
        _kernel("Relu_2", "Relu"),
        _kernel("Relu_3", "Relu"),
        _kernel("Relu_4", "Relu"),
    ]
    assert step_indexes(_PLAN, kernels) == (0, 1, 2, 2, 3, None)
