"""An index of large files of a history, kept in the cache of the user.

The key of an entry covers the digest of the file and all else that the listing follows from. So a
file that changed in any way is read again, and an entry cannot be out of date.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from pytest_modelperf.files.store import write_file
from pytest_modelperf.history.records import CaseHistory
from pytest_modelperf.history.store import Hasher, HistoryFile
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.version import __version__

if TYPE_CHECKING:
    from blake3 import blake3

# Increased whenever the same lines and query are listed otherwise, or stored in another form.
_FORMAT = 6
# Smaller files are read faster than their entry.
_LEAST_BYTES = 1 << 18


class FoundCases(Struct, frozen=True, kw_only=True):
    """The asked cases of one file, the ids of all of its cases, and the lines that were skipped."""

    ids: tuple[str, ...]
    cases: tuple[CaseHistory, ...]
    notes: tuple[str, ...]


class _Entry(Struct, frozen=True):
    """The found cases, with the digest of everything that they follow from."""

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
        """The result of `read` for the file and the query, from the entry if there is one.

        `read` adds the bytes that it reads to the hash, so a first listing reads a file once, and
        what another run adds meanwhile does not count.
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
        # The found records lie between the lines that were read, so they would keep that memory.
        # New ones lie side by side, and the next file is read into the same memory as this one.
        del found
        return msgspec.msgpack.decode(content, type=_Entry).found

    def _keep(self, path: Path, content: bytes) -> None:
        """Writes the entry in one step."""
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
    """The key of what content with this digest lists under the conditions."""
    return hashlib.sha256(content + conditions).digest()


def _read_entry(path: Path) -> _Entry | None:
    """The entry; None if there is none that can be read."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=_Entry)
    except (OSError, msgspec.DecodeError):
        return None
