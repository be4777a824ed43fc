"""Text and tables as Markdown.

Names come from model files, which may contain markup on purpose. So every character that has a
meaning in Markdown or on the site around it becomes a character reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.escaping import printable

# Characters with a meaning in CommonMark or in GitHub's dialect, anywhere or first in a line.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>&|~$#\"']|^[-+=](?=[-+=\s]|$)")
_NUMBERED = re.compile(r"^([0-9]+)([.)])(?=\s|$)")
# Plain text that a site turns into links or mentions. It looks for some of them before it resolves
# character references, and for others after, so a zero-width space breaks the part that it looks
# for: behind `www.` it would be a part of the host. A commit stays whole, to be copied: its link
# leads to the same repository.
_LINKED = re.compile(r"(?:@|&#35;|GH-)(?=\S)|www(?=\.)|:(?=//)", re.IGNORECASE)
_BREAK = "&#8203;"


def escape_markdown(text: str) -> str:
    """The text escaped so that Markdown shows it unchanged, in a line or in a table cell."""
    safe = _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", printable(text).strip())
    safe = _NUMBERED.sub(lambda found: f"{found[1]}&#{ord(found[2])};", safe)
    return _LINKED.sub(lambda found: f"{found[0]}{_BREAK}", safe)


def code(name: str) -> str:
    """A name of a model as code. Character references work in the tag, but not in backticks."""
    return f"<code>{escape_markdown(name)}</code>"


def markdown_table(table: Table) -> str:
    """A table in GitHub's dialect; only its caption if there are no rows."""
    caption = escape_markdown(" ".join(table.caption.splitlines()))
    if not table.rows:
        return caption
    lines = [
        _row([escape_markdown(column.title) for column in table.columns]),
        _row(["---" if column.holds_text else "---:" for column in table.columns]),
    ]
    lines += [_row(list(map(_cell, table.columns, row))) for row in table.rows]
    if table.total is not None:
        lines.append(_row([f"**{cell}**" if cell else "" for cell in table.total]))
    text = "\n".join(lines)
    return f"{text}\n\n{caption}" if caption else text


def folded(title: str, blocks: Iterable[str]) -> Iterator[str]:
    """Blocks behind a click; nothing if there are no blocks."""
    inside = [block for block in blocks if block]
    if inside:
        yield f"<details><summary>{title}</summary>"
        yield from inside
        yield "</details>"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(column: Column, text: str) -> str:
    return code(text) if column.is_name and text else escape_markdown(text)


def fenced(text: str, language: str = "") -> str:
    """The text as a block of code, whatever backticks it has."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
