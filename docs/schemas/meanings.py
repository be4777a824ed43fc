"""What the keys of the JSON documents mean: docs/schemas/meanings.toml, by record and key."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).with_name("meanings.toml")
# Records with the same keys, of which some may lack: they have one table.
_SAME: Mapping[str, str] = {
    "StoredStatic": "StaticProfile",
    "Totals": "StaticProfile",
    "MachinePart": "MachineFacts",
}
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def record_name(title: str) -> str:
    """Return the name of the table that has the keys of a record."""
    name = title.removesuffix("OrNulls")
    return _SAME.get(name, name)


@cache
def meanings() -> Mapping[str, Mapping[tuple[str, ...], str]]:
    """Return the meanings of each record; keys with the same meaning are one entry."""
    stored = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {
        record: {tuple(keys.split(", ")): meaning for keys, meaning in entries.items()}
        for record, entries in stored.items()
    }


def key_meanings(title: str) -> Mapping[str, str]:
    """Return the meaning of each key of a record as plain text."""
    entries = meanings().get(record_name(title), {})
    return {key: _LINK.sub(r"\1", text) for keys, text in entries.items() for key in keys}
