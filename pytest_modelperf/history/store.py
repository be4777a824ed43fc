"""The files of a history, one for each model and kind of machine, and an index of large ones."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader, BytesIO, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.files.documents import describe_misfit
from pytest_modelperf.files.names import is_safe_name, model_name
from pytest_modelperf.files.output import cannot_write
from pytest_modelperf.files.store import find_closed, write_file
from pytest_modelperf.history.records import LINE_SCHEMA, CaseHistory, ChainedLine, HistoryLine
from pytest_modelperf.systems.files import FILES
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.version import __version__
from pytest_modelperf.text.words import shorten_list

if TYPE_CHECKING:
    from blake3 import blake3

SUFFIX = ".jsonl"
_LINE_BREAK = b"\n"
# All of our lines are shorter.
MAX_LINE_BYTES = 1 << 20
# A block is large enough that calls cost little, and small enough for the cache of a core.
_READ_BYTES = 1 << 18
# The most lines that a note names.
_MOST_NAMED = 3
_BROKEN = "incomplete, or not a line of a history"
_NEWER = "written by a newer version: upgrade pytest-modelperf"
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_Line = TypeVar("_Line", bound=ChainedLine)


class Hasher(Protocol):
    """A hash that bytes are added to, such as those of hashlib."""

    def update(self, data: bytes, /) -> object: ...


class _LineSchema(Struct):
    """The schema of a line, which shows whether the rest can be read."""

    schema: int


class _SkippedLines(Struct):
    by_reason: dict[str, list[int]] = field(default_factory=lambda: {_BROKEN: [], _NEWER: []})

    def add(self, number: int, reason: str) -> None:
        found = self.by_reason.setdefault(reason, [])
        # A line that is too long comes in several pieces.
        if found[-1:] != [number]:
            found.append(number)

    def notes(self, path: Path) -> Iterator[str]:
        for reason, numbers in self.by_reason.items():
            if numbers:
                lines = "line" if len(numbers) == 1 else "lines"
                named = shorten_list([*map(str, numbers)], _MOST_NAMED)
                yield f"{printable(str(path))}: {lines} {named} skipped, {reason}"


class HistoryFile(Struct):
    """One file of a history. After reading it, `notes` say which lines were skipped."""

    path: Path
    notes: list[str] = field(default_factory=list)

    @property
    def model(self) -> str:
        return self.path.parent.name

    @property
    def machine(self) -> str:
        return self.path.name.removesuffix(SUFFIX)

    def append(self, lines: Iterable[HistoryLine]) -> None:
        """Append the lines. Raise OutputError if that fails."""
        self.append_raw(map(msgspec.json.encode, lines))

    def append_raw(self, lines: Iterable[bytes]) -> None:
        """Append lines as stored, without their line breaks. Raise OutputError if that fails."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = FILES.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                _require_regular(handle, self.path)
                for line in lines:
                    _append_line(handle, line, self.path)
            finally:
                os.close(handle)
        except OSError as error:
            raise cannot_write(str(self.path), error) from error

    def read(self, line_type: type[_Line], hasher: Hasher | None = None) -> Iterator[_Line]:
        """Yield the lines in their order, except broken ones and those of a newer version.

        Only the fields of the type are read. All bytes are added to the hash.
        """
        decoder = msgspec.json.Decoder(line_type)
        skipped = _SkippedLines()
        size = 0
        # Counted only when a note names a line, which is rare.
        before: int | None = None
        for block in self._blocks(hasher):
            lines = _decode_block(decoder, block)
            if lines is not None:
                yield from lines
            else:
                before = self._count_lines(size) if before is None else before
                yield from _decode_lines(decoder, block, before, skipped)
            size += len(block)
            if before is not None:
                before += block.count(_LINE_BREAK)
        self.notes = [*skipped.notes(self.path)]

    def has_bytes(self, least: int) -> bool:
        """Whether this is a file of at least this size."""
        try:
            return self.path.stat().st_size >= least
        except OSError:
            return False

    def add_to(self, hasher: Hasher) -> None:
        for _ in self._blocks(hasher):
            pass

    def raw_lines(self) -> Iterator[bytes]:
        with self._opened() as file:
            readline = BufferedReader(file, _READ_BYTES).readline
            while data := readline(MAX_LINE_BYTES):
                yield data

    def _blocks(self, hasher: Hasher | None) -> Iterator[bytes]:
        with self._opened() as file:
            rest = b""
            while data := file.read(_READ_BYTES):
                if hasher is not None:
                    hasher.update(data)
                end = data.rfind(_LINE_BREAK) + 1
                if not end and len(rest) >= MAX_LINE_BYTES:
                    end = len(data)
                if end:
                    yield rest + data[:end]
                    rest = data[end:]
                else:
                    rest += data
            if rest:
                yield rest

    def _count_lines(self, size: int) -> int:
        count = 0
        for block in self._blocks(None):
            if size <= 0:
                break
            count += block.count(_LINE_BREAK, 0, size)
            size -= len(block)
        return count

    @contextmanager
    def _opened(self) -> Iterator[FileIO]:
        try:
            handle = FILES.open(self.path, os.O_RDONLY)
            with FileIO(handle, "rb") as file:
                _require_regular(handle, self.path)
                yield file
        except OSError as error:
            raise UsageError(
                f"{printable(str(self.path))} cannot be read: {error.strerror or error}. Make it "
                "a file that you may read."
            ) from error


