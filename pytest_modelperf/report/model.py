"""The structure of a report, described once for all forms of output.

Each form has one renderer: terminal, Markdown, page and CSV. Texts and cells are plain: the
renderers escape, fold, cut and colour them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, Flag, auto
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.report.tables import Cell, Table


class Drawing(Struct, frozen=True):
    """A part of a page that the scripts draw, under its heading and in the element with its id.

    A part that leads is above the overview.
    """

    id: str
    heading: str
    leads: bool = False


class Drawings(Struct, frozen=True):
    """The parts of a page, and the files that draw them.

    Each file may use what those before it define. A page without plotly charts is smaller and opens
    faster. `of_case` has the keys that they read from the chosen case only. In other cases these
    keys stay packed.
    """

    parts: tuple[Drawing, ...] = ()
    styles: tuple[Path, ...] = ()
    scripts: tuple[Path, ...] = ()
    needs_plotly: bool = True
    of_case: tuple[str, ...] = ()

    def led_by(self, part: str) -> Drawings:
        """Return these parts, with the one of this id above the overview."""
        parts = (replace(each, leads=each.leads or each.id == part) for each in self.parts)
        return replace(self, parts=tuple(parts))

    def plus(self, others: Drawings) -> Drawings:
        """Return these parts and then the others. Scripts may use what earlier ones define."""
        return Drawings(
            parts=(*self.parts, *others.parts),
            styles=(*self.styles, *others.styles),
            scripts=(*self.scripts, *others.scripts),
            needs_plotly=self.needs_plotly or others.needs_plotly,
            of_case=(*self.of_case, *others.of_case),
        )


# -- the blocks of a report


class Tone(Enum):
    """The kind of news, shown as a colour on a terminal and as a class on a page."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    PLAIN = "plain"
    DIM = "dim"


class On(Flag):
    """The forms of output that show a block. A notebook shows the same as a terminal."""

    TERMINAL = auto()
    MARKDOWN = auto()
    PAGE = auto()
    TEXT = TERMINAL | MARKDOWN
    ALL = TEXT | PAGE


class Choice(Struct, frozen=True):
    """A case that a page can choose: the indexes of its model and of the case in the data."""

    model: int
    case: int


class Link(Struct, frozen=True):
    """A link to an address on the web."""

    text: str
    address: str


class ReportBlock(Struct, frozen=True, kw_only=True):
    """A part of a report.

    A terminal may leave out the details and show brief blocks instead. Markdown folds details;
    neither it nor a page shows brief blocks. Empty blocks are never shown: a paragraph without
    lines, or a section without a verdict whose blocks are all empty.
    """

    kind: ClassVar[str]

    on: On = On.ALL
    is_detail: bool = False
    is_brief: bool = False

    @property
    def is_on_page(self) -> bool:
        return self.is_on(On.PAGE)

    def is_on(self, face: On) -> bool:
        """Whether that form of output shows the block, with details or without."""
        is_elsewhere = self.is_brief and face is not On.TERMINAL
        return face in self.on and not self.is_empty and not is_elsewhere

    @property
    def is_empty(self) -> bool:
        return False


class Line(ReportBlock, frozen=True, kw_only=True):
    """A sentence, if needed after the word that it is about: `why: 12 fusions lost`.

    Only pages show links.
    """

    kind: ClassVar[str] = "line"

    text: str
    word: str = ""
    tone: Tone = Tone.PLAIN
    is_bold: bool = False
    link: Link | None = None


def lines_of(texts: Iterable[str], word: str = "", tone: Tone = Tone.PLAIN) -> tuple[Line, ...]:
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
    """A table. `tones` and `choices` are empty, or have one for each row.

    If a terminal is too narrow, rows become columns if that helps and `may_turn` allows it.
    """

    kind: ClassVar[str] = "rows"

    table: Table
    tones: tuple[Tone, ...] = ()
    choices: tuple[Choice | None, ...] = ()
    may_turn: bool = False


class Code(ReportBlock, frozen=True):
    """Text to copy, below its title. A command is one line after its title."""

    kind: ClassVar[str] = "code"

    title: str
    text: str
    is_command: bool = False


class Failure(ReportBlock, frozen=True):
    """Why something could not be measured. Lines after the first are indented in a text."""

    kind: ClassVar[str] = "failure"

    text: str


class Bar(Struct, frozen=True, kw_only=True):
    """A figure before and now, as bars on one scale.

    Each of `lengths`, the ends of the `interval` and the end of what is `allowed` is a share of the
    whole scale. A side without a figure has neither a text nor a length.
    """

    title: str
    word: str
    note: str
    texts: tuple[str, str]
    lengths: tuple[float | None, float | None]
    interval: tuple[float, float] | None = None
    allowed: float | None = None
    tone: Tone = Tone.PLAIN


class Bars(ReportBlock, frozen=True, kw_only=True):
    """Figures before and now as bars. Only pages show them."""

    kind: ClassVar[str] = "bars"

    on: On = On.PAGE
    bars: tuple[Bar, ...]

    @property
    def is_empty(self) -> bool:
        return not self.bars


class Section(ReportBlock, frozen=True, kw_only=True):
    """Blocks under a title, perhaps with a verdict in `word` and the rest of the sentence.

    A text leaves out the title if the section is not titled. A page folds a section that is not
    open. The link to the `choice` shows its model and case.
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
    """A figure in large type, with its name and a note."""

    name: str
    value: str
    note: str = ""
    tone: Tone = Tone.PLAIN


class ShareOfWhole(Struct, frozen=True):
    """A part of a whole: its name, its share as a number and as a text, and its colour.

    The colour is the id of a kind of operators.
    """

    name: str
    share: float
    text: str
    kind: str


class CaseTiles(Struct, frozen=True):
    """The figures at the top of a page about a case, and the parts of one of them."""

    choice: Choice
    tiles: tuple[Tile, ...]
    shares: tuple[ShareOfWhole, ...] = ()
    whole: str = ""


class Sheet(Struct, frozen=True):
    """The part of a report that a CSV file has: plain numbers in named columns.

    The rows may be an iterator, because most reports are not written to a file.
    """

    columns: tuple[str, ...]
    rows: Iterable[tuple[Cell, ...]]


class Drawn(Struct, frozen=True):
    """The charts of a page. `data` returns what the scripts draw, and is called only for a page."""

    drawings: Drawings
    data: Callable[[], Mapping[str, Any]]


class Report(Struct, frozen=True, kw_only=True):
    """A whole report.

    A text begins with the `subject` in the tone of the report. A page, and Markdown without a
    subject, begin with the title and the headline. Then come the `opening`, on a page the `links`,
    the `findings` and the tiles of the chosen case, the `blocks`, and the `closing` lines. A
    finding is a case that needs attention, with its cause and what to do about it. A page with
    findings has the `counts` of the cases in place of the headline. It has the charts below, and
    ends with the `facts`: tables about models, machine and run. A CSV file has the `sheet`, or else
    the first table.
    """

    title: str
    subject: str = ""
    headline: str = ""
    counts: str = ""
    tone: Tone = Tone.PLAIN
    opening: tuple[Line, ...] = ()
    links: tuple[Link, ...] = ()
    findings: tuple[Section, ...] = ()
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
