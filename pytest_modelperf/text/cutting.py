"""Cutting texts to a width. Names in one list keep the parts by which they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from os.path import commonprefix
from typing import TypeAlias

from pytest_modelperf.text.words import display_width

CUT = "…"
# Names that were just made distinct can now look like other names, which takes another round.
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
    the same. Names that look the same wherever they are cut are shown around their difference.
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