class HistoryStore(Struct, frozen=True):
    """The folder of a history."""

    root: Path

    def file(self, model: str, machine: str) -> HistoryFile:
        return HistoryFile(self.root / model / f"{machine}{SUFFIX}")

    def append(self, lines: Iterable[HistoryLine]) -> None:
        by_file: dict[tuple[str, str], list[HistoryLine]] = {}
        for line in lines:
            by_file.setdefault((line.model, line.machine), []).append(line)
        for (model, machine), own in by_file.items():
            self.file(model, machine).append(own)

    def files(self, model: str | None = None) -> list[HistoryFile]:
        """Return all files, or those of one model. Raise UsageError if there is none."""
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
        """Raise UsageError if the folder cannot be written to, before anything is measured."""
        closed = find_closed(self.root)
        if closed is not None:
            raise UsageError(
                f"no history can be written in {printable(str(self.root))}: "
                f"{printable(str(closed))} is not a folder, or cannot be written. Give another "
                "place with --modelperf-history."
            )

    def _nothing(self, model: str | None) -> UsageError:
        here = printable(str(self.root))
        if model is None:
            return UsageError(
                f"there is no history in {here}. Write one with pytest --modelperf "
                "--modelperf-history FOLDER, or name its folder with --dir."
            )
        name, *known = (
            model_name(each)
            for each in (model, *dict.fromkeys(file.model for file in self.files()))
        )
        return UsageError(
            f"there is no history of {name} in {here}. There are: "
            f"{shorten_list(known, _MOST_NAMED)}."
        )


def _decode_block(decoder: msgspec.json.Decoder[_Line], block: bytes) -> Sequence[_Line] | None:
    """Return all lines of a block at once, or None unless each is a line of this version."""
    try:
        lines = decoder.decode_lines(block)
    except _UNDECODABLE:
        return None
    return lines if {line.schema for line in lines} <= {LINE_SCHEMA} else None


def _decode_lines(
    decoder: msgspec.json.Decoder[_Line], block: bytes, before: int, skipped: _SkippedLines
) -> Iterator[_Line]:
    """Yield the lines of a block one by one. `before` is the number of the lines before it."""
    for number, data in enumerate(BytesIO(block), before + 1):
        if not data.strip():
            continue
        try:
            line = decoder.decode(data)
        except _UNDECODABLE as error:
            skipped.add(number, _why_skipped(data, error))
            continue
        if line.schema == LINE_SCHEMA:
            yield line
        else:
            skipped.add(number, _NEWER if line.schema > LINE_SCHEMA else _BROKEN)


