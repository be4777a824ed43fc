"""The values of settings, from typed text: what a table would hold of them.

A text that cannot be parsed is left as it is, and the reader of its kind says what is wrong. Other
errors begin with `where`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shown

# The words that pytest takes in its own ini keys.
_TRUE = frozenset({"y", "yes", "t", "true", "on", "1"})
_FALSE = frozenset({"n", "no", "f", "false", "off", "0"})


def keep(value: object, where: str) -> object:  # noqa: ARG001  # as all parsers
    """The value as it is: text needs no parsing."""
    return value


def parse_flag(value: object, where: str) -> object:  # noqa: ARG001  # as all parsers
    word = value.strip().lower() if isinstance(value, str) else None
    if word in _TRUE:
        return True
    return False if word in _FALSE else value


def parse_number(value: object, where: str) -> object:  # noqa: ARG001  # as all parsers
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def parse_numbers(value: object, where: str) -> object:  # noqa: ARG001  # as all parsers
    """The whole numbers between commas."""
    if not isinstance(value, str):
        return value
    return [_whole_number(part.strip()) for part in value.split(",")]


def parse_dims(value: object, where: str) -> object:
    """The table that texts such as `seq=64,128` make; `seq=64,past=0` are the sizes of one case."""
    if not isinstance(value, list | tuple):
        return value
    # Imported here: only a command has such texts.
    from pytest_modelperf.graph.binding import parse_dim

    texts = [text for text in value if isinstance(text, str)]
    if any("=" in part for text in texts for part in text.split(",")[1:]):
        return _parse_paired(texts, where)
    dims: dict[str, list[int]] = {}
    for text in texts:
        first, *more = text.split(",")
        name, size = parse_dim(first)
        if name in dims:
            raise UsageError(
                f"{where} {printable(name)} is given twice. Give several sizes as "
                f"{printable(name)}=64,128."
            )
        dims[name] = [size, *(parse_dim(f"{name}={part}")[1] for part in more)]
    return dims


def parse_pairs(value: object, where: str) -> object:
    """The table that texts or lines such as `KEY=VALUE` make."""
    lines = value
    if isinstance(value, str):
        lines = [line for line in value.splitlines() if line.strip()]
    if not isinstance(lines, list | tuple):
        return value
    pairs: dict[str, str] = {}
    for line in lines:
        key, separator, text = line.partition("=") if isinstance(line, str) else ("", "", "")
        if not key.strip() or not separator:
            raise UsageError(f"{where} takes KEY=VALUE, not {shown(line)}.")
        if key.strip() in pairs:
            raise UsageError(f"{where}: {printable(key.strip())} is given twice: give it once.")
        pairs[key.strip()] = text.strip()
    return pairs


def _whole_number(text: str) -> int | str:
    try:
        return int(text) if text.isdecimal() else text
    except ValueError:
        # Python refuses a number of some thousand digits.
        return text


def _parse_paired(texts: Sequence[str], where: str) -> list[dict[str, int]]:
    from pytest_modelperf.graph.binding import parse_dim

    cases = [dict(parse_dim(part) for part in text.split(",")) for text in texts]
    counts = [len(text.split(",")) for text in texts]
    is_whole = [len(case) for case in cases] == counts
    if not is_whole or any(case.keys() != cases[0].keys() for case in cases):
        raise UsageError(
            f"each {where} with several names is one case, and takes all names once: "
            f"{where} seq=64,past=0 {where} seq=1,past=128."
        )
    return cases
