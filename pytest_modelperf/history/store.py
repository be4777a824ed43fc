"""The files of a history: one for each model and kind of machine, with a JSON line a case.

Lines are only ever appended, each by one write, so runs at the same time lose nothing. A line that
a killed run left unfinished is skipped with a note, and the next run starts a line of its own.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.files.names import is_safe_name
from pytest_modelperf.files.output import cannot_write
from pytest_modelperf.history.records import LINE_SCHEMA, HistoryLine
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

if TYPE_CHECKING:
    from _hashlib import HASH

    from typing_extensions import Buffer

SUFFIX = ".jsonl"
_LINE_BREAK = b"\n"
# A link in somebody's pull request must not reveal or change other files, and opening a pipe must
# not wait for its other end.
_SAFE_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# A longer line is none of ours.
MAX_LINE_BYTES = 1 << 20
# Large enough that calls cost nothing, and small enough to stay in the cache of a core.
_READ_BYTES = 1 << 18
# A note names at most so many lines.
_MOST_NAMED = 3


class _LineSchema(Struct):
    """The schema of a line, which tells whether the rest can be read."""

    schema: int


class _HashedFile(RawIOBase):
    """A file that adds to a hash what is read of it."""

    def __init__(self, file: FileIO, hasher: HASH) -> None:
        self._file = file
        self._hasher = hasher

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        count = self._file.readinto(view)
        self._hasher.update(view[:count])
        return count


class HistoryFile(Struct):
    """One file of a history. After it was read, `notes` say which lines were skipped."""

    path: Path
    notes: list[str] = field(default_factory=list)

    @property
    def model(self) -> str:
        return self.path.parent.name

    @property
    def machine(self) -> str:
        return self.path.name.removesuffix(SUFFIX)

    def append(self, lines: Iterable[HistoryLine]) -> None:
        """Adds the lines at the end; OutputError if that fails."""
        self.append_raw(map(msgspec.json.encode, lines))

    def append_raw(self, lines: Iterable[bytes]) -> None:
        """The same for lines as they are stored, without their line breaks."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFE_OPEN, 0o666)
            try:
                _require_regular(handle, self.path)
                for line in lines:
                    _append_line(handle, line, self.path)
            finally:
                os.close(handle)
        except OSError as error:
            raise cannot_write(str(self.path), error) from error

    def read(self, hasher: HASH | None = None) -> Iterator[HistoryLine]:
        """The lines in their order; broken ones and those of a newer version are skipped.

        All bytes are added to the hash.
        """
        decoder = msgspec.json.Decoder(HistoryLine)
        broken: list[str] = []
        newer: list[str] = []
        for number, data in enumerate(self.raw_lines(hasher), 1):
            if not data.strip():
                continue
            try:
                line = decoder.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                (newer if _is_newer(data) else broken).append(f"{number}")
                continue
            if line.schema == LINE_SCHEMA:
                yield line
            else:
                (newer if line.schema > LINE_SCHEMA else broken).append(f"{number}")
        self.notes = [
            *self._skipped(broken, "incomplete, or no line of a history"),
            *self._skipped(newer, "written by a newer version: upgrade pytest-modelperf"),
        ]

    def has_bytes(self, least: int) -> bool:
        """Whether it is a file of at least this size."""
        try:
            return self.path.stat().st_size >= least
        except OSError:
            return False

    def digest(self) -> bytes:
        """The SHA-256 of the whole content."""
        hasher = hashlib.sha256()
        buffer = bytearray(_READ_BYTES)
        with self._opened() as file:
            hashed = _HashedFile(file, hasher)
            while hashed.readinto(buffer):
                pass
        return hasher.digest()

    def raw_lines(self, hasher: HASH | None = None) -> Iterator[bytes]:
        """The lines as they are stored, each with its line break if it has one."""
        with self._opened() as file:
            read = file if hasher is None else _HashedFile(file, hasher)
            readline = BufferedReader(read, _READ_BYTES).readline
            while data := readline(MAX_LINE_BYTES):
                yield data

    @contextmanager
    def _opened(self) -> Iterator[FileIO]:
        """The file to read; UsageError if it cannot be read."""
        try:
            handle = os.open(self.path, os.O_RDONLY | _SAFE_OPEN)
            with FileIO(handle, "rb") as file:
                _require_regular(handle, self.path)
                yield file
        except OSError as error:
            raise UsageError(
                f"{printable(str(self.path))} cannot be read: {error.strerror or error}. Make it "
                "a file that you may read."
            ) from error

    def _skipped(self, numbers: list[str], reason: str) -> Iterator[str]:
        if numbers:
            lines = "line" if len(numbers) == 1 else "lines"
            named = shorten_list(numbers, _MOST_NAMED)
            yield f"{printable(str(self.path))}: {lines} {named} skipped, {reason}"


class HistoryStore(Struct, frozen=True):
    """The folder of a history."""

    root: Path

    def file(self, model: str, machine: str) -> HistoryFile:
        return HistoryFile(self.root / model / f"{machine}{SUFFIX}")

    def append(self, lines: Iterable[HistoryLine]) -> None:
        """Adds the lines, each to the file of its model and machine."""
        by_file: dict[tuple[str, str], list[HistoryLine]] = {}
        for line in lines:
            by_file.setdefault((line.model, line.machine), []).append(line)
        for (model, machine), own in by_file.items():
            self.file(model, machine).append(own)

    def files(self, model: str | None = None) -> list[HistoryFile]:
        """All files, or those of one model; UsageError if there is none."""
        if model is not None and not is_safe_name(model):
            raise UsageError(f"{printable(model)!r} cannot be a folder of a history.")
        try:
            folders = sorted(self.root.iterdir()) if model is None else [self.root / model]
            found = [
                HistoryFile(path)
                for folder in folders
                if folder.is_dir() and is_safe_name(folder.name)
                for path in sorted(folder.iterdir())
                if path.name.endswith(SUFFIX)
            ]
        except OSError as error:
            raise self._nothing(model) from error
        if not found:
            raise self._nothing(model)
        return found

    def check_writable(self) -> None:
        """UsageError if this cannot be a folder, before anything is measured."""
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(
                f"{printable(str(self.root))} is not a folder, so no history can be written "
                "there. Give another place with --modelperf-history."
            )

    def _nothing(self, model: str | None) -> UsageError:
        of_model = "" if model is None else f" of {printable(model)}"
        return UsageError(
            f"there is no history{of_model} in {printable(str(self.root))}. Write one with pytest "
            "--modelperf --modelperf-history FOLDER, or name its folder with --dir."
        )


def _append_line(handle: int, data: bytes, path: Path) -> None:
    """Adds one line by one write, after a line break if the last line has none."""
    size = os.fstat(handle).st_size
    is_torn = size > 0 and os.pread(handle, 1, size - 1) != _LINE_BREAK
    content = (_LINE_BREAK if is_torn else b"") + data + _LINE_BREAK
    if os.write(handle, content) != len(content):
        raise OutputError(
            f"{printable(str(path))}: only a part of a line could be written. Make room; the next "
            "run mends the file."
        )


def _require_regular(handle: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise OSError(None, "Not a file", str(path))


def _is_newer(data: bytes) -> bool:
    try:
        return msgspec.json.decode(data, type=_LineSchema).schema > LINE_SCHEMA
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
