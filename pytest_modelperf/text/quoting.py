"""Texts as a user types them: in a shell command, in TOML and in Python."""

from __future__ import annotations

import json
import re
import shlex

from pytest_modelperf.text.escaping import printable

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def shell_word(text: str) -> str:
    """Quote a text as one word of a shell command."""
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
