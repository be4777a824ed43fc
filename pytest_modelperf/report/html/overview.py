"""What a page says without JavaScript: how it ended, case by case, and of what and where."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from pytest_modelperf.report.tables import Table


class Tone(Enum):
    """What kind of news it is; the page has a class of that name for it."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    PLAIN = "plain"


class CaseSection(Struct, frozen=True, kw_only=True):
    """One case: its verdict in a sentence, its figures, and what explains them.

    `facts` are pairs of a word and a text. `accept` is the command that takes it as it is.
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
    """The whole of it. `tones` has one for each row of `cases`; `tables` follow that one.

    The texts are as they are, with nothing in them escaped: the template does that.
    """

    title: str = "Model performance"
    headline: str = ""
    tone: Tone = Tone.PLAIN
    lines: tuple[str, ...] = ()
    cases: Table | None = None
    tones: tuple[Tone, ...] = ()
    tables: tuple[Table, ...] = ()
    sections: tuple[CaseSection, ...] = ()
    facts: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
