"""The steps of a plan are connected by their tensors, and found again in a profile."""

from __future__ import annotations

from pytest_modelperf.graph.structure import PlanGraph, PlanNode
from pytest_modelperf.profiler.fusion import plan_steps, step_indexes, without_idle_bodies
from pytest_modelperf.profiler.measurements import Kernel


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


def test_a_step_is_fed_by_those_that_make_its_inputs_and_a_body_by_the_step_that_has_it() -> None:
    steps = plan_steps(_PLAN)
    assert [step.node.outputs for step in steps] == [
        ("a",), ("b",), ("l",), ("sum",), ("out",), ("y",),
    ]  # fmt: skip
    assert [step.inputs for step in steps] == [(), (0,), (0,), (2, 1), (3,), (2,)]
    assert [step.body for step in steps] == [0, 0, 0, 3, 3, 0]


def test_a_tensor_that_is_read_twice_is_one_line() -> None:
    plan = PlanGraph((_step("a", "Relu", "x", "a"), _step("b", "Mul", "a a", "b")))
    assert [step.inputs for step in plan_steps(plan)] == [(), (0,)]


def test_kernels_are_found_by_name_or_by_their_order() -> None:
    kernels = [
        _kernel("a", "Conv"), _kernel("Relu_1", "Relu"), _kernel("inner", "Add"),
        _kernel("Relu_2", "Relu"), _kernel("Relu_3", "Relu"), _kernel("Relu_4", "Relu"),
    ]  # fmt: skip
    assert step_indexes(plan_steps(_PLAN), kernels) == (0, 1, 3, 4, 5, None)


def test_a_branch_that_was_not_taken_is_left_out() -> None:
    """The steps after it move up, and so do the inputs of those that read them."""
    branch = PlanGraph((_step("t", "Add", "a b", "t"),))
    other = PlanGraph((_step("e", "Mul", "a b", "e"),))
    plan = PlanGraph(
        (
            _step("if", "If", "c", "i", then_branch=branch, else_branch=other),
            _step("y", "Relu", "i", "y"),
            _step("z", "Relu", "y", "z"),
        )
    )
    steps = plan_steps(plan)
    kept = without_idle_bodies(steps, (0, 2, 3, None))
    assert [step.node.name for step in kept.values()] == ["if", "e", "y", "z"]
    assert [step.inputs for step in kept.values()] == [(), (0,), (0,), (2,)]
