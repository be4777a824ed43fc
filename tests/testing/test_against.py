"""The older version of a model: the right file of the right commit, and nothing else touched."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from pytest_modelperf.errors import ModelError, UsageError
from pytest_modelperf.files.git import ask_git
from pytest_modelperf.revisions.commits import is_inside
from pytest_modelperf.testing.older import check_against, older_version
from tests.support.repository import git, needs_git
from tests.support.small_models import ones, parse
from tests.support.stored_programs import isolate_git

LINEAR = "g (float[N,3] x) => (float[N,5] y) { y = MatMul(x, w) }"
REAL_GIT = shutil.which("git") or ""

pytestmark = needs_git


def put(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@dataclass(frozen=True)
class Repository:
    """A git repository to commit to."""

    path: Path

    def git(self, *arguments: str) -> str:
        return git(self.path, "-c", "protocol.file.allow=always", *arguments)

    def commit(self, files: Mapping[str, bytes]) -> str:
        """Write the files, commit all of them, and say the id."""
        put(self.path, files)
        self.git("add", "--all", ".")
        self.git("commit", "--quiet", "--allow-empty", "--message", "some change")
        return self.git("rev-parse", "HEAD")

    def taken(self, text: str, model: str = "m.onnx") -> bytes:
        """Return the older version of a model by the text `text`."""
        with older_version(text, self.path / model, self.path) as path:
            return path.read_bytes()

    def refusal(self, text: str, model: str = "m.onnx") -> str:
        """Why `text` gives none."""
        with pytest.raises(UsageError) as caught:
            self.taken(text, model)
        return str(caught.value)


@pytest.fixture(autouse=True)
def _own_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of this machine, and no repository around the folders of the tests."""
    isolate_git(tmp_path, monkeypatch)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return new_repository(tmp_path / "repository")


def new_repository(path: Path) -> Repository:
    path.mkdir()
    repository = Repository(path)
    repository.git("init", "--quiet", "--initial-branch=main")
    return repository


def model(version: int) -> bytes:
    """A model whose weights say which version it is."""
    return parse(LINEAR, weights={"w": ones(3, 5) * version}).SerializeToString()


def split_model(location: str, version: int = 1) -> bytes:
    """A model whose only weight is in another file."""
    proto = parse(LINEAR, weights={"w": ones(3, 5) * version})
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    return proto.SerializeToString()


def everything_below(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Each file with its content and when it was last written."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    "text", ["HEAD~1", "release", "refs/heads/release", "v1", "v1-signed", "short", "full"]
)
def test_any_name_of_a_commit_gives_the_file_as_it_was_in_it(
    repository: Repository, text: str
) -> None:
    full = repository.commit({"m.onnx": model(1)})
    repository.git("branch", "release")
    repository.git("tag", "v1")
    repository.git("tag", "--annotate", "--message", "first", "v1-signed")
    repository.commit({"m.onnx": model(2)})
    text = {"short": full[:9], "full": full}.get(text, text)
    check_against(text, repository.path)
    assert repository.taken(text) == model(1)
    assert repository.taken("HEAD") == model(2)


def test_a_commit_is_found_by_words_of_its_message(repository: Repository) -> None:
    repository.commit({"m.onnx": model(1)})
    repository.git("commit", "--quiet", "--amend", "--message", "the first one")
    repository.commit({"m.onnx": model(2)})
    assert repository.taken(":/first one") == model(1)
    assert "neither a path that exists nor a commit" in repository.refusal(":/last one")


def test_the_file_keeps_its_name_and_goes_with_the_context(repository: Repository) -> None:
    repository.commit({"models/encoder.onnx": model(1)})
    place = repository.path / "models/encoder.onnx"
    kept: list[Path] = []

    def use() -> None:
        with older_version("HEAD", place, repository.path) as path:
            assert path.read_bytes() == model(1)
            kept.append(path)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        use()
    assert kept[0].name == "encoder.onnx"
    assert not kept[0].parent.exists()


def test_neither_work_tree_nor_index_nor_refs_change(repository: Repository) -> None:
    repository.commit({"m.onnx": model(1), "w.bin": b"1", "other.txt": b"1"})
    repository.commit({"m.onnx": split_model("w.bin")})
    (repository.path / "m.onnx").write_bytes(model(3))
    (repository.path / "other.txt").write_bytes(b"2")
    repository.git("add", "other.txt")
    # An index that is older than its files is what git would like to refresh.
    os.utime(repository.path / "w.bin", ns=(1, 1))
    before = everything_below(repository.path)
    check_against("HEAD~1", repository.path)
    assert repository.taken("HEAD~1") == model(1)
    assert repository.taken("HEAD") == split_model("w.bin")
    repository.refusal("HEAD~7")
    assert everything_below(repository.path) == before


