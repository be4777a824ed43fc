"""Provide the trees and Pythons of both sides: import paths, and files missing in a checkout."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path, PurePath
from urllib.parse import urlsplit
from urllib.request import url2pathname

from msgspec.structs import replace

from pytest_modelperf.baselines.program import ProgramSources, StoredProgram
from pytest_modelperf.environments.installing import own_requirements, read_requirements
from pytest_modelperf.environments.records import Environment
from pytest_modelperf.environments.store import make_environment
from pytest_modelperf.errors import ModelError, OutputError, UsageError
from pytest_modelperf.files.git import FETCH_SECONDS, ask_git
from pytest_modelperf.programs.changes import HOME, file_has_digest
from pytest_modelperf.programs.commits import ignored_files
from pytest_modelperf.revisions.commits import is_lfs_pointer
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list
from pytest_modelperf.tracing.first_import import AskingFinder

_PACKAGES = frozenset({"site-packages", "dist-packages"})


class SideTree:
    """The tree of a side, and the work tree that it replaces.

    Paths in an environment belong to no tree, even if the environment is in the work tree.
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
        """Return the same path in this side's tree, or the path itself outside the work tree."""
        place = self.place_in_worktree(path) if self.is_other else None
        if place is None:
            return path
        return os.path.normpath(os.path.join(self.tree, place))  # noqa: PTH118  # a text, and has to stay one

    def place_in_worktree(self, path: str) -> str | None:
        """Return a path relative to the work tree, or None elsewhere or in this side's own tree."""
        real = _real(path)
        if self.is_other and _is_below(real, self.tree):
            return None
        return self._place(real, self.worktree)

    def place(self, path: str) -> str | None:
        """Return a path relative to this side's tree, with slashes, or None if it is elsewhere."""
        found = self._place(_real(path), self.tree)
        return None if found is None else PurePath(found).as_posix()

    def model_place(self, path: str) -> str | None:
        """Return where a later run finds a model: in the tree, below the home folder or elsewhere.

        Return None for a model of a distribution, whose version counts, and for a temporary one,
        which each run makes again. A cache in the home folder has the same place for every user.
        """
        place, real = self.place(path), _real(path)
        is_temporary = _is_below(real, _real(tempfile.gettempdir()))
        if place is not None or is_temporary or _PACKAGES & set(PurePath(real).parts):
            return place
        home = os.path.expanduser(HOME)  # noqa: PTH111  # a user may have none
        # A link in a cache may point to another file later.
        plain = os.path.abspath(path)  # noqa: PTH100  # the same
        if home != HOME and _is_below(plain, home):
            plain = f"{HOME}/{os.path.relpath(plain, home)}"
        return PurePath(plain).as_posix()

    def _place(self, real: str, top: str) -> str | None:
        if not _is_below(real, top) or any(_is_below(real, each) for each in self._prefixes):
            return None
        place = os.path.relpath(real, top)
        return None if _PACKAGES & set(PurePath(place).parts) else place

    def import_paths(self, sys_path: Iterable[str], first: Iterable[str]) -> list[str]:
        """Return the import paths of this side, those of `first` in its tree before all others."""
        own = [os.path.normpath(os.path.join(self.tree, each)) for each in first]  # noqa: PTH118
        return list(dict.fromkeys([*own, *(self.mapped(each) for each in sys_path if each)]))


class SideFinder(AskingFinder):
    """A finder of modules in the tree of this side that other finders find in the work tree.

    These are the finders of editable installs, which know the folder of a package. A module that is
    missing in the tree of this side is not found at all.
    """

    def __init__(self, tree: SideTree) -> None:
        super().__init__()
        self._tree = tree

    def changed(self, spec: importlib.machinery.ModuleSpec) -> importlib.machinery.ModuleSpec:
        folders = spec.submodule_search_locations
        mapped = None if folders is None else [self._tree.mapped(each) for each in folders]
        origin = spec.origin if spec.has_location else None
        if origin is None or self._tree.place_in_worktree(origin) is None:
            if folders is not None and any(map(self._tree.place_in_worktree, folders)):
                spec.submodule_search_locations = mapped
            return spec
        file = self._tree.mapped(origin)
        if not os.path.exists(file):  # noqa: PTH110  # a text
            raise ModuleNotFoundError(
                f"No module named {spec.name!r}: {file} does not exist", name=spec.name
            )
        moved = importlib.util.spec_from_file_location(
            spec.name, file, submodule_search_locations=mapped
        )
        return spec if moved is None else moved


def _real(path: str) -> str:
    return os.path.realpath(path)


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip(os.sep) + os.sep)


# -- the Python of the older side


# The station imports this package from the same folder as this process.
_THIS = "pytest-modelperf"
_ENGINE = "onnxruntime"
_DIRECT_URL = "direct_url.json"

Maker = Callable[[tuple[str, ...]], Environment]


def python_of(stored: StoredProgram, top: Path, make: Maker = make_environment) -> Path:
    """Return the Python of the environment with the recorded versions, which is made once."""
    return make(recorded_requirements(stored.seen, top)).python


def python_with(
    requirement: str, seen: ProgramSources, top: Path, make: Maker = make_environment
) -> Path:
    """Return the Python of an environment with one other requirement, such as `magika==1.0.3`."""
    return make(changed_requirements(requirement, seen, top)).python


def recorded_requirements(seen: ProgramSources, top: Path) -> tuple[str, ...]:
    """Return the requirements of an environment with these versions of distributions.

    The project's own distributions are left out, because the tree of the older commit has them. The
    requirements of this package are added.
    """
    own = {*own_distributions(top), _THIS}
    exact = {
        name: f"{name}=={version}"
        for each, version in seen.distributions.items()
        if (name := _name_of(each)) not in own
    }
    return _with_ours(exact)


