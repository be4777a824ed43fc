"""`modelperf history push` and `pull`: the lines of a folder go to a branch, and come back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_modelperf.cli.history_folder import (
    find_project_root,
    history_dir_option,
    open_history,
)
from pytest_modelperf.cli.options import with_options
from pytest_modelperf.cli.output import show
from pytest_modelperf.cli.setting_options import Command

if TYPE_CHECKING:
    from pytest_modelperf.history.branch import HistoryBranch, Synced
    from pytest_modelperf.history.store import HistoryStore

_BRANCH = "modelperf-history"
_REMOTE = "origin"
_SHORT_COMMIT = 9


def _branch_options(command: Command) -> Command:
    return with_options(
        command,
        history_dir_option,
        click.option(
            "--branch", metavar="NAME", default=_BRANCH, show_default=True, help="The branch."
        ),
        click.option(
            "--remote",
            metavar="NAME",
            default=_REMOTE,
            show_default=True,
            help="The remote that has it; . for a branch of this repository.",
        ),
    )


@click.command(short_help="Commit the lines of the folder to a branch.")
@_branch_options
def push(folder: str | None, branch: str, remote: str) -> None:
    """Commit the lines of the folder to a branch that has nothing else, and push it.

    The branch shares no commits with others, and is made if there is none. Work tree and index stay
    as they are. Lines that others pushed meanwhile are kept.

    \b
    modelperf history push
    modelperf history push --branch modelperf-history --remote origin
    """  # noqa: D301  # click: keep the lines of the paragraph
    from pytest_modelperf.history.branch import push_history
    from pytest_modelperf.text.words import count_of

    store, there = _open(folder, branch, remote)
    done = push_history(store, there)
    if done.lines:
        commit = "" if done.commit is None else f" (commit {done.commit[:_SHORT_COMMIT]})"
        _tell(done, f"{count_of(done.lines, 'line')} pushed to {there.title}{commit}")
    else:
        _tell(done, f"nothing to push: {there.title} has all lines of the folder")


@click.command(short_help="Add the lines of a branch to the folder.")
@_branch_options
def pull(folder: str | None, branch: str, remote: str) -> None:
    """Add the lines that `modelperf history push` committed to a branch to the folder.

    Lines that the folder has already stay as they are.

    \b
    modelperf history pull
    modelperf history pull --dir /tmp/history
    """  # noqa: D301  # click: keep the lines of the paragraph
    from pytest_modelperf.history.branch import pull_history
    from pytest_modelperf.text.escaping import printable
    from pytest_modelperf.text.words import count_of

    store, there = _open(folder, branch, remote)
    done = pull_history(store, there)
    place = printable(str(store.root))
    if done.commit is None:
        _tell(done, f"nothing to pull: there is no {there.title} yet")
    elif done.lines:
        _tell(done, f"{count_of(done.lines, 'line')} pulled from {there.title} into {place}")
    else:
        _tell(done, f"nothing to pull: {place} has all lines of {there.title}")


def _open(folder: str | None, branch: str, remote: str) -> tuple[HistoryStore, HistoryBranch]:
    from pytest_modelperf.history.branch import HistoryBranch

    store = open_history(folder, find_project_root())
    return store, HistoryBranch(Path.cwd(), remote, branch)


def _tell(done: Synced, sentence: str) -> None:
    show(f"{sentence}\n")
    for note in done.notes:
        show(f"note: {note}\n")


# By the names that follow `modelperf history`.
ACTIONS = {"push": push, "pull": pull}
