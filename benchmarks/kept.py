"""Rows that a folder keeps, so that a later run goes on from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
K = TypeVar("K")


def read_rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the rows of this kind in a folder, in the order in which they were stored."""
    path = folder / f"{kind}.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else ()
    return [json.loads(line) for line in lines]


def keep_row(folder: Path, kind: str, row: object) -> None:
    """Store a row at once, so that a later run goes on from it."""
    with (folder / f"{kind}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(as_row(row)) + "\n")


def as_row(row: object) -> object:
    return asdict(row) if is_dataclass(row) and not isinstance(row, type) else row


def read_records(rows: Iterable[object], record: type[T]) -> list[T]:
    return [msgspec.convert(row, record) for row in rows]


def left_of(plan: Sequence[K], done: Iterable[K]) -> list[K]:
    """Return the part of a plan that is not done yet, in its order."""
    known = Counter(done)
    left = []
    for setting in plan:
        if known[setting]:
            known[setting] -= 1
        else:
            left.append(setting)
    return left


def rounded(figure: float | None, digits: int = 4) -> float | None:
    return None if figure is None else round(figure, digits)
