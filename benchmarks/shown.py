"""Rows as tables in Markdown, and figures as text."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K")


def table(
    rows: Iterable[T], columns: Mapping[str, Callable[[T], object]], align: str | None = None
) -> str:
    """A line for each row, by the titles of the columns and what they show of a row."""
    lines = ([show(row) for show in columns.values()] for row in rows)
    return markdown(tuple(columns), lines, align)


def markdown(
    header: Sequence[str], rows: Iterable[Sequence[object]], align: str | None = None
) -> str:
    """A table; `align` has an l or an r for each column, of which else only the first is text."""
    sides = align or "l" + "r" * (len(header) - 1)
    rule = [{"l": "---", "r": "---:"}[side] for side in sides]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (header, rule, *rows))


def grouped(rows: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group rows by what they share, in the order in which that came up."""
    found: dict[K, list[T]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def count_of(held: Iterable[bool]) -> str:
    """How many of all hold."""
    held = list(held)
    return f"{sum(held)} of {len(held)}" if held else "-"


def median_of(values: Iterable[float], digits: int = 1) -> str:
    values = list(values)
    return f"{statistics.median(values):.{digits}f}" if values else "-"


def percent(ratio: float | None, digits: int = 1) -> str:
    """By how much a ratio differs from 1."""
    return "-" if ratio is None else f"{100 * (ratio - 1):+.{digits}f} %"


def format_ns(ns: float, sign: str = "") -> str:
    """A time in the unit that suits it; with the sign `+` a difference."""
    if abs(ns) < 1e4:
        return f"{ns:{sign},.0f} ns"
    return f"{ns / 1e3:{sign}.1f} µs" if abs(ns) < 1e6 else f"{ns / 1e6:{sign}.2f} ms"
