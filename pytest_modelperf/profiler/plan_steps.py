"""The steps of a plan: which of them feed each other, and which of them a profile timed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from pytest_modelperf.graph.structure import PlanGraph, PlanNode
from pytest_modelperf.profiler.measurements import Kernel


def feeding_steps(plan: PlanGraph) -> tuple[tuple[int, ...], ...]:
    """For each step the steps that make its inputs, by their indexes; those of its bodies too."""
    makers = {name: at for at, step in enumerate(plan.nodes) for name in step.outputs if name}
    return tuple(
        tuple(dict.fromkeys(makers[n] for n in _read_names(step) if makers.get(n, at) < at))
        for at, step in enumerate(plan.nodes)
    )


def _read_names(step: PlanNode) -> Iterator[str]:
    yield from step.inputs
    for body in step.bodies.values():
        for inner in body.nodes:
            yield from _read_names(inner)


def step_indexes(plan: PlanGraph, kernels: Sequence[Kernel]) -> tuple[int | None, ...]:
    """The step that each kernel is, or that has it in a body; None if the plan has none like it.

    Kernels run in the order of the plan. An engine names an unnamed step by its operator and a
    number, so the first kernel of an operator is the first there.
    """
    named: dict[tuple[str, str], int] = {}
    unnamed: dict[str, deque[int]] = {}
    for at, step in enumerate(plan.nodes):
        for each in _with_inner(step):
            if each.name:
                named.setdefault((each.name, each.op_type), at)
            else:
                unnamed.setdefault(each.op_type, deque()).append(at)
    found: list[int | None] = []
    for kernel in kernels:
        place = named.get((kernel.name, kernel.op_type))
        if place is None and unnamed.get(kernel.op_type):
            place = unnamed[kernel.op_type].popleft()
        found.append(place)
    return tuple(found)


def _with_inner(step: PlanNode) -> Iterator[PlanNode]:
    yield step
    for body in step.bodies.values():
        for inner in body.nodes:
            yield from _with_inner(inner)
