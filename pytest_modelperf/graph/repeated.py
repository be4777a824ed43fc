"""Entries of a repeated field removed in place: the messages that stay are the same ones."""

from __future__ import annotations

from collections.abc import Container, MutableSequence
from typing import Any


def remove_named(entries: MutableSequence[Any], names: Container[str], by: str = "name") -> None:
    """Remove the messages whose field `by` has one of these names."""
    for index in reversed(range(len(entries))):
        if getattr(entries[index], by) in names:
            del entries[index]
