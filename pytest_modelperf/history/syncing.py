"""Brings the lines of a folder to a branch, and back.

Both sides only grow: a file gets the lines of the other side that it lacks, at its end and in their
order. So nobody loses a line, whoever comes first.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from pytest_modelperf.history.branch import HistoryBranch, RefusedError
from pytest_modelperf.history.store import (
    MAX_LINE_BYTES,
    SUFFIX,
    HistoryFile,
    HistoryStore,
    schema_of,
)
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of

_LINE_BREAK = b"\n"
_LINE_ENDS = b"\r\n"
# Others may push first again and again; a remote that refuses without a new commit has a reason.
_MOST_TRIES = 50
_MOST_REFUSALS = 5
# Pauses double with each such refusal.
_PAUSE_SECONDS = 0.5


class Synced(Struct, frozen=True, kw_only=True):
    """The outcome of a push or a pull.

    `lines` are those that were added, and `commit` is the commit of the branch; None if there is no
    branch. `notes` say which lines of the folder were left out.
    """

    lines: int
    files: int
    commit: str | None
    notes: tuple[str, ...] = ()


def push_history(
    store: HistoryStore, branch: HistoryBranch, pause: Callable[[float], None] = time.sleep
) -> Synced:
    """Commits the lines of the folder to the branch, after those that others pushed meanwhile."""
    branch.check()
    files = {f"{file.model}/{file.machine}{SUFFIX}": file for file in store.files()}
    refusals = 0
    last_tip = None
    for _ in range(_MOST_TRIES):
        tip = branch.find_tip()
        try:
            return _push_after(tip, files, branch)
        except RefusedError as error:
            # A new tip means that somebody else was faster.
            refusals = refusals + 1 if tip == last_tip else 1
            if refusals == _MOST_REFUSALS:
                raise
            last_tip, refused = tip, error
            longest = _PAUSE_SECONDS * 2 ** (refusals - 1)
            pause(random.uniform(0.0, longest))  # noqa: S311  # it keeps no secret
    raise refused


def pull_history(store: HistoryStore, branch: HistoryBranch) -> Synced:
    """Adds the lines of the branch to the files of the folder."""
    branch.check()
    store.check_writable()
    tip = branch.find_tip()
    if tip is None:
        return Synced(lines=0, files=0, commit=None)
    branch.fetch(tip)
    notes: list[str] = []
    added: list[int] = []
    with branch.contents(branch.files(tip)) as contents:
        for path, content in contents:
            model, _, name = path.partition("/")
            file = store.file(model, name.removesuffix(SUFFIX))
            known = file.raw_lines() if file.path.exists() else ()
            new = find_new(content.splitlines(), known)
            notes += new.notes(f"{branch.title}: {path}")
            if new.lines:
                file.append_raw(new.lines)
                added.append(len(new.lines))
    return Synced(lines=sum(added), files=len(added), commit=tip, notes=tuple(notes))


def _push_after(tip: str | None, files: Mapping[str, HistoryFile], branch: HistoryBranch) -> Synced:
    """One try to add a commit after this one, with the lines that it lacks."""
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
        return Synced(lines=0, files=0, commit=tip, notes=tuple(notes))
    message = f"Add {count_of(lines, 'line')} to {count_of(len(after), 'file')}"
    commit = branch.commit(tip, after, message)
    branch.push(commit)
    return Synced(lines=lines, files=len(after), commit=commit, notes=tuple(notes))


class NewLines(Struct, frozen=True):
    """Lines that a file lacks, and the number of those that are no lines of a history."""

    lines: tuple[bytes, ...]
    broken: int

    def notes(self, place: str) -> Iterator[str]:
        if self.broken:
            yield (
                f"{place}: {count_of(self.broken, 'line')} left out: incomplete, or no line of a "
                "history"
            )


def find_new(offered: Iterable[bytes], known: Iterable[bytes]) -> NewLines:
    """The offered lines that are not known yet, each once, in their order."""
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
    """The content, and after it the lines; the last line may have no line break."""
    start = content if not content or content.endswith(_LINE_BREAK) else content + _LINE_BREAK
    return start + b"".join(line + _LINE_BREAK for line in lines)
