"""The trees of the two sides: which folders a side imports from, and which files are the other's.

What is below the work tree is looked up at the same place in the tree of the side.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import PurePath

from pytest_modelperf.tracing.first_import import AskingFinder

_PACKAGES = frozenset({"site-packages", "dist-packages"})


class SideTree:
    """The tree of a side, and the work tree whose places it takes.

    Paths below an environment are of neither, even if it is in the work tree.
    """

    def __init__(self, tree: str, worktree: str, prefixes: Iterable[str] | None = None) -> None:
        self.tree = _real(tree)
        self.worktree = _real(worktree)
        given = (sys.prefix, sys.exec_prefix, sys.base_prefix) if prefixes is None else prefixes
        self._prefixes = tuple(
            each for each in map(_real, given) if not _is_below(self.worktree, each)
        )
        self.is_other = self.tree != self.worktree

    def mapped(self, path: str) -> str:
        """The same place in the tree of this side; any other path stays as it is."""
        place = self.place_in_worktree(path) if self.is_other else None
        if place is None:
            return path
        return os.path.normpath(os.path.join(self.tree, place))  # noqa: PTH118  # a text, to stay one

    def place_in_worktree(self, path: str) -> str | None:
        """A path relative to the work tree; None if it is elsewhere, or in this side's own tree."""
        real = _real(path)
        if self.is_other and _is_below(real, self.tree):
            return None
        return self._place(real, self.worktree)

    def place(self, path: str) -> str | None:
        """A path relative to the tree of this side, with slashes; None if it is elsewhere."""
        found = self._place(_real(path), self.tree)
        return None if found is None else PurePath(found).as_posix()

    def _place(self, real: str, top: str) -> str | None:
        if not _is_below(real, top) or any(_is_below(real, each) for each in self._prefixes):
            return None
        place = os.path.relpath(real, top)
        return None if _PACKAGES & set(PurePath(place).parts) else place

    def import_paths(self, sys_path: Iterable[str], first: Iterable[str]) -> list[str]:
        """The import paths of this side: `first` are relative to its tree."""
        own = [os.path.normpath(os.path.join(self.tree, each)) for each in first]  # noqa: PTH118
        return list(dict.fromkeys([*own, *(self.mapped(each) for each in sys_path if each)]))


class SideFinder(AskingFinder):
    """Finds modules in the tree of this side that others find in the work tree.

    These are the finders of editable installs, which know the folder of a package. A module that
    the tree of this side lacks is not found at all.
    """

    def __init__(self, tree: SideTree) -> None:
        super().__init__()
        self._tree = tree

    def changed(self, spec: importlib.machinery.ModuleSpec) -> importlib.machinery.ModuleSpec:
        folders = spec.submodule_search_locations
        origin = spec.origin if spec.has_location else None
        if origin is None or self._tree.place_in_worktree(origin) is None:
            if folders is not None and any(map(self._tree.place_in_worktree, folders)):
                spec.submodule_search_locations = [self._tree.mapped(each) for each in folders]
            return spec
        file = self._tree.mapped(origin)
        if not os.path.exists(file):  # noqa: PTH110  # a text
            raise ModuleNotFoundError(
                f"No module named {spec.name!r}: {file} does not exist", name=spec.name
            )
        moved = importlib.util.spec_from_file_location(
            spec.name,
            file,
            submodule_search_locations=(
                None if folders is None else [self._tree.mapped(each) for each in folders]
            ),
        )
        return spec if moved is None else moved


def _real(path: str) -> str:
    return os.path.realpath(path)


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip(os.sep) + os.sep)
