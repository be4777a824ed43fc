"""A branch that holds only a history: its commits, and how lines are pushed and pulled."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

from msgspec import Struct

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.files.git import FETCH_SECONDS, LOOK_SECONDS, GitAnswer, ask_git
from pytest_modelperf.files.names import is_safe_name
from pytest_modelperf.history.store import (
    MAX_LINE_BYTES,
    SUFFIX,
    HistoryFile,
    HistoryStore,
    schema_of,
)
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of

DEFAULT_BRANCH = "modelperf-history"
DEFAULT_REMOTE = "origin"
# The exit code of `git ls-remote --exit-code` if no branch has the name.
_NO_SUCH_BRANCH = 2
_REGULAR = "100644"
_REFUSALS = ("! [remote rejected]", "! [rejected]", "remote: error: ", "remote: fatal: ")
# A file adds a few lines to its earlier version: the search for a better delta base makes git five
# times as slow, and saves 4 %.
_ONE_BASE = ("-c", "pack.window=1")
_FALLBACK_IDENTITY = {"user.name": "pytest-modelperf", "user.email": "pytest-modelperf@localhost"}


class RefusedError(OutputError):
    """The remote refused a commit, or lacks one that it had just named."""


class StoredFile(Struct, frozen=True):
    """A file of a commit: its path, and the name of its content in git."""

    path: str
    blob: str


class HistoryBranch(Struct, frozen=True):
    """A branch of a remote, used from the repository that contains `folder`."""

    folder: Path
    remote: str = DEFAULT_REMOTE
    name: str = DEFAULT_BRANCH

    @property
    def title(self) -> str:
        return f"branch {printable(self.name)} of {printable(self.remote)}"

    def check(self) -> None:
        """Raise UsageError without a repository, or if a branch cannot have this name."""
        found = self._ask("rev-parse", "--git-dir")
        if found.code:
            raise UsageError(
                f"no git repository can be used in {printable(str(self.folder))}: {found.reason}. "
                "Change to a folder of the repository."
            )
        if self._ask("check-ref-format", self._ref).code:
            raise UsageError(
                f"{printable(self.name)!r} cannot be the name of a branch. Give another one with "
                f"--branch, such as {DEFAULT_BRANCH}."
            )

    def find_tip(self) -> str | None:
        """Return the branch's last commit at the remote, or None without such a branch."""
        answer = self._ask("ls-remote", "--exit-code", "--", self.remote, self._ref)
        if answer.code == _NO_SUCH_BRANCH:
            return None
        if answer.code:
            raise UsageError(
                f"{printable(self.remote)} cannot be read: {answer.reason}. Check the remote with "
                "git remote -v, or name another one with --remote."
            )
        # A name also matches refs that end with it.
        lines = answer.output.decode("utf-8", "replace").splitlines()
        commits = (line.split("\t") for line in lines)
        return next((commit for commit, ref in commits if ref == self._ref), None)

    def fetch(self, tip: str) -> None:
        """Fetch the commit. Raise RefusedError if the remote no longer has it."""
        if self._has(tip):
            return
        # A shallow repository stays shallow: it gets the commit without the earlier ones.
        is_shallow = self._ask("rev-parse", "--is-shallow-repository").output.strip() == b"true"
        depth = ["--depth=1"] if is_shallow else []
        answer = self._ask(
            "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", *depth,
            "--", self.remote, self._ref, seconds=FETCH_SECONDS,
        )  # fmt: skip
        # A concurrent fetch can make this fail after the objects arrived.
        if not self._has(tip):
            raise RefusedError(f"{self.title} cannot be fetched: {answer.reason}.")

    def files(self, tip: str | None) -> tuple[StoredFile, ...]:
        """Return the files of a history in this commit.

        Raise UsageError if it is not a commit of a history.
        """
        if tip is None:
            return ()
        if self._ask("merge-base", "HEAD", tip).code == 0:
            raise self._foreign("it shares commits with the present branch")
        listed = self._require("ls-tree", "-r", "-z", "--full-tree", tip).output
        entries = [
            entry for entry in listed.decode("utf-8", "surrogateescape").split("\0") if entry
        ]
        found = []
        for entry in entries:
            facts, _, path = entry.partition("\t")
            mode, _, blob = facts.split(" ")
            if mode == _REGULAR and is_history_path(path):
                found.append(StoredFile(path, blob))
        if entries and not found:
            raise self._foreign("none of its files is a history")
        return tuple(found)

    @contextmanager
    def contents(self, files: Sequence[StoredFile]) -> Iterator[Iterator[tuple[str, bytes]]]:
        """Yield the path and the content of each file, one after the other."""
        names = "".join(f"{file.blob}\n" for file in files)
        with _source(names) as source, TemporaryFile() as output:
            self._require("cat-file", "--batch", source=source, output=output)
            output.seek(0)
            yield _read_batch(files, output)

    def commit(self, tip: str | None, contents: Mapping[str, bytes], message: str) -> str:
        """Create a commit after `tip` with these contents of files. No branch refers to it yet."""
        with TemporaryDirectory(prefix="modelperf-history-") as name:
            folder = Path(name)
            blobs = self._store(folder, contents.values())
            index = {"GIT_INDEX_FILE": str(folder / "index")}
            if tip is not None:
                self._require("read-tree", tip, variables=index)
            entries = (
                f"{_REGULAR} {blob}\t{path}\0" for path, blob in zip(contents, blobs, strict=True)
            )
            with _source("".join(entries)) as source:
                self._require("update-index", "-z", "--index-info", source=source, variables=index)
            tree = _word(self._require("write-tree", variables=index))
        parents = [] if tip is None else ["-p", tip]
        command = ("commit-tree", "--no-gpg-sign", "-m", message, *parents, tree)
        return _word(self._require(*self._identity(), *command))

    def push(self, commit: str) -> None:
        """Make the commit the branch's last one. Raise RefusedError if the remote refuses it."""
        answer = self._ask(
            *_ONE_BASE, "push", "--quiet", "--no-verify", "--no-follow-tags", "--no-signed",
            "--recurse-submodules=no", "--", self.remote, f"{commit}:{self._ref}",
            seconds=FETCH_SECONDS,
        )  # fmt: skip
        if answer.code:
            raise RefusedError(
                f"{self.title} cannot be pushed to: {_refusal(answer)}. Check that you may write "
                "there; GitHub Actions needs `permissions: contents: write`."
            )

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self.name}"

    def _has(self, commit: str) -> bool:
        return self._ask("cat-file", "-e", f"{commit}^{{commit}}").code == 0

    def _store(self, folder: Path, contents: Collection[bytes]) -> list[str]:
        paths = [folder / f"{index}" for index, _ in enumerate(contents)]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        with _source("".join(f"{path}\n" for path in paths)) as source:
            command = ("hash-object", "-w", "--no-filters", "--stdin-paths")
            return self._require(*command, source=source).output.decode("ascii").split()

    def _identity(self) -> list[str]:
        options = []
        for key, value in _FALLBACK_IDENTITY.items():
            if self._ask("config", "--get", key).code:
                options += ["-c", f"{key}={value}"]
        return options

    def _ask(self, *arguments: str, seconds: float = LOOK_SECONDS) -> GitAnswer:
        return ask_git(self.folder, *arguments, seconds=seconds)

    def _require(
        self,
        *arguments: str,
        source: IO[bytes] | None = None,
        output: IO[bytes] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> GitAnswer:
        answer = ask_git(
            self.folder, *arguments, source=source, output=output, seconds=FETCH_SECONDS,
            variables=variables,
        )  # fmt: skip
        if answer.code:
            raise OutputError(
                f"`git {arguments[0]}` failed in {printable(str(self.folder))}: {answer.reason}. "
                "Check the repository with git fsck, and its disk."
            )
        return answer

    def _foreign(self, reason: str) -> UsageError:
        return UsageError(
            f"{self.title} is not the branch of a history: {reason}. Give a branch of its own with "
            f"--branch, such as {DEFAULT_BRANCH}."
        )


def is_history_path(path: str) -> bool:
    """Whether this path of a branch is `<model>/<machine>.jsonl`, as in the folder of a history."""
    model, _, file = path.partition("/")
    machine = file.removesuffix(SUFFIX)
    return machine != file and is_safe_name(model) and is_safe_name(machine)


def _read_batch(files: Sequence[StoredFile], output: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the contents that `git cat-file --batch` wrote, each after a line with its size."""
    for file in files:
        size = int(output.readline().split()[-1])
        yield file.path, output.read(size)
        output.read(len(b"\n"))


def _word(answer: GitAnswer) -> str:
    return answer.output.decode("ascii").strip()


def _refusal(answer: GitAnswer) -> str:
    """Return the line in which git or the remote gives the reason of a failure."""
    lines = [line.strip() for line in answer.words.splitlines()]
    refusals = (line for line in lines if line.startswith(_REFUSALS))
    return printable(" ".join(next(refusals, answer.reason).split()))


@contextmanager
def _source(text: str) -> Iterator[IO[bytes]]:
    with TemporaryFile() as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        file.seek(0)
        yield file


# -- push and pull the lines of a folder


_LINE_BREAK = b"\n"
_LINE_ENDS = b"\r\n"
# Other runs may push first again and again; a remote that refuses without a new commit has a
# reason.
_MOST_TRIES = 50
_MOST_REFUSALS = 5
# Pauses double with each such refusal.
_PAUSE_SECONDS = 0.5


class Synced(Struct, frozen=True, kw_only=True):
    """The outcome of a push or a pull.

    `lines` is the number of added lines. `commit` is the commit of the branch, or None if there is
    no branch. `notes` say which lines were left out.
    """

    lines: int
    commit: str | None
    notes: tuple[str, ...] = ()


def push_history(
    store: HistoryStore, branch: HistoryBranch, pause: Callable[[float], None] = time.sleep
) -> Synced:
    """Commit the lines of the folder to the branch, after those that others pushed meanwhile."""
    branch.check()
    files = {f"{file.model}/{file.machine}{SUFFIX}": file for file in store.files()}
    refusals = 0
    last_tip = None
    for _ in range(_MOST_TRIES):
        tip = branch.find_tip()
        try:
            return _push_after(tip, files, branch)
        except RefusedError as error:
            # A new tip means that another run pushed first.
            refusals = refusals + 1 if tip == last_tip else 1
            if refusals == _MOST_REFUSALS:
                raise
            last_tip, refused = tip, error
            longest = _PAUSE_SECONDS * 2 ** (refusals - 1)
            pause(random.uniform(0.0, longest))  # noqa: S311  # not for security
    raise refused


def pull_history(store: HistoryStore, branch: HistoryBranch) -> Synced:
    """Add the lines of the branch to the files of the folder."""
    branch.check()
    store.check_writable()
    tip = branch.find_tip()
    if tip is None:
        return Synced(lines=0, commit=None)
    branch.fetch(tip)
    notes: list[str] = []
    added = 0
    with branch.contents(branch.files(tip)) as contents:
        for path, content in contents:
            model, _, name = path.partition("/")
            file = store.file(model, name.removesuffix(SUFFIX))
            known = file.raw_lines() if file.path.exists() else ()
            new = find_new(content.splitlines(), known)
            notes += new.notes(f"{branch.title}: {path}")
            if new.lines:
                file.append_raw(new.lines)
                added += len(new.lines)
    return Synced(lines=added, commit=tip, notes=tuple(notes))


def _push_after(tip: str | None, files: Mapping[str, HistoryFile], branch: HistoryBranch) -> Synced:
    """Try once to add a commit after this one, with the lines that it lacks."""
    if tip is not None:
        branch.fetch(tip)
    known = [file for file in branch.files(tip) if file.path in files]
    with branch.contents(known) as contents:
        before = dict(contents)
    after: dict[str, bytes] = {}
    notes: list[str] = []
    lines = 0
    for path, file in files.items():
        content = before.get(path, b"")
        new = find_new(file.raw_lines(), content.splitlines())
        notes += new.notes(printable(str(file.path)))
        if new.lines:
            after[path] = _joined(content, new.lines)
            lines += len(new.lines)
    if not after:
        return Synced(lines=0, commit=tip, notes=tuple(notes))
    message = f"Add {count_of(lines, 'line')} to {count_of(len(after), 'file')}"
    commit = branch.commit(tip, after, message)
    branch.push(commit)
    return Synced(lines=lines, commit=commit, notes=tuple(notes))


class NewLines(Struct, frozen=True):
    """The lines that a file lacks, and the number of offered lines that are invalid."""

    lines: tuple[bytes, ...]
    broken: int

    def notes(self, place: str) -> Iterator[str]:
        if self.broken:
            yield (
                f"{place}: {count_of(self.broken, 'line')} left out: incomplete, or not a line of "
                "a history"
            )


def find_new(offered: Iterable[bytes], known: Iterable[bytes]) -> NewLines:
    """Return the offered lines that are not known yet, each once, in their order."""
    there = {line.rstrip(_LINE_ENDS) for line in known}
    lines: list[bytes] = []
    broken = 0
    for line in (each.rstrip(_LINE_ENDS) for each in offered):
        if not line.strip() or line in there:
            continue
        there.add(line)
        if len(line) < MAX_LINE_BYTES and schema_of(line) is not None:
            lines.append(line)
        else:
            broken += 1
    return NewLines(tuple(lines), broken)


def _joined(content: bytes, lines: Iterable[bytes]) -> bytes:
    """Append the lines to the content. Its last line may have no line break."""
    start = content if not content or content.endswith(_LINE_BREAK) else content + _LINE_BREAK
    return start + b"".join(line + _LINE_BREAK for line in lines)
