"""A history on a branch of its own: pushed, pulled, merged, and what is refused.

The remotes are repositories on the disk.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.history.branch import (
    HistoryBranch,
    RefusedError,
    Synced,
    find_new,
    is_history_path,
    pull_history,
    push_history,
)
from pytest_modelperf.history.records import HistoryLine
from pytest_modelperf.history.store import HistoryStore
from tests.history.lines import make_line
from tests.support.command import refusal, run
from tests.support.repository import git, needs_git

pytestmark = needs_git
FILE = "models--encoder/linux-x86_64-2c.jsonl"
BRANCH = "modelperf-history"


@pytest.fixture(autouse=True)
def unknown_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git knows no name of a user, as on a fresh machine, and guesses none."""
    settings = tmp_path / "gitconfig"
    settings.write_text("[user]\n\tuseConfigOnly = true\n[init]\n\tdefaultBranch = main\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("NAME", "EMAIL"):
        monkeypatch.delenv(f"GIT_AUTHOR_{name}", raising=False)
        monkeypatch.delenv(f"GIT_COMMITTER_{name}", raising=False)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A bare repository, whose main branch has two commits of a project."""
    path = tmp_path / "remote.git"
    git(tmp_path, "init", "-q", "--bare", str(path))
    project = tmp_path / "project"
    git(tmp_path, "clone", "-q", str(path), str(project))
    (project / "model.txt").write_text("a model")
    for name in ("one", "two"):
        git(project, "add", ".")
        git(project, "commit", "-q", "--allow-empty", "-m", name)
    git(project, "push", "-q", "origin", "HEAD:refs/heads/main")
    git(path, "symbolic-ref", "HEAD", "refs/heads/main")
    return path


class Clone:
    """A clone of a remote, with the folder of a history in it."""

    def __init__(self, remote: Path, name: str, *options: str) -> None:
        self.path = remote.parent / name
        git(remote.parent, "clone", "-q", *options, remote.as_uri(), str(self.path))
        self.store = HistoryStore(self.path / "history")
        self.branch = HistoryBranch(self.path)

    def write(self, *days: int) -> None:
        self.store.append(make_line(day) for day in days)

    def push(self) -> Synced:
        return push_history(self.store, self.branch, pause=lambda _: None)

    def pull(self) -> Synced:
        return pull_history(self.store, self.branch)

    @property
    def days(self) -> list[int]:
        return days_of((self.store.root / FILE).read_bytes())


def days_of(content: bytes) -> list[int]:
    """The days of lines, in their order."""
    lines = (msgspec.json.decode(line, type=HistoryLine) for line in content.splitlines())
    return [int((line.commit or "")[:9], 16) for line in lines]


def pushed_days(remote: Path, branch: str = BRANCH) -> list[int]:
    return days_of(git(remote, "show", f"{branch}:{FILE}").encode())


def test_lines_come_to_a_branch_of_their_own_and_to_another_clone(remote: Path) -> None:
    one, other = Clone(remote, "one"), Clone(remote, "other")
    one.write(0, 1, 2)
    assert one.push().lines == 3
    assert git(remote, "ls-tree", "-r", "--name-only", BRANCH) == FILE
    # It shares no commit with the project.
    assert git(remote, "rev-list", "--count", BRANCH) == "1"
    assert other.pull().lines == 3
    assert (other.store.root / FILE).read_bytes() == (one.store.root / FILE).read_bytes()
    assert other.pull().lines == 0


def test_work_tree_index_and_branches_stay_as_they_are(remote: Path) -> None:
    clone = Clone(remote, "one")
    (clone.path / "model.txt").write_text("changed")
    (clone.path / "staged.txt").write_text("staged")
    git(clone.path, "add", "staged.txt")
    clone.write(0)

    def state() -> list[str]:
        asked = (("status", "--porcelain"), ("rev-parse", "HEAD"), ("ls-files", "--stage"),
                 ("branch", "--list"), ("stash", "list"))  # fmt: skip
        return [git(clone.path, *arguments) for arguments in asked]

    before = state()
    clone.push()
    clone.pull()
    assert state() == before


def test_pushed_lines_of_others_stay_first_and_common_lines_are_there_once(remote: Path) -> None:
    one, other = Clone(remote, "one"), Clone(remote, "other")
    one.write(0, 1)
    one.push()
    other.pull()
    other.write(5, 6)
    one.write(2, 3)
    other.push()
    assert one.push().lines == 2
    assert pushed_days(remote) == [0, 1, 5, 6, 2, 3]
    assert one.pull().lines == 2
    assert one.days == [0, 1, 2, 3, 5, 6]
    assert other.pull().lines == 2
    assert other.days == [0, 1, 5, 6, 2, 3]
    assert one.push().lines == other.push().lines == 0


class Overtaken(HistoryBranch, frozen=True, kw_only=True):
    """A branch to which each rival pushes first."""

    rivals: list[Clone]

    def push(self, commit: str) -> None:
        if self.rivals:
            self.rivals.pop().push()
        super().push(commit)


@pytest.mark.slow
@pytest.mark.parametrize("is_new", [True, False], ids=["no branch", "a branch"])
def test_a_push_that_is_overtaken_tries_again(remote: Path, *, is_new: bool) -> None:
    first = Clone(remote, "first")
    if not is_new:
        first.write(100)
        first.push()
    rivals = [Clone(remote, f"rival{index}") for index in range(2)]
    for index, rival in enumerate(rivals):
        rival.write(10 + index)
    first.write(0)
    branch = Overtaken(first.path, rivals=rivals)
    assert push_history(first.store, branch, pause=lambda _: None).lines == 1
    expected = [11, 10, 0]
    assert pushed_days(remote) == ([] if is_new else [100]) + expected


@pytest.mark.slow
def test_clones_that_push_at_the_same_time_lose_nothing(remote: Path) -> None:
    clones = [Clone(remote, f"clone{index}") for index in range(4)]
    for index, clone in enumerate(clones):
        clone.write(*range(100 * index, 100 * index + 50))
    with ThreadPoolExecutor(len(clones)) as pool:
        done = pool.map(lambda clone: push_history(clone.store, clone.branch), clones)
        assert [each.lines for each in done] == [50] * 4
    found = pushed_days(remote)
    assert sorted(found) == sorted(day for clone in clones for day in clone.days)
    for clone in clones:
        own = set(clone.days)
        assert [day for day in found if day in own] == clone.days


def test_processes_of_one_clone_that_push_at_the_same_time_lose_nothing(remote: Path) -> None:
    clone = Clone(remote, "one")
    stores = [HistoryStore(clone.path / f"history{index}") for index in range(3)]
    for index, store in enumerate(stores):
        store.append(make_line(100 * index + day) for day in range(20))
    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(lambda store: push_history(store, clone.branch), stores))
    assert len(pushed_days(remote)) == 60


@pytest.mark.parametrize("options", [("--depth=1",), ("--depth=1", "--single-branch")])
def test_a_shallow_clone_pushes_and_pulls_and_stays_shallow(
    remote: Path, options: tuple[str, ...]
) -> None:
    full = Clone(remote, "full")
    for day in range(3):
        full.write(day)
        full.push()
    shallow = Clone(remote, "shallow", *options)
    assert shallow.pull().lines == 3
    shallow.write(3)
    assert shallow.push().lines == 1
    assert pushed_days(remote) == [0, 1, 2, 3]
    assert git(remote, "rev-list", "--count", BRANCH) == "4"
    assert git(shallow.path, "rev-list", "--count", "HEAD") == "1"
    # A whole clone stays whole.
    full.pull()
    assert git(full.path, "rev-parse", "--is-shallow-repository") == "false"


def test_a_detached_checkout_without_tracked_branches_pushes(remote: Path) -> None:
    """A runner of CI has such a clone: one commit that was fetched by its name."""
    path = remote.parent / "checkout"
    git(remote.parent, "init", "-q", str(path))
    git(path, "remote", "add", "origin", remote.as_uri())
    git(path, "fetch", "-q", "--depth=1", "origin", "main")
    git(path, "checkout", "-q", "--detach", "FETCH_HEAD")
    store = HistoryStore(path / "history")
    for day in (0, 1):
        store.append([make_line(day)])
        assert push_history(store, HistoryBranch(path)).lines == 1
    assert pushed_days(remote) == [0, 1]


def test_the_author_is_the_user_if_git_knows_one(remote: Path) -> None:
    clone = Clone(remote, "one")
    clone.write(0)
    clone.push()
    assert git(remote, "log", "-1", "--format=%an", BRANCH) == "pytest-modelperf"
    git(clone.path, "config", "user.name", "Ada")
    git(clone.path, "config", "user.email", "ada@example.org")
    clone.write(1)
    clone.push()
    assert git(remote, "log", "-1", "--format=%an %s", BRANCH) == "Ada Add 1 line to 1 file"


def test_the_folder_may_be_outside_and_the_branch_in_the_repository_itself(
    remote: Path, tmp_path: Path
) -> None:
    clone = Clone(remote, "one")
    outside = HistoryStore(tmp_path / "elsewhere")
    outside.append([make_line(0)])
    branch = HistoryBranch(clone.path, ".", "kept/here")
    assert push_history(outside, branch).lines == 1
    assert pushed_days(clone.path, "kept/here") == [0]
    assert pull_history(clone.store, branch).lines == 1
    assert git(clone.path, "status", "--porcelain") == "?? history/"


def test_only_lines_of_a_history_are_pushed_and_the_others_reported(remote: Path) -> None:
    clone = Clone(remote, "one")
    clone.write(0)
    path = clone.store.root / FILE
    with path.open("ab") as file:
        file.write(b'{"schema": 1, "da\n[]\n\n{"schema": 99, "of": "the future"}\r\n{"schema": 1')
    done = clone.push()
    assert done.lines == 2
    assert done.notes == (f"{path}: 3 lines left out: incomplete, or not a line of a history",)
    content = git(remote, "show", f"{BRANCH}:{FILE}")
    assert content.endswith('\n{"schema": 99, "of": "the future"}')
    assert clone.pull().lines == 0


def test_a_line_is_complete_when_the_next_push_has_it(remote: Path) -> None:
    """A branch whose last line has no line break, as an editor leaves it."""
    clone = Clone(remote, "one")
    clone.write(0)
    path = clone.store.root / FILE
    path.write_bytes(path.read_bytes().rstrip())
    clone.push()
    clone.write(1)
    clone.push()
    assert pushed_days(remote) == [0, 1]


def test_other_files_of_the_branch_stay_and_are_not_pulled(remote: Path) -> None:
    clone = Clone(remote, "one")
    clone.write(0)
    clone.push()
    keeper = Clone(remote, "keeper", "--branch", BRANCH)
    (keeper.path / "README.md").write_text("what this is")
    (keeper.path / "models--encoder" / "..jsonl").write_text("no machine has this name")
    (keeper.path / "models--encoder" / "link.jsonl").symlink_to("/etc/passwd")
    git(keeper.path, "add", ".")
    git(keeper.path, "commit", "-q", "-m", "more")
    git(keeper.path, "push", "-q", "origin", BRANCH)
    clone.write(1)
    clone.push()
    assert git(remote, "show", f"{BRANCH}:README.md") == "what this is"
    other = Clone(remote, "other")
    assert other.pull().lines == 2
    files = [path for path in other.store.root.rglob("*") if not path.is_dir()]
    assert files == [other.store.root / FILE]


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        (FILE, True),
        ("model/machine.json", False),
        ("machine.jsonl", False),
        ("a/b/machine.jsonl", False),
        ("../machine.jsonl", False),
        ("model/.jsonl", False),
        ("model/..jsonl", False),
        ("MODEL/machine.jsonl", False),
    ],
)
def test_only_paths_that_a_run_writes_are_of_a_history(path: str, *, is_one: bool) -> None:
    assert is_history_path(path) is is_one


_LINES = st.lists(st.integers(0, 9).map(lambda schema: b'{"schema":%d}' % schema))


@given(_LINES, _LINES)
def test_a_union_has_every_line_once_and_keeps_both_orders(
    known: list[bytes], offered: list[bytes]
) -> None:
    new = find_new(offered, known).lines
    assert set(known) | set(new) == set(known) | set(offered)
    assert len(set(new)) == len(new)
    assert not set(new) & set(known)
    assert [line for line in dict.fromkeys(offered) if line in new] == list(new)
    assert find_new(offered, [*known, *new]).lines == ()


# -- what is refused


def refused(clone: Clone, branch: HistoryBranch) -> str:
    with pytest.raises((UsageError, OutputError)) as error:
        push_history(clone.store, branch, pause=lambda _: None)
    return str(error.value)


def test_a_branch_with_other_files_is_neither_pushed_to_nor_pulled(remote: Path) -> None:
    clone = Clone(remote, "one")
    clone.write(0)
    branch = HistoryBranch(clone.path, name="main")
    assert "it shares commits with the present branch" in refused(clone, branch)
    with pytest.raises(UsageError, match="it shares commits"):
        pull_history(clone.store, branch)
    git(clone.path, "checkout", "-q", "--orphan", "other")
    git(clone.path, "commit", "-q", "-m", "other")
    git(clone.path, "push", "-q", "origin", "other")
    git(clone.path, "checkout", "-q", "main")
    branch = HistoryBranch(clone.path, name="other")
    assert "none of its files is a history" in refused(clone, branch)
    assert git(remote, "rev-list", "--count", "other") == "1"


def test_a_refusal_of_the_remote_is_reported_with_its_reason(remote: Path) -> None:
    hook = remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho refuses >> tries\necho 'no room here' >&2\nexit 1\n")
    hook.chmod(0o755)
    clone = Clone(remote, "one")
    clone.write(0)
    error = refused(clone, clone.branch)
    assert "pre-receive hook declined" in error
    assert "contents: write" in error
    # It is tried again, for another process may have had the branch locked.
    assert (remote / "tries").read_text().splitlines() == ["refuses"] * 5


def test_a_remote_that_is_not_there_is_named(remote: Path, tmp_path: Path) -> None:
    clone = Clone(remote, "one")
    clone.write(0)
    assert "--remote" in refused(clone, HistoryBranch(clone.path, "upstream"))
    assert "--branch" in refused(clone, HistoryBranch(clone.path, name="a..b"))
    assert "no git repository" in refused(clone, HistoryBranch(tmp_path))
    # A name that begins like an option is not taken for one.
    assert "cannot be read" in refused(clone, HistoryBranch(clone.path, "--upload-pack=false"))


def test_a_remote_that_forgets_a_commit_is_refused_after_some_tries(remote: Path) -> None:
    class Forgetful(HistoryBranch, frozen=True):
        def find_tip(self) -> str | None:
            return "1" * 40

    clone = Clone(remote, "one")
    clone.write(0)
    with pytest.raises(RefusedError, match="cannot be fetched"):
        push_history(clone.store, Forgetful(clone.path), pause=lambda _: None)


def test_a_link_in_the_folder_is_not_written_through(remote: Path) -> None:
    one, other = Clone(remote, "one"), Clone(remote, "other")
    one.write(0)
    one.push()
    target = other.path / "target"
    target.write_text("")
    path = other.store.root / FILE
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    with pytest.raises(UsageError, match="cannot be read"):
        other.pull()
    assert target.read_text() == ""


# -- the command


def test_the_commands_say_what_they_did(remote: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = Clone(remote, "one")
    monkeypatch.chdir(clone.path)
    assert run("history", "pull").out == (
        "nothing to pull: there is no branch modelperf-history of origin yet\n"
    )
    assert "--modelperf-history FOLDER" in run("history", "push").err
    clone.write(0, 1)
    done = run("history", "push")
    assert done.exit_code == 0
    commit = git(remote, "rev-parse", BRANCH)[:9]
    assert done.out == (f"2 lines pushed to branch modelperf-history of origin (commit {commit})\n")
    assert run("history", "push").out == (
        "nothing to push: branch modelperf-history of origin has all lines of the folder\n"
    )
    assert run("history", "pull", "--dir", "other").out == (
        "2 lines pulled from branch modelperf-history of origin into other\n"
    )
    assert run("history", "pull", "--dir", "other").out == (
        "nothing to pull: other has all lines of branch modelperf-history of origin\n"
    )
    assert run("history", "push", "--branch", "main").exit_code == 2


def test_a_model_with_the_name_of_an_action_can_be_listed(
    remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = Clone(remote, "one")
    monkeypatch.chdir(clone.path)
    clone.store.append([replace(make_line(), model="push+")])
    assert "push" in run("history", "./push").out
    done = run("history", "--dir", "history", "push")
    assert done.exit_code == 2
    assert "modelperf history push --dir DIR" in done.err
    assert "./push" in done.err


@pytest.mark.parametrize("action", ["push", "pull"])
def test_the_actions_have_help_and_refuse_options_of_others(action: str) -> None:
    text = run("history", action, "--help").out
    assert f"modelperf history {action}" in text
    assert "Guide: " in text
    assert "It belongs to modelperf history." in refusal("history", action, "--since", "2026-01-01")
    listed = run("history", "--help").out
    assert f"  {action}  " in listed
