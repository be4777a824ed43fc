"""The files of a model, as they were when first read: their changes, and their digest."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from pytest_modelperf.errors import ChangedModelError, ModelError
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes

if TYPE_CHECKING:
    from _hashlib import HASH

    from blake3 import blake3

# A function that shows the name of a long step.
Tell: TypeAlias = Callable[[str], None]
Clock: TypeAlias = Callable[[], float]

# A shorter step is not shown.
_QUIET_SECONDS = 1.0
# Large enough that the cost of calls is small, and small enough for the cache of a core.
_PIECE_BYTES = 1 << 18


class SeenFile(Struct, frozen=True):
    """The state of a file when it was first read, because it may change before it is read again."""

    path: Path
    device: int
    inode: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path, found: os.stat_result) -> SeenFile:
        return cls(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    @contextmanager
    def open(self) -> Iterator[BufferedReader]:
        """Open the file, and raise ChangedModelError if it changed before or while it was open."""
        self.require_unchanged()
        with self.path.open("rb") as file:
            yield file
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Raise ChangedModelError if the file was changed, replaced or removed."""
        name = printable(str(self.path))
        try:
            now = SeenFile.of(self.path, self.path.stat())
        except OSError as error:
            raise ChangedModelError(
                f"{name} was there when it was opened, and cannot be read any more: "
                f"{error.strerror or error}. Measure again when the file stays in place."
            ) from error
        if now != self:
            raise ChangedModelError(
                f"{name} was changed after it was opened: what was counted and what ran would be "
                "two models. Measure again when the file no longer changes."
            )


# The digests of this process, by file and algorithm: tests use one model in many cases.
_known: dict[tuple[SeenFile, str], bytes] = {}


def digest_model(
    graph: SeenFile, beside: Mapping[str, SeenFile], tell: Tell, clock: Clock = time.monotonic
) -> str:
    """Return the digest as 64 hexadecimal digits, which change with any byte of these files.

    A model in one file has the SHA-256 of that file. Otherwise it is the BLAKE3 of one entry for
    each file, in the order of their names: the length of its name, its name in the graph, and its
    own BLAKE3. The graph's file comes first, with an empty name, so that the model may be renamed.
    """
    total = graph.size_bytes + sum(seen.size_bytes for seen in beside.values())
    progress = _Progress(f"reading weights ({format_bytes(total)})", tell, clock, clock())
    if not beside:
        return _digest_file(graph, "sha256", progress).hex()
    whole = _new_digest("blake3")
    for name, seen in [("", graph), *sorted(beside.items())]:
        encoded = name.encode("utf-8", "surrogatepass")
        whole.update(len(encoded).to_bytes(8, "little") + encoded)
        whole.update(_digest_file(seen, "blake3", progress))
    return whole.hexdigest()


class _Progress(Struct):
    step: str
    tell: Tell
    clock: Clock
    begun: float
    is_told: bool = False

    def update(self) -> None:
        if not self.is_told and self.clock() - self.begun > _QUIET_SECONDS:
            self.tell(self.step)
            self.is_told = True


def _digest_file(seen: SeenFile, algorithm: str, progress: _Progress) -> bytes:
    key = seen, algorithm
    if key in _known:
        seen.require_unchanged()
        return _known[key]
    # One thread: more would take cores from a measurement that runs at the same time.
    digest = _new_digest(algorithm)
    piece = memoryview(bytearray(_PIECE_BYTES))
    try:
        with seen.open() as file:
            # The file is read, not mapped: mapped pages count as memory of this process, and
            # touching a page of a truncated file ends the process.
            while count := file.readinto(piece):
                digest.update(piece[:count])
                progress.update()
    except OSError as error:
        raise ModelError(
            f"{printable(str(seen.path))} cannot be read: {error.strerror or error}."
        ) from error
    _known[key] = digest.digest()
    return _known[key]


def _new_digest(algorithm: str) -> HASH | blake3:
    if algorithm == "sha256":
        return hashlib.sha256()
    # Only models with external data need it.
    from blake3 import blake3

    return blake3()