@pytest.mark.parametrize(
    "name",
    ["a b.onnx", "[ab]*?.onnx", ":(top)m.onnx", "ключ-鍵.onnx", "two\nlines.onnx", "-m.onnx",
     "{x}^.onnx", "deep/er/m.onnx"],
)  # fmt: skip
def test_any_name_of_a_file_is_found(repository: Repository, name: str) -> None:
    repository.commit({name: model(1), "a.onnx": model(7)})
    repository.commit({name: model(2)})
    assert repository.taken("HEAD~1", name) == model(1)


def test_a_model_below_a_linked_folder_is_found_at_its_real_path(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit({"models/m.onnx": model(1)})
    repository.commit({"models/m.onnx": model(2)})
    (tmp_path / "link").symlink_to(repository.path / "models")
    with older_version("HEAD~1", tmp_path / "link" / "m.onnx", tmp_path) as path:
        assert path.read_bytes() == model(1)


def test_filters_are_applied(repository: Repository) -> None:
    repository.git("config", "filter.packed.clean", "gzip -cn")
    repository.git("config", "filter.packed.smudge", "gzip -dc")
    repository.commit({".gitattributes": b"*.onnx filter=packed\n", "m.onnx": model(1)})
    repository.commit({"m.onnx": model(2)})
    assert int(repository.git("cat-file", "-s", "HEAD~1:m.onnx")) != len(model(1))
    assert repository.taken("HEAD~1") == model(1)


def test_a_hook_of_another_repository_does_not_lead_astray(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"m.onnx": model(1)})
    other = new_repository(tmp_path / "other")
    other.commit({"m.onnx": model(9)})
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git/index"))
    assert repository.taken("HEAD") == model(1)


