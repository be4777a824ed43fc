"""Words of a command that is to be typed."""

from __future__ import annotations

import shlex

from pytest_modelperf.text.escaping import printable


def shell_word(text: str) -> str:
    """`text` as a word of a command that is to be typed: a shell takes it back, and obeys none."""
    return printable(shlex.quote(text))


def shell_path(path: str) -> str:
    """A path as such a word, which no program takes for an option or a file of arguments."""
    return shell_word(f"./{path}" if path.startswith(("-", "@")) else path)
