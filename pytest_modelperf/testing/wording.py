"""Messages of the core in the words of a test or a table, not in those of the command line."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable

from pytest_modelperf.text.escaping import printable_lines

# `--dim N=SIZE --dim 'a b=SIZE'`, as a message asks for what is missing, quoted for a shell.
_DIM = r"""--dim (?:[\w@%+=:,./-]+=SIZE|'(?:[^']|'"'"')*=SIZE')"""
_MISSING = re.compile(rf"{_DIM}(?: {_DIM})*", re.ASCII)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TABLE = re.compile(r"a table such as \{(\w+) = ([^}]+)\}")
_ITS_TABLE = 'the table of the model, [tool.modelperf.models."PATH"] in pyproject.toml'
_OPTIONS = (
    ("--batch", "batch_size"),
    ("--cores", "cores"),
    ("--dim", "dims"),
    ("--input", "inputs"),
    ("--engine-option", "--modelperf-engine-option"),
    ("--max-seconds", "--modelperf-max-seconds"),
    ("--static", "--modelperf-static-only"),
    ("--timeout", "--modelperf-timeout"),
)


def in_python(message: str) -> str:
    """With the arguments of a marker or of the fixture: `dims={"seq": SIZE}`."""
    message = _TABLE.sub(r'a dict such as {"\1": \2}', message)
    return _reworded(message, "dims={{{}}}", lambda name: f"{_text(name)}: SIZE")


def in_table(message: str) -> str:
    """With the keys of a model's table: `dims = {seq = SIZE}`."""

    def pair(name: str) -> str:
        return f"{name if _BARE_KEY.fullmatch(name) else _text(name)} = SIZE"

    return _reworded(message, "dims = {{{}}} in " + _ITS_TABLE, pair)


def _text(name: str) -> str:
    """A text as Python and TOML write it, which here is as JSON does."""
    return json.dumps(name, ensure_ascii=False)


def _reworded(message: str, table: str, pair: Callable[[str], str]) -> str:
    def reword(match: re.Match[str]) -> str:
        names = (word.removesuffix("=SIZE") for word in shlex.split(match[0])[1::2])
        return table.format(", ".join(map(pair, names)))

    message = _MISSING.sub(reword, message)
    for option, argument in _OPTIONS:
        message = re.sub(rf"(?<![\w-]){option}\b(?!-)", argument, message)
    return printable_lines(message)
