"""Names made safe for a terminal, a log, and a table."""

from __future__ import annotations

import re

# What the log of a CI job may obey: GitHub's runner `::error::` at the start of a line, and a name
# may come to stand there; it and that of Azure Pipelines `##[group]` and `##vso[...]` anywhere.
_RUNNER_COMMAND = re.compile(
    r":(?=:(?:add-mask|add-matcher|add-path|debug|echo|endgroup|error|group|notice|"
    r"remove-matcher|save-state|set-env|set-output|stop-commands|warning)(?![\w-]))"
    r"|(?<=#)#(?=\w*\[)",
    re.IGNORECASE,
)


def printable(text: str) -> str:
    """`text` with everything that a terminal, a log or a table could obey shown escaped.

    Names come from model files and may hold terminal escapes, line breaks, characters that
    change the direction of writing, or what the runner of a CI job takes for a command.
    """
    if not (text.isascii() and text.isprintable()):
        text = "".join(char if char.isprintable() else _escaped(char) for char in text)
    if "::" in text or "##" in text:
        return _RUNNER_COMMAND.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text


def printable_lines(text: str) -> str:
    """The same for each line of a text."""
    return "\n".join(map(printable, text.splitlines()))


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")