@pytest.mark.parametrize("name", ["GIT_GLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"])
def test_paths_are_taken_as_they_are_whatever_the_environment_makes_of_them(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    repository.commit({"m.onnx": model(1)})
    monkeypatch.setenv(name, "1")
    assert repository.taken("HEAD") == model(1)


def test_a_worktree_of_a_bare_repository_works_and_the_bare_one_is_refused(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit({"m.onnx": model(1)})
    repository.commit({"m.onnx": model(2)})
    bare = tmp_path / "bare.git"
    repository.git("clone", "--quiet", "--bare", ".", str(bare))
    Repository(bare).git("worktree", "add", "--quiet", str(tmp_path / "tree"))
    assert Repository(tmp_path / "tree").taken("HEAD~1") == model(1)
    (bare / "m.onnx").write_bytes(model(2))
    assert "not in a work tree" in Repository(bare).refusal("HEAD~1")


def test_a_model_in_a_submodule_is_taken_from_the_submodule(
    repository: Repository, tmp_path: Path
) -> None:
    inner = new_repository(tmp_path / "inner")
    inner.commit({"m.onnx": model(1)})
    inner.git("tag", "inner-v1")
    inner.commit({"m.onnx": model(2)})
    repository.commit({"readme": b"outer"})
    repository.git("submodule", "--quiet", "add", str(inner.path), "sub module")
    check_against("inner-v1", repository.path)
    assert repository.taken("inner-v1", "sub module/m.onnx") == model(1)
    with pytest.raises(UsageError, match="nor a commit"):
        check_against("inner-v2", repository.path)


def test_a_link_in_the_commit_is_followed_within_it(repository: Repository) -> None:
    repository.commit({"store/one.onnx": model(1), "store/two.onnx": model(2)})
    (repository.path / "models").mkdir()
    link = repository.path / "models/m.onnx"
    link.symlink_to("../store/one.onnx")
    repository.commit({})
    link.unlink()
    link.symlink_to("../store/two.onnx")
    repository.commit({"store/one.onnx": model(7)})
    assert repository.taken("HEAD~1", "models/m.onnx") == model(1)
    assert repository.taken("HEAD", "models/m.onnx") == model(2)


@pytest.mark.parametrize(
    ("aim", "said"), [("/etc/hostname", "outside"), ("../../x", "outside"), ("m.onnx", "itself")]
)
def test_a_link_that_leads_nowhere_is_refused(repository: Repository, aim: str, said: str) -> None:
    (repository.path / "m.onnx").symlink_to(aim)
    repository.commit({})
    assert said in repository.refusal("HEAD")


def test_external_data_comes_from_the_same_commit_and_is_named_if_it_was_not_committed(
    repository: Repository,
) -> None:
    files = {"models/m.onnx": split_model("data/deep/w.bin"), "models/data/deep/w.bin": b"1" * 60}
    repository.commit(files)
    repository.commit({"models/data/deep/w.bin": b"2" * 60})
    with older_version("HEAD~1", repository.path / "models/m.onnx", repository.path) as path:
        assert (path.parent / "data/deep/w.bin").read_bytes() == b"1" * 60
    repository.commit({"models/m.onnx": split_model("w.bin")})
    (repository.path / "models/w.bin").write_bytes(b"1" * 60)
    assert "models/w.bin was not in" in repository.refusal("HEAD", "models/m.onnx")


@pytest.mark.parametrize("location", ["../w.bin", "a/../../w.bin", "/w.bin", "."])
def test_external_data_outside_of_the_folder_is_never_written(
    repository: Repository, location: str
) -> None:
    repository.commit({"models/m.onnx": split_model(location), "w.bin": b"1" * 60})
    with pytest.raises(ModelError, match="outside of the model's folder"):
        repository.taken("HEAD", "models/m.onnx")


@given(st.lists(st.sampled_from(["..", ".", "a", "", "b.bin"]), max_size=6).map("/".join))
def test_a_place_is_inside_if_the_path_it_makes_is_below_the_folder(place: str) -> None:
    made = os.path.normpath(os.path.join("/top/folder", place))  # noqa: PTH118  # as text only
    assert is_inside(place) == made.startswith("/top/folder/")


def test_the_error_of_a_file_that_is_not_a_model_names_its_path_and_ref(
    repository: Repository,
) -> None:
    repository.commit({"m.onnx": b"\x80\x02 no model"})
    repository.commit({"m.onnx": model(1)})
    with pytest.raises(ModelError, match=r"m\.onnx as of HEAD~1 \([0-9a-f]{10}\) is not an ONNX"):
        repository.taken("HEAD~1")


def test_a_file_that_was_not_there_is_not_looked_for_under_another_name(
    repository: Repository,
) -> None:
    repository.commit({"models/encoder v1.onnx": model(1), "z.onnx": model(5)})
    repository.git("mv", "models/encoder v1.onnx", "models/encoder.onnx")
    repository.commit({})
    said = repository.refusal("HEAD~1", "models/encoder.onnx")
    assert "models/encoder.onnx was not in the commit HEAD~1" in said
    assert "There were: models/encoder v1.onnx, z.onnx." in said
    assert "`git cat-file --filters 'HEAD~1:models/encoder v1.onnx' > old.onnx`" in said


def test_a_folder_at_the_place_of_the_model_is_refused(repository: Repository) -> None:
    repository.commit({"m.onnx/x": b"1"})
    shutil.rmtree(repository.path / "m.onnx")
    repository.commit({"m.onnx": model(1)})
    assert "not a file in HEAD~1" in repository.refusal("HEAD~1")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("mian", "Did you mean main?"),
        ("feature", "There is origin/feature: give origin/feature."),
        ("feature~1", "give origin/feature~1."),
        ("HEAD:m.onnx", "Give HEAD alone"),
        ("HEAD~9", "There is HEAD: `git log --oneline HEAD` lists its commits."),
        ("q", "`git branch --all` and `git tag`"),
        ("^HEAD", "neither a path that exists nor a commit"),
        ("HEAD^{tree}", "neither a path that exists nor a commit"),
        ("main..main", "neither a path that exists nor a commit"),
        ("old/m.onnx", "neither a path that exists nor a commit"),
        ("a\nb\x1b[31m", "names a\\nb\\x1b[31m, which"),
        ("0123456789012345678901234567890123456789", "nor a commit"),
        ("x" * 5000, "nor a commit"),
    ],
)
def test_an_unknown_ref_is_refused_with_what_to_type(
    repository: Repository, text: str, advice: str
) -> None:
    repository.commit({"m.onnx": model(1)})
    repository.git("update-ref", "refs/remotes/origin/feature", "HEAD")
    assert advice in repository.refusal(text)
    with pytest.raises(UsageError) as caught:
        check_against(text, repository.path)
    assert advice in str(caught.value)


