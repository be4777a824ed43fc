"""An older version from git: a commit, and its version of a model or a folder.

This module only reads objects of the repository, and never changes its work tree, index and refs.
"""

from __future__ import annotations

import difflib
import os
import posixpath
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile

from msgspec import Struct

from pytest_modelperf.errors import ModelError, OutputError, UsageError
from pytest_modelperf.files.git import FETCH_SECONDS, GitAnswer, ask_git
from pytest_modelperf.graph.model_file import is_external, open_model
from pytest_modelperf.graph.stored_tensors import walk_stored
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.text.escaping import printable

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_MAX_POINTER_BYTES = 1024
# Messages of git, and of the shells that run its filters.
_NO_LFS = re.compile(r"'lfs' is not a git command|git-lfs: (command )?not found", re.IGNORECASE)
# This is also the limit of git.
_MAX_LINKS = 40
_FULL_ID = re.compile(r"[0-9a-f]{40,64}")
# The shortest id that git prints.
_LEAST_ID = 7


class UnknownCommitError(UsageError):
    """The named commit does not exist in this repository."""


class RefOption(Struct, frozen=True):
    """An option that takes a git ref, or a path with `takes_paths`, and its replacement."""

    flag: str
    typed: str
    takes_paths: bool = True

    def ask(self, folder: Path, *arguments: str) -> GitAnswer:
        """Ask git. If it cannot be run, the error says what to type instead."""
        return ask_git(folder, *arguments, otherwise=self.otherwise)

    @property
    def otherwise(self) -> str:
        return f"give the path of an older version: {self.typed}"


class Commit(Struct, frozen=True):
    """A commit: the name from the user, its id, a folder of its repository, and the option."""

    text: str
    sha: str
    folder: Path
    option: RefOption

    def ask(self, *arguments: str) -> GitAnswer:
        """Return the answer of a git command in the commit's repository."""
        return self.option.ask(self.folder, *arguments)

    def __str__(self) -> str:
        short = self.sha[:10]
        is_id = len(self.text) >= _LEAST_ID and self.sha.startswith(self.text)
        return short if is_id else f"{printable(self.text)} ({short})"


class _Repository(Struct, frozen=True):
    """Facts about the repository of a folder.

    `prefix` is the folder's path in it.
    """

    is_shallow: bool
    prefix: str


@contextmanager
def taken_from_git(commit: Commit, model: Path) -> Iterator[Path]:
    """Yield the model of a commit, with its external data, until the context ends."""
    with working_folder("against") as folder:
        prefix = _look_at_repository(commit.folder, commit.option).prefix
        path = folder / model.name
        _take_file(commit, prefix + model.name, path)
        for location in _locations_in(commit, model, path):
            _take_file(commit, posixpath.normpath(prefix + location), folder / location)
        yield path


@contextmanager
def folder_taken_from_git(commit: Commit, folder: Path) -> Iterator[Path]:
    """Yield a copy of a folder of a commit, with its links, until the context ends.

    The folder must be inside that of the commit. The copy is empty if the commit did not have it.
    """
    prefix = _look_at_repository(commit.folder, commit.option).prefix
    place = posixpath.normpath(prefix + folder.relative_to(commit.folder).as_posix())
    with working_folder("against") as root:
        taken = root / "folder"
        taken.mkdir()
        links = []
        for is_link, path in _files_below(commit, place):
            target = taken / posixpath.relpath(path, place)
            if is_link:
                links.append((path, target))
            else:
                _write_file(commit, path, target)
        # Links come after the files, so that no file is written through a link.
        for path, target in links:
            _write_link(commit, path, target)
        yield taken


def data_files(commit: Commit, model: Path) -> tuple[str, ...]:
    """Return the paths of a model and its data in a commit, and of the targets of links."""
    prefix = _look_at_repository(commit.folder, commit.option).prefix
    with working_folder("against") as folder:
        path = folder / model.name
        _take_file(commit, prefix + model.name, path)
        names = (model.name, *_locations_in(commit, model, path))
    own = [posixpath.normpath(prefix + name) for name in names]
    places = {*own, *(_follow_links(commit, place) for place in own)}
    return tuple(sorted(posixpath.relpath(place, prefix or ".") for place in places))


