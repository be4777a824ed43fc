"""Messages of the core in the words of a test or a table, not in those of the command line."""

from __future__ import annotations

import re

# `--dim N=SIZE --dim seq=SIZE`, as a message asks for what is missing.
_MISSING = re.compile(r"--dim \S+=SIZE(?: --dim \S+=SIZE)*")
_NAMES = re.compile(r"--dim (\S+)=SIZE")
_TABLE = re.compile(r"a table such as \{(\w+) = ([^}]+)\}")
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
    return _reworded(message, "dims={{{}}}", '"{}": SIZE')


def in_table(message: str) -> str:
    """With the keys of a model's table: `dims = {seq = SIZE}`."""
    return _reworded(message, "dims = {{{}}} in the table of the model", "{} = SIZE")


def _reworded(message: str, table: str, pair: str) -> str:
    def reword(match: re.Match[str]) -> str:
        return table.format(", ".join(pair.format(name) for name in _NAMES.findall(match[0])))

    message = _MISSING.sub(reword, message)
    for option, argument in _OPTIONS:
        message = re.sub(rf"(?<![\w-]){option}\b(?!-)", argument, message)
    return message
