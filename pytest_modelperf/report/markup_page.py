"""Terminal reports as a fragment of HTML for a notebook, with the same lines and tables.

Names come from model files, so all text is escaped. The fragment has no script and no style sheet,
because some programs that show notebooks remove both.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from msgspec import Struct

from pytest_modelperf.report.model import On
from pytest_modelperf.report.page import NO_BREAK, Page, TextStyle
from pytest_modelperf.report.tables import Column, Table, map_figures

_LEFT, _RIGHT = (f"text-align: {side}; padding: 0 0.5em" for side in ("left", "right"))
# Colours that are readable on both white and black.
_STYLES = {
    "bold": "font-weight: bold",
    "dim": "opacity: 0.7",
    "red": "color: #d33",
    "green": "color: #2a2",
    "yellow": "color: #b80",
    "cyan": "color: #08a",
}


class MarkupStyle(Struct, frozen=True):
    """The style of HTML, which does not know its width."""

    @property
    def face(self) -> On:
        return On.TERMINAL

    def page(self) -> Page:
        return MarkupPage()


class MarkupPage(Page):
    """A collector of HTML paragraphs and tables."""

    def __init__(self) -> None:
        super().__init__(TextStyle())
        self._blocks: list[str] = []

    def text(self) -> str:
        return f"<div>{''.join(self._blocks)}</div>\n"

    def line(self, text: str, style: str = "") -> None:
        shown = text.replace(NO_BREAK, " ").strip()
        if shown:
            self._blocks.append(f'<div style="{_css(style)}">{escape(shown)}</div>')

    def code(self, title: str, lines: Sequence[str]) -> None:
        self.line(title, "bold")
        self._blocks.append(f"<pre>{escape(chr(10).join(lines))}</pre>")

    def command(self, title: str, text: str) -> None:
        self.line(f"{title}: {text}")

    def item(self, text: str, indent: int = 2, style: str = "") -> None:  # noqa: ARG002  # of Page
        self.line(text, style)

    def table(
        self,
        *tables: Table,
        row_styles: Sequence[str] = (),
    ) -> None:
        """Add the first of the tables, which is the widest."""
        table = map_figures(tables[0], self._typeset)
        if table.title:
            self._blocks.append(
                f'<div style="{_css("bold")}; margin-top: 0.8em">{escape(table.title)}</div>'
            )
        styles = row_styles or [""] * len(table.rows)
        titles = [column.title for column in table.columns]
        head = f"<thead>{_row(table, titles, 'th', 'bold')}</thead>" if any(titles) else ""
        rows = [_row(table, row, "td", own) for row, own in zip(table.rows, styles, strict=True)]
        if table.total is not None:
            rows.append(_row(table, table.total, "td", "bold"))
        self._blocks.append(f"<table>{head}<tbody>{''.join(rows)}</tbody></table>")
        for line in table.caption.splitlines():
            self.line(line, "dim")


def _row(table: Table, cells: Sequence[str], tag: str, style: str) -> str:
    made = (_cell(column, cell, tag) for column, cell in zip(table.columns, cells, strict=True))
    return f'<tr style="{_css(style)}">{"".join(made)}</tr>'


def _cell(column: Column, text: str, tag: str) -> str:
    side = _LEFT if column.holds_text else _RIGHT
    return f'<{tag} style="{side}">{escape(text.replace(NO_BREAK, " "))}</{tag}>'


def _css(style: str) -> str:
    return "; ".join(_STYLES[word] for word in style.split())