def find_commit(text: str, folder: Path, option: RefOption) -> Commit:
    """Return the commit that a text names in the repository of a folder, or raise UsageError."""
    shown = printable(text)
    # Neither is a ref, and git would read the first as an option.
    if text.startswith("-") or "\0" in text:
        found, advice = "cannot be a git ref", "Give one, such as HEAD~1."
        if option.takes_paths:
            found = "is neither a path that exists nor can be a git ref"
            advice = "Give one of them, such as HEAD~1 or old.onnx."
        raise UsageError(f"{option.flag} names {shown!r}, which {found}. {advice}")
    try:
        repository = _look_at_repository(folder, option)
    except UsageError as error:
        start = f"{option.flag} {shown}"
        start += " is not an existing path, and" if option.takes_paths else ":"
        raise UsageError(f"{start} {error}") from error
    sha = _resolve(text, folder, option)
    if sha is not None:
        return Commit(text, sha, folder, option)
    found = "neither a path that exists nor a commit" if option.takes_paths else "no commit"
    raise UnknownCommitError(
        f"{option.flag} names {shown}, which is {found} of the git repository of "
        f"{printable(str(folder))}. {_advice(text, folder, repository, option)}"
    )


def has_commit(text: str, folder: Path, option: RefOption) -> bool:
    return folder.is_dir() and _resolve(text, folder, option) is not None


def _resolve(text: str, folder: Path, option: RefOption) -> str | None:
    # After `:/`, git treats the whole rest as search text, so `^{commit}` cannot be appended.
    named = text if text.startswith(":/") else f"{text}^{{commit}}"
    answer = option.ask(folder, "rev-parse", "--verify", "--quiet", named)
    sha = answer.output.decode("ascii", "replace").strip()
    # git also answers `^main`, but with all commits that are not in main.
    return sha if answer.code == 0 and _FULL_ID.fullmatch(sha) else None


def _advice(text: str, folder: Path, repository: _Repository, option: RefOption) -> str:
    start, colon, _ = text.partition(":")
    if colon and start and _resolve(start, folder, option) is not None:
        return (
            f"Give {printable(start)} alone: the file is taken from the path of the model in the "
            "repository."
        )
    listed = option.ask(folder, "for-each-ref", "--format=%(refname:short)").output
    refs = [ref for ref in listed.decode("utf-8", "surrogateescape").split("\n") if ref]
    # A ref may have a suffix: main~3, v1.0^{}.
    name = re.split(r"[~^@]", text, maxsplit=1)[0]
    is_known = bool(name) and _resolve(name, folder, option) is not None
    remote = next((ref for ref in refs if ref.endswith(f"/{name}")), None)
    if remote is not None and name and not is_known:
        return f"There is {printable(remote)}: give {printable(remote + text[len(name) :])}."
    if repository.is_shallow:
        return (
            "This clone is shallow: older commits and other branches were not fetched. Run "
            "`git fetch --unshallow origin`, or `git fetch --depth=1 origin REF` and give "
            "FETCH_HEAD; in GitHub Actions give actions/checkout `fetch-depth: 0`."
        )
    if is_known:
        return f"There is {printable(name)}: `git log --oneline {_quoted(name)}` lists its commits."
    near = difflib.get_close_matches(name, refs, 3)
    if near:
        return f"Did you mean {', '.join(map(printable, near))}?"
    return (
        "`git branch --all` and `git tag` list what there is; `git fetch --all --tags` gets more."
    )


def _look_at_repository(folder: Path, option: RefOption) -> _Repository:
    shown = printable(str(folder))
    answer = option.ask(
        folder, "rev-parse", "--is-inside-work-tree", "--is-shallow-repository", "--show-prefix"
    )
    # The prefix is all of the rest, because the name of a folder may contain a line break.
    inside, shallow, prefix = (*answer.output.split(b"\n", 2), b"", b"")[:3]
    if answer.code == 0 and inside == b"true":
        return _Repository(shallow == b"true", os.fsdecode(prefix.removesuffix(b"\n")))
    if answer.code == 0 or "must be run in a work tree" in answer.words:
        raise UsageError(
            f"{shown} is inside of a git repository, but not in a work tree of it. "
            "Give the path of an older version, or run in a checkout."
        )
    if "not a git repository" in answer.words:
        raise UsageError(
            f"{shown} is in no git repository. Give the path of an older version: {option.typed}."
        )
    if "dubious ownership" in answer.words:
        # git prints the exact command, with its folder.
        command = re.search(r"git config --global --add safe\.directory .*", answer.words)
        step = (
            printable(command[0].strip())
            if command
            else "git config --global safe.directory FOLDER"
        )
        raise UsageError(
            f"git does not trust the repository of {shown}, for another user owns it. Run `{step}`."
        )
    raise UsageError(f"git cannot read the repository of {shown}: {answer.reason}.")


