"""Record the files of the project that this process reads, by their paths in its tree."""

from __future__ import annotations

import os
from pathlib import PurePath

from pytest_modelperf.files.opened import OpenedFiles, digest_of, module_files
from pytest_modelperf.programs.trees import SideTree

# Folders that tools keep for themselves.
_OTHERS = frozenset({".git", "__pycache__", ".pytest_cache", ".modelperf"})


class Reads:
    """The files that this process has opened to read since the audit hook was installed."""

    def __init__(self, tree: SideTree, scratch: str) -> None:
        self._tree = tree
        self._scratch = os.path.realpath(scratch)
        self._opened = OpenedFiles()

    def begin(self) -> None:
        self._opened.begin()

    def files(self) -> dict[str, str]:
        """Return the digests of the project's files that were read, by their path in its tree."""
        found: dict[str, str] = {}
        for path in self._all():
            place = self._tree.place(path)
            if place is None or self._is_other(path, place) or place in found:
                continue
            digest = digest_of(path)
            if digest is not None:
                found[place] = digest
        return dict(sorted(found.items()))

    def of_worktree(self) -> tuple[str, ...]:
        """Return the files of the work tree that were read although this is the other side."""
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
        return [*module_files(), *self._opened.paths]

    def _is_other(self, path: str, place: str) -> bool:
        real = os.path.realpath(path)
        is_scratch = real.startswith(self._scratch + os.sep)
        return is_scratch or bool(_OTHERS & set(PurePath(place).parts))
