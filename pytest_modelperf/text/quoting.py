"""Texts as a user types them: in a shell command, in TOML and in Python."""

from __future__ import annotations

import json
import re
import shlex

from pytest_modelperf.text.escaping import printable

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def shell_word(text: str) -> str:
    """`text` quoted as one word of a shell command."""
    return printable(shlex.quote(text))


def shell_path(path: str) -> str:
    """A path quoted as one word that no program takes for an option or an argument file."""
    return shell_word(f"./{path}" if path.startswith(("-", "@")) else path)


def quoted_text(text: str) -> str:
    """A text as Python and TOML write it, which here is as JSON does.

    TOML refuses a delete character that is not escaped.
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """A key of a table of TOML, quoted where it has to be."""
    return name if _BARE_KEY.fullmatch(name) else quoted_text(name)
