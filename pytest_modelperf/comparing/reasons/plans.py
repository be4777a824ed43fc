"""Find reasons in the engine's plans: fused layers, inserted kernels, providers, changed parts."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import TimeChange
from pytest_modelperf.comparing.differences import CaseLayers, Differences, Doubt, row_times
from pytest_modelperf.comparing.merged_kernels import KnownPlans
from pytest_modelperf.comparing.reasons.reason import (
    LayerPair,
    Reason,
    layer_name,
    pairs_in_order,
    reason_about_pairs,
)
from pytest_modelperf.graph.structure import PlanGraph, PlanNode
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.measurements import EngineFacts, RowKind, provider_name
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of

# Layers that compute shapes, and the types in which later layers use these shapes.
_OF_SHAPES = frozenset({"Shape", "Size"})
_WHOLE_NUMBERS = frozenset({"bool", "int32", "int64"})
# At most this many operators of a fusion are named.
_MOST_NAMED = 4


class _SplitKernel(Struct, frozen=True):
    """One kernel whose layers run in several kernels on the other side.

    `head` is the layer at which its time is shown, and `other_heads` are those of the other side.
    """

    head: int
    members: tuple[int, ...]
    other_heads: frozenset[int]


def fusion_reasons(
    found: Differences, before_plan: PlanGraph | None, after_plan: PlanGraph | None
) -> tuple[Reason, ...]:
    """Return one reason for each pattern of operators that is fused on one side only."""
    if not (_knows_fusions(found.before, before_plan) and _knows_fusions(found.after, after_plan)):
        return ()
    return (*_reasons(found, is_lost=True), *_reasons(found, is_lost=False))


def _reasons(found: Differences, *, is_lost: bool) -> Iterator[Reason]:
    """Yield the lost fusions of the side before, or the new fusions of the side now."""
    one, other = (found.before, found.after) if is_lost else (found.after, found.before)
    index = found.pairs if is_lost else {new: old for old, new in found.pairs.items()}
    for pattern, kernels in _split_kernels(one, other, index).items():
        members = [member for kernel in kernels for member in kernel.members]
        heads = {kernel.head for kernel in kernels}
        other_heads = {head for kernel in kernels for head in kernel.other_heads}
        before, after = (heads, other_heads) if is_lost else (other_heads, heads)
        yield Reason(
            _describe_fusion(pattern, kernels, one, "lost" if is_lost else "won"),
            found.time_of_layers(before, after),
            pairs=frozenset((m, index[m]) if is_lost else (index[m], m) for m in members),
            parts=found.parts_of_layers(before, after),
            is_gain=not is_lost,
        )


def _knows_fusions(side: CaseLayers, plan: PlanGraph | None) -> bool:
    return plan is not None or any(row.fused for row in side.rows)


def _split_kernels(
    one: CaseLayers, other: CaseLayers, other_index: Mapping[int, int]
) -> dict[str, list[_SplitKernel]]:
    """Return the kernels whose layers run in several kernels on the other side, by operators."""
    found: dict[str, list[_SplitKernel]] = {}
    for head, group in one.groups.items():
        members = tuple(m for m in group if m in other_index and other_index[m] in other.heads)
        other_heads = frozenset(other.heads[other_index[m]] for m in members)
        if len(other_heads) > 1:
            is_folded = all(m == head or _is_of_shapes(one.layers[m]) for m in members)
            pattern = "" if is_folded else _pattern([one.layers[m] for m in members])
            found.setdefault(pattern, []).append(_SplitKernel(head, members, other_heads))
    return found


def _is_of_shapes(layer: StaticLayer) -> bool:
    """Whether a layer works on shapes, which an engine computes once if all sizes are known."""
    return layer.op_type in _OF_SHAPES or layer.precision in _WHOLE_NUMBERS


def _pattern(layers: Sequence[StaticLayer]) -> str:
    """Return `Conv+Add+Relu`, or `Mul+Add+Div+12 more`."""
    names = [printable(layer.qualified_op) for layer in layers]
    if len(names) > _MOST_NAMED:
        names[_MOST_NAMED - 1 :] = [f"{len(names) - _MOST_NAMED + 1} more"]
    return "+".join(names)


def _describe_fusion(pattern: str, kernels: list[_SplitKernel], side: CaseLayers, word: str) -> str:
    """Return `2 Conv+Relu fusions lost (first: conv1)`. Without a pattern, say what was folded."""
    if not pattern:
        members = [m for kernel in kernels for m in kernel.members if m != kernel.head]
        count = count_of(len(members), "layer")
        first = layer_name(side.layers[members[0]])
        if word == "lost":
            return f"{count} of shapes, computed once before, run each time now (first: {first})"
        return f"{count} of shapes, run each time before, computed once now (first: {first})"
    first = layer_name(side.layers[kernels[0].head])
    return f"{count_of(len(kernels), f'{pattern} fusion')} {word} (first: {first})"


# The endings that ONNX Runtime adds to node names when it changes the layout of their inputs.
_RENAMED = re.compile(r"(_nchwc|_token_\d+)+$")


def inserted_kernel_reasons(
    found: Differences, before_plan: PlanGraph | None, after_plan: PlanGraph | None
) -> tuple[Reason, ...]:
    """Return one reason for each operator whose inserted kernels differ in number."""
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
        text = _describe_inserted(printable(op), before, after)
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
    """Return the steps that are not layers of the model, by operator, or None without a plan."""
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
    """Return the number of inserted kernels, or None if some ran but there is no plan."""
    if steps is not None:
        return len(steps.get(op, ()))
    return None if has_run else 0


def _describe_inserted(op: str, before: int | None, after: int | None) -> str | None:
    """Return the text, or None if the number is the same or unknown on both sides."""
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
    """Return `before conv1`: the nearest layer that uses the result of the step."""
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


def engine_reasons(found: Differences) -> tuple[Reason, ...]:
    """Return every fact that differs between the engines of two cases that ran."""
    before, after = found.before.profile.measured, found.after.profile.measured
    if before is None or after is None:
        return ()
    texts = _describe_engines(before.engine, after.engine)
    return tuple(Reason(text, is_of_whole=True) for text in texts)


def _describe_engines(old: EngineFacts, new: EngineFacts) -> Iterator[str]:
    if (old.name, old.version) != (new.name, new.version):
        yield f"another engine: {printable(old.label)} before, {printable(new.label)} now"
    if old.python and new.python and old.python != new.python:
        yield f"another Python: {printable(old.python)} before, {printable(new.python)} now"
    for key in {**old.options, **new.options}:
        before, after = (printable(e.options.get(key, "not set")) for e in (old, new))
        if before != after:
            yield f"option {printable(key)}: {before} before, {after} now"
    gone = [provider for provider in old.providers if provider not in new.providers]
    if gone and new.providers and old.name == new.name:
        yield f"the engine no longer has {', '.join(map(provider_name, gone))}"


def precision_reasons(found: Differences) -> tuple[Reason, ...]:
    """Return the layers that run in another precision than before."""
    return _moved_reasons(found, "in", lambda row: row.precision, printable)


def provider_reasons(found: Differences) -> tuple[Reason, ...]:
    """Return the layers that run on another provider than before."""

    def provider(row: LayerRow) -> str | None:
        return None if row.time is None else row.time.provider

    return _moved_reasons(found, "on", provider, provider_name)


def _moved_reasons(
    found: Differences,
    word: str,
    read: Callable[[LayerRow], str | None],
    show: Callable[[str], str],
) -> tuple[Reason, ...]:
    """Return one reason for each operator and each change of the value that `read` finds."""
    moved: dict[tuple[str, str, str], list[LayerPair]] = {}
    for old, new in pairs_in_order(found):
        row = found.after.rows[new]
        before, after = read(found.before.rows[old]), read(row)
        if before is None or after is None:
            continue
        # Two engines can use different names for the same thing, so compare what is shown.
        before, after = show(before), show(after)
        if before != after:
            moved.setdefault((row.qualified_op, before, after), []).append((old, new))
    reasons = []
    for (op, before, after), pairs in moved.items():
        count = count_of(len(pairs), "layer")
        first = layer_name(found.after.layers[pairs[0][1]])
        text = f"{printable(op)}: {count} {word} {after}, before {word} {before} (first: {first})"
        reasons.append(reason_about_pairs(found, text, pairs))
    return tuple(reasons)


# At most this many facts of the graphs are named for a part.
_MOST_FACTS = 3


class MeasuredParts(Struct, frozen=True):
    """The parts that changed, by number: their text, how much longer each takes, and its doubt.

    If there is one more doubt than parts, it is about the time of the whole beyond the parts.
    `outputs` are the tensors that each part passes on. `plans` has the kernels that did not change.
    """

    texts: tuple[str, ...]
    outputs: tuple[frozenset[str], ...]
    shifts_ns: tuple[float, ...]
    doubts: tuple[Doubt, ...]
    plans: KnownPlans


def find_parts_of(fact: Reason, parts: MeasuredParts) -> Reason:
    """Return the fact with the parts that pass on the outputs that it is about."""
    about = (n for n, outputs in enumerate(parts.outputs) if outputs & fact.outputs)
    return replace(fact, parts=fact.parts | frozenset(about))


def part_reasons(
    found: Differences, facts: Sequence[Reason], parts: MeasuredParts
) -> tuple[Reason, ...]:
    """Return one reason for each part, or for several if they are alike or share a fact."""
    texts, shifts_ns = parts.texts, parts.shifts_ns
    alike = [[part for part, own in enumerate(texts) if own == text] for text in set(texts)]
    groups = _joined(range(len(texts)), [*alike, *(fact.parts for fact in facts)])
    return tuple(
        reason
        for group in groups
        for reason in _reasons_of_group(
            group,
            [texts[part] for part in group],
            found.time_of_parts(group, math.fsum(shifts_ns[part] for part in group)),
            [fact for fact in facts if fact.parts & set(group)],
        )
    )


def _reasons_of_group(
    group: Iterable[int], texts: Sequence[str], time: TimeChange, facts: Sequence[Reason]
) -> Iterator[Reason]:
    """Yield the reason of these parts, then each fact that cannot be a cause of their time."""
    causes = [fact for fact in facts if fact.can_explain(time)]
    yield Reason(
        _describe_part(texts, causes), time, parts=frozenset(group), measured="measured in place"
    )
    yield from (Reason(fact.text) for fact in facts if fact not in causes)


def elsewhere_reasons(found: Differences) -> tuple[Reason, ...]:
    """Return the reason for a difference beyond the parts, if it is more than noise."""
    row = found.after.others.get((RowKind.ELSEWHERE, ""))
    time = found.time((), row_times(row))
    if time is None or time.is_within_noise:
        return ()
    text = "elsewhere, in kernels that both plans have"
    return (Reason(text, time, measured="by the whole model"),)


def _joined(parts: Iterable[int], links: Iterable[Collection[int]]) -> list[list[int]]:
    """Return groups of parts. Two parts are in the same group if a link contains both."""
    group_of = {part: {part} for part in parts}
    for link in links:
        known = [part for part in link if part in group_of]
        joined = {each for part in known for each in group_of[part]}
        group_of.update(dict.fromkeys(joined, joined))
    return [list(group) for group in {tuple(sorted(group)) for group in group_of.values()}]


def _describe_part(texts: Sequence[str], facts: Sequence[Reason]) -> str:
    """Describe parts and facts: `2 x 1 Relu became 3 kernels (Abs, Add, Mul); 2 Conv+Relu ...`.

    A fact replaces a part's text with the same meaning, because the fact also names a layer.
    """
    named_facts = facts[:_MOST_FACTS]
    repeated = {fact.headline for fact in named_facts}
    edited = {fact.of_plans for fact in named_facts}
    named = [
        f"{count} x {text}" if count > 1 else text
        for text, count in Counter(texts).items()
        if text not in edited and (count > 1 or text not in repeated)
    ]
    named += [fact.text for fact in named_facts]
    more = len(facts) - _MOST_FACTS
    if more > 0:
        named.append(count_of(more, "more change"))
    return "; ".join(named)
