"""The commit that a stored program is judged against, in real repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_modelperf.baselines.program import ProgramSources, SeenModel
from pytest_modelperf.errors import BaselineError, UsageError
from pytest_modelperf.programs.commits import (
    accepted_commit,
    find_against,
    head_commit,
    ignored_files,
    require_committed,
    top_of,
    uncommitted,
)
from tests.support.repository import git, needs_git
from tests.support.stored_programs import (
    ProgramRepository,
    isolate_git,
    seen_of,
    stored_program,
)

pytestmark = needs_git

FIRST = {"reader.py": b"FIRST = 1\n", "tests/test_read.py": b"def test_page(): ...\n"}
SECOND = {**FIRST, "reader.py": b"SECOND = 2\n"}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramRepository:
    isolate_git(tmp_path, monkeypatch)
    return ProgramRepository(tmp_path / "repository")


def recorded(
    repository: ProgramRepository, commit: str | None, seen: ProgramSources
) -> tuple[str, Path]:
    """Store a program; return the commit that is accepted for it, and its file."""
    stored = stored_program(seen, commit)
    file = repository.record(stored)
    return accepted_commit(stored, file, repository.path), file


def refusal(
    repository: ProgramRepository, commit: str | None, seen: ProgramSources, top: Path | None = None
) -> str:
    stored = stored_program(seen, commit)
    file = repository.record(stored)
    with pytest.raises(BaselineError) as caught:
        accepted_commit(stored, file, top or repository.path)
    return str(caught.value)


def test_a_commit_that_head_contains_is_accepted(repository: ProgramRepository) -> None:
    first = repository.commit("first", FIRST)
    assert recorded(repository, first, seen_of(FIRST))[0] == first
    repository.commit("second", SECOND)
    assert recorded(repository, first, seen_of(FIRST))[0] == first


def test_an_unknown_commit_is_refused(repository: ProgramRepository) -> None:
    repository.commit("first", FIRST)
    error = refusal(repository, "1" * 40, seen_of(FIRST))
    assert "it names the commit 1111111111, which this repository does not have" in error
    assert "--modelperf-update-baseline" in error


def test_a_commit_of_another_branch_is_refused(repository: ProgramRepository) -> None:
    repository.commit("first", FIRST)
    git(repository.path, "checkout", "--quiet", "-b", "fork")
    forged = repository.commit("evil", {"reader.py": b"EVIL = 1\n"})
    git(repository.path, "checkout", "--quiet", "main")
    error = refusal(repository, forged, seen_of({"reader.py": b"EVIL = 1\n"}))
    assert f"it names the commit {forged[:10]}, which HEAD does not contain" in error


def test_the_id_of_a_file_or_a_tag_is_not_a_commit(repository: ProgramRepository) -> None:
    repository.commit("first", FIRST)
    blob = git(repository.path, "rev-parse", "HEAD:reader.py")
    assert "does not have" in refusal(repository, blob, seen_of(SECOND))


def squashed(repository: ProgramRepository, commit: str | None = "") -> tuple[str, str, Path]:
    """Merge a branch with a baseline, squashed: the dropped commit, the new one, and the file.

    With `commit`, the baseline names it instead of the one of the branch.
    """
    repository.commit("start", FIRST)
    git(repository.path, "checkout", "--quiet", "-b", "topic")
    dropped = repository.commit("second", SECOND)
    file = repository.record(stored_program(seen_of(SECOND), dropped if commit == "" else commit))
    repository.commit("baseline")
    git(repository.path, "checkout", "--quiet", "main")
    git(repository.path, "merge", "--quiet", "--squash", "topic")
    merged = repository.commit("second (squashed)")
    git(repository.path, "branch", "--quiet", "-D", "topic")
    return dropped, merged, file


def test_a_squashed_merge_has_the_recorded_content(repository: ProgramRepository) -> None:
    dropped, merged, file = squashed(repository)
    repository.commit("later", {"reader.py": b"THIRD = 3\n"})
    stored = stored_program(seen_of(SECOND), dropped)
    assert accepted_commit(stored, file, repository.path) == merged


def test_a_baseline_without_a_commit_is_that_of_the_commit_that_brought_it(
    repository: ProgramRepository,
) -> None:
    _, merged, file = squashed(repository, None)
    assert accepted_commit(stored_program(seen_of(SECOND)), file, repository.path) == merged


def test_a_file_written_again_later_does_not_hide_the_commit(repository: ProgramRepository) -> None:
    dropped, merged, file = squashed(repository)
    repository.commit("third", {"reader.py": b"THIRD = 3\n"})
    file.write_bytes(file.read_bytes() + b"\n")
    repository.commit("format")
    stored = stored_program(seen_of(SECOND), dropped)
    assert accepted_commit(stored, file, repository.path) == merged


def test_a_commit_with_other_content_is_refused(repository: ProgramRepository) -> None:
    dropped, _, file = squashed(repository)
    stored = stored_program(seen_of({**SECOND, "reader.py": b"OTHER = 1\n"}), "2" * 40)
    assert dropped
    with pytest.raises(BaselineError, match=r"has another reader\.py"):
        accepted_commit(stored, file, repository.path)


def test_ignored_files_are_not_compared_with_the_commit(repository: ProgramRepository) -> None:
    repository.commit("ignore", {".gitignore": b"*.bin\n"})
    seen = seen_of({**FIRST, "weights.bin": b"1"})
    repository.write({**FIRST, "weights.bin": b"1"})
    file = repository.record(stored_program(seen))
    brought = repository.commit("all at once")
    assert accepted_commit(stored_program(seen), file, repository.path) == brought


def test_uncommitted_files_are_not_accepted(repository: ProgramRepository) -> None:
    repository.commit("first", FIRST)
    error = refusal(repository, None, seen_of(SECOND))
    assert "recorded before its files were committed" in error
    assert "no commit in this history added this file" in error


def test_ends_of_lines_that_git_converts_do_not_count_as_a_difference(
    repository: ProgramRepository,
) -> None:
    text = b"A = 1\r\nB = 2\r\n"
    repository.write({".gitattributes": b"*.py text\n", "reader.py": text})
    file = repository.record(stored_program(seen_of({"reader.py": text})))
    brought = repository.commit("windows")
    assert b"\r" not in git(repository.path, "show", "HEAD:reader.py").encode()
    stored = stored_program(seen_of({"reader.py": text}))
    assert accepted_commit(stored, file, repository.path) == brought


def test_filters_of_a_checkout_apply(repository: ProgramRepository) -> None:
    git(repository.path, "config", "filter.up.clean", "tr A-Z a-z")
    git(repository.path, "config", "filter.up.smudge", "tr a-z A-Z")
    files = {".gitattributes": b"*.txt filter=up\n", "words.txt": b"WORDS\n"}
    repository.write(files)
    stored = stored_program(seen_of(files))
    file = repository.record(stored)
    brought = repository.commit("filtered")
    assert git(repository.path, "show", "HEAD:words.txt") == "words"
    assert accepted_commit(stored, file, repository.path) == brought


def test_a_pointer_of_git_lfs_has_the_digest(repository: ProgramRepository) -> None:
    seen = seen_of({"rec.onnx": b"model"})
    digest = seen.files["rec.onnx"]
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 5\n"
    repository.write({"rec.onnx": pointer.encode()})
    file = repository.record(stored_program(seen))
    brought = repository.commit("with a pointer")
    assert accepted_commit(stored_program(seen), file, repository.path) == brought


def shallow_clone(repository: ProgramRepository, path: Path) -> None:
    git(path.parent, "clone", "--quiet", "--depth=1", repository.path.as_uri(), str(path))


def test_a_shallow_clone_says_what_to_fetch_and_it_helps(
    repository: ProgramRepository, tmp_path: Path
) -> None:
    first = repository.commit("first", FIRST)
    stored = stored_program(seen_of(FIRST), first)
    repository.record(stored)
    repository.commit("second", SECOND)
    clone = tmp_path / "clone"
    shallow_clone(repository, clone)
    file = clone / "baselines" / "tests--test_read.py++test_page" / "program.json"
    with pytest.raises(BaselineError) as caught:
        accepted_commit(stored, file, clone)
    error = str(caught.value)
    assert first in error
    assert "`git fetch --unshallow`" in error
    # The commit alone does not show that HEAD contains it.
    git(clone, "fetch", "--quiet", "--depth=1", "origin", first)
    with pytest.raises(BaselineError, match="--unshallow"):
        accepted_commit(stored, file, clone)
    git(clone, "fetch", "--quiet", "--unshallow")
    assert accepted_commit(stored, file, clone) == first


def test_a_shallow_clone_with_the_recorded_content_needs_no_other(
    repository: ProgramRepository, tmp_path: Path
) -> None:
    first = repository.commit("first", FIRST)
    stored = stored_program(seen_of(FIRST), first)
    repository.record(stored)
    last = repository.commit("baseline")
    clone = tmp_path / "clone"
    shallow_clone(repository, clone)
    file = clone / "baselines" / "tests--test_read.py++test_page" / "program.json"
    assert accepted_commit(stored, file, clone) == last


def test_changed_and_untracked_files_that_were_read_are_listed(
    repository: ProgramRepository,
) -> None:
    repository.commit("first", {**FIRST, "other.py": b"", ".gitignore": b"*.bin\n"})
    repository.write({"reader.py": b"NEW = 1\n", "new.py": b"", "other.py": b"1", "w.bin": b""})
    seen = seen_of({**FIRST, "new.py": b"", "w.bin": b""})
    assert uncommitted(seen, repository.path) == ("new.py", "reader.py")
    with pytest.raises(UsageError, match=r"new\.py, reader\.py.*--modelperf-uncommitted"):
        require_committed(seen, repository.path)
    git(repository.path, "add", "new.py", "reader.py")
    assert uncommitted(seen, repository.path) == ("new.py", "reader.py")
    repository.commit("second")
    assert uncommitted(seen, repository.path) == ()
    require_committed(seen, repository.path)


def test_changed_and_untracked_models_are_listed(repository: ProgramRepository) -> None:
    """A runtime opens a model without Python, so models are not among the files."""
    repository.commit("first", {**FIRST, "a.onnx": b"a", "b.onnx": b"b", ".gitignore": b"d.onnx"})
    repository.write({"b.onnx": b"1", "c.onnx": b"", "d.onnx": b""})
    places = ("a.onnx", "b.onnx", "c.onnx", "d.onnx", "~/e.onnx", None)
    models = tuple(SeenModel(name="m", path=place, sha256=None) for place in places)
    seen = seen_of(FIRST, models=models)
    assert uncommitted(seen, repository.path) == ("b.onnx", "c.onnx")


def test_a_removed_file_is_not_committed(repository: ProgramRepository) -> None:
    repository.commit("first", FIRST)
    (repository.path / "reader.py").unlink()
    assert uncommitted(seen_of(FIRST), repository.path) == ("reader.py",)


def test_files_of_a_changed_submodule_are_not_committed(
    repository: ProgramRepository, tmp_path: Path
) -> None:
    inner = ProgramRepository(tmp_path / "inner")
    inner.commit("first", {"inner.py": b""})
    repository.commit("first", FIRST)
    allowed = ("-c", "protocol.file.allow=always")
    git(repository.path, *allowed, "submodule", "--quiet", "add", inner.path.as_uri(), "sub")
    repository.commit("with a submodule")
    seen = seen_of({**FIRST, "sub/inner.py": b""})
    assert uncommitted(seen, repository.path) == ()
    assert ignored_files(seen, repository.path) == ()
    (repository.path / "sub" / "inner.py").write_bytes(b"1")
    assert uncommitted(seen, repository.path) == ("sub/inner.py",)


def test_ignored_files_that_were_read_are_listed(repository: ProgramRepository) -> None:
    repository.commit("first", {**FIRST, ".gitignore": b"*.bin\n", "kept.bin": b""})
    git(repository.path, "add", "--force", "kept.bin")
    repository.commit("kept")
    repository.write({"models/w.bin": b""})
    seen = seen_of({**FIRST, "models/w.bin": b"", "kept.bin": b"", "new.py": b""})
    assert ignored_files(seen, repository.path) == ("models/w.bin",)
    assert ignored_files(seen_of({}), repository.path) == ()


def test_the_top_folder_is_that_of_the_work_tree(
    repository: ProgramRepository, tmp_path: Path
) -> None:
    repository.commit("first", FIRST)
    assert top_of(repository.path / "tests").samefile(repository.path)
    linked = tmp_path / "linked"
    git(repository.path, "worktree", "add", "--quiet", str(linked))
    assert top_of(linked / "tests").samefile(linked)


def test_a_folder_without_git_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate_git(tmp_path, monkeypatch)
    with pytest.raises(UsageError, match=r"not in a git repository.*git init"):
        top_of(tmp_path)


def test_a_repository_without_commits_says_what_to_do(repository: ProgramRepository) -> None:
    repository.write(FIRST)
    with pytest.raises(UsageError, match="has no commit yet"):
        require_committed(seen_of(FIRST), repository.path)


def test_a_ref_of_the_user_need_not_be_in_the_history(repository: ProgramRepository) -> None:
    repository.commit("first", FIRST)
    git(repository.path, "checkout", "--quiet", "-b", "fork")
    other = repository.commit("second", SECOND)
    git(repository.path, "checkout", "--quiet", "main")
    assert find_against("fork", repository.path).sha == other
    assert head_commit(repository.path) != other
    with pytest.raises(UsageError, match="against names nowhere, which is no commit"):
        find_against("nowhere", repository.path)
