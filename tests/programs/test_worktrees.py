"""Trees of commits in the cache, made of real repositories."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import onnx
import pytest

from pytest_modelperf.baselines.program import SeenModel
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.programs.trees import complete_tree
from pytest_modelperf.programs.worktrees import KEPT_DAYS, KEPT_TREES, prune_trees, tree_of
from tests.support.project import write_dense
from tests.support.repository import git, needs_git
from tests.support.stored_programs import ProgramRepository, isolate_git, seen_of

pytestmark = needs_git

FIRST = {"reader.py": b"FIRST = 1\n", "src/inner.py": b"INNER = 1\n"}
DAY = 86_400.0


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramRepository:
    isolate_git(tmp_path, monkeypatch)
    return ProgramRepository(tmp_path / "repository")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "trees"


def state_of(repository: ProgramRepository) -> str:
    return git(repository.path, "status", "--porcelain") + git(repository.path, "rev-parse", "HEAD")


def test_a_tree_has_the_files_of_its_commit(repository: ProgramRepository, cache: Path) -> None:
    first = repository.commit("first", FIRST)
    repository.commit("second", {"reader.py": b"SECOND = 2\n", "new.py": b""})
    repository.write({"reader.py": b"THIRD = 3\n"})
    before = state_of(repository)
    tree = tree_of(first, repository.path, folder=cache)
    assert (tree / "reader.py").read_bytes() == FIRST["reader.py"]
    assert not (tree / "new.py").exists()
    assert git(tree, "rev-parse", "HEAD") == first
    assert state_of(repository) == before
    assert git(repository.path, "branch", "--list") == "* main"


def test_a_tree_is_made_once(repository: ProgramRepository, cache: Path) -> None:
    first = repository.commit("first", FIRST)
    steps: list[str] = []
    tree = tree_of(first, repository.path, folder=cache, on_progress=steps.append)
    (tree / "made by a test").touch()
    assert tree_of(first, repository.path, folder=cache, on_progress=steps.append) == tree
    assert (tree / "made by a test").exists()
    assert steps == [f"checking out {first[:10]}"]


def test_a_file_that_a_test_changed_is_as_it_was_committed(
    repository: ProgramRepository, cache: Path
) -> None:
    first = repository.commit("first", FIRST)
    tree = tree_of(first, repository.path, folder=cache)
    (tree / "reader.py").write_bytes(b"CHANGED = 1\n")
    (tree / "src/inner.py").unlink()
    tree_of(first, repository.path, folder=cache)
    assert (tree / "reader.py").read_bytes() == FIRST["reader.py"]
    assert (tree / "src/inner.py").read_bytes() == FIRST["src/inner.py"]


def test_a_removed_cache_is_made_again(repository: ProgramRepository, cache: Path) -> None:
    first = repository.commit("first", FIRST)
    tree = tree_of(first, repository.path, folder=cache)
    shutil.rmtree(cache)
    assert tree_of(first, repository.path, folder=cache) == tree
    shutil.rmtree(tree)
    assert (tree_of(first, repository.path, folder=cache) / "reader.py").exists()


def test_a_repository_that_forgot_the_tree_gets_it_again(
    repository: ProgramRepository, cache: Path
) -> None:
    first = repository.commit("first", FIRST)
    tree = tree_of(first, repository.path, folder=cache)
    shutil.rmtree(repository.path / ".git" / "worktrees")
    assert tree_of(first, repository.path, folder=cache) == tree
    assert git(tree, "rev-parse", "HEAD") == first


def test_a_linked_work_tree_and_a_folder_inside_share_the_trees(
    repository: ProgramRepository, cache: Path, tmp_path: Path
) -> None:
    first = repository.commit("first", FIRST)
    linked = tmp_path / "linked"
    git(repository.path, "worktree", "add", "--quiet", str(linked))
    tree = tree_of(first, repository.path, folder=cache)
    assert tree_of(first, linked, folder=cache) == tree
    assert tree_of(first, linked / "src", folder=cache) == tree
    other = ProgramRepository(tmp_path / "other")
    git(other.path, "fetch", "--quiet", str(repository.path), "main")
    assert tree_of(first, other.path, folder=cache) != tree


def test_hooks_of_the_user_do_not_run(repository: ProgramRepository, cache: Path) -> None:
    first = repository.commit("first", FIRST)
    hook = repository.path / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch '{repository.path}/hook ran'\n")
    hook.chmod(0o755)
    tree_of(first, repository.path, folder=cache)
    assert not (repository.path / "hook ran").exists()


def test_a_sparse_checkout_of_the_user_leaves_nothing_out(
    repository: ProgramRepository, cache: Path
) -> None:
    first = repository.commit("first", FIRST)
    git(repository.path, "sparse-checkout", "set", "nothing")
    assert not (repository.path / "src/inner.py").exists()
    assert (tree_of(first, repository.path, folder=cache) / "src/inner.py").exists()


def test_an_unknown_commit_leaves_nothing(repository: ProgramRepository, cache: Path) -> None:
    repository.commit("first", FIRST)
    with pytest.raises(UsageError, match="git cannot check out the commit 1111111111"):
        tree_of("1" * 40, repository.path, folder=cache)
    assert not [path for path in cache.rglob("*") if path.name.startswith("1111111111")]


_MAKER = """
import sys
from functools import partial
from pathlib import Path
from pytest_modelperf.programs.worktrees import tree_of
print(tree_of(sys.argv[1], Path(sys.argv[2]), folder=Path(sys.argv[3])))
"""


def start_maker(commit: str, top: Path, cache: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _MAKER, commit, str(top), str(cache)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_make_one_tree(repository: ProgramRepository, cache: Path) -> None:
    first = repository.commit("first", {f"{i}.py": b"" for i in range(200)})
    makers = [start_maker(first, repository.path, cache) for _ in range(2)]
    answers = {maker.communicate(timeout=120)[0].strip() for maker in makers}
    assert [maker.returncode for maker in makers] == [0, 0]
    (tree,) = map(Path, answers)
    assert git(tree, "status", "--porcelain") == ""
    assert len(git(repository.path, "worktree", "list").splitlines()) == 2


def test_half_a_tree_of_a_killed_process_is_made_again(
    repository: ProgramRepository, cache: Path
) -> None:
    # The filter of a file waits until the process that asked for the tree was killed.
    first = repository.commit("first", {**FIRST, ".gitattributes": b"z.txt filter=slow\n"})
    first = repository.commit("filtered", {"z.txt": b"z\n"})
    started = repository.path.parent / "started"
    git(
        repository.path, "config", "filter.slow.smudge",
        f"touch '{started}'; while [ ! -e '{started}.over' ]; do sleep 0.05; done; cat",
    )  # fmt: skip
    maker = start_maker(first, repository.path, cache)
    give_up = time.monotonic() + 60
    while not started.exists() and time.monotonic() < give_up:
        time.sleep(0.02)
    maker.kill()
    maker.communicate()
    # Its git outlives it, and another process does not take what that leaves.
    started.with_name("started.over").touch()
    tree = tree_of(first, repository.path, folder=cache)
    assert git(tree, "status", "--porcelain") == ""
    assert (tree / "z.txt").read_bytes() == b"z\n"


def test_a_tree_without_its_note_is_made_again(repository: ProgramRepository, cache: Path) -> None:
    first = repository.commit("first", FIRST)
    tree = tree_of(first, repository.path, folder=cache)
    tree.with_name(f"{tree.name}.json").unlink()
    (tree / "left").touch()
    tree_of(first, repository.path, folder=cache)
    assert not (tree / "left").exists()


def test_trees_that_are_not_used_are_removed(repository: ProgramRepository, cache: Path) -> None:
    now = time.time()
    commits = [repository.commit(f"{i}", {"reader.py": b"%d" % i}) for i in range(3)]
    old = tree_of(commits[0], repository.path, folder=cache, now=lambda: now)
    young = tree_of(commits[1], repository.path, folder=cache, now=lambda: now + 2 * DAY)
    later = now + (KEPT_DAYS + 1) * DAY
    tree_of(commits[2], repository.path, folder=cache, now=lambda: later)
    assert not old.exists()
    assert young.exists()
    assert str(old) not in git(repository.path, "worktree", "list")


def test_trees_are_pruned_by_their_last_use(repository: ProgramRepository, cache: Path) -> None:
    now = dt.datetime.now(dt.timezone.utc)
    commits = [repository.commit(f"{i}", {"reader.py": b"%d" % i}) for i in range(2)]
    old, young = (
        tree_of(
            commit, repository.path, folder=cache, now=(now - dt.timedelta(days=days)).timestamp
        )
        for commit, days in zip(commits, (10, 1), strict=True)
    )
    assert prune_trees(now - dt.timedelta(days=5), cache) == 1
    assert (old.exists(), young.exists()) == (False, True)
    assert str(old) not in git(repository.path, "worktree", "list")
    shutil.rmtree(repository.path)
    assert prune_trees(None, cache) == 1
    assert not young.exists()
    assert prune_trees(None, cache / "nowhere") == 0


def test_at_most_ten_trees_are_kept_and_those_in_use(
    repository: ProgramRepository, cache: Path
) -> None:
    now = time.time()
    commits = [repository.commit(f"{i}", {"reader.py": b"%d" % i}) for i in range(KEPT_TREES + 2)]
    trees = [
        tree_of(commit, repository.path, folder=cache, now=partial(float, now + 60 * index))
        for index, commit in enumerate(commits[:-1])
    ]
    # A run may still use each of them.
    assert all(tree.exists() for tree in trees)
    tree_of(commits[-1], repository.path, folder=cache, now=lambda: now + DAY)
    assert [tree.exists() for tree in trees] == [False, False, *[True] * (KEPT_TREES - 1)]


def test_trees_of_a_removed_repository_are_removed(
    repository: ProgramRepository, cache: Path, tmp_path: Path
) -> None:
    tree = tree_of(repository.commit("first", FIRST), repository.path, folder=cache)
    shutil.rmtree(repository.path)
    other = ProgramRepository(tmp_path / "other")
    tree_of(other.commit("first", FIRST), other.path, folder=cache)
    assert not tree.parent.exists()


@pytest.fixture
def with_submodule(repository: ProgramRepository, tmp_path: Path) -> ProgramRepository:
    inner = ProgramRepository(tmp_path / "inner")
    inner.commit("first", {"inner.py": b"INNER = 1\n"})
    repository.commit("first", FIRST)
    allowed = ("-c", "protocol.file.allow=always")
    git(repository.path, *allowed, "submodule", "--quiet", "add", inner.path.as_uri(), "sub")
    repository.commit("with a submodule")
    return repository


def test_submodules_are_as_they_were(with_submodule: ProgramRepository, cache: Path) -> None:
    first = git(with_submodule.path, "rev-parse", "HEAD")
    (with_submodule.path / "sub" / "inner.py").write_bytes(b"INNER = 2\n")
    git(with_submodule.path / "sub", "commit", "--quiet", "--all", "--message", "second")
    tree = tree_of(first, with_submodule.path, folder=cache)
    assert (tree / "sub" / "inner.py").read_bytes() == b"INNER = 1\n"
    assert tree_of(first, with_submodule.path, folder=cache) == tree


def test_a_tree_with_submodules_is_removed(with_submodule: ProgramRepository, cache: Path) -> None:
    tree = tree_of(git(with_submodule.path, "rev-parse", "HEAD"), with_submodule.path, folder=cache)
    later = time.time() + (KEPT_DAYS + 1) * DAY
    tree_of(with_submodule.commit("second"), with_submodule.path, folder=cache, now=lambda: later)
    assert not tree.exists()


def test_a_submodule_that_is_not_here_has_a_sentence(
    with_submodule: ProgramRepository, cache: Path
) -> None:
    first = git(with_submodule.path, "rev-parse", "HEAD")
    git(with_submodule.path, "submodule", "--quiet", "deinit", "--force", "sub")
    with pytest.raises(UsageError, match=r"submodule sub.*`git submodule update --init sub`"):
        tree_of(first, with_submodule.path, folder=cache)


def test_an_ignored_file_is_linked(repository: ProgramRepository, cache: Path) -> None:
    first = repository.commit("first", {**FIRST, ".gitignore": b"models/\n"})
    repository.write({"models/rec.onnx": b"model"})
    seen = seen_of({**FIRST, "models/rec.onnx": b"model"})
    tree = tree_of(first, repository.path, folder=cache)
    for _ in range(2):
        complete_tree(tree, seen, repository.path)
        assert (tree / "models/rec.onnx").read_bytes() == b"model"
        assert tree_of(first, repository.path, folder=cache) == tree


def test_an_ignored_model_is_linked_with_its_external_data(
    repository: ProgramRepository, cache: Path
) -> None:
    """A session reads its files itself, so a model is not among the files that Python read."""
    first = repository.commit("first", {**FIRST, ".gitignore": b"models/\n"})
    model = repository.path / "models" / "rec.onnx"
    write_dense(model)
    proto = onnx.load(model)
    onnx.save(proto, model, save_as_external_data=True, location="rec.data", size_threshold=0)
    seen = seen_of(
        FIRST,
        models=(SeenModel(name="rec.onnx", path="models/rec.onnx", sha256=digest_model(model)),),
    )
    tree = tree_of(first, repository.path, folder=cache)
    complete_tree(tree, seen, repository.path)
    assert digest_model(tree / "models" / "rec.onnx") == digest_model(model)
    (model.parent / "rec.data").write_bytes(bytes(1000))
    with pytest.raises(UsageError, match=r"^models/rec\.onnx is not in git"):
        complete_tree(tree, seen, repository.path)


def digest_model(path: Path) -> str:
    return open_model(path).sha256()


def test_an_ignored_file_that_changed_is_named(repository: ProgramRepository, cache: Path) -> None:
    first = repository.commit("first", {**FIRST, ".gitignore": b"models/\n"})
    seen = seen_of({**FIRST, "models/rec.onnx": b"model"})
    tree = tree_of(first, repository.path, folder=cache)
    repository.write({"models/rec.onnx": b"model"})
    complete_tree(tree, seen, repository.path)
    repository.write({"models/rec.onnx": b"another"})
    with pytest.raises(UsageError, match=r"^models/rec\.onnx is not in git"):
        complete_tree(tree, seen, repository.path)


def test_a_file_that_the_commit_has_is_not_replaced(
    repository: ProgramRepository, cache: Path
) -> None:
    first = repository.commit("first", {**FIRST, "data.bin": b"old"})
    git(repository.path, "rm", "--quiet", "--cached", "data.bin")
    repository.commit("ignored", {".gitignore": b"data.bin\n", "data.bin": b"new"})
    tree = tree_of(first, repository.path, folder=cache)
    complete_tree(tree, seen_of({**FIRST, "data.bin": b"new"}), repository.path)
    assert (tree / "data.bin").read_bytes() == b"old"
    assert not (tree / "data.bin").is_symlink()


def test_a_pointer_of_git_lfs_is_named(repository: ProgramRepository, cache: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    first = repository.commit("first", {**FIRST, "rec.onnx": pointer})
    tree = tree_of(first, repository.path, folder=cache)
    with pytest.raises(UsageError, match=r"rec\.onnx, stored with Git LFS.*git lfs fetch"):
        complete_tree(tree, seen_of({"rec.onnx": b"model"}), repository.path)
