"""Reasons around the layers: inputs and outputs of the model, and weights that layers share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.reasons.reason import Reason
from pytest_modelperf.graph.structure import Graph, Tensor
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes
from pytest_modelperf.text.words import count_of

# Counts of params that differ by less are alike.
_ALIKE = 0.01


def interface_reasons(before: Graph, after: Graph) -> tuple[Reason, ...]:
    """Inputs and outputs that one of two models has and the other has not."""
    sides = (
        ("input", _names(before.inputs), _names(after.inputs)),
        ("output", _names(before.outputs), _names(after.outputs)),
    )
    return tuple(reason for side in sides for reason in _compare_names(*side))


def _names(tensors: Iterable[Tensor]) -> list[str]:
    return [tensor.name for tensor in tensors]


def _compare_names(what: str, old: list[str], new: list[str]) -> Iterator[Reason]:
    added = [name for name in new if name not in old]
    removed = [name for name in old if name not in new]
    if len(added) == len(removed):
        # They have other names.
        return
    for names, word in ((added, "added"), (removed, "removed")):
        if names:
            text = f"{count_of(len(names), what)} {word} (first: {printable(names[0])})"
            yield Reason(text, outputs=frozenset(names if what == "output" else ()))


def sharing_reasons(found: Differences) -> tuple[Reason, ...]:
    """Weights that several layers share on one side only."""
    before, after = found.before.profile.counted, found.after.profile.counted
    if before is None or after is None or not before.params or not after.params:
        return ()
    used, uses = _used_params(before), _used_params(after)
    if not used or abs(uses / used - 1) > _ALIKE or abs(after.params / before.params - 1) <= _ALIKE:
        return ()
    change = f"{format_bytes(before.weight_bytes)} -> {format_bytes(after.weight_bytes)}"
    if after.params > before.params:
        text = f"weights that layers shared are stored for each of them now: {change}"
        return (Reason(text, added_params=after.params - before.params),)
    return (Reason(f"weights that were stored for each layer are shared now: {change}"),)


def _used_params(static: StaticProfile) -> int:
    """The params of all layers: a shared weight counts at each of them."""
    return sum(layer.params for layer in static.layers)
