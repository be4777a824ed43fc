"""Words beside each other: how wide they are, which are near each other, the first of many."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from pytest_modelperf.text.escaping import printable

_MAX_NAMES = 5


def shorten_list(texts: Sequence[str], most: int) -> str:
    """The first of them, and how many more there are."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more:,} more" if more > 0 else "")


def display_width(text: str) -> int:
    """The columns that a terminal needs: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def suggestion(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'cores'?` for a word that is nearly one of those known; else nothing."""
    near = nearest(word, known)
    return "" if near is None else f" Did you mean {near!r}?"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of those known that a word is nearly."""
    # Imported here: only an error needs it, and this module is loaded in every pytest run.
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def shown(value: object) -> str:
    """A value as a table would hold it."""
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
