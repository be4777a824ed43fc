"""What a table is before it is text: titled columns, rows of cells, a line for the total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Cell: TypeAlias = "str | int | float | None"


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title; numbers are aligned right, and only names may be cut to fit."""

    title: str
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose cells are already formatted."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    total: tuple[str, ...] | None = None
    caption: str = ""
