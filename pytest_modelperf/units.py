"""Numbers as people read them: counts, bytes and shares with their unit, and names made safe."""

from __future__ import annotations

import math
import re
import unicodedata

_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY_PREFIXES = ((1 << 60, "EiB"), (1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"),
                    (1 << 20, "MiB"), (1 << 10, "KiB"))  # fmt: skip
_COUNT = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([kKMGTPE]?)\s*")

UNKNOWN = "?"


def format_count(value: int | None) -> str:
    """A count with four digits and a decimal prefix: `4.089 G`, `25.61 M`, `512`."""
    if value is None:
        return UNKNOWN
    return _scaled(value, _PREFIXES, "")


def format_bytes(value: int | None) -> str:
    """A size with four digits and a binary prefix: `97.49 MiB`, `512 B`."""
    if value is None:
        return UNKNOWN
    return _scaled(value, _BINARY_PREFIXES, "B")


def format_share(part: float | None, whole: float | None) -> str:
    """`part` of `whole` in percent: `12.3 %`; nothing of nothing is 0 %."""
    if part is None or whole is None:
        return UNKNOWN
    return f"{100 * part / whole if whole else 0.0:.1f} %"


def format_shape(shape: tuple[int | None, ...] | None) -> str:
    """`1x3x224x224`; `?` for what is unknown, `scalar` for rank 0."""
    if shape is None:
        return UNKNOWN
    return "x".join(UNKNOWN if dim is None else str(dim) for dim in shape) or "scalar"


def parse_count(text: str) -> int:
    """The inverse of `format_count`, as users write it: `4.1G`, `26M`, `512`.

    Raises ValueError on anything else.
    """
    match = _COUNT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    factor = next((f for f, p in _PREFIXES if p == match[2].replace("K", "k")), 1)
    return round(float(match[1]) * factor)


def printable(text: str) -> str:
    """`text` with everything that a terminal, a log or a table could obey shown escaped.

    Names come from model files and may hold terminal escapes, line breaks, or characters
    that change the direction of writing.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char.isprintable() and unicodedata.category(char) != "Zl" else _escaped(char)
        for char in text
    )


def display_width(text: str) -> int:
    """The columns that a terminal needs: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")


def _scaled(value: int, prefixes: tuple[tuple[float, str], ...], unit: str) -> str:
    for factor, prefix in prefixes:
        # 999,999 is 1 M, not 1000 k: the bound lies where four digits would round up.
        if abs(value) >= factor * 0.99995 and abs(value) >= 1000:
            scaled = value / factor
            # The exponent after rounding: 0.99999 M has four digits as 1.000 M.
            rounded = abs(float(f"{scaled:.4g}"))
            digits = max(0, 3 - math.floor(math.log10(rounded)))
            return f"{scaled:.{digits}f} {prefix}"
    return f"{value} {unit}".rstrip()
