"""Text, tables and whole reports as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.report.model import On
from pytest_modelperf.report.page import NO_BREAK, Page, TextStyle
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.escaping import printable

# Characters with a meaning in CommonMark or in GitHub's dialect, anywhere or at the start of a
# line.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>&|~$#\"']|^[-+=](?=[-+=\s]|$)")
_NUMBERED = re.compile(r"^([0-9]+)([.)])(?=\s|$)")
# Plain text that a site turns into links or mentions, some before it resolves character references
# and others after. So a zero-width space breaks the text; after `www.` it would be a part of the
# host. A commit stays whole, so that it can be copied: its link leads to the same repository.
_LINKED = re.compile(r"(?:@|&#35;|GH-)(?=\S)|www(?=\.)|:(?=//)", re.IGNORECASE)
_BREAK = "&#8203;"


def escape_markdown(text: str) -> str:
    """Escape the text so that Markdown shows it unchanged, in a line or in a table cell."""
    safe = _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", printable(text).strip())
    safe = _NUMBERED.sub(lambda found: f"{found[1]}&#{ord(found[2])};", safe)
    return _LINKED.sub(lambda found: f"{found[0]}{_BREAK}", safe)


def code(name: str) -> str:
    """Format a name of a model as code.

    Character references work in the tag, but not in backticks.
    """
    return f"<code>{escape_markdown(name)}</code>"


def markdown_table(table: Table) -> str:
    """Return a table in GitHub's dialect, or without rows only its caption."""
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
    """Yield blocks that a click unfolds, or nothing without blocks."""
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
    """Return the text as a block of code. Its fence is longer than any backticks in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


# -- terminal reports as Markdown, with the same lines and tables


# The share of the bytes that one table may use, so that some are left for explanations.
_TABLE_SHARE = 0.25
_CUT = "_This report was cut: a summary may have 1 MiB. The JSON of the run has everything._"


class MarkdownStyle(Struct, frozen=True):
    """The style of Markdown, which has neither colours nor a width.

    Blocks that would make the text longer than `most_bytes` are left out, and a line says so.
    """

    most_bytes: int | None = None

    @property
    def face(self) -> On:
        return On.MARKDOWN

    def page(self) -> Page:
        return MarkdownPage(self.most_bytes)


class MarkdownPage(Page):
    """A collector of blocks: bold lines become paragraphs, other adjacent lines a list."""

    def __init__(self, most_bytes: int | None = None) -> None:
        super().__init__(TextStyle())
        self._most_bytes = most_bytes
        self._blocks: list[str] = []
        self._items: list[str] = []

    def text(self) -> str:
        self._end_list()
        return "\n\n".join(self._kept_blocks()) + "\n"

    def _kept_blocks(self) -> Iterator[str]:
        """Yield the blocks that fit into the bytes allowed."""
        if self._most_bytes is None:
            yield from self._blocks
            return
        room = self._most_bytes - len(f"{_CUT}\n")
        for block in self._blocks:
            room -= len(block.encode()) + 2
            if room < 0:
                yield _CUT
                return
            yield block

    def fold(self, title: str, lines: Callable[[], None]) -> None:
        """Add the lines, if any, as blocks that a click unfolds."""
        self._end_list()
        outer, self._blocks = self._blocks, []
        lines()
        self._end_list()
        inside, self._blocks = self._blocks, outer
        if inside:
            # One block, so that a page with too little room keeps all of it or nothing.
            summary = f"<details><summary>{escape_markdown(title)}</summary>"
            self._blocks.append("\n\n".join([summary, *inside, "</details>"]))

    def _typeset(self, text: str) -> str:
        """Keep the signs of a keyboard: Markdown is searched and copied as text."""
        return text

    def line(self, text: str, style: str = "") -> None:
        shown = escape_markdown(text.replace(NO_BREAK, " "))
        if not shown:
            return
        if not style.startswith("bold"):
            self._items.append(f"- {shown}")
        else:
            self._end_list()
            self._blocks.append(f"### {shown}" if not self._blocks else f"**{shown}**")

    def code(self, title: str, lines: Sequence[str]) -> None:
        self._end_list()
        self._blocks.append(f"**{escape_markdown(title)}**")
        self._blocks.append(fenced("\n".join(lines)))

    def command(self, title: str, text: str) -> None:
        self._end_list()
        self._blocks.append(f"{escape_markdown(title)}:\n\n{fenced(text, 'console')}")

    def failure(self, lines: Sequence[str]) -> None:
        self._end_list()
        self._blocks.append(f"<pre>{'<br>'.join(map(escape_markdown, lines))}</pre>")

    def item(self, text: str, indent: int = 2, style: str = "") -> None:  # noqa: ARG002  # of Page
        self.line(text, style)

    def table(
        self,
        *tables: Table,
        row_styles: Sequence[str] = (),  # noqa: ARG002  # Markdown has no colours
    ) -> None:
        """Add the first and widest of the tables."""
        self._end_list()
        table = tables[0]
        if table.title:
            self._blocks.append(f"**{escape_markdown(table.title)}**")
        self._blocks += self._within_room(markdown_table(replace(table, caption="")))
        if table.caption:
            lines = map(escape_markdown, table.caption.splitlines())
            # A backslash breaks the line.
            self._blocks.append("\\\n".join(lines))

    def _within_room(self, table: str) -> Iterator[str]:
        """Yield the table, without its last rows if it would use too many bytes."""
        room = len(table) if self._most_bytes is None else int(_TABLE_SHARE * self._most_bytes)
        rows = table.splitlines()
        size = 0
        for index, row in enumerate(rows):
            size += len(row.encode()) + 1
            if self._most_bytes is not None and size > room:
                yield "\n".join(rows[:index])
                yield f"{len(rows) - index:,} more rows are not shown."
                return
        yield table

    def _end_list(self) -> None:
        if self._items:
            self._blocks.append("\n".join(self._items))
            self._items = []
