"""The commits of a range along the first parents: all of them, or those that changed a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_modelperf.bisect.records import RangeKind, Version, VersionRange
from pytest_modelperf.errors import UsageError
from pytest_modelperf.revisions.commits import Commit, RefOption, data_files, find_commit
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.quoting import shell_word

OPTION = RefOption("--commits", "modelperf compare old.onnx new.onnx", takes_paths=False)
_SHORT = 10
HEAD = "HEAD"
# Settings of git may print the check of a signature before each commit, in another encoding.
_LOG = ("log", "--no-show-signature", "--encoding=UTF-8")


def commits_between(model: str, text: str) -> VersionRange:
    """The commits in `good..bad` that changed the model or its external data, and the good one.

    Where branches were merged, a merge stands for all that it brought.
    """
    path = Path(model)
    folder = path.absolute().parent
    good, bad = (find_commit(ref, folder, OPTION) for ref in read_commits(text))
    _require_range(good, bad)
    files = sorted({*data_files(good, path), *data_files(bad, path)})
    changes = list(_changes(good, bad, files))
    if not changes:
        raise UsageError(
            f"no commit of {printable(text)} changed {printable(model)}, so its time cannot have "
            "changed by it. Where the engine changed, give --good and --bad with its versions."
        )
    count = bad.ask("rev-list", "--count", "--first-parent", f"{good.sha}..{bad.sha}")
    total = int(count.output)
    note = f"{len(changes)} of {total} commits changed the model"
    return VersionRange(RangeKind.COMMITS, (_version(good), *changes), notes=(note,))


def all_commits_between(good: Commit, bad: Commit) -> VersionRange:
    """All commits from the good one to the bad one."""
    _require_range(good, bad)
    return VersionRange(RangeKind.COMMITS, (_version(good), *_changes(good, bad, [])))


def read_commits(text: str) -> tuple[str, str]:
    """The refs of a range such as `v1.0..HEAD`."""
    first, separator, last = text.partition("..")
    if not first or not separator or "..." in text:
        raise UsageError(
            f"--commits takes a range such as v1.0..HEAD, not {printable(text)!r}: the fast "
            "commit, two dots, and the slow one."
        )
    return first, last or HEAD


def _require_range(good: Commit, bad: Commit) -> None:
    """Raise UsageError unless the good commit comes before the bad one."""
    if good.sha == bad.sha:
        raise UsageError(
            f"the range begins and ends with the commit {good.sha[:_SHORT]}: give a commit that is "
            "fast and a later one that is slow."
        )
    if bad.ask("merge-base", "--is-ancestor", good.sha, bad.sha).code != 0:
        raise UsageError(
            f"{good} does not come before {bad}, so no commit lies between them. Give a range "
            f"whose first commit is part of the second: `git merge-base {shell_word(good.text)} "
            f"{shell_word(bad.text)}` names the last common one."
        )


def _changes(good: Commit, bad: Commit, files: list[str]) -> Iterator[Version]:
    """The commits that changed one of these files, or all for none, the oldest first."""
    listed = bad.ask(
        *_LOG, "-z", "--reverse", "--first-parent", "--topo-order", "--format=%H %s",
        f"{good.sha}..{bad.sha}", "--", *files,
    )  # fmt: skip
    if listed.code != 0:
        raise UsageError(f"git cannot list the commits of {good}..{bad}: {listed.reason}.")
    for entry in listed.output.decode("utf-8", "replace").split("\0"):
        sha, _, title = entry.strip().partition(" ")
        if sha:
            yield Version(sha, sha[:_SHORT], title)


def _version(commit: Commit) -> Version:
    told = commit.ask(*_LOG, "-1", "--format=%s", commit.sha)
    title = told.output.decode("utf-8", "replace").strip()
    return Version(commit.sha, commit.sha[:_SHORT], title)
