"""A value of a JSON file that knows where it stands, and gives itself only as what is expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from pytest_modelperf.errors import BaselineError
from pytest_modelperf.files.documents import OF_BASELINE
from pytest_modelperf.files.strict_json import Unreadable
from pytest_modelperf.text.escaping import printable

T = TypeVar("T")

# Every count and time of a profile fits; so does what numpy makes of it.
MAX_INTEGER = 2**63 - 1
# Far more than a ratio is known to, and the same digits on every machine.
_DIGITS = 6
_SHOWN = 40
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Field(Struct, frozen=True):
    """A value, and its place in a file: `cases["b8-c2"].static.macs`.

    `advice` is what to do about a file in which a value is not as expected.
    """

    value: object
    file: Path
    place: str = ""
    advice: str = OF_BASELINE.broken

    def error(self, problem: str, advice: str | None = None) -> BaselineError:
        place = f", {self.place}" if self.place else ""
        told = self.advice if advice is None else advice
        return BaselineError(f"{printable(str(self.file))}{place}: {problem}. {told}")

    def entries(self, *keys: str) -> dict[str, Field]:
        """The entries of an object with exactly these keys."""
        found = self.mapping()
        missing = [key for key in keys if key not in found]
        if missing:
            raise self.error(f'the key "{missing[0]}" is missing')
        unknown = sorted(found.keys() - set(keys))
        if unknown:
            raise self.error(f'unknown key "{_cut(unknown[0])}"; expected {", ".join(keys)}')
        return found

    def mapping(self) -> dict[str, Field]:
        """The entries of an object, whatever its keys."""
        if not isinstance(self.value, dict):
            raise self._unexpected("an object")
        return {key: self._at(key, value) for key, value in self.value.items()}

    def items(self) -> tuple[Field, ...]:
        if not isinstance(self.value, list):
            raise self._unexpected("a list")
        return tuple(
            Field(value, self.file, f"{self.place}[{index}]", self.advice)
            for index, value in enumerate(self.value)
        )

    def integers(self) -> tuple[int, ...]:
        """A list of whole numbers: samples come by the thousands, so they are no fields."""
        values = self.value
        if isinstance(values, list) and all(
            type(value) is int and 0 <= value <= MAX_INTEGER for value in values
        ):
            return tuple(values)
        return tuple(item.integer() for item in self.items())

    def integer(self, least: int = 0) -> int:
        value = self.value
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._unexpected("a whole number")
        if not least <= value <= MAX_INTEGER:
            raise self.error(f"expected a number from {least} to 2^63 - 1, found {value}")
        return value

    def number(self) -> float:
        """A number that is not negative, as it is stored."""
        value = self.value
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._unexpected("a number")
        if not 0 <= value <= MAX_INTEGER:
            raise self.error(f"expected a number from 0 to 2^63 - 1, found {value}")
        return rounded(value)

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self._unexpected("true or false")
        return self.value

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self._unexpected("a text")
        return self.value

    def matching(self, pattern: re.Pattern[str], expected: str) -> str:
        """A text of this form."""
        text = self.text()
        if pattern.fullmatch(text) is None:
            raise self.error(f'expected {expected}, found "{_cut(text)}"')
        return text

    def optional(self, read: Callable[[Field], T]) -> T | None:
        """What `read` makes of it; None for null."""
        return None if self.value is None else read(self)

    def _at(self, key: str, value: object) -> Field:
        if _IDENTIFIER.fullmatch(key):
            place = f"{self.place}.{key}" if self.place else key
        else:
            place = f'{self.place}["{_cut(key)}"]'
        return Field(value, self.file, place, self.advice)

    def _unexpected(self, expected: str) -> BaselineError:
        return self.error(f"expected {expected}, found {_describe(self.value)}")


def rounded(value: float) -> float:
    """A number as it is stored, with six digits."""
    return float(f"{value:.{_DIGITS}g}")


def _describe(value: object) -> str:
    """What a value is, in the words of JSON."""
    if isinstance(value, Unreadable):
        return value.found
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'the text "{_cut(value)}"'
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else f"the number {value}"


def _cut(text: str) -> str:
    shown = printable(text[: _SHOWN + 1])
    return shown if len(text) <= _SHOWN else f"{printable(text[:_SHOWN])}..."
