"""The files that this process reads, noted by an audit hook, and whether it may open enough.

Files that compiled code opens by itself are not noticed. Of another process that this one starts,
only its program and its script are.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_modelperf.errors import UsageError

_THIS = "pytest-modelperf"
_READ_MODES = frozenset("r+")
_PIECE_BYTES = 1 << 20


class OpenedFiles:
    """The files that were opened for reading and not written before."""

    def __init__(self) -> None:
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._is_noting = False

    def begin(self) -> None:
        self._is_noting = True
        sys.addaudithook(self._audit)

    def end(self) -> None:
        """Stop noting files. The audit hook cannot be removed."""
        self._is_noting = False

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._read)

    def has_written(self, path: str) -> bool:
        """Whether a file was written, and not read before."""
        return os.path.abspath(path) in self._written  # noqa: PTH100

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_noting:
            return
        if event == "open":
            self._note_opened(*arguments)
        elif event == "subprocess.Popen":
            _, command, folder, _ = arguments
            self._read.update(_programs_of(command, folder))

    def _note_opened(self, path: object, mode: object, flags: object) -> None:
        if not isinstance(path, str | bytes):
            return
        is_read = (
            _READ_MODES.issuperset(mode.replace("b", "").replace("t", "").replace("U", ""))
            if isinstance(mode, str)
            else isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_RDWR)
        )
        try:
            text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  # fast, and keeps links
        except (OSError, ValueError):
            return
        if is_read:
            if text not in self._written:
                self._read.add(text)
        elif text not in self._read:
            self._written.add(text)


def _programs_of(command: Any, folder: Any) -> Iterator[str]:  # noqa: ANN401  # not checked yet
    """Yield the files of a command that are its program and the script, as of `python -u a.py`."""
    if isinstance(command, str | bytes):
        return
    program, *words = map(os.fsdecode, command)
    script = next((word for word in words if not word.startswith("-")), program)
    for each in (program, script):
        path = os.path.abspath(os.path.join(os.fsdecode(folder or ""), each))  # noqa: PTH100, PTH118
        if os.path.isfile(path):  # noqa: PTH113
            yield path


def distributions() -> dict[str, str]:
    tops = {name.partition(".")[0] for name in tuple(sys.modules)}
    names = {each for top, owners in _owners().items() if top in tops for each in owners}
    return {name: importlib.metadata.version(name) for name in sorted(names - {_THIS})}


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def _owners() -> Mapping[str, list[str]]:
    """Map each module to its distributions. This is slow: it reads the metadata of all of them."""
    return importlib.metadata.packages_distributions()


def module_files() -> Iterator[str]:
    for module in tuple(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield os.path.abspath(file)  # noqa: PTH100


def digest_of(path: str) -> str | None:
    """Return the SHA-256 of a file, or None if it is not a readable file."""
    digest = hashlib.sha256()
    try:
        if not Path(path).is_file():
            return None
        with Path(path).open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
    except OSError:
        return None
    return digest.hexdigest()


# A run has about twenty files open: streams, pipes of a worker, the model, a report.
_FEWEST = 32


def require_open_files() -> None:
    """Raise UsageError if this process may open fewer files than a run needs."""
    try:
        resource: Any = import_module("resource")
    except ImportError:
        # Windows has no such limit.
        return
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # -1 means no limit.
    if 0 <= allowed < _FEWEST:
        raise UsageError(
            f"this process may open {allowed} files, and needs {_FEWEST}: allow more with "
            "ulimit -n 1024."
        )