def submodules(root: Path, option: RefOption) -> tuple[Path, ...]:
    """Return the folders of the submodules in the repository of a folder."""
    top = option.ask(root, "rev-parse", "--show-toplevel")
    if top.code != 0:
        return ()
    folder = Path(os.fsdecode(top.output.removesuffix(b"\n")))
    listed = option.ask(
        folder, "config", "-z", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$"
    )
    values = (entry.partition(b"\n")[2] for entry in listed.output.split(b"\0") if entry)
    return tuple(folder / os.fsdecode(value) for value in values if value)


def _files_below(commit: Commit, place: str) -> Iterator[tuple[bool, str]]:
    """Yield the path of each file and link below a folder of the commit, and which it is."""
    below = () if place == "." else ("--", place)
    listed = commit.ask("ls-tree", "-rz", "--full-tree", commit.sha, *below)
    if listed.code != 0:
        raise _unread_commit(commit, listed)
    for entry in listed.output.split(b"\0"):
        kind, _, name = entry.partition(b"\t")
        path = os.fsdecode(name)
        if path == place:
            raise UsageError(
                f"in {commit} {printable(place)} was not a folder. Give a commit in which it was."
            )
        is_link = kind.startswith(b"120")
        if not is_link and not kind.startswith(b"100"):
            continue
        if not is_inside(posixpath.relpath(path, place)):
            raise UsageError(
                f"in {commit} {printable(path)} would be outside of its folder. "
                "Give another commit."
            )
        yield is_link, path


def _write_link(commit: Commit, place: str, target: Path) -> None:
    link = os.fsdecode(commit.ask("cat-file", "blob", f"{commit.sha}:{place}").output)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(link)
    except OSError as error:
        raise _unwritten(Path(place), error) from error


def _take_file(commit: Commit, place: str, target: Path) -> None:
    """Write the file at `place` in the commit, with links followed and filters applied."""
    _write_file(commit, _follow_links(commit, place), target)


