"""A report: what a result shows, described once. Each face has one renderer.

Texts and cells are plain: the renderers escape, fold, cut and colour them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, Flag, auto
from typing import Any, ClassVar

from msgspec import Struct

from pytest_modelperf.report.html.drawings import Drawings
from pytest_modelperf.report.tables import Cell, Table


class Tone(Enum):
    """The kind of news: a colour on a terminal, a class on a page."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    PLAIN = "plain"
    DIM = "dim"


class On(Flag):
    """The faces that show a block. A notebook shows what a terminal does."""

    TERMINAL = auto()
    MARKDOWN = auto()
    PAGE = auto()
    TEXT = TERMINAL | MARKDOWN
    ALL = TEXT | PAGE


class Choice(Struct, frozen=True):
    """A case that a page can choose: the places of its model and of itself in the data."""

    model: int
    case: int


class Link(Struct, frozen=True):
    """An address on the web, and its words."""

    text: str
    address: str


class ReportBlock(Struct, frozen=True, kw_only=True):
    """A part of a report.

    A terminal need not show the details, and shows what is brief instead. Markdown folds details;
    it and a page have nothing that is brief. No face shows an empty block: a paragraph without
    lines, a section without blocks and verdict.
    """

    kind: ClassVar[str]

    on: On = On.ALL
    is_detail: bool = False
    is_brief: bool = False

    @property
    def is_on_page(self) -> bool:
        return self.is_on(On.PAGE)

    def is_on(self, face: On) -> bool:
        """Whether that face shows it, with details or without."""
        is_elsewhere = self.is_brief and face is not On.TERMINAL
        return face in self.on and not self.is_empty and not is_elsewhere

    @property
    def is_empty(self) -> bool:
        return False


class Line(ReportBlock, frozen=True, kw_only=True):
    """A sentence, perhaps after the word that it is about: `why: 12 fusions lost`.

    Only pages have links.
    """

    kind: ClassVar[str] = "line"

    text: str
    word: str = ""
    tone: Tone = Tone.PLAIN
    is_bold: bool = False
    link: Link | None = None


def lines_of(texts: Iterable[str], word: str = "", tone: Tone = Tone.PLAIN) -> tuple[Line, ...]:
    """A line for each text, about the same word."""
    return tuple(Line(text=text, word=word, tone=tone) for text in texts)


class Paragraph(ReportBlock, frozen=True):
    """Lines that belong together."""

    kind: ClassVar[str] = "paragraph"

    lines: tuple[Line, ...]

    @property
    def is_empty(self) -> bool:
        return not self.lines

    @property
    def has_words(self) -> bool:
        """Whether each line is about a word, so that a page aligns them as a list."""
        return all(line.word for line in self.lines if line.is_on_page)


class Rows(ReportBlock, frozen=True):
    """A table; `tones` and `choices` have one for each row, or none.

    On a terminal that is too narrow, rows become columns if that helps and it `may_turn`.
    """

    kind: ClassVar[str] = "rows"

    table: Table
    tones: tuple[Tone, ...] = ()
    choices: tuple[Choice | None, ...] = ()
    may_turn: bool = False


class Code(ReportBlock, frozen=True):
    """Something to copy, below its title; a command is one line after it."""

    kind: ClassVar[str] = "code"

    title: str
    text: str
    is_command: bool = False


class Failure(ReportBlock, frozen=True):
    """Why something could not be measured. Lines after the first are indented in a text."""

    kind: ClassVar[str] = "failure"

    text: str


class Section(ReportBlock, frozen=True, kw_only=True):
    """Blocks under a title, perhaps with a verdict in a `word` and the rest of a sentence.

    A text leaves out the title if the section is not titled.
    A page closes a section that is not open, and shows its model and case when the user follows
    the link to the `choice`.
    """

    kind: ClassVar[str] = "section"

    title: str
    word: str = ""
    sentence: str = ""
    tone: Tone = Tone.PLAIN
    blocks: tuple[ReportBlock, ...] = ()
    is_titled: bool = True
    is_open: bool = True
    choice: Choice | None = None

    @property
    def is_empty(self) -> bool:
        return not self.word and all(block.is_empty for block in self.blocks)


class Tile(Struct, frozen=True):
    """A figure in large type, with its name and what else is known of it."""

    name: str
    value: str
    note: str = ""
    tone: Tone = Tone.PLAIN


class CaseTiles(Struct, frozen=True):
    """The figures of a case, which a page shows first."""

    choice: Choice
    tiles: tuple[Tile, ...]


class Sheet(Struct, frozen=True):
    """What a CSV file has of a report: plain numbers under the names of its columns.

    The rows may be an iterator, for reports of which most need no file.
    """

    columns: tuple[str, ...]
    rows: Iterable[tuple[Cell, ...]]


class Drawn(Struct, frozen=True):
    """The charts of a page. `data` makes what the scripts draw, once a page is written."""

    drawings: Drawings
    data: Callable[[], Mapping[str, Any]]


class Report(Struct, frozen=True, kw_only=True):
    """A whole report.

    A text begins with the `subject` in the tone of the report; Markdown without one, and a page,
    begin with the title and the headline. The `opening` follows, on a page the tiles of the chosen
    case, the `blocks`, and the `closing` lines. A page has the charts below, and ends with the
    `facts`: tables about models, machine and run. A CSV file has the `sheet`, or else the first
    table.

    """

    title: str
    subject: str = ""
    headline: str = ""
    tone: Tone = Tone.PLAIN
    opening: tuple[Line, ...] = ()
    tiles: tuple[CaseTiles, ...] = ()
    blocks: tuple[ReportBlock, ...] = ()
    closing: tuple[Line, ...] = ()
    facts: tuple[Table, ...] = ()
    sheet: Sheet | None = None
    drawn: Drawn | None = None

    @property
    def has_body(self) -> bool:
        """Whether a page has anything to show in the part named Overview."""
        return any(block.is_on_page for block in (*self.blocks, *self.closing))
