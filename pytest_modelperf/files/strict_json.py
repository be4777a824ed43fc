"""JSON read strictly: what a lenient reader would guess at is refused, with its line or its place.

Python's own reader does the parsing. What it would let pass, a key that stands twice, NaN, a
number without bounds, becomes an `Unreadable`, which no field accepts: so the error names the
place where it stands.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.errors import BaselineError
from pytest_modelperf.files.documents import OF_BASELINE, Advice
from pytest_modelperf.text.escaping import printable

# The markers that git leaves at the start of a line; a text of JSON has no line breaks.
_CONFLICT = re.compile(r"^(?:<{7}|>{7}|={7}|\|{7})(?: .*)?\r?$", re.MULTILINE)
# 2**63 has 19 digits. A longer number is not even made, for that takes time by its square.
_MAX_DIGITS = 20


class Unreadable(Struct, frozen=True):
    """A value that JSON's grammar allows, or Python's reader, and a baseline does not."""

    found: str


def parse_json(data: bytes, path: Path, advice: Advice = OF_BASELINE) -> object:
    """The value of a JSON file; BaselineError with the line where it is none."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"a byte that is not UTF-8, 0x{data[error.start]:02x}"
        raise _broken(path, line, found, advice.broken) from None
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=Unreadable,
        )
    except json.JSONDecodeError as error:
        conflict = _CONFLICT.search(text)
        if conflict is not None:
            line = text.count("\n", 0, conflict.start()) + 1
            found = "a merge conflict was not resolved"
            raise _broken(path, line, found, advice.conflict) from None
        if _is_cut(text, error):
            found = "the end of the file too early"
        else:
            found = f"no valid JSON, column {error.colno}: {error.msg}"
        raise _broken(path, error.lineno, found, advice.broken) from None
    except RecursionError:
        found = "values that are nested too deeply"
        raise _broken(path, 1, found, advice.broken) from None


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    """Whether the end is missing: of the file, or of a word or number at its end."""
    rest = text[error.pos :]
    if not rest.strip():
        return True
    is_object = text.startswith("{") and error.msg != "Extra data"
    return is_object and "\n" not in rest and not rest.rstrip().endswith("}")


def _broken(path: Path, line: int, found: str, advice: str) -> BaselineError:
    return BaselineError(f"{printable(str(path))}, line {line}: {found}. {advice}")


def _object(pairs: list[tuple[str, object]]) -> object:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    return Unreadable(f'an object with the key "{printable(twice)}" twice')


def _integer(text: str) -> object:
    return int(text) if len(text) <= _MAX_DIGITS else Unreadable(f"a number of {len(text)} digits")


def _float(text: str) -> object:
    value = float(text)
    return value if math.isfinite(value) else Unreadable(f"{text[:24]}, which is infinite")
