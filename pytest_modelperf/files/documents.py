"""JSON documents, read strictly by the types of their records, and the table `[tool.modelperf]`.

Unknown keys are errors: a misspelt key would otherwise go unnoticed, and the next update would drop
it. An error names the file, the place in it, and what to do. Reading does not wait for others.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from pytest_modelperf.errors import BaselineError, ModelPerfError, UsageError
from pytest_modelperf.systems.files import FILES
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes
from pytest_modelperf.text.words import shown


def require_file(path: Path) -> int:
    """Return the size of a regular file, or raise OSError.

    Opening a pipe would wait for its other end, which may never come, and its content can be read
    only once.
    """
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "Not a file", str(path))
    return found.st_size


T = TypeVar("T")

# Every count and time of a profile fits, and so does numpy's sum of them.
MAX_INTEGER = 2**63 - 1

Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
Number: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_INTEGER)]
# The sum of many counts can need more than 64 bits.
Sum: TypeAlias = Annotated[int, Meta(ge=0)]

# No measured duration is longer than a day, so the sums of many fit into 64 bits.
_DAY_MS = 86_400_000
DurationMs: TypeAlias = Annotated[float, Meta(ge=0, le=_DAY_MS)]
DurationNs: TypeAlias = Annotated[int, Meta(ge=0, le=_DAY_MS * 1_000_000)]
# Can be just below 0: a latency minus the time of its kernels, or a time from a coarse clock.
SignedMs: TypeAlias = Annotated[float, Meta(ge=-_DAY_MS, le=_DAY_MS)]
SignedNs: TypeAlias = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
# A time of a clock in ns, with room for a day before the end of 64 bits.
Moment: TypeAlias = Annotated[int, Meta(ge=0, le=2**62)]

# A figure of any unit, even converted to a smaller unit: larger numbers cannot be shown as text.
MOST_FIGURE = 1e30
Figure: TypeAlias = Annotated[float, Meta(ge=-MOST_FIGURE, le=MOST_FIGURE)]
# Closer to 0 or 1, a normal distribution has no quantile that a float can hold.
Confidence: TypeAlias = Annotated[float, Meta(ge=0.5, le=1 - 1e-12)]

# Git's conflict markers start a line; a JSON string holds no line break.
_CONFLICT = re.compile(r"^(?:<{7}|>{7}|={7}|\|{7})(?: .*)?\r?$", re.MULTILINE)
_LFS_POINTER = "version https://git-lfs"
_PLACE = re.compile(r" - at `(?:key in )?\$\.?(.*)`$")
# More digits than the precision of any measured ratio, and the same on every machine.
_DIGITS = 6
_SHOWN = 40
# 2**63 has 19 digits. The time to parse a longer number grows with the square of its length.
_MAX_DIGITS = 20
_READ_BYTES = 1 << 20
# In Python, `$` alone would match before a line break at the end too.
_DIGEST_PATTERN = r"^[0-9a-f]{64}$(?!\n)"
_DIGEST_RULE = f"str matching regex {_DIGEST_PATTERN!r}"
_DIGEST_WORDS = "a SHA-256 digest of 64 hexadecimal digits"
Digest: TypeAlias = Annotated[str, Meta(pattern=_DIGEST_PATTERN)]


class FileAdvice(Struct, frozen=True):
    """The advice for a broken file, and for a file with the conflict markers of a merge."""

    broken: str
    conflict: str


OF_BASELINE = FileAdvice(
    broken="Restore it from version control, or record it again with "
    "`pytest --modelperf --modelperf-update-baseline` after deleting the folder.",
    conflict="Take one side for every file in the folder: `git checkout --theirs FOLDER` or "
    "`--ours`. Then record the model again with `pytest --modelperf --modelperf-update-baseline`.",
)
_NEWER = (
    "It was written by a newer pytest-modelperf: "
    "`python -m pip install --upgrade pytest-modelperf`."
)


class ContradictionError(ValueError):
    """Two values of a document contradict each other. `place` is the path of one of them."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place = place
        self.problem = problem


class Misfit(Struct, frozen=True):
    """A value that does not fit its type: its place in the document, and the problem."""

    place: str
    problem: str