@pytest.mark.parametrize("text", ["-x", "--help", "--output=stolen", "a\0b", "", "  "])
def test_text_that_git_could_take_for_an_option_never_reaches_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    repository.commit({"m.onnx": model(1)})

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a program was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert "HEAD~1 or old.onnx" in repository.refusal(text)
    with pytest.raises(UsageError):
        check_against(text, repository.path)


def test_a_shallow_clone_says_how_to_get_the_rest(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"m.onnx": model(1)})
    repository.commit({"m.onnx": model(2)})
    url = repository.path.as_uri()
    repository.git("clone", "--quiet", "--depth=1", url, str(tmp_path / "shallow"))
    shallow = Repository(tmp_path / "shallow")
    assert shallow.taken("HEAD") == model(2)
    said = shallow.refusal("HEAD~1")
    assert "`git fetch --unshallow origin`" in said
    assert "`fetch-depth: 0`" in said
    shallow.git("fetch", "--quiet", "--unshallow", "origin")
    assert shallow.taken("HEAD~1") == model(1)


def test_a_missing_repository_is_reported(tmp_path: Path) -> None:
    folder = Repository(tmp_path)
    (tmp_path / "m.onnx").write_bytes(model(1))
    assert "is in no git repository" in folder.refusal("HEAD~1")
    with pytest.raises(
        UsageError, match=r"HEAD~1 is not an existing path, and .* no git repository"
    ):
        check_against("HEAD~1", tmp_path)


def test_a_repository_of_another_user_says_how_to_trust_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"m.onnx": model(1)})
    # Settings of git's own tests.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    said = repository.refusal("HEAD")
    assert f"git config --global --add safe.directory {repository.path.resolve()}`" in said


def test_a_missing_git_is_reported_only_if_it_is_needed(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"m.onnx": model(2)})
    (repository.path / "old.onnx").write_bytes(model(1))
    monkeypatch.setenv("PATH", "/nowhere")
    assert "git is not installed" in repository.refusal("HEAD")
    assert repository.taken("old.onnx") == model(1)


def test_a_git_that_does_not_answer_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch, git="/bin/sleep 1000 & wait")
    with pytest.raises(UsageError, match=r"`git status` did not end within 0\.01 s"):
        ask_git(tmp_path, "status", seconds=0.01)


POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """A PATH of shell scripts, and of nothing else."""
    place = folder / "programs"
    place.mkdir()
    for name, script in scripts.items():
        path = place / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(place))


def test_a_pointer_without_git_lfs_says_what_to_install(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"m.onnx": POINTER})
    programs(tmp_path, monkeypatch, git=f'exec "{REAL_GIT}" "$@"')
    said = repository.refusal("HEAD")
    assert "m.onnx of HEAD" in said
    assert "Install git-lfs, then run `git lfs fetch origin HEAD`" in said


def test_a_pointer_becomes_its_file_if_no_filter_is_set_up(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"m.onnx": POINTER})
    (tmp_path / "stored").write_bytes(model(4))
    # It may only be asked with the pointer, and never with the order to leave it.
    answer = f'read first; test "$first" = "version https://git-lfs.github.com/spec/v1" || exit 3;\
        test -z "$GIT_LFS_SKIP_SMUDGE" || exit 4; exec /bin/cat "{tmp_path / "stored"}"'
    programs(tmp_path, monkeypatch, git=f'exec "{REAL_GIT}" "$@"', git_lfs=answer)
    monkeypatch.setenv("GIT_LFS_SKIP_SMUDGE", "1")
    assert repository.taken("HEAD") == model(4)


@pytest.mark.parametrize("filtered", [False, True])
def test_a_file_that_git_lfs_cannot_get_says_what_to_fetch(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, filtered: bool
) -> None:
    repository.commit({"m.onnx": POINTER})
    if filtered:
        repository.commit({".gitattributes": b"*.onnx filter=lfs\n"})
        repository.git("config", "filter.lfs.smudge", "git-lfs smudge -- %f")
        repository.git("config", "filter.lfs.required", "true")
    refusal = "echo 'Error downloading object: m.onnx: EOF' >&2; echo 'Use logs' >&2; exit 2"
    programs(tmp_path, monkeypatch, git=f'exec "{REAL_GIT}" "$@"', git_lfs=refusal)
    said = repository.refusal("HEAD")
    assert "Run `git lfs fetch origin HEAD`" in said
    assert "only the pointer to it (Error downloading object: m.onnx: EOF)" in said


