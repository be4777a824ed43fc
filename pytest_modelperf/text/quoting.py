"""Words of a shell command that a user types."""

from __future__ import annotations

import shlex

from pytest_modelperf.text.escaping import printable


def shell_word(text: str) -> str:
    """`text` quoted as one word of a shell command."""
    return printable(shlex.quote(text))


def shell_path(path: str) -> str:
    """A path quoted as one word that no program takes for an option or an argument file."""
    return shell_word(f"./{path}" if path.startswith(("-", "@")) else path)