class DocumentFile(Struct, frozen=True):
    """A file with a document, the type of its errors, and their advice."""

    path: Path
    advice: FileAdvice = OF_BASELINE
    error_type: type[ModelPerfError] = BaselineError

    def error(self, problem: str, place: str = "", advice: str | None = None) -> ModelPerfError:
        position = f", {place}" if place else ""
        hint = self.advice.broken if advice is None else advice
        return self.error_type(f"{printable(str(self.path))}{position}: {problem}. {hint}")

    def content(self, most_bytes: int) -> bytes | None:
        """Return the content of a regular file, or None if it does not exist.

        Raises an error for anything else. Links are refused: a baseline in someone's pull request
        must not reveal other files.
        """
        name = printable(str(self.path))
        try:
            handle = FILES.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self.error_type(
                    f"{name} is a link, which could lead anywhere. Put the file itself there."
                ) from None
            raise self._unreadable(error) from None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise self.error_type(f"{name} is not a file. {self.advice.broken}")
            if found.st_size > most_bytes:
                raise self.error_type(
                    f"{name} has {format_bytes(found.st_size)}, and at most "
                    f"{format_bytes(most_bytes)} are read. {self.advice.broken}"
                )
            parts = []
            while part := os.read(handle, _READ_BYTES):
                parts.append(part)
            return b"".join(parts)
        except OSError as error:
            raise self._unreadable(error) from None
        finally:
            os.close(handle)

    def _unreadable(self, error: OSError) -> ModelPerfError:
        advice = "Make it a file that you may read."
        if isinstance(error, NotADirectoryError):
            advice = "Give a folder, or a path that does not exist yet."
        reason = error.strerror or str(error)
        return self.error_type(f"{printable(str(self.path))} cannot be read: {reason}. {advice}")

    def read(self, data: bytes, kind: type[T], newest: int) -> T:
        """Return the document, or raise an error if it is invalid or its schema is too new."""
        document = self.parse(data)
        self.check_schema(document, newest)
        return self.convert(document, kind)

    def parse(self, data: bytes) -> dict[str, Any]:
        """Return the plain values of the document. Refuse duplicate keys, NaN and huge numbers."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            problem = f"a byte that is not UTF-8, 0x{data[error.start]:02x}"
            raise self.error(problem, f"line {line}") from None
        try:
            document: object = json.loads(
                text,
                object_pairs_hook=_object,
                parse_int=_integer,
                parse_float=_float,
                parse_constant=_refuse_constant,
            )
        except json.JSONDecodeError as error:
            raise self._malformed(text, error) from None
        except RecursionError:
            raise self.error("values are nested too deeply") from None
        except ValueError as error:
            raise self.error(f"found {error}") from None
        if not isinstance(document, dict):
            raise self.error(f"expected an object, found {_name_of(document)}")
        return document

    def check_schema(self, document: Mapping[str, Any], newest: int, place: str = "") -> None:
        """Raise an error if this version cannot read the schema of the document at `place`."""
        if "schema" not in document:
            raise self.error('the key "schema" is missing', place)
        version = document["schema"]
        position = _joined(place, "schema")
        if type(version) is not int or version < 1:
            raise self.error(f"expected a whole number from 1, found {_name_of(version)}", position)
        if version > newest:
            problem = f"this file has schema {version}, and this version reads up to {newest}"
            raise self.error(problem, position, _NEWER)

    def convert(self, value: object, kind: type[T], place: str = "") -> T:
        """Convert the plain values at `place` to a type, or raise an error if they do not fit."""
        try:
            return msgspec.convert(value, type=kind)
        except msgspec.ValidationError as error:
            found = describe_misfit(str(error))
            raise self.error(found.problem, _joined(place, found.place)) from None
        except UnicodeEncodeError as error:
            # An unknown key that contains a lone surrogate, half of a character.
            raise self.error(f"unknown key {ascii(error.object)[:_SHOWN]}", place) from None

    def _malformed(self, text: str, error: json.JSONDecodeError) -> ModelPerfError:
        conflict = _CONFLICT.search(text)
        if conflict is not None:
            line = text.count("\n", 0, conflict.start()) + 1
            found = "a merge conflict was not resolved"
            return self.error(found, f"line {line}", self.advice.conflict)
        if text.startswith(_LFS_POINTER):
            return self.error("a Git LFS pointer, not the file itself", "", "Run `git lfs pull`.")
        if _is_cut(text, error):
            found = "the file ends too early"
        else:
            found = f"not valid JSON, column {error.colno}: {error.msg}"
        return self.error(found, f"line {error.lineno}")


def describe_misfit(message: str) -> Misfit:
    """Reword the message of msgspec about a value that does not fit its type."""
    place = _PLACE.search(message)
    problem = _PLACE.sub("", message).replace("`", "").replace(_DIGEST_RULE, _DIGEST_WORDS)
    return Misfit(
        printable(place[1]) if place else "", printable(problem[:1].lower() + problem[1:])
    )


def rounded(value: float) -> float:
    """Round a number to the six digits that are stored."""
    return float(f"{value:.{_DIGITS}g}")


def shortened(text: str) -> str:
    """Return the start of a text, made printable for a message."""
    return printable(text) if len(text) <= _SHOWN else f"{printable(text[:_SHOWN])}..."


def _joined(outer: str, inner: str) -> str:
    dot = "." if outer and inner and not inner.startswith("[") else ""
    return f"{outer}{dot}{inner}"


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    rest = text[error.pos :]
    if not rest.strip():
        return True
    is_object = text.startswith("{") and error.msg != "Extra data"
    return is_object and "\n" not in rest and not rest.rstrip().endswith("}")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f'the key "{shortened(twice)}" twice')
    return made


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:_SHOWN]}, which is infinite")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text}, which is not JSON")


def _name_of(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return f"the value {shortened(json.dumps(value))}"


PYPROJECT = "pyproject.toml"
_TABLE = "modelperf"
# Far larger than any real pyproject.toml.
_MAX_TOML_BYTES = 16 << 20


def read_table(pyproject: Path) -> Mapping[str, object] | None:
    """Return the content of `[tool.modelperf]`, or None without the table or the file."""
    tool = read_toml(pyproject).get("tool")
    table = tool.get(_TABLE) if isinstance(tool, dict) else None
    if table is None or isinstance(table, dict):
        return table
    name = printable(str(pyproject))
    raise UsageError(f"{name}: tool.{_TABLE} takes a table, not {shown(table)}.")


def read_toml(path: Path) -> Mapping[str, object]:
    """Return the content of a TOML file, empty if the file is missing."""
    # Imported here: most pytest runs do not read this table.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    name = printable(str(path))
    try:
        size = require_file(path)
        if size > _MAX_TOML_BYTES:
            raise UsageError(
                f"{name} is {format_bytes(size)}, too large for a pyproject.toml. Restore it."
            )
        content: Mapping[str, object] = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise UsageError(f"{name} is not valid TOML: {printable(str(error))}.") from error
    except RecursionError as error:
        raise UsageError(
            f"{name} has values that are nested too deeply: make it flatter."
        ) from error
    return content
