"""A value that a test needs, and whose type says that it may be missing."""

from __future__ import annotations

from typing import TypeVar

_T = TypeVar("_T")


def known(value: _T | None) -> _T:
    """Return the value; fail if it is None."""
    assert value is not None
    return value
