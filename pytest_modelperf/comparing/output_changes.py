"""How far the outputs of two models are apart on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pytest_modelperf.comparing.records import OutputChange
from pytest_modelperf.profiler.outputs import MAX_BYTES, Sent
from pytest_modelperf.text.units import format_bytes, format_shape

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.generic]


def compare_outputs(
    before: Mapping[str, Sent], after: Mapping[str, Sent]
) -> tuple[OutputChange, ...]:
    """The outputs compared by name; by position if no name is the same and their number is."""
    if not before.keys() & after.keys() and len(before) == len(after):
        pairs = zip(before.items(), after.items(), strict=True)
        return tuple(
            _compare(old if old == new else f"{old} / {new}", a, b) for (old, a), (new, b) in pairs
        )
    return tuple(_compare(name, before.get(name), after.get(name)) for name in {**before, **after})


def _compare(name: str, before: Sent | None, after: Sent | None) -> OutputChange:
    if before is None or after is None:
        return OutputChange(name=name, difference=f"only {'now' if before is None else 'before'}")
    old_type, new_type = (np.dtype(side[0]) for side in (before, after))
    if before[1] != after[1]:
        shapes = f"{format_shape(before[1])} before, {format_shape(after[1])} now"
        return OutputChange(name=name, difference=f"other shapes: {shapes}")
    if old_type.kind != new_type.kind:
        return OutputChange(name=name, difference=f"other types: {old_type} before, {new_type} now")
    if before[2] is None or after[2] is None:
        limit = f"not compared: no numbers, or more than {format_bytes(MAX_BYTES)}"
        return OutputChange(name=name, difference=limit)
    return _measure(name, np.frombuffer(before[2], old_type), np.frombuffer(after[2], new_type))


def _measure(name: str, before: Array, after: Array) -> OutputChange:
    kind = np.complex128 if before.dtype.kind == "c" else np.float64
    old, new = before.astype(kind), after.astype(kind)
    finite = np.isfinite(old) & np.isfinite(new)
    # The same infinity on both sides is no difference, and neither is NaN on both sides.
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    if not bool(np.all(finite | same)):
        count = int(np.count_nonzero(~(finite | same)))
        return OutputChange(name=name, difference=f"{count} of {old.size} are finite on one side")
    old, new = old[finite], new[finite]
    distance = np.abs(new - old)
    scale = np.maximum(np.abs(old), np.abs(new))
    relative = np.divide(distance, scale, out=np.zeros_like(distance), where=scale > 0)
    norms = float(np.linalg.norm(old) * np.linalg.norm(new))
    return OutputChange(
        name=name,
        max_absolute=float(distance.max(initial=0.0)),
        max_relative=float(relative.max(initial=0.0)),
        cosine=float(np.vdot(old, new).real) / norms if norms else None,
    )
