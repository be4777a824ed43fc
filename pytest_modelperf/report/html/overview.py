"""The parts of a page that need no JavaScript: verdict, cases, models and machine."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from pytest_modelperf.report.tables import Table


class Tone(Enum):
    """The kind of news; the style sheet has a class for each."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    PLAIN = "plain"


class CaseSection(Struct, frozen=True, kw_only=True):
    """One case: its verdict in a sentence, its figures, and their explanation.

    `facts` are pairs of a word and a text. `accept` is the command that accepts the change.
    """

    name: str
    sentence: str
    tone: Tone = Tone.PLAIN
    failure: tuple[str, ...] = ()
    doubt: str | None = None
    tables: tuple[Table, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    accept: str | None = None
    is_open: bool = True


class Overview(Struct, frozen=True, kw_only=True):
    """All of these parts, of which `summary`, `cases` and `tables` are tables in this order.

    `tones` has one for each row of `cases`.

    The texts are not escaped: the template does that.
    """

    title: str = "Model performance"
    headline: str = ""
    tone: Tone = Tone.PLAIN
    lines: tuple[str, ...] = ()
    summary: Table | None = None
    cases: Table | None = None
    tones: tuple[Tone, ...] = ()
    tables: tuple[Table, ...] = ()
    sections: tuple[CaseSection, ...] = ()
    facts: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
