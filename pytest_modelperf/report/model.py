"""A report: what a result shows, described once. Each face has one renderer.

Texts and cells are plain: the renderers escape, fold, cut and colour them.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, TypeAlias

from msgspec import Struct

from pytest_modelperf.report.tables import Table


class Tone(Enum):
    """The kind of news: a colour on a terminal, a class on a page."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    PLAIN = "plain"


class Line(Struct, frozen=True, kw_only=True):
    """A sentence, perhaps after the word that it is about: `why: 12 fusions lost`."""

    text: str
    word: str = ""
    tone: Tone = Tone.PLAIN
    is_bold: bool = False


class Paragraph(Struct, frozen=True):
    """Lines that belong together."""

    kind: ClassVar[str] = "paragraph"

    lines: tuple[Line, ...]


class Rows(Struct, frozen=True):
    """A table; `tones` has one for each row, or none."""

    kind: ClassVar[str] = "rows"

    table: Table
    tones: tuple[Tone, ...] = ()


class Code(Struct, frozen=True):
    """Something to copy, below its title."""

    kind: ClassVar[str] = "code"

    title: str
    text: str


Block: TypeAlias = "Paragraph | Rows | Code"


class Section(Struct, frozen=True, kw_only=True):
    """What there is to see of one case; a text with one section shows no title."""

    title: str
    sentence: str = ""
    tone: Tone = Tone.PLAIN
    blocks: tuple[Block, ...] = ()


class Report(Struct, frozen=True, kw_only=True):
    """A whole report.

    A text begins with the `subject` in the tone of the report, and with the `opening`. A page
    begins with the title, the headline and the `answers` (or else the opening), has a table of all
    `cases`, and ends with the `facts`: tables about models, machine and run. `closing` follows the
    sections.
    """

    title: str
    subject: str
    headline: str = ""
    tone: Tone = Tone.PLAIN
    opening: tuple[Line, ...] = ()
    answers: tuple[str, ...] = ()
    cases: Rows | None = None
    sections: tuple[Section, ...] = ()
    closing: tuple[Line, ...] = ()
    facts: tuple[Table, ...] = ()
