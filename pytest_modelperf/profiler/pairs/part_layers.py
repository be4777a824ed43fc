"""Find the times of the layers of two models whose plans differ in some kernels.

A kernel that both plans have takes the same time on both sides. The changed kernels of a part
together take longer by the same amount as the part did in place. A profile of each plan is used
only to divide these times among the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from pytest_modelperf.graph.plans.parts import Part
from pytest_modelperf.graph.plans.plan import EnginePlan, read_plan
from pytest_modelperf.graph.structure import PlanGraph
from pytest_modelperf.profiler.fusion import KernelPlace, KernelPlaces, plan_steps
from pytest_modelperf.profiler.layers import LayerTable, layer_indexes, resolution_ns
from pytest_modelperf.profiler.measurements import (
    GraphKernel,
    Kernel,
    KernelRun,
    LayerTime,
    RowKind,
)
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.stats.robust import CalmTime, calm_time


class TimedKernel(Struct, frozen=True):
    """A kernel of a plan, the nodes of the model that it runs, and its time in a profile."""

    kernel: Kernel
    place: KernelPlace
    ns: float


class TimedPlan(Struct, frozen=True):
    """A plan, and those of its kernels that ran, by their index."""

    steps: PlanGraph
    kernels: Mapping[int, TimedKernel]


class ChangedPlans(Struct, frozen=True):
    """Two plans, the kernels that both have (before to after), and the parts that changed."""

    before: TimedPlan
    after: TimedPlan
    partners: Mapping[int, int]
    parts: tuple[Part, ...]


class SideTimes(Struct, frozen=True):
    """The layer times of a side, and the kernels of its plan."""

    layers: tuple[LayerTime, ...]
    kernels: tuple[GraphKernel, ...]


class SharedTimes(Struct, frozen=True):
    """The times of both sides, which differ by the shifts of the parts and by `elsewhere`."""

    before: SideTimes
    after: SideTimes


def has_known_kernels(plan: EnginePlan) -> bool:
    """Whether each kernel of a plan can be found by its index in a profile."""
    # Kernels in a body have names of their own, and a profile does not show their body.
    steps = read_plan(plan.proto.SerializeToString()).nodes
    return len(steps) == len(plan.kernels) and not any(step.bodies for step in steps)


def read_times(model: Model, plan: EnginePlan, run: KernelRun) -> TimedPlan:
    """Return the plan of a model and the times of its kernels, which ran named by their index."""
    steps = read_plan(plan.proto.SerializeToString())
    graph = model.bound.graph
    names = {node.name: node for node in graph.walk() if node.name}
    places = KernelPlaces(graph, names).of_steps(steps, graph)
    tick_ns = resolution_ns(run.kernels)
    kernels = {}
    for kernel in run.kernels:
        if kernel.name.isdigit() and (at := int(kernel.name)) < len(places):
            kernels[at] = TimedKernel(kernel, places[at], calm_time(kernel.self_ns, tick_ns))
    return TimedPlan(steps, kernels)


def share_out(  # noqa: PLR0913, PLR0917  # both sides, and what is to be shared
    changed: ChangedPlans,
    before: Model,
    after: Model,
    before_ns: float,
    shifts_ns: Sequence[float],
    elsewhere_ns: float,
) -> SharedTimes:
    """Return the layer times of both models, of which the first takes `before_ns`.

    `shifts_ns` is how much longer each part takes now, and `elsewhere_ns` is how much longer the
    whole model takes beyond that. The row with this extra time has the number after the last part
    as its part.
    """
    sides = changed.before, changed.after
    old, new = ({index: each.ns for index, each in s.kernels.items()} for s in sides)
    spent = math.fsum(old.values())
    scale = before_ns / spent if spent > before_ns else 1.0
    old = {index: ns * scale for index, ns in old.items()}
    new.update({b: old.get(a, 0.0) for a, b in changed.partners.items() if b in new})
    left_ns: dict[int, float] = {}
    for number, (part, shift) in enumerate(zip(changed.parts, shifts_ns, strict=True)):
        left_ns[number] = _share_part(old, new, part, shift)
    rest = max(0.0, before_ns - math.fsum(old.values()))
    overhead = LayerTime(kind=RowKind.OVERHEAD, kernel="", ns=rest)
    beyond = elsewhere_ns + math.fsum(left_ns.values())
    parts = [number for number, ns in left_ns.items() if ns]
    if elsewhere_ns:
        parts.append(len(changed.parts))
    elsewhere = LayerTime(kind=RowKind.ELSEWHERE, kernel="", ns=beyond, parts=tuple(parts))
    was = [part.before.changed for part in changed.parts]
    now = [part.after.changed for part in changed.parts]
    return SharedTimes(
        _side_times(before, changed.before, old, was, (overhead,)),
        _side_times(after, changed.after, new, now, (overhead, *([elsewhere] if beyond else []))),
    )


def _share_part(old: dict[int, float], new: dict[int, float], part: Part, shift: float) -> float:
    """Make the times of a part differ by its shift. Return the time that no kernel can take."""
    gone = [index for index in part.before.changed if index in old]
    come = [index for index in part.after.changed if index in new]
    spent, spends = (math.fsum(s[i] for i in own) for s, own in ((old, gone), (new, come)))
    wanted = spent + shift
    if spends > 0.0 and wanted > 0.0:
        _scale(new, come, wanted / spends)
        return 0.0
    if spent > 0.0 and spends == 0.0 and shift < 0.0:
        _scale(old, gone, -shift / spent)
        return 0.0
    _scale(new, come, 0.0)
    return wanted


def _scale(times: dict[int, float], kernels: Iterable[int], factor: float) -> None:
    for index in kernels:
        times[index] *= factor


def _side_times(
    model: Model,
    plan: TimedPlan,
    times_ns: Mapping[int, float],
    changed: Sequence[Sequence[int]],
    others: tuple[LayerTime, ...],
) -> SideTimes:
    layers = model.static.layers
    table = LayerTable(layers, layer_indexes(model.bound.graph, layers))
    part_of = {index: number for number, own in enumerate(changed) for index in own}
    for index, each in plan.kernels.items():
        table.add(each.kernel, each.place, CalmTime(times_ns[index]), part_of.get(index))
    times = table.times()
    kernels = table.kernels_of(plan_steps(plan.steps), list(plan.kernels), times)
    return SideTimes((*times, *others), kernels)