@pytest.mark.parametrize("message", ["git-lfs: not found", "git-lfs: command not found"])
def test_a_filter_whose_shell_does_not_find_git_lfs_is_reported_as_missing(
    repository: Repository, message: str
) -> None:
    """Shells differ: dash says the first, bash the second."""
    repository.commit({"m.onnx": POINTER, ".gitattributes": b"*.onnx filter=lfs\n"})
    repository.git("config", "filter.lfs.smudge", f"echo 'sh: 1: {message}' >&2; exit 127")
    repository.git("config", "filter.lfs.required", "true")
    assert "which is not installed" in repository.refusal("HEAD")


def test_external_data_may_be_a_pointer_too(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"m.onnx": split_model("w.bin"), "w.bin": POINTER})
    programs(tmp_path, monkeypatch, git=f'exec "{REAL_GIT}" "$@"', git_lfs="printf weights")
    with older_version("HEAD", repository.path / "m.onnx", repository.path) as path:
        assert (path.parent / "w.bin").read_bytes() == b"weights"


def test_the_path_of_a_file_is_the_older_version_itself_and_stays(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model(2))
    (tmp_path / "old.onnx").write_bytes(model(1))
    check_against("old.onnx", tmp_path)
    with older_version("old.onnx", tmp_path / "m.onnx", tmp_path) as path:
        assert path == tmp_path / "old.onnx"
    assert path.is_file()


def test_a_path_goes_before_a_ref_and_the_ref_has_another_name(repository: Repository) -> None:
    repository.commit({"models/m.onnx": model(1)})
    repository.git("branch", "old")
    repository.commit({"models/m.onnx": model(2), "old/models/m.onnx": model(3)})
    assert repository.taken("old", "models/m.onnx") == model(3)
    assert repository.taken("refs/heads/old", "models/m.onnx") == model(1)


def test_a_path_is_seen_from_here_before_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    put(root, {"m.onnx": model(0), "old.onnx": model(1), "here/old.onnx": model(2)})
    monkeypatch.chdir(root / "here")
    assert Repository(root).taken("old.onnx") == model(2)
    monkeypatch.chdir(tmp_path)
    assert Repository(root).taken("old.onnx") == model(1)


@pytest.mark.parametrize("place", ["old/models/m.onnx", "old/m.onnx"])
def test_in_a_folder_the_model_is_at_the_same_path_or_has_the_same_name(
    tmp_path: Path, place: str
) -> None:
    put(tmp_path, {"root/models/m.onnx": model(2), place: model(1)})
    assert Repository(tmp_path / "root").taken(str(tmp_path / "old"), "models/m.onnx") == model(1)


@pytest.mark.parametrize("other", ["m.onnx", "b/m.onnx"])
def test_a_name_that_two_models_have_is_not_enough(tmp_path: Path, other: str) -> None:
    root = Repository(tmp_path)
    put(tmp_path, dict.fromkeys(("a/m.onnx", other, "old/m.onnx"), model(1)))
    said = root.refusal("old", "a/m.onnx")
    assert str(tmp_path / other) in said
    assert f"Put it at {tmp_path / 'old/a/m.onnx'}" in said


@pytest.mark.parametrize("copy", ["build/m.onnx", ".cache/m.onnx", "env/x/m.onnx", "old/b/m.onnx"])
def test_copies_make_no_name_ambiguous(tmp_path: Path, copy: str) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env/pyvenv.cfg").touch()
    put(tmp_path, {"a/m.onnx": model(1), copy: model(1), "old/m.onnx": model(3)})
    assert Repository(tmp_path).taken("old", "a/m.onnx") == model(3)


def test_a_folder_without_the_model_says_what_it_has(tmp_path: Path) -> None:
    put(tmp_path, dict.fromkeys(("models/m.onnx", "old/n.onnx"), model(1)))
    said = Repository(tmp_path).refusal("old", "models/m.onnx")
    assert "which does not contain models/m.onnx or m.onnx." in said
    assert f"There are: {tmp_path / 'old/n.onnx'}." in said
    assert "If you mean the branch of that name, type refs/heads/old." in said


@pytest.mark.parametrize("text", ["m.onnx", ".", "link/m.onnx"])
def test_the_model_is_not_older_than_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(model(1))
    (tmp_path / "link").symlink_to(tmp_path)
    assert "names the model" in Repository(tmp_path).refusal(text)
