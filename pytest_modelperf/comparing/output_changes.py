"""Measure how far the outputs of two models differ on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pytest_modelperf.baselines.output_sketch import least_difference
from pytest_modelperf.baselines.records import TensorSketch
from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.profiler.pairs.outputs import MAX_BYTES, Sent
from pytest_modelperf.text.units import format_bytes, format_shape

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.generic]


def compare_outputs(
    before: Mapping[str, Sent], after: Mapping[str, Sent]
) -> tuple[OutputChange, ...]:
    """Compare outputs by name, or by position if no name is shared but their number is equal."""
    if not before.keys() & after.keys() and len(before) == len(after):
        pairs = zip(before.items(), after.items(), strict=True)
        return tuple(
            _compare(old if old == new else f"{old} / {new}", a, b) for (old, a), (new, b) in pairs
        )
    return tuple(_compare(name, before.get(name), after.get(name)) for name in {**before, **after})


def compare_with_sketch(
    before: Mapping[str, TensorSketch], after: Mapping[str, Sent]
) -> tuple[OutputChange, ...]:
    """Compare each sketched output, and return by how much it differs at least."""
    return tuple(
        _compare_with_sketch(name, sketch, after.get(name)) for name, sketch in before.items()
    )


def _compare_with_sketch(name: str, before: TensorSketch, after: Sent | None) -> OutputChange:
    least = None if after is None else least_difference(before, after)
    if least is not None:
        return OutputChange(name=name, max_absolute=least, largest=before.largest, is_least=True)
    # Outputs that differ in more than their values are described as if both sides were known.
    told = _compare(name, (before.dtype, before.shape, None), after)
    if told.is_other or after is None or after[2] is None:
        return told
    return OutputChange(name=name, difference="other counts of NaN and infinity", is_other=True)


def judge_outputs(changes: Sequence[OutputChange], allowed: float) -> Metric:
    """Judge whether the outputs differ by no more than this share of their largest value.

    Outputs that cannot be compared leave the verdict open, unless they differ in more than their
    values.
    """
    shares = [change.share for change in changes]
    known = [share for share in shares if share is not None]
    if any(change.is_other for change in changes) or any(share > allowed for share in known):
        verdict = Verdict.REGRESSED
    else:
        verdict = Verdict.PASSED if known and None not in shares else Verdict.INCONCLUSIVE
    is_known = not any(change.is_other for change in changes)
    worst = max(known, default=None) if is_known else None
    return Metric("outputs", 0.0, worst, verdict, allowed=allowed)


def _compare(name: str, before: Sent | None, after: Sent | None) -> OutputChange:
    if before is None or after is None:
        side = "now" if before is None else "before"
        return OutputChange(name=name, difference=f"only {side}", is_other=True)
    old_type, new_type = (np.dtype(side[0]) for side in (before, after))
    if before[1] != after[1]:
        shapes = f"{format_shape(before[1])} before, {format_shape(after[1])} now"
        return OutputChange(name=name, difference=f"other shapes: {shapes}", is_other=True)
    if old_type.kind != new_type.kind:
        types = f"{old_type} before, {new_type} now"
        return OutputChange(name=name, difference=f"other types: {types}", is_other=True)
    if before[2] is None or after[2] is None:
        limit = f"not compared: no numbers, or more than {format_bytes(MAX_BYTES)}"
        return OutputChange(name=name, difference=limit)
    return _measure(name, np.frombuffer(before[2], old_type), np.frombuffer(after[2], new_type))


def _measure(name: str, before: Array, after: Array) -> OutputChange:
    kind = np.complex128 if before.dtype.kind == "c" else np.float64
    old, new = before.astype(kind), after.astype(kind)
    finite = np.isfinite(old) & np.isfinite(new)
    # The same infinity on both sides is not a difference, and neither is NaN on both sides.
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    if not bool(np.all(finite | same)):
        count = int(np.count_nonzero(~(finite | same)))
        finite_once = f"{count} of {old.size} are finite on one side only"
        return OutputChange(name=name, difference=finite_once, is_other=True)
    is_other = (before != after)[finite]
    old, new = old[finite], new[finite]
    # Large integers that differ can be equal as floats.
    distance = np.where(is_other & (old == new), 1.0, np.abs(new - old))
    scale = np.maximum(np.abs(old), np.abs(new))
    relative = np.divide(distance, scale, out=np.zeros_like(distance), where=scale > 0)
    norms = float(np.linalg.norm(old) * np.linalg.norm(new))
    return OutputChange(
        name=name,
        max_absolute=float(distance.max(initial=0.0)),
        max_relative=float(relative.max(initial=0.0)),
        cosine=float(np.vdot(old, new).real) / norms if norms else None,
        largest=float(np.abs(old).max(initial=0.0)),
    )
