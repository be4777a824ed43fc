"""Folding a long command into several lines that a shell reads as one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_modelperf.text.words import display_width

# A word of a command, quoted parts included.
_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_INDENT = "   "
_CONTINUED = "\\"
# Space for a quote and a backslash if a line ends within a word.
_RESERVED = 4


def fold_command(word: str, command: str, width: int) -> list[str]:
    """Fold a titled command such as `accept: pytest ...` into lines of at most `width` columns."""
    words = _WORD.findall(command)
    if " ".join(words) != command:
        words = [command]
    lines: list[str] = []
    line = f"{word}:"
    for index, part in enumerate(words):
        room = width if index == len(words) - 1 else width - len(f" {_CONTINUED}")
        if display_width(f"{line} {part}") <= room:
            line = f"{line} {part}"
            continue
        lines.append(f"{line} {_CONTINUED}")
        line = f"{_INDENT}{part}"
        if display_width(line) > room:
            *pieces, line = _break_word(part, width - _RESERVED)
            lines += [f"{piece}{_CONTINUED}" for piece in pieces]
    return [*lines, line]


def _break_word(word: str, width: int) -> Iterator[str]:
    """Yield the word in pieces, which a shell joins if each but the last ends with a backslash.

    A backslash has no meaning within single quotes, so they are closed before it and reopened.
    """
    quote = piece = ""
    for char in word:
        if display_width(piece + char) > width and not piece.endswith("\\"):
            again = "'" if quote == "'" else ""
            yield piece + again
            piece = again
        piece += char
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
    yield piece
