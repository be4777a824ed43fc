"""Terminal reports as Markdown, with the same lines and tables.

Names come from model files, so all text is escaped: see `report.markdown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.report.markdown import escape_markdown, fenced, markdown_table
from pytest_modelperf.report.model import On
from pytest_modelperf.report.page import NO_BREAK, Page, TextStyle
from pytest_modelperf.report.tables import Table

# The share of the room that one table may take, so that there is some for explanations.
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
    """Collects blocks: bold lines become paragraphs, other adjacent lines a list."""

    def __init__(self, most_bytes: int | None = None) -> None:
        super().__init__(TextStyle())
        self._most_bytes = most_bytes
        self._blocks: list[str] = []
        self._items: list[str] = []

    def text(self) -> str:
        self._end_list()
        return "\n\n".join(self._kept_blocks()) + "\n"

    def _kept_blocks(self) -> Iterator[str]:
        """The blocks that there is room for."""
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
        """Blocks behind a click; nothing if there are none."""
        self._end_list()
        outer, self._blocks = self._blocks, []
        lines()
        self._end_list()
        inside, self._blocks = self._blocks, outer
        if inside:
            # One block, of which a page that is cut keeps all or nothing.
            summary = f"<details><summary>{escape_markdown(title)}</summary>"
            self._blocks.append("\n\n".join([summary, *inside, "</details>"]))

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

    def item(self, text: str, indent: int = 2, style: str = "") -> None:  # noqa: ARG002  # the terminal's signature
        self.line(text, style)

    def table(
        self,
        *tables: Table,
        row_styles: Sequence[str] = (),  # noqa: ARG002  # no colours
    ) -> None:
        """The first of the tables, which is the widest."""
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
        """The table, without its last rows if it would take too much of the room."""
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
