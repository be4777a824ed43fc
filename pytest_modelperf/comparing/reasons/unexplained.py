"""Reasons where no change was found: the same layers take another time."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.comparing.differences import Differences, row_times
from pytest_modelperf.comparing.layer_pairs import is_alike
from pytest_modelperf.comparing.reasons.reason import (
    Reason,
    pairs_by_operator,
    pairs_in_order,
)
from pytest_modelperf.comparing.records import LayerChange, LayerTypeChange, TimeChange
from pytest_modelperf.profiler.measurements import LayerTime, RowKind
from pytest_modelperf.text.escaping import printable

# An unexplained time is a reason from this share of the difference on.
_LEAST_SHARE = 0.05
# The factor of a part that takes at least `_LEAST_PART` of the time is compared with the factor of
# the whole: they are the same if they differ by no more than `_SAME_FACTOR` of the change.
_LEAST_PART = 0.02
_SAME_FACTOR = 0.5
_LEAST_CHANGE = 0.02


def proportional_reason(found: Differences, changes: Sequence[Reason]) -> Reason | None:
    """The reason that everything became slower alike, which no change of a graph does.

    `changes` are the reasons found so far. There is no such reason beside another.
    """
    ratio = found.ratio
    if not found.is_real or ratio is None or abs(ratio - 1) < _LEAST_CHANGE:
        return None
    if changes or _is_other_graph(found):
        return None
    types = _timed_parts(found.of_layer_types())
    rows = found.of_layers()
    layers = _timed_parts([c for c in rows if c.before is not None and c.before.static is not None])
    whole = sum(ns for _, ns in types)
    factors, what = _common_factors(types, whole, ratio, least=2), "layer type"
    if not factors:
        factors, what = _common_factors(layers, whole, ratio, least=3), "layer"
    if not factors:
        return None
    word = "slower" if ratio > 1 else "faster"
    return Reason(
        f"every {what} is {word} by about the same factor"
        f" ({min(factors):.2f}x to {max(factors):.2f}x): look at the runtime or the machine",
        is_of_whole=True,
    )


def _timed_parts(
    changes: Sequence[LayerTypeChange] | Sequence[LayerChange],
) -> list[tuple[TimeChange, float]]:
    """The changes that have a time on both sides, each with its time before."""
    return [
        (change.time, change.before.ns)
        for change in changes
        if change.before is not None and change.before.ns and change.time is not None
    ]


def _is_other_graph(found: Differences) -> bool:
    before, after = found.before.layers, found.after.layers
    if not len(before) == len(after) == len(found.pairs):
        return True
    return any(not is_alike(before[old], after[new]) for old, new in found.pairs.items())


def _common_factors(
    parts: Sequence[tuple[TimeChange, float]], whole: float, ratio: float, least: int
) -> list[float]:
    """How many times as long each part takes, if all agree with the whole; else nothing."""
    large = [(time, ns) for time, ns in parts if ns >= _LEAST_PART * whole]
    bounds = sorted((1 + (ratio - 1) * (1 - _SAME_FACTOR), 1 + (ratio - 1) * (1 + _SAME_FACTOR)))
    factors = [1 + time.ns / ns for time, ns in large]
    # An interval that reaches into the bounds shows no factor: a wide one reaches everywhere.
    is_common = all(bounds[0] <= factor <= bounds[1] for factor in factors)
    return factors if is_common and len(large) >= least else []


def slower_reasons(found: Differences, changes: Sequence[Reason]) -> tuple[Reason, ...]:
    """Layers and kernels that none of the `changes` is about and that take another time now."""
    explained = {pair for reason in changes for pair in reason.pairs}
    left = [pair for pair in pairs_in_order(found) if pair not in explained]
    reasons = [
        _slower_layers(found, op, [old for old, _ in pairs], [new for _, new in pairs])
        for op, pairs in pairs_by_operator(found, left).items()
    ]
    explained_kernels = {reason.kernel for reason in changes}
    reasons += [
        _slower_kernels(found, *kernel)
        for kernel in {**found.before.others, **found.after.others}
        if kernel not in explained_kernels
    ]
    return tuple(reason for reason in reasons if reason is not None)


def _slower_layers(
    found: Differences, op: str, before: Sequence[int], after: Sequence[int]
) -> Reason | None:
    times = found.before.times_at(before), found.after.times_at(after)
    if len(before) == 1:
        return _slower(found, f"{printable(op)}: the same layer takes", *times)
    return _slower(found, f"{printable(op)}: the same {len(before)} layers take", *times)


def _slower_kernels(found: Differences, kind: RowKind, op: str) -> Reason | None:
    old, new = found.before.others.get((kind, op)), found.after.others.get((kind, op))
    text = f"{printable(op)} kernels put in by the engine, as many as before, take"
    if kind is RowKind.OVERHEAD:
        text = "the runtime itself, around the kernels, takes"
    return _slower(found, text, row_times(old), row_times(new))


def _slower(
    found: Differences, text: str, before: Sequence[LayerTime], after: Sequence[LayerTime]
) -> Reason | None:
    """A reason, if the times explain enough of the difference."""
    time = found.time(before, after)
    if time is None or not time.explains(_LEAST_SHARE):
        return None
    old, new = sum(t.ns for t in before), sum(t.ns for t in after)
    return Reason(f"{text} {f'{new / old:.2f}x as long' if old else 'time now'}", time)
