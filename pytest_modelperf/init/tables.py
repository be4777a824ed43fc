"""Tables of models added to the text of a `pyproject.toml`, whose lines stay as they are.

tomlkit knows where a table can go and how a key is quoted. The result is read again, so that a file
that it gets wrong is never written.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.model_tables import MODELS, path_key
from pytest_modelperf.spec.setting import PREFIX
from pytest_modelperf.text.escaping import printable_lines

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from tomlkit.container import Container
    from tomlkit.items import Table

_PLACE = ("tool", PREFIX, MODELS)


def add_tables(text: str, tables: Mapping[str, str]) -> str:
    """The text with a table for each model; the lines of each are given as TOML.

    The paths have no table yet. UsageError if the text has no place for tables.
    """
    if not tables:
        return text
    # A file of both line ends keeps them.
    is_crlf = 0 < text.count("\r\n") == text.count("\n")
    plain = text.replace("\r\n", "\n") if is_crlf else text
    added = _in_place(plain, tables)
    if added is not None and not added.startswith(plain):
        # The tables are followed by others, which an empty line sets apart.
        added = _in_place(plain, tables, last="\n")
    if added is None:
        added = _at_the_end(plain, tables)
    if added is None:
        raise UsageError(
            "pyproject.toml has no place where the tables of models can be added by a program. "
            f"Add them by hand:\n{printable_lines(_fragment(tables))}"
        )
    return added.replace("\n", "\r\n") if is_crlf else added


def _in_place(text: str, tables: Mapping[str, str], last: str = "") -> str | None:
    """The text with the tables beside those that are there; None if that changes anything else.

    `last` are the lines after them.
    """
    # Imported here: only this command needs it.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        holder: Any = document
        for key in _PLACE:
            if key not in holder:
                holder.add(key, tomlkit.table(is_super_table=True))
            holder = holder[key]
        for number, (path, lines) in enumerate(tables.items(), 1):
            holder.add(path_key(path), _table(lines + last * (number == len(tables))))
        added = tomlkit.dumps(document)
    except (TOMLKitError, AttributeError, TypeError, ValueError):
        # It cannot add to tables of some forms, such as dotted ones.
        return None
    return _checked(text, added, tables)


def _at_the_end(text: str, tables: Mapping[str, str]) -> str | None:
    """The text with the tables after it; None if they may not stand there."""
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return _checked(text, f"{text}{gap}{_fragment(tables)}", tables)


def _fragment(tables: Mapping[str, str]) -> str:
    import tomlkit

    parts = []
    for path, lines in tables.items():
        name = ".".join((*_PLACE, tomlkit.key(path_key(path)).as_string()))
        parts.append(f"[{name}]\n{lines}{'' if lines.endswith(chr(10)) or not lines else chr(10)}")
    return "\n".join(parts)


def _table(lines: str) -> Table:
    import tomlkit

    table = tomlkit.table()
    parsed: Container = tomlkit.parse(lines)
    for key, item in parsed.body:
        if key is None:
            table.raw_append(None, item)  # a comment or an empty line
        else:
            table.append(key, item)
    return table


def _checked(before: str, after: str, tables: Mapping[str, str]) -> str | None:
    """The text after, if it says the same and the tables, and has each line of the text before."""
    try:
        found = tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        return None
    wanted: dict[str, Any] = tomllib.loads(before)
    holder: Any = wanted
    for key in _PLACE:
        holder = holder.setdefault(key, {})
        if not isinstance(holder, dict):
            return None
    holder |= {path_key(path): tomllib.loads(lines) for path, lines in tables.items()}
    left = iter(after.splitlines())
    keeps_lines = all(line in left for line in before.splitlines())
    return after if keeps_lines and found == wanted else None
