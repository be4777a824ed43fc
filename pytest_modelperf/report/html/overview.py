"""The parts of a page that need no JavaScript: verdict, cases, models and machine."""

from __future__ import annotations

from msgspec import Struct

from pytest_modelperf.report.model import Block, Tone
from pytest_modelperf.report.tables import Table


class Choice(Struct, frozen=True):
    """A case that the page can choose: the places of its model and of itself in the data."""

    model: int
    case: int


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


class Link(Struct, frozen=True):
    """An address on the web, and its words."""

    text: str
    address: str


class CaseSection(Struct, frozen=True, kw_only=True):
    """One case: its verdict as a word and a sentence, its figures, and their explanation.

    `blocks` come first. `facts` are pairs of a word and a text, and `links` has one for each of
    them, if any.
    `accept` is the command that accepts the change.
    """

    name: str
    sentence: str
    tone: Tone = Tone.PLAIN
    failure: tuple[str, ...] = ()
    doubt: str | None = None
    blocks: tuple[Block, ...] = ()
    tables: tuple[Table, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    links: tuple[Link | None, ...] = ()
    accept: str | None = None
    is_open: bool = True
    word: str = ""
    choice: Choice | None = None


class Overview(Struct, frozen=True, kw_only=True):
    """The parts of a page that need no JavaScript.

    The tables stand in the order `summary`, `cases`, `tables`. `tones` and `choices` have one for
    each row of `cases`. A page shows the tiles of the chosen case; without JavaScript, the first.

    The texts are not escaped: the template does that.
    """

    title: str = "Model performance"
    headline: str = ""
    tone: Tone = Tone.PLAIN
    lines: tuple[str, ...] = ()
    summary: Table | None = None
    cases: Table | None = None
    tones: tuple[Tone, ...] = ()
    choices: tuple[Choice | None, ...] = ()
    tiles: tuple[CaseTiles, ...] = ()
    tables: tuple[Table, ...] = ()
    sections: tuple[CaseSection, ...] = ()
    facts: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def has_body(self) -> bool:
        """Whether there is anything to show in the part named Overview."""
        tables = (self.summary, self.cases, *self.tables)
        return any(tables) or bool(self.sections or self.notes)