def _append_line(handle: int, data: bytes, path: Path) -> None:
    """Append one line with one write, after a line break if the last line has none."""
    size = os.fstat(handle).st_size
    is_torn = False
    if size > 0:
        os.lseek(handle, size - 1, os.SEEK_SET)
        is_torn = os.read(handle, 1) != _LINE_BREAK
    content = (_LINE_BREAK if is_torn else b"") + data + _LINE_BREAK
    if os.write(handle, content) != len(content):
        raise OutputError(
            f"{printable(str(path))}: only a part of a line could be written. Make room; the next "
            "run repairs the file."
        )


def _require_regular(handle: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise OSError(None, "Not a file", str(path))


def schema_of(data: bytes) -> int | None:
    """Return the schema of a line, or None if it is not a line of a history."""
    try:
        return msgspec.json.decode(data, type=_LineSchema).schema
    except _UNDECODABLE:
        return None


def _why_skipped(data: bytes, error: Exception) -> str:
    """Return why a line cannot be read, with the key of an unreadable figure."""
    schema = schema_of(data)
    if schema is None:
        return _BROKEN
    if schema > LINE_SCHEMA:
        return _NEWER
    misfit = describe_misfit(str(error))
    return f"{misfit.place}: {misfit.problem}" if misfit.place else _BROKEN


# -- an index of large files of a history


# Increase this if the result for the same lines and query, or its stored form, changes.
_FORMAT = 6
# Smaller files are read faster than their entry.
_LEAST_BYTES = 1 << 18


class FoundCases(Struct, frozen=True, kw_only=True):
    """The selected cases of one file, the ids of all its cases, and the lines that were skipped."""

    ids: tuple[str, ...]
    cases: tuple[CaseHistory, ...]
    notes: tuple[str, ...]


class _Entry(Struct, frozen=True):
    """The found cases, with the digest of everything that they depend on."""

    key: bytes
    found: FoundCases


class HistoryIndex(Struct):
    """The folder of the entries. `problems` say why some could not be kept."""

    folder: Path
    least_bytes: int = _LEAST_BYTES
    problems: list[str] = field(default_factory=list)

    def look_up(
        self, file: HistoryFile, query: Struct, read: Callable[[Hasher | None], FoundCases]
    ) -> FoundCases:
        """Return the result of `read` for the file and the query, from the entry if there is one.

        `read` adds the bytes that it reads to the hash. So a first listing reads a file once, and
        its entry excludes lines that another run appends meanwhile.
        """
        if not file.has_bytes(self.least_bytes):
            return read(None)
        conditions = msgspec.json.encode((_FORMAT, __version__, str(file.path), query))
        # One entry for each file, so that the folder does not grow with each content and query.
        name = hashlib.sha256(bytes(file.path.absolute())).hexdigest()
        path = self.folder / f"{name}.msgpack"
        entry = _read_entry(path)
        if entry is not None and entry.key == _key(_digest(file), conditions):
            return entry.found
        hasher = _new_hash()
        found = read(hasher)
        content = msgspec.msgpack.encode(_Entry(_key(hasher.digest(), conditions), found))
        self._keep(path, content)
        # The found records are spread over the memory of the lines that were read, and would keep
        # it. Copies are next to each other, and the next file is read into the same memory.
        del found
        return msgspec.msgpack.decode(content, type=_Entry).found

    def _keep(self, path: Path, content: bytes) -> None:
        if self.problems:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(path, content)
        except OSError as error:
            self.problems.append(
                f"the next listing takes as long as this one, because "
                f"{printable(str(self.folder))} cannot be written: {error.strerror or error}"
            )


def _new_hash() -> blake3:
    from blake3 import blake3

    return blake3()


def _digest(file: HistoryFile) -> bytes:
    hasher = _new_hash()
    file.add_to(hasher)
    return hasher.digest()


def _key(content: bytes, conditions: bytes) -> bytes:
    """Return the key of the listing of content with this digest under the conditions."""
    return hashlib.sha256(content + conditions).digest()


def _read_entry(path: Path) -> _Entry | None:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=_Entry)
    except (OSError, msgspec.DecodeError):
        return None
