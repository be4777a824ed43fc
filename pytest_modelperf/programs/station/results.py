"""Whether two results are equal, and how they differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

_RELATIVE, _ABSOLUTE = 1e-5, 1e-8
_SHOWN = 60


def first_difference(
    before: object, after: object, *, is_close: bool, place: str = "the result"
) -> str | None:
    """Return a sentence on the first place at which two results differ; None if they are equal.

    With `is_close`, numbers may differ as `numpy.allclose` allows.
    """
    if _is_array(before) or _is_array(after):
        return _array_difference(before, after, is_close=is_close, place=place)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        if before.keys() != after.keys():
            was, now = _short(list(before)), _short(list(after))
            return f"{place} has other keys: {was} before, {now} now"
        inner = [(f"{place}[{key!r}]", before[key], after[key]) for key in before]
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
        if len(before) != len(after):
            return f"{place} had {len(before)} items and has {len(after)} now"
        pairs = enumerate(zip(before, after, strict=True))
        inner = [(f"{place}[{index}]", *pair) for index, pair in pairs]
    elif _has_fields(before) and type(before).__qualname__ == type(after).__qualname__:
        inner = [(place, vars(before), vars(after))]
    elif before == after or _is_near(before, after, is_close=is_close):
        return None
    else:
        return f"{place} was {_short(before)} and is {_short(after)} now"
    return _first(inner, is_close=is_close)


def _is_near(before: object, after: object, *, is_close: bool) -> bool:
    if not (isinstance(before, float) and isinstance(after, float)):
        return False
    if math.isnan(before) or math.isnan(after):
        return math.isnan(before) and math.isnan(after)
    return is_close and math.isclose(before, after, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def _first(pairs: Sequence[tuple[str, Any, Any]], *, is_close: bool) -> str | None:
    found = (
        first_difference(before, after, is_close=is_close, place=place)
        for place, before, after in pairs
    )
    return next((each for each in found if each is not None), None)


def _array_difference(before: Any, after: Any, *, is_close: bool, place: str) -> str | None:  # noqa: ANN401
    import numpy as np

    old, new = np.asarray(before), np.asarray(after)
    if old.shape != new.shape or old.dtype != new.dtype:
        was, now = (f"{list(each.shape)} {each.dtype}" for each in (old, new))
        return f"{place} was {was} and is {now} now"
    has_numbers = old.dtype.kind in "fc"
    if is_close and has_numbers:
        differs = ~np.isclose(old, new, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)
    else:
        differs = old != new
        if has_numbers:
            differs &= ~(np.isnan(old) & np.isnan(new))
    count = int(np.count_nonzero(differs))
    if not count:
        return None
    at = tuple(int(i) for i in np.argwhere(differs)[0])
    shown = "" if not at else f", at {list(at)} from {old[at]} to {new[at]}"
    return f"{place} differs in {count} of {old.size} values{shown}"


def _is_array(value: Any) -> bool:  # noqa: ANN401
    return hasattr(value, "__array__") and hasattr(value, "dtype")


def _has_fields(value: object) -> bool:
    """Whether it is an object that compares by identity, which no copy of it equals."""
    return type(value).__eq__ is object.__eq__ and hasattr(value, "__dict__")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
