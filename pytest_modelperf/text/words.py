"""Helpers for words in messages: width, suggestions, shortened lists, and numbers checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pytest_modelperf.text.escaping import printable

_MAX_NAMES = 5
_MARKS = frozenset({"Mn", "Me"})
_FIRST_JOINED, _LAST_JOINED = "\u1160", "\u11ff"


def shorten_list(texts: Sequence[str], most: int) -> str:
    """The first `most` texts, and how many more there are."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more:,} more" if more > 0 else "")


def join_words(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def count_of(number: int, noun: str) -> str:
    """`1 line`, `1,000 lines`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def display_width(text: str) -> int:
    """The columns that a terminal needs: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    # Imported here: few texts need it, and every command loads this module.
    import unicodedata

    def width(char: str) -> int:
        # Marks above and below a letter, of which not all have a combining class.
        if unicodedata.combining(char) or unicodedata.category(char) in _MARKS:
            return 0
        # The vowels and finals of a Korean syllable written in parts join its first consonant.
        if _FIRST_JOINED <= char <= _LAST_JOINED:
            return 0
        return 2 if unicodedata.east_asian_width(char) in "WF" else 1

    return sum(map(width, text))


def suggestion(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'cores'?` if a known word is near; otherwise empty."""
    near = nearest(word, known)
    return "" if near is None else f" Did you mean {near!r}?"


def nearest(word: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The known word that is nearest to a word; None if none is `least` alike, of 1."""
    # Imported here: only errors need it, and every command loads this module.
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=least)), None)


def shown(value: object) -> str:
    """A value as TOML shows it, in short."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    return repr(value) if isinstance(value, str) else str(value)


def list_names(names: Sequence[str]) -> str:
    """`a, b, c, d, e and 12 more`."""
    return shorten_list(list(map(printable, names)), _MAX_NAMES)


# -- numbers given by a user, checked


def as_float(value: object) -> float | None:
    """The value as a float; None if it is no number. A number too large for a float is infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


# A year. The system can wait at most 292 years, and no measurement takes one.
MOST_SECONDS = 31_536_000.0
SECONDS = "seconds above 0 and within a year, such as 10"


def as_seconds(value: object) -> float | None:
    """The value as a duration that the system can wait; None if it is none."""
    seconds = as_float(value)
    return seconds if seconds is not None and 0 < seconds <= MOST_SECONDS else None
