"""Names made safe for terminals, logs and tables."""

from __future__ import annotations

import re
from functools import cache
from typing import TextIO

# Commands that a CI runner reads from its log. GitHub's runner obeys `::error::` at the start of a
# line, which may be a name. It and Azure Pipelines obey `##[group]` and `##vso[...]` anywhere.
_RUNNER_COMMAND = (
    r":(?=:(?:add-mask|add-matcher|add-path|debug|echo|endgroup|error|group|notice|"
    r"remove-matcher|save-state|set-env|set-output|stop-commands|warning)(?![\w-]))"
    r"|(?<=#)#(?=\w*\[)"
)

# The hyphen before a negative number. In a name it follows other characters.
_HYPHEN = re.compile(r"(?<![^\s(])-(?=[0-9])")

# For streams that cannot encode one of these. Replacements that include blanks keep the width, so
# columns stay aligned.
_PLAIN = {
    " … ": "...", "…": "~", " ± ": " +-", "±": "+-", " → ": " ->", "→": "->", "─": "-", "−": "-",
    **dict(zip("▁▂▃▄▅▆▇█", "12345678", strict=True)),
}  # fmt: skip


def printable(text: str) -> str:
    """Escape everything that a terminal, a log or a table would interpret.

    Names come from model files and may hold terminal escapes, line breaks, characters that change
    the writing direction, or commands for the runner of a CI job.
    """
    if not (text.isascii() and text.isprintable()):
        text = "".join(char if char.isprintable() else _escaped(char) for char in text)
    if "::" in text or "##" in text:
        return _runner_command().sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text


def printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.splitlines()))


def indented_lines(text: str) -> list[str]:
    """Return the lines of a text, each made printable, and all but the first indented."""
    first, *more = map(printable, text.splitlines() or [""])
    return [first, *(f"  {line}" for line in more)]


def encodable(text: str, encoding: str) -> str:
    """Replace all characters that a stream of that encoding cannot write."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        for sign, plain in _PLAIN.items():
            text = text.replace(sign, plain)
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def typeset(text: str, encoding: str = "utf-8") -> str:
    """Return the text with a minus sign and an arrow, if a stream can write them."""
    shown = _HYPHEN.sub("−", text).replace(" -> ", " → ")
    return shown if encodable(shown, encoding) == shown else text


def encoding_of(stream: TextIO) -> str:
    """Return the encoding of a stream. For one in memory, it is UTF-8."""
    return getattr(stream, "encoding", None) or "utf-8"


def is_utf8(text: str) -> bool:
    """Whether a text can be encoded. A path with a name that is not UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@cache
def _runner_command() -> re.Pattern[str]:
    """Compile the pattern when it is first needed, because every command imports this module."""
    return re.compile(_RUNNER_COMMAND, re.IGNORECASE)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")