def _write_file(commit: Commit, found: str, target: Path) -> None:
    """Write the file at `found` in the commit, with filters applied."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            answer = ask_git(
                commit.folder, "cat-file", "--filters", f"{commit.sha}:{found}",
                output=file, seconds=FETCH_SECONDS, otherwise=commit.option.otherwise,
            )  # fmt: skip
        if answer.code != 0:
            if "git-lfs" in answer.words or "filter lfs" in answer.words:
                raise _no_lfs_file(commit, found, answer)
            raise UsageError(
                f"git cannot read {printable(found)} of {commit}: {answer.reason}. Try "
                f"`git cat-file --filters {_quoted(f'{commit.text}:{found}')} > old.onnx`."
            )
        if is_lfs_pointer(target):
            _smudge(commit, found, target)
    except OSError as error:
        raise _unwritten(Path(found), error) from error


def _follow_links(commit: Commit, place: str) -> str:
    for _ in range(_MAX_LINKS):
        listed = commit.ask("ls-tree", "-z", "--full-tree", commit.sha, "--", place)
        kind = listed.output.split(b"\t", 1)[0].split(b" ")
        if listed.code != 0 or kind[0] not in (b"100644", b"100755", b"120000"):
            raise _not_there(commit, place, listed)
        if kind[0] != b"120000":
            return place
        link = os.fsdecode(commit.ask("cat-file", "blob", f"{commit.sha}:{place}").output)
        aim = posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
        if not is_inside(aim):
            raise UsageError(
                f"in {commit} {printable(place)} is a link to {printable(link)}, outside of the "
                f"repository. Give the path of the older version: {commit.option.typed}."
            )
        place = aim
    raise UsageError(
        f"in {commit} {printable(place)} is a link that leads to itself. Give the path of the "
        f"older version: {commit.option.typed}."
    )


def _not_there(commit: Commit, place: str, listed: GitAnswer) -> UsageError:
    shown = printable(place)
    if listed.code != 0:
        return _unread_commit(commit, listed)
    if listed.output:
        return UsageError(
            f"{shown} was not a file in {commit}, but a folder or a submodule. "
            f"Give the path of the older version: {commit.option.typed}."
        )
    everything = commit.ask("ls-tree", "-rz", "--name-only", "--full-tree", commit.sha)
    models = [
        os.fsdecode(name) for name in everything.output.split(b"\0") if name.endswith(b".onnx")
    ]
    hint = "No .onnx file was in it."
    if models:
        near = difflib.get_close_matches(place, models, 5, cutoff=0.0)
        hint = (
            f"There were: {', '.join(map(printable, near))}. If it had another name, type "
            f"`git cat-file --filters {_quoted(f'{commit.text}:{near[0]}')} > old.onnx` and "
            f"{commit.option.typed}."
        )
    return UsageError(
        f"{shown} was not in the commit {commit}. {hint} "
        f"`git log --oneline -- {_quoted(f':/{place}')}` lists the commits that changed it."
    )


def _unread_commit(commit: Commit, listed: GitAnswer) -> UsageError:
    return UsageError(f"git cannot read the commit {commit}: {listed.reason}.")


def _smudge(commit: Commit, place: str, target: Path) -> None:
    """Replace a Git LFS pointer by its file.

    The filter left the pointer because Git LFS is not set up for this file now, or is configured
    not to download on a checkout.
    """
    with TemporaryFile() as pointer:
        pointer.write(target.read_bytes())
        pointer.seek(0)
        with target.open("wb") as file:
            answer = ask_git(
                commit.folder, "lfs", "smudge", "--", place,
                source=pointer, output=file, seconds=FETCH_SECONDS,
                otherwise=commit.option.otherwise,
            )  # fmt: skip
    if answer.code != 0 or is_lfs_pointer(target):
        raise _no_lfs_file(commit, place, answer)


def is_lfs_pointer(path: Path) -> bool:
    if path.stat().st_size > _MAX_POINTER_BYTES:
        return False
    return path.read_bytes().startswith(LFS_POINTER)


def _no_lfs_file(commit: Commit, place: str, answer: GitAnswer) -> UsageError:
    step = f"`git lfs fetch origin {_quoted(commit.text)}`"
    if _NO_LFS.search(answer.words):
        return UsageError(
            f"{printable(place)} of {commit} is stored with Git LFS, which is not installed. "
            f"Install git-lfs, then run {step}."
        )
    return UsageError(
        f"{printable(place)} of {commit} is stored with Git LFS, and here is only the pointer to "
        f"it ({answer.reason}). Run {step}."
    )


def _locations_in(commit: Commit, model: Path, path: Path) -> tuple[str, ...]:
    """Return the paths of the external data of a model, relative to its folder and in it."""
    shown = f"{printable(str(model))} as of {commit}"
    try:
        proto = open_model(path).proto
        tensors = [s.tensor for s in walk_stored(proto) if is_external(s.tensor)]
    except ModelError as error:
        raise ModelError(str(error).replace(printable(str(path)), shown)) from error
    locations = {
        str(entry.value)
        for tensor in tensors
        for entry in tensor.external_data
        if entry.key == "location"
    }
    for location in sorted(locations):
        if not is_inside(location) or "\0" in location:
            raise ModelError(
                f"{shown} has weights in {printable(location)!r}, outside of the model's folder. "
                "External data is read only from the folder of the model. Give the path of an "
                f"older version that is whole: {commit.option.typed}."
            )
    places = {posixpath.normpath(location) for location in locations}
    return tuple(sorted(places - {path.name}))


def is_inside(place: str) -> bool:
    """Whether a relative path stays below its start, even if it contains `..`."""
    path = PurePosixPath(posixpath.normpath(place))
    return bool(place) and not path.is_absolute() and path.parts[:1] not in ((), ("..",))


def _quoted(text: str) -> str:
    """Quote a text for a shell. A tilde is special only at the start."""
    is_plain = shlex.quote(text.replace("~", "")) == text.replace("~", "")
    return printable(text if is_plain and not text.startswith("~") else shlex.quote(text))


def _unwritten(model: Path, error: OSError) -> OutputError:
    return OutputError(
        f"the older version of {printable(str(model))} cannot be written: "
        f"{printable(error.strerror or str(error))}. Set TMPDIR to the folder for temporary files."
    )
