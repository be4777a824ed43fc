"""The files of the project, the distributions and the modules that this process has read."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from importlib.metadata import packages_distributions, version
from pathlib import Path, PurePath

from pytest_modelperf.programs.trees import SideTree

_THIS = "pytest-modelperf"
# What tools keep for themselves.
_OTHERS = frozenset({".git", "__pycache__", ".pytest_cache", ".modelperf"})
_READ_MODES = frozenset("r+")


class Reads:
    """The files that this process has opened to read, since the audit hook is installed."""

    def __init__(self, tree: SideTree, scratch: str) -> None:
        self._tree = tree
        self._scratch = os.path.realpath(scratch)
        self._read: set[str] = set()
        self._written: set[str] = set()

    def begin(self) -> None:
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event != "open":
            return
        path, mode, flags = arguments
        if not isinstance(path, str | bytes):
            return
        is_read = (
            _READ_MODES.issuperset(mode.replace("b", "").replace("t", "").replace("U", ""))
            if isinstance(mode, str)
            else isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_RDWR)
        )
        try:
            text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  # quick, and links stay
        except (OSError, ValueError):
            return
        if is_read:
            if text not in self._written:
                self._read.add(text)
        elif text not in self._read:
            self._written.add(text)

    def files(self) -> dict[str, str]:
        """The digests of the files of the project that were read, by place in its tree."""
        found: dict[str, str] = {}
        for path in self._all():
            place = self._tree.place(path)
            if place is None or self._is_other(path, place) or place in found:
                continue
            digest = _digest(path)
            if digest is not None:
                found[place] = digest
        return dict(sorted(found.items()))

    def of_worktree(self) -> tuple[str, ...]:
        """The files of the work tree that were read although this is the other side."""
        if not self._tree.is_other:
            return ()
        places = ((path, self._tree.place_in_worktree(path)) for path in self._all())
        found = {
            path
            for path, place in places
            if place is not None and not self._is_other(path, place) and os.path.isfile(path)  # noqa: PTH113
        }
        return tuple(sorted(found))

    def _all(self) -> list[str]:
        return [*_module_files(), *tuple(self._read)]

    def _is_other(self, path: str, place: str) -> bool:
        real = os.path.realpath(path)
        is_scratch = real.startswith(self._scratch + os.sep)
        return is_scratch or bool(_OTHERS & set(PurePath(place).parts))


def distributions() -> dict[str, str]:
    """The versions of the distributions whose modules are imported."""
    tops = {name.partition(".")[0] for name in tuple(sys.modules)}
    names = {
        each for top, owners in packages_distributions().items() if top in tops for each in owners
    }
    return {name: version(name) for name in sorted(names - {_THIS})}


def _module_files() -> Iterable[str]:
    for module in tuple(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield os.path.abspath(file)  # noqa: PTH100


def _digest(path: str) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if Path(path).is_file() else None
    except OSError:
        return None
