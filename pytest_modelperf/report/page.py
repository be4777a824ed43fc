"""Lines and tables as terminal text: in colour and cut to the terminal, or plain and whole."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

from rich.console import Console
from rich.text import Text

from pytest_modelperf.report.tables import GAP, Table, column_widths, fit_table, table_width
from pytest_modelperf.units import display_width

# Wide enough for any name, so that nothing is cut where no one looks at a screen.
UNLIMITED_WIDTH = 10_000


@dataclass(frozen=True, slots=True)
class TextStyle:
    """How text is written: its width in columns (None: as wide as needed), and in colour or not."""

    width: int | None = None
    color: bool = False


class Page:
    """Collects styled text; rich does the colours."""

    def __init__(self, style: TextStyle) -> None:
        self._file = StringIO()
        self._style = style
        self._console = Console(
            file=self._file,
            force_terminal=style.color,
            color_system="standard" if style.color else None,
            no_color=not style.color,
            width=style.width or UNLIMITED_WIDTH,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def text(self) -> str:
        lines = self._file.getvalue().splitlines()
        return "\n".join(line.rstrip() for line in lines).rstrip("\n") + "\n"

    def line(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style if self._style.color else ""))

    def item(self, text: str, indent: int = 2, style: str = "") -> None:
        """A line whose continuation, where it is too long, is indented."""
        width = self._console.width
        hanging = " " * min(indent, width // 2)
        for part in textwrap.wrap(text, width, subsequent_indent=hanging, break_on_hyphens=False):
            self.line(part, style)

    def table(self, *tables: Table, style: str = "") -> None:
        """The first of the tables that is narrow enough, or the last, made to fit."""
        width = self._console.width
        chosen = next((table for table in tables if table_width(table) <= width), tables[-1])
        fitted = fit_table(chosen, width)
        widths = column_widths(fitted)
        self.line("")
        if fitted.title:
            self.line(fitted.title, "bold cyan")
        if any(column.title for column in fitted.columns):
            self.line(_aligned(fitted, [c.title for c in fitted.columns], widths), f"bold {style}")
            self.line("─" * (sum(widths) + GAP * (len(widths) - 1)), style)
        for row in fitted.rows:
            self.line(_aligned(fitted, row, widths), style)
        if fitted.total is not None:
            self.line("")
            self.line(_aligned(fitted, fitted.total, widths), "bold")
        if fitted.caption:
            self.line(fitted.caption, "dim")


def _aligned(table: Table, cells: Sequence[str], widths: Sequence[int]) -> str:
    """One line of a table. Not laid out by rich, whose releases differ in their spacing."""
    parts = []
    for column, cell, width in zip(table.columns, cells, widths, strict=True):
        blanks = " " * (width - display_width(cell))
        parts.append(cell + blanks if column.is_text else blanks + cell)
    return (" " * GAP).join(parts)
