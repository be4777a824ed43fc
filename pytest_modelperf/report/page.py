"""Lines and tables as terminal text: in colour and cut, plain and whole, or as HTML for a notebook.

Names come from model files, so all text is escaped. HTML for a notebook has no script and no style
sheet, because some programs that show notebooks remove both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from pytest_modelperf.report.model import On
from pytest_modelperf.report.tables import (
    BAR,
    GAP,
    Column,
    Table,
    column_widths,
    fit_table,
    map_figures,
    map_texts,
    split_table,
    table_width,
    with_bars,
)
from pytest_modelperf.text.escaping import encodable, typeset
from pytest_modelperf.text.words import cut_middle, display_width

# A word of a command, quoted parts included.
_COMMAND_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_INDENT = "   "
_CONTINUED = "\\"
# Space for a quote and a backslash if a line ends within a word.
_RESERVED = 4


def fold_command(word: str, command: str, width: int) -> list[str]:
    """Fold a titled command such as `accept: pytest ...` into lines of at most `width` columns."""
    words = _COMMAND_WORD.findall(command)
    if " ".join(words) != command:
        words = [command]
    lines: list[str] = []
    line = f"{word}:"
    for index, part in enumerate(words):
        room = width if index == len(words) - 1 else width - len(f" {_CONTINUED}")
        if display_width(f"{line} {part}") <= room:
            line = f"{line} {part}"
            continue
        lines.append(f"{line} {_CONTINUED}")
        line = f"{_INDENT}{part}"
        if display_width(line) > room:
            *pieces, line = _break_word(part, width - _RESERVED)
            lines += [f"{piece}{_CONTINUED}" for piece in pieces]
    return [*lines, line]


def _break_word(word: str, width: int) -> Iterator[str]:
    """Yield the pieces of a word. A shell joins them if each but the last ends with a backslash.

    A backslash has no meaning within single quotes, so they are closed before it and reopened.
    """
    quote = piece = ""
    for char in word:
        if display_width(piece + char) > width and not piece.endswith("\\"):
            again = "'" if quote == "'" else ""
            yield piece + again
            piece = again
        piece += char
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
    yield piece


# Wide enough for any name, so nothing is cut without a screen.
UNLIMITED_WIDTH = 10_000
# Names in models can have megabytes, whose width takes seconds to compute. Each end of a longer
# text keeps enough characters to fill a line.
_LONGEST_TEXT = 2 * UNLIMITED_WIDTH

# Prevents a line break between a number and its unit. In a name it would be escaped.
NO_BREAK = "\N{NO-BREAK SPACE}"
_UNIT = re.compile(r"(?<=[0-9]) (?=%|ms\b|[KMG]i?B\b)")
_WORD = re.compile(r" *[^ ]+")
# The code of a terminal for each word of a style.
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class TextStyle(Struct, frozen=True):
    """How text is written: its width in columns, None for unlimited, and whether in colour.

    `encoding` is that of the output stream.
    """

    width: int | None = None
    color: bool = False
    encoding: str = "utf-8"

    @property
    def face(self) -> On:
        return On.TERMINAL

    def page(self) -> Page:
        return Page(self)


class PageStyle(Protocol):
    """The maker of the page for a report: of a terminal, of Markdown or of HTML.

    `face` selects the blocks that the page shows.
    """

    @property
    def face(self) -> On: ...

    def page(self) -> Page:
        """Return an empty page."""
        ...


class Page:
    """A collector of lines of text, in colour if its style has colour."""

    def __init__(self, style: TextStyle) -> None:
        self._lines: list[str] = []
        self._style = style
        self._is_below_table = False

    def text(self) -> str:
        text = "\n".join(self._lines).rstrip("\n") + "\n"
        return encodable(text, self._style.encoding)

    def line(self, text: str, style: str = "") -> None:
        """Add a line. A long one continues in the next, without indentation."""
        text = self._encodable(text.rstrip(" "))
        parts = [text] if display_width(text) <= self.width else wrap(text, self.width)
        self._lines += [self._colored(part, style) for part in parts]
        self._is_below_table = False

    def fold(self, title: str, lines: Callable[[], None]) -> None:
        """Write lines that other forms of output hide behind a click. A terminal shows them."""
        if title:
            self.line("")
            self.line(title, "bold")
        lines()

    def end_table(self) -> None:
        """Add a blank line if a table was written last."""
        if self._is_below_table:
            self.line("")

    def _encodable(self, text: str) -> str:
        parts = text.split(NO_BREAK)
        return NO_BREAK.join(encodable(part, self._style.encoding) for part in parts)

    def _typeset(self, text: str) -> str:
        return typeset(text, self._style.encoding)

    def _colored(self, text: str, style: str) -> str:
        text = text.replace(NO_BREAK, " ").rstrip()
        codes = ";".join(_CODES[word] for word in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m" if text and codes and self._style.color else text

    def code(self, title: str, lines: Sequence[str]) -> None:
        """Add lines to copy, below their title."""
        self.line(title, "bold cyan")
        for line in lines:
            self.line(line)

    def command(self, title: str, text: str) -> None:
        """Add a command to copy. A shell reads it as one line."""
        self.end_table()
        for line in fold_command(title, text, self.width):
            self.line(line)

    def failure(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.item(line, style="red")

    def item(self, text: str, indent: int = 2, style: str = "") -> None:
        """Add a line whose continuation lines are indented if it is too long."""
        for part in wrap(self._encodable(text), self.width, indent):
            self.line(part, style)

    def sentence(self, text: str, indent: int = 2, style: str = "") -> None:
        """Add an item in which numbers stay on one line with their units."""
        self.item(_UNIT.sub(NO_BREAK, self._typeset(text)), indent, style)

    @property
    def width(self) -> int:
        return self._style.width or UNLIMITED_WIDTH

    @property
    def is_bounded(self) -> bool:
        """Whether the width is that of a terminal."""
        return self._style.width is not None

    def table(self, *tables: Table, row_styles: Sequence[str] = ()) -> None:
        """Write the first table that is narrow enough, or else split or fit the last one."""
        width = self.width

        def show(text: str) -> str:
            # A character that the stream cannot encode needs more columns, as `\xe9` does.
            return self._encodable(cut_middle(text, _LONGEST_TEXT))

        shown = [map_texts(map_figures(table, self._typeset), show) for table in tables]
        chosen = next((table for table in shown if table_width(table) <= width), shown[-1])
        for part in split_table(chosen, width):
            fitted = fit_table(part, width)
            if self.is_bounded and self._encodable(BAR) == BAR:
                fitted = with_bars(fitted, width)
            self._write_table(fitted, row_styles)
        self._is_below_table = True

    def _write_table(self, fitted: Table, row_styles: Sequence[str]) -> None:
        widths = column_widths(fitted)
        self.line("")
        if fitted.title:
            self.item(fitted.title, style="bold cyan")
        if any(column.title for column in fitted.columns):
            self.line(_aligned(fitted, [c.title for c in fitted.columns], widths), "bold")
            self.line("─" * (sum(widths) + GAP * (len(widths) - 1)))
        for index, row in enumerate(fitted.rows):
            own = row_styles[index] if row_styles else ""
            self.line(_aligned(fitted, row, widths), own)
        if fitted.total is not None:
            self.line("")
            self.line(_aligned(fitted, fitted.total, widths), "bold")
        for line in fitted.caption.splitlines():
            self.item(line, indent=0, style="dim")


def wrap(text: str, width: int, indent: int = 0) -> list[str]:
    """Wrap the text to `width` columns of a terminal, with all lines but the first indented."""
    hanging = " " * min(indent, width // 2)
    lines: list[str] = []
    line = ""
    for word in _WORD.findall(re.sub(r"\s", _plain_space, text)):
        if display_width(line + word) <= width:
            line += word
            continue
        if line.strip():
            lines.append(line)
            line = hanging + word.lstrip(" ")
        else:
            line += word
        while display_width(line) > width:
            head = _head(line, width)
            lines.append(head)
            line = hanging + line[len(head) :]
    return [*lines, line] if line.strip() or not lines else lines


def _plain_space(found: re.Match[str]) -> str:
    return found[0] if found[0] == NO_BREAK else " "


def _head(text: str, width: int) -> str:
    """Return the longest start that fits, with at least one character after the indentation."""
    least = len(text) - len(text.lstrip(" ")) + 1
    end = min(len(text), max(width, least))
    while end > least and display_width(text[:end]) > width:
        end -= 1
    return text[:end]


def _aligned(table: Table, cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for column, cell, width in zip(table.columns, cells, widths, strict=True):
        blanks = " " * (width - display_width(cell))
        parts.append(cell + blanks if column.holds_text else blanks + cell)
    return (" " * GAP).join(parts)


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
            self._blocks.append(f'<div style="{_css(style)}">{_escape(shown)}</div>')

    def code(self, title: str, lines: Sequence[str]) -> None:
        self.line(title, "bold")
        self._blocks.append(f"<pre>{_escape(chr(10).join(lines))}</pre>")

    def command(self, title: str, text: str) -> None:
        self.line(f"{title}: {text}")

    def item(self, text: str, indent: int = 2, style: str = "") -> None:  # noqa: ARG002  # of Page
        self.line(text, style)

    def table(self, *tables: Table, row_styles: Sequence[str] = ()) -> None:
        """Add the first and widest of the tables."""
        table = map_figures(tables[0], self._typeset)
        if table.title:
            self._blocks.append(
                f'<div style="{_css("bold")}; margin-top: 0.8em">{_escape(table.title)}</div>'
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
    return f'<{tag} style="{side}">{_escape(text.replace(NO_BREAK, " "))}</{tag}>'


def _escape(text: str) -> str:
    # Imported here, because html takes long to import, and few runs show a report in a notebook.
    from html import escape

    return escape(text)


def _css(style: str) -> str:
    return "; ".join(_STYLES[word] for word in style.split())
