"""Text and tables as Markdown.

Names come from model files, and whoever sends a model in could have them obeyed. So whatever
Markdown or the site around it gives a meaning to is written as a character reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.escaping import printable

# What has a meaning in a line of CommonMark or of GitHub's dialect, and at its beginning.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>&|~$#\"']|^[-+=](?=[-+=\s]|$)")
_NUMBERED = re.compile(r"^([0-9]+)([.)])(?=\s|$)")
# What a site makes of plain text once it is rendered: mentions, references to issues, links. A
# character reference is undone by then, so a space of no width breaks them.
_LINKED = re.compile(r"(@|&#35;|GH-|www\.|://)(?=\S)", re.IGNORECASE)
_BREAK = "&#8203;"


def escape_markdown(text: str) -> str:
    """The text such that Markdown shows it as it is, in a line or in a cell of a table."""
    safe = _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", printable(text).strip())
    safe = _NUMBERED.sub(lambda found: f"{found[1]}&#{ord(found[2])};", safe)
    return _LINKED.sub(lambda found: f"{found[1]}{_BREAK}", safe)


def code(name: str) -> str:
    """A name as it stands in the model. References work in the tag; in backticks they would not."""
    return f"<code>{escape_markdown(name)}</code>"


def markdown_table(table: Table) -> str:
    """A table in GitHub's dialect; without rows only what its caption says."""
    caption = escape_markdown(" ".join(table.caption.splitlines()))
    if not table.rows:
        return caption
    lines = [
        _row([escape_markdown(column.title) for column in table.columns]),
        _row(["---" if column.is_text else "---:" for column in table.columns]),
    ]
    lines += [_row(list(map(_cell, table.columns, row))) for row in table.rows]
    if table.total is not None:
        lines.append(_row([f"**{cell}**" if cell else "" for cell in table.total]))
    text = "\n".join(lines)
    return f"{text}\n\n{caption}" if caption else text


def folded(title: str, blocks: Iterable[str]) -> Iterator[str]:
    """Blocks behind a click; nothing where there are none."""
    inside = [block for block in blocks if block]
    if inside:
        yield f"<details><summary>{title}</summary>"
        yield from inside
        yield "</details>"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(column: Column, text: str) -> str:
    return code(text) if column.is_name and text else escape_markdown(text)
