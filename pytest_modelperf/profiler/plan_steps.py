"""The steps of a plan and its bodies: which feed each other, and which of them a profile timed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.graph.structure import PlanGraph, PlanNode
from pytest_modelperf.profiler.measurements import Kernel


class FedStep(Struct, frozen=True, eq=False):
    """One step, and the steps that make its inputs, by their indexes.

    `body` numbers the body that it stands in, 0 for the plan itself. The first steps of a body are
    fed by the step that has the body.
    """

    node: PlanNode
    inputs: tuple[int, ...]
    body: int = 0


def plan_steps(plan: PlanGraph) -> tuple[FedStep, ...]:
    """All steps of a plan; those of a body follow the step that has the body."""
    found: list[FedStep] = []
    _add(plan, {}, None, found)
    return tuple(found)


def _add(
    plan: PlanGraph, outer: Mapping[str, int], holder: int | None, found: list[FedStep]
) -> None:
    makers = dict(outer)
    # A body is known by the first of its steps.
    body = 0 if holder is None else len(found)
    for node in plan.nodes:
        at = len(found)
        inputs = tuple(dict.fromkeys(makers[name] for name in node.inputs if name in makers))
        if holder is not None and all(feeder <= holder for feeder in inputs):
            inputs = tuple(dict.fromkeys((holder, *inputs)))
        found.append(FedStep(node, inputs, body))
        for inner in node.bodies.values():
            _add(inner, makers, at, found)
        makers.update({name: at for name in node.outputs if name})


def step_indexes(steps: Sequence[FedStep], kernels: Sequence[Kernel]) -> tuple[int | None, ...]:
    """The step that each kernel is; None if there is none like it.

    Kernels run in the order of the plan. An engine names an unnamed step by its operator and a
    number, so the first kernel of an operator is the first there.
    """
    named: dict[tuple[str, str], int] = {}
    unnamed: dict[str, deque[int]] = {}
    for at, step in enumerate(steps):
        if step.node.name:
            named.setdefault((step.node.name, step.node.op_type), at)
        else:
            unnamed.setdefault(step.node.op_type, deque()).append(at)
    found: list[int | None] = []
    for kernel in kernels:
        place = named.get((kernel.name, kernel.op_type))
        if place is None and unnamed.get(kernel.op_type):
            place = unnamed[kernel.op_type].popleft()
        found.append(place)
    return tuple(found)


def without_idle_bodies(
    steps: Sequence[FedStep], ran: Sequence[int | None]
) -> Mapping[int, FedStep]:
    """The steps by their indexes, but those of a body of which none ran: a branch not taken.

    The inputs of a step are those that are left, by their places among these.
    """
    bodies = {0, *(steps[at].body for at in ran if at is not None)}
    kept = [at for at, step in enumerate(steps) if step.body in bodies]
    places = {at: place for place, at in enumerate(kept)}
    return {
        at: replace(
            steps[at], inputs=tuple(places[each] for each in steps[at].inputs if each in places)
        )
        for at in kept
    }
