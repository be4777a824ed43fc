"""Rows that a benchmark stores in a folder at once, so that a later run goes on from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The rows of this kind that the folder has, in the order in which they were stored."""
    path = _file(folder, kind)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep_row(folder: Path, kind: str, row: Mapping[str, object]) -> None:
    with _file(folder, kind).open("a") as file:
        file.write(json.dumps(row) + "\n")


def _file(folder: Path, kind: str) -> Path:
    return folder / f"{kind}.jsonl"
