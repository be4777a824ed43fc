"""Helpers for messages: widths, suggestions, shortened lists and checked numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pytest_modelperf.text.escaping import printable

_MAX_NAMES = 5
_MARKS = frozenset({"Mn", "Me"})
_FIRST_JOINED, _LAST_JOINED = "\u1160", "\u11ff"


def shorten_list(texts: Sequence[str], most: int) -> str:
    """Join the first `most` texts, and add how many more there are."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more:,} more" if more > 0 else "")


def join_words(words: Sequence[str]) -> str:
    """Join words into `a`, `a and b` or `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: `1 line`, `1,000 lines`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def display_width(text: str) -> int:
    """Return the columns a terminal needs: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    # Imported here: few texts need it, and every command loads this module.
    import unicodedata

    def width(char: str) -> int:
        # Marks above and below a letter; some of them have no combining class.
        if unicodedata.combining(char) or unicodedata.category(char) in _MARKS:
            return 0
        # The vowels and finals of a Korean syllable written in parts join its first consonant.
        if _FIRST_JOINED <= char <= _LAST_JOINED:
            return 0
        return 2 if unicodedata.east_asian_width(char) in "WF" else 1

    return sum(map(width, text))


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'cores'?` if a known word is similar, and an empty text otherwise."""
    near = nearest(word, known)
    return "" if near is None else f" Did you mean {near!r}?"


def nearest(word: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """Return the most similar known word, or None if all are less similar than `least`, of 1."""
    # Imported here: only errors need it, and every command loads this module.
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=least)), None)


def shown(value: object) -> str:
    """Return a short form of a value, as TOML shows it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    return repr(value) if isinstance(value, str) else str(value)


def list_names(names: Sequence[str]) -> str:
    """Join names into `a, b, c, d, e and 12 more`."""
    return shorten_list(list(map(printable, names)), _MAX_NAMES)


def as_float(value: object) -> float | None:
    """Return the value as a float, infinite if it is too large, or None if it is not a number."""
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
    """Return the value as a duration that the system can wait, or None if it is not one."""
    seconds = as_float(value)
    return seconds if seconds is not None and 0 < seconds <= MOST_SECONDS else None