def changed_requirements(requirement: str, seen: ProgramSources, top: Path) -> tuple[str, ...]:
    """Return the same requirements with one changed, or raise UsageError if it is not used."""
    name = _name_of(requirement)
    if name in own_distributions(top):
        raise UsageError(
            f"{printable(name)} is the project itself: name an older version of it by its commit "
            'or tag, as in against="v1.2".'
        )
    if name not in map(_name_of, seen.distributions):
        raise UsageError(
            f"the program does not import {printable(name)}, so another version of it changes "
            f"nothing. It imports: {', '.join(sorted(map(printable, seen.distributions)))}."
        )
    others = {each: v for each, v in seen.distributions.items() if _name_of(each) != name}
    kept = (
        each
        for each in recorded_requirements(replace(seen, distributions=others), top)
        if _name_of(each) != name
    )
    return tuple(sorted((*kept, requirement)))


def own_distributions(top: Path) -> frozenset[str]:
    """Return the normalized names of distributions that are installed from a project folder."""
    return frozenset(
        _name_of(found.name)
        for found in importlib.metadata.distributions()
        if _is_from(found, top.resolve())
    )


def _is_from(found: importlib.metadata.Distribution, top: Path) -> bool:
    text = found.read_text(_DIRECT_URL)
    if text is None:
        return False
    try:
        origin = json.loads(text)
        url = urlsplit(origin["url"])
    except (ValueError, KeyError, TypeError):
        # Another tool wrote the file.
        return False
    if url.scheme != "file" or "dir_info" not in origin:
        return False
    return Path(url2pathname(url.path)).resolve().is_relative_to(top)


def _with_ours(exact: Mapping[str, str]) -> tuple[str, ...]:
    needed = {_name_of(each): each for each in own_requirements(_THIS)}
    if any(name.startswith(f"{_ENGINE}-") for name in exact):
        # A variant such as onnxruntime-gpu provides the same module.
        del needed[_ENGINE]
    return tuple(sorted({**needed, **exact}.values()))


def _name_of(requirement: str) -> str:
    (name,) = read_requirements([requirement]).names
    return name


# -- adding files to the tree of a commit that its checkout lacks


_MOST_NAMED = 3


def complete_tree(tree: Path, seen: ProgramSources, top: Path) -> None:
    """Add to a tree the files that the program read and that the commit does not have.

    A file that git ignores is linked to the file in the work tree. Raises UsageError if that is not
    the recorded file, or if a file of Git LFS cannot be downloaded.
    """
    models = {model.path: model.sha256 for model in seen.models if model.path is not None}
    for place in ignored_files(seen, top):
        source = top / place
        if place in seen.files:
            found = [source] if _is_recorded(source, seen.files[place]) else []
        else:
            found = _files_of_model(source, models[place])
        if not found:
            raise UsageError(
                f"{printable(place)} is not in git, and is not the file that the program read when "
                "it was recorded. Restore that file, or record the test again with "
                "`pytest --modelperf --modelperf-update-baseline`."
            )
        for each in found:
            _link(each, tree / os.path.relpath(each, top), place)
    _download({place for place in {*seen.files, *models} if _is_pointer(tree / place)}, tree)


def _is_recorded(source: Path, digest: str) -> bool:
    try:
        return file_has_digest(source, digest)
    except OSError:
        return False


def _files_of_model(source: Path, digest: str | None) -> list[Path]:
    """Return a model and its external data, or nothing if it is not the recorded one."""
    # Imported here, because it loads onnx, and most models are in git.
    from pytest_modelperf.graph.model_file import external_files, open_model

    if digest is None:
        return [source] if source.is_file() else []
    try:
        model = open_model(source)
        if model.sha256() != digest:
            return []
        return [source, *external_files(model).values()]
    except ModelError:
        return []


def _link(source: Path, target: Path, place: str) -> None:
    if target.exists() and not _is_ours(source, target):
        # The commit has the file, although git ignores it today.
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        _make_link(source, target)
    except OSError as error:
        raise OutputError(
            f"{printable(str(target))} cannot be linked to {printable(place)}: "
            f"{error.strerror or error}. Remove {printable(str(target.parent))} and run again."
        ) from error


def _is_ours(source: Path, target: Path) -> bool:
    """Whether an earlier run made the file, as a link or as an untracked copy."""
    if target.is_symlink():
        return True
    found = ask_git(target.parent, "ls-files", "--error-unmatch", "--", target.name)
    return found.code != 0 and source.name == target.name


def _make_link(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source.resolve())
    except OSError:
        # On Windows, few users may make symbolic links.
        keep_file(source, target)


def keep_file(source: Path, target: Path) -> None:
    """Make a file with the content of another one, which may be removed afterwards."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def _download(places: Collection[str], tree: Path) -> None:
    """Replace pointers of Git LFS, which the checkout left because LFS is not set up here."""
    if not places:
        return
    answer = ask_git(
        tree, "lfs", "pull", "--include", ",".join(sorted(places)), seconds=FETCH_SECONDS
    )
    left = [printable(place) for place in sorted(places) if _is_pointer(tree / place)]
    if left:
        raise UsageError(
            f"the program reads {shorten_list(left, _MOST_NAMED)}, stored with Git LFS, and in its "
            f"older version is only the pointer to it ({answer.reason}). Install git-lfs, then run "
            "`git lfs fetch --all origin`."
        )


def _is_pointer(path: Path) -> bool:
    try:
        return is_lfs_pointer(path)
    except OSError:
        return False
