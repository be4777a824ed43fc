"""Texts of messages: suggestions, lists, checked numbers, cut names, and quoted input.

Names in one list keep the parts by which they differ.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from os.path import commonprefix
from typing import TypeAlias

from pytest_modelperf.text.escaping import printable

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

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
    """Return the most similar known word, or None if none has the similarity `least` of 1."""
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


CUT = "…"
# Names that were just made distinct can now look like other names: then repeat.
_MOST_ROUNDS = 4
# Shortens a name to at most the given number of its characters.
_Cut: TypeAlias = Callable[[str, int], str]


def cut_middle(text: str, most: int) -> str:
    """Return the text without its middle if it has more than `most` characters."""
    return text if len(text) <= most else _cut_after(most // 2)(text, most - 1)


def cut_end(text: str, width: int) -> str:
    """Return the text without its end if it is too wide."""
    return _fitted(text, width, _cut_after(len(text)))


def cut_names(names: Iterable[str], width: int) -> Mapping[str, str]:
    """Map each name to the text shown for it in `width` columns of a terminal.

    All names are cut at the same place, which is the middle unless different names would then look
    the same. Names that look the same at any cut are shown around their difference.
    """
    listed = tuple(dict.fromkeys(names))
    shown = _most_distinct(listed, width, _cuts_near_middle(width))
    for _ in range(_MOST_ROUNDS):
        for alike in _alike(shown):
            shown |= _around_differences(alike, width)
    return shown


def _most_distinct(names: Sequence[str], width: int, cuts: Iterable[_Cut]) -> dict[str, str]:
    """Return the texts of the first cut that keeps the largest number of names distinct."""
    best: dict[str, str] = {}
    most = 0
    for cut in cuts:
        texts = {name: _fitted(name, width, cut) for name in names}
        distinct = len(set(texts.values()))
        if distinct > most:
            best, most = texts, distinct
        if distinct == len(names):
            break
    return best


def _alike(shown: Mapping[str, str]) -> list[list[str]]:
    """Return the groups of names that are shown by the same text."""
    named: dict[str, list[str]] = {}
    for name, text in shown.items():
        named.setdefault(text, []).append(name)
    return [names for names in named.values() if len(names) > 1]


def _around_differences(names: Sequence[str], width: int) -> dict[str, str]:
    places = {len(commonprefix(pair)) for pair in pairwise(sorted(names))}  # noqa: RUF071  # no paths
    return _most_distinct(names, width, map(_cut_around, sorted(places)))


def _cuts_near_middle(width: int) -> Iterator[_Cut]:
    middle = (width - 1) // 2
    yield _cut_after(middle)
    for distance in range(1, middle + 2):
        yield _cut_after(max(0, middle - distance))
        yield _cut_after(middle + distance)


def _cut_after(most: int) -> _Cut:
    """Return a cut that keeps `most` characters of the beginning and fills up with the end."""

    def cut(text: str, kept: int) -> str:
        head = min(most, kept)
        # There can be fewer characters than columns.
        tail = min(kept - head, len(text))
        return text[:head] + CUT + text[len(text) - tail :]

    return cut


def _cut_around(place: int) -> _Cut:
    def cut(text: str, kept: int) -> str:
        start = max(0, min(place - kept // 2, len(text) - kept))
        before = CUT if start else ""
        after = CUT if start + kept < len(text) else ""
        return f"{before}{text[start : start + kept]}{after}"

    return cut


def _fitted(text: str, width: int, cut: _Cut) -> str:
    """Cut the text if it is too wide. Some characters are two columns wide, so fewer fit."""
    if display_width(text) <= width:
        return text
    kept = width - 1
    while display_width(shorter := cut(text, kept)) > width and kept:
        kept -= 1
    return shorter


def shell_word(text: str) -> str:
    return printable(shlex.quote(text))


def shell_path(path: str) -> str:
    """Quote a path as one word that programs do not take for an option or an argument file."""
    return shell_word(f"./{path}" if path.startswith(("-", "@")) else path)


def quoted_text(text: str) -> str:
    """Quote a text for Python and TOML, as JSON does. TOML also escapes the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """Return a key of a TOML table, quoted if necessary."""
    return name if _BARE_KEY.fullmatch(name) else quoted_text(name)
