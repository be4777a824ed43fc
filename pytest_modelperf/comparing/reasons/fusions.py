"""Reasons in the engine's plans: layers that run in one kernel on one side only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from pytest_modelperf.comparing.differences import CaseLayers, Differences
from pytest_modelperf.comparing.reasons.reason import Reason, layer_name
from pytest_modelperf.graph.structure import PlanGraph
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of

# Layers that compute shapes, and the types in which others go on with these.
_OF_SHAPES = frozenset({"Shape", "Size"})
_WHOLE_NUMBERS = frozenset({"bool", "int32", "int64"})
# So many operators of a fusion are named.
_MOST_NAMED = 4


class _SplitKernel(Struct, frozen=True):
    """One kernel whose layers run in several kernels on the other side.

    `head` is the layer that its time is shown at, `other_heads` those of the other side.
    """

    head: int
    members: tuple[int, ...]
    other_heads: frozenset[int]


def fusion_reasons(
    found: Differences, before_plan: PlanGraph | None, after_plan: PlanGraph | None
) -> tuple[Reason, ...]:
    """One reason for each pattern of operators that is fused on one side only."""
    if not (_knows_fusions(found.before, before_plan) and _knows_fusions(found.after, after_plan)):
        return ()
    return (*_reasons(found, is_lost=True), *_reasons(found, is_lost=False))


def _reasons(found: Differences, *, is_lost: bool) -> Iterator[Reason]:
    """The fusions of the side before that were lost, or those of the side now that were won."""
    one, other = (found.before, found.after) if is_lost else (found.after, found.before)
    index = found.pairs if is_lost else {new: old for old, new in found.pairs.items()}
    for pattern, kernels in _split_kernels(one, other, index).items():
        members = [member for kernel in kernels for member in kernel.members]
        heads = {kernel.head for kernel in kernels}
        other_heads = {head for kernel in kernels for head in kernel.other_heads}
        before, after = (heads, other_heads) if is_lost else (other_heads, heads)
        yield Reason(
            _describe(pattern, kernels, one, "lost" if is_lost else "won"),
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
    """Kernels of one side whose layers run in several kernels on the other, by operators."""
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
    """Whether it works on shapes, which an engine computes once where no size is open."""
    return layer.op_type in _OF_SHAPES or layer.precision in _WHOLE_NUMBERS


def _pattern(layers: Sequence[StaticLayer]) -> str:
    """`Conv+Add+Relu`, or `Mul+Add+Div+12 more`."""
    names = [printable(layer.qualified_op) for layer in layers]
    if len(names) > _MOST_NAMED:
        names[_MOST_NAMED - 1 :] = [f"{len(names) - _MOST_NAMED + 1} more"]
    return "+".join(names)


def _describe(pattern: str, kernels: list[_SplitKernel], side: CaseLayers, word: str) -> str:
    """`2 Conv+Relu fusions lost (first: conv1)`; without a pattern they were folded."""
    if not pattern:
        members = [m for kernel in kernels for m in kernel.members if m != kernel.head]
        count = count_of(len(members), "layer")
        first = layer_name(side.layers[members[0]])
        if word == "lost":
            return f"{count} of shapes, computed once before, run each time now (first: {first})"
        return f"{count} of shapes, run each time before, computed once now (first: {first})"
    first = layer_name(side.layers[kernels[0].head])
    return f"{count_of(len(kernels), f'{pattern} fusion')} {word} (first: {first})"
