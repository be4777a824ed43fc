"""Terminal reports as Markdown, with the same lines and tables.

Names come from model files, so all text is escaped: see `report.markdown`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.report.markdown import escape_markdown, fenced, markdown_table
from pytest_modelperf.report.page import NO_BREAK, Page, TextStyle
from pytest_modelperf.report.tables import Table


class MarkdownStyle(Struct, frozen=True):
    """The style of Markdown, which has neither colours nor a width."""

    def page(self) -> Page:
        return MarkdownPage()


class MarkdownPage(Page):
    """Collects blocks: bold lines become paragraphs, other adjacent lines a list."""

    def __init__(self) -> None:
        super().__init__(TextStyle())
        self._blocks: list[str] = []
        self._items: list[str] = []

    def text(self) -> str:
        self._end_list()
        return "\n\n".join(self._blocks) + "\n"

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

    def item(self, text: str, indent: int = 2, style: str = "") -> None:  # noqa: ARG002  # the terminal's signature
        self.line(text, style)

    def table(
        self,
        *tables: Table,
        style: str = "",  # noqa: ARG002  # no colours
        row_styles: Sequence[str] = (),  # noqa: ARG002
        cuts_first: bool = False,  # noqa: ARG002  # nothing is cut
    ) -> None:
        """The first of the tables, which is the widest."""
        self._end_list()
        table = tables[0]
        if table.title:
            self._blocks.append(f"**{escape_markdown(table.title)}**")
        self._blocks.append(markdown_table(replace(table, caption="")))
        if table.caption:
            lines = map(escape_markdown, table.caption.splitlines())
            # A backslash breaks the line.
            self._blocks.append("\\\n".join(lines))

    def _end_list(self) -> None:
        if self._items:
            self._blocks.append("\n".join(self._items))
            self._items = []
