"""Models on a cluster: cached in a folder by their content, and sent piece by piece."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from pytest_modelperf.cluster.records import ModelContent, SentFile
from pytest_modelperf.errors import MeasureError, ModelPerfError, UsageError
from pytest_modelperf.graph.model_file import ModelSource, open_model
from pytest_modelperf.systems.files import FILES
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes

LIMIT_VARIABLE = "MODELPERF_CACHE_LIMIT"
DEFAULT_LIMIT_BYTES = 20 << 30
_DIGEST = re.compile(r"[0-9a-f]{64}")
# It contains the file name under which the graph was sent.
_LOCK = ".in-use"
_INCOMING = "incoming-"
_REMOVED = "removed-"
# A folder of this age was left behind by a killed process.
_ABANDONED_S = 86_400.0


class ModelCache(Struct, frozen=True):
    """A folder of models by their digests, and its limit in bytes."""

    folder: Path
    limit_bytes: int = DEFAULT_LIMIT_BYTES

    @contextlib.contextmanager
    def using(self, content: ModelContent) -> Iterator[Path | None]:
        """Yield the path of a cached model, or None if it is not cached.

        The model stays in the cache during the context. Its bytes are checked each time, because
        other programs may write to the folder. A changed model is removed.
        """
        entry = self._entry(content.digest)
        with _held(entry / _LOCK, is_shared=True) as is_held:
            path = _named(entry, content.name) if is_held else None
            if path is not None and has_content(path, content):
                os.utime(entry)
                yield path
                return
        if is_held:
            self._try_remove(entry)
        yield None

    def receive(self, content: ModelContent) -> IncomingModel:
        """Make room for a model that will arrive, or raise MeasureError if it is too large."""
        if content.size_bytes > self.limit_bytes:
            raise MeasureError(
                f"{printable(content.name)} has {format_bytes(content.size_bytes)}, and the cache "
                f"of models may hold {format_bytes(self.limit_bytes)}: set {LIMIT_VARIABLE} to "
                "more bytes for this worker."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._make_room(content.size_bytes)
        folder = Path(tempfile.mkdtemp(prefix=_INCOMING, dir=self.folder))
        return IncomingModel(content, folder, self._entry(content.digest))

    def _entry(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise MeasureError(f"{printable(digest)!r} is not the digest of a model.")
        return self.folder / digest

    def _make_room(self, wanted_bytes: int) -> None:
        """Remove the least recently used models that are not in use until `wanted_bytes` fit."""
        self._remove_abandoned()
        entries: list[tuple[float, int, Path]] = []
        for path in self.folder.iterdir():
            if _DIGEST.fullmatch(path.name):
                # Another worker on this machine may remove it at the same time.
                with contextlib.suppress(FileNotFoundError):
                    entries.append((path.stat().st_mtime, _size_of(path), path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total + wanted_bytes <= self.limit_bytes:
                return
            if self._try_remove(path):
                total -= size

    def _try_remove(self, entry: Path) -> bool:
        with _held(entry / _LOCK, is_shared=False) as is_held:
            if not is_held:
                return False
            # Rename it first, so that no process finds half of it.
            aside = Path(tempfile.mkdtemp(prefix=_REMOVED, dir=self.folder))
            entry.rename(aside / entry.name)
        shutil.rmtree(aside, ignore_errors=True)
        return True

    def _remove_abandoned(self) -> None:
        for path in self.folder.iterdir():
            if path.name.startswith((_INCOMING, _REMOVED)):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > _ABANDONED_S:
                        shutil.rmtree(path, ignore_errors=True)


class IncomingModel(Struct, frozen=True):
    """A model that is being received piece by piece."""

    content: ModelContent
    folder: Path
    entry: Path

    def write(self, name: str, offset: int, piece: bytes) -> None:
        """Write a piece of a file, or raise MeasureError if the model has no such file."""
        if name not in {part.name for part in self.content.parts} or not _is_inside(name):
            raise MeasureError(f"{printable(name)!r} is not a file of the announced model.")
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "xb") as file:
            file.seek(offset)
            file.write(piece)

    def keep(self) -> None:
        """Move the model into the cache, or raise MeasureError if its digest is wrong."""
        if not has_content(self.folder / self.content.name, self.content):
            raise MeasureError(
                f"{printable(self.content.name)} arrived with other content than was announced. "
                "Measure again when no program writes it."
            )
        (self.folder / _LOCK).write_text(self.content.name, encoding="utf-8")
        try:
            self.folder.rename(self.entry)
        except OSError:
            # Another worker on this machine has received it at the same time.
            self.drop()

    def drop(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def has_content(path: Path, content: ModelContent) -> bool:
    """Whether the model at a path, including its external data, has the same bytes."""
    try:
        sizes = [(path.parent / part.name).stat().st_size for part in content.parts[1:]]
        if [path.stat().st_size, *sizes] != [part.size_bytes for part in content.parts]:
            return False
        return open_model(path).sha256() == content.digest
    except (OSError, ModelPerfError):
        return False


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and name != _LOCK


def _named(entry: Path, name: str) -> Path:
    """Return the graph under the requested name. The cached copy may have another name."""
    path = entry / name
    if not path.exists():
        first_name = (entry / _LOCK).read_text(encoding="utf-8")
        # Another job has just made the link, or the first file is gone.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            path.hardlink_to(entry / first_name)
    return path


def _size_of(entry: Path) -> int:
    return sum(path.stat().st_size for path in entry.rglob("*") if path.is_file())


@contextlib.contextmanager
def _held(file: Path, *, is_shared: bool) -> Iterator[bool]:
    """Lock a file. Yield False if another process has locked, removed or replaced it."""
    try:
        descriptor = FILES.open(file, os.O_RDWR)
    except OSError:
        yield False
        return
    try:
        try:
            if is_shared:
                FILES.share_lock(descriptor)
            is_held = is_shared or FILES.take_lock(descriptor)
            is_held = is_held and os.path.samestat(os.fstat(descriptor), file.lstat())
        except OSError:
            is_held = False
        yield is_held
    finally:
        os.close(descriptor)


# -- a model as it is sent to a cluster


# The bytes of each model that are in memory at once while it is sent.
PIECE_BYTES = 8 << 20


class Piece(Struct, frozen=True):
    """Some bytes of a file of a model, and their offset in it."""

    name: str
    offset: int
    data: bytes


def read_content(source: ModelSource) -> ModelContent:
    """Return the content of a model, or raise ModelError if external data cannot be read."""
    file = open_model(source)
    if file.path is None:
        raise UsageError(
            f"{printable(file.name)} is not a file, and a cluster needs files: save it."
        )
    external = [SentFile(name, seen.size_bytes) for name, seen in sorted(file.beside().items())]
    graph = SentFile(file.path.name, file.size_bytes)
    # Links are not resolved, because the external data is next to the link.
    return ModelContent(str(file.path.absolute()), file.sha256(), (graph, *external))


def read_pieces(content: ModelContent, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
    folder = Path(content.path).parent
    names = {content.name: Path(content.path)}
    for part in content.parts:
        with names.get(part.name, folder / part.name).open("rb") as file:
            offset, data = 0, file.read(piece_bytes)
            # Even an empty file is sent, as one empty piece.
            yield Piece(part.name, offset, data)
            while data:
                offset, data = offset + len(data), file.read(piece_bytes)
                yield Piece(part.name, offset, data)


# -- a model on its way to a machine


# The time limit for a direct connection. After it, data goes through the scheduler.
_CONNECT_S = 3.0
# The most models that are sent at the same time, which limits the pieces in memory.
_AT_ONCE = 4
_LOST = "the connection to the machine was lost"


class Sender:
    """The sender of models and other messages from this client to the workers of a cluster."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401  # a Dask client, which has no types
        self._client = client
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._unreachable: set[str] = set()

    async def send(self, model: ModelContent, address: str, key: str) -> None:
        """Send a model to the job that waits for it, and report errors to that job."""
        async with self._room:
            error: str | None = None
            try:
                pieces = read_pieces(model)
                while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                    error = await self.ask(
                        address,
                        "modelperf_put",
                        key=key,
                        name=piece.name,
                        offset=piece.offset,
                        data=piece.data,
                    )
                    if error is not None:
                        break
            except OSError as problem:
                error = str(problem)
            await self.ask(address, "modelperf_end", key=key, error=error)

    async def ask(self, address: str, operation: str, **values: object) -> Any:  # noqa: ANN401  # plain values
        """Return the answer of a worker, or an error text if the message did not reach it."""
        if address not in self._unreachable:
            try:
                connected = self._client.rpc.connect(address)
                self._client.rpc.reuse(address, await asyncio.wait_for(connected, _CONNECT_S))
                return await getattr(self._client.rpc(address), operation)(**values)
            except (OSError, asyncio.TimeoutError):
                self._unreachable.add(address)
        try:
            answers = await self._client.scheduler.broadcast(
                msg={"op": operation, **values}, workers=[address], on_error="ignore"
            )
        except OSError:
            return _LOST
        return answers.get(address, _LOST)
