"""Reasons in the engine's plans: kernels that it inserted, such as conversions and reorderings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pytest_modelperf.comparing.differences import CaseLayers, Differences, row_times
from pytest_modelperf.comparing.reasons.reason import Reason, layer_name
from pytest_modelperf.graph.structure import PlanGraph, PlanNode
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.measurements import RowKind
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of

# What ONNX Runtime adds to the names of nodes when it changes the layout of their inputs.
_RENAMED = re.compile(r"(_nchwc|_token_\d+)+$")


def inserted_kernel_reasons(
    found: Differences, before_plan: PlanGraph | None, after_plan: PlanGraph | None
) -> tuple[Reason, ...]:
    """One reason for each operator whose inserted kernels differ in number."""
    old_rows, new_rows = found.before.others, found.after.others
    old_steps = _inserted_steps(before_plan, found.before)
    new_steps = _inserted_steps(after_plan, found.after)
    reasons = []
    for kernel in {**old_rows, **new_rows}:
        kind, op = kernel
        if kind not in {RowKind.LAYOUT, RowKind.OTHER}:
            continue
        before = _count(old_steps, op, has_run=kernel in old_rows)
        after = _count(new_steps, op, has_run=kernel in new_rows)
        text = _describe(printable(op), before, after)
        if text is None:
            continue
        if before == 0 and after and after_plan is not None and new_steps is not None:
            place = _find_place(new_steps[op][0], after_plan, found.after)
            text += f" (first: {place})" if place else ""
        times = row_times(old_rows.get(kernel)), row_times(new_rows.get(kernel))
        parts = frozenset(part for side in times for each in side for part in each.parts)
        is_gain = None if before is None or after is None else after < before
        reasons.append(
            Reason(text, found.time(*times), kernel=kernel, parts=parts, is_gain=is_gain)
        )
    return tuple(reasons)


def _inserted_steps(
    plan: PlanGraph | None, side: CaseLayers
) -> Mapping[str, Sequence[PlanNode]] | None:
    """The steps that are no layer of the model, by their operator; None without a plan."""
    if plan is None:
        return None
    ids = {layer.id for layer in side.layers}
    names = {layer.name for layer in side.layers if layer.name}
    found: dict[str, list[PlanNode]] = {}
    for step in plan.nodes:
        if step.name not in names and ids.isdisjoint(step.outputs):
            found.setdefault(step.op_type, []).append(step)
    return found


def _count(steps: Mapping[str, Sequence[PlanNode]] | None, op: str, *, has_run: bool) -> int | None:
    """The number of inserted kernels of an operator; None if some ran but there is no plan."""
    if steps is not None:
        return len(steps.get(op, ()))
    return None if has_run else 0


def _describe(op: str, before: int | None, after: int | None) -> str | None:
    """None where the number is the same, or unknown on both sides."""
    if before == 0:
        count = count_of(after, f"{op} kernel") if after else f"{op} kernels"
        return f"{count} put in by the engine, none before" if after != 0 else None
    if after == 0:
        there = f", {before} before" if before else ""
        return f"no {op} kernels put in by the engine any more{there}"
    if before is None or after is None or before == after:
        return None
    return f"{op} kernels put in by the engine: {before} before, {after} now"


def _find_place(step: PlanNode, plan: PlanGraph, side: CaseLayers) -> str | None:
    """`before conv1`: the nearest layer that uses what the step computes."""
    layers = {x.id: x for x in side.layers} | {x.name: x for x in side.layers if x.name}
    users: dict[str, list[PlanNode]] = {}
    for node in plan.nodes:
        for name in node.inputs:
            users.setdefault(name, []).append(node)
    queue, seen = [step], {id(step)}
    while queue:
        here = queue.pop(0)
        for user in (user for name in here.outputs for user in users.get(name, ())):
            layer = _layer_of(user, layers)
            if layer is not None:
                return f"before {layer_name(layer)}"
            if id(user) not in seen:
                seen.add(id(user))
                queue.append(user)
    return None


def _layer_of(step: PlanNode, layers: Mapping[str, StaticLayer]) -> StaticLayer | None:
    names = (*step.outputs, step.name, _RENAMED.sub("", step.name))
    return next((layers[name] for name in names if name in layers), None)
