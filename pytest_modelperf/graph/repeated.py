"""Remove entries of a repeated field in place, so that the others remain the same messages."""

from __future__ import annotations

from collections.abc import Container, MutableSequence
from typing import Any


def remove_named(entries: MutableSequence[Any], names: Container[str], by: str = "name") -> None:
    """Remove the messages whose field `by` has one of these names."""
    for index in reversed(range(len(entries))):
        if getattr(entries[index], by) in names:
            del entries[index]
