"""Commits of a real repository: which of them are versions of a model, and which one is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto

from pytest_modelperf.bisect.versions import commits_between
from pytest_modelperf.errors import UsageError
from tests.support.command import Result, run
from tests.support.repository import git, needs_git
from tests.support.small_models import ones, parse
from tests.support.stored_programs import isolate_git

pytestmark = needs_git

MODEL = "g (float[2,16] x) => (float[2,8] y) { [product] y = MatMul(x, w) }"
# Time enough on a busy machine: it is over with the answer.
TIMED = ("--plugin", "tests.support.faulty_plugin", "--engine", "timed", "--max-seconds", "30")


class Repository:
    """A repository with one model in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "models").mkdir(parents=True)
        git(path, "init", "--quiet", "--initial-branch=main")

    @property
    def model(self) -> Path:
        return self.path / "models" / "m.onnx"

    def commit(self, title: str, files: dict[str, bytes | None]) -> str:
        """Writes the files, or removes those without content; returns the id of the commit."""
        for name, content in files.items():
            path = self.path / name
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
        git(self.path, "add", "--all")
        git(self.path, "commit", "--quiet", "--allow-empty", "--message", title)
        return git(self.path, "rev-parse", "HEAD")

    def change(self, title: str, microseconds: int, weight: float = 1.0) -> str:
        return self.commit(title, {"models/m.onnx": timed(microseconds, weight)})


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    isolate_git(tmp_path, monkeypatch)
    made = Repository(tmp_path / "repository")
    monkeypatch.chdir(made.path)
    return made


def timed(microseconds: int, weight: float = 1.0) -> bytes:
    """A model that says how long the engine of the tests takes for it."""
    proto = parse(MODEL, weights={"w": weight * ones(16, 8)})
    proto.doc_string = f"takes {microseconds} us"
    return proto.SerializeToString()


def split(name: str) -> bytes:
    """A model whose weight is in another file."""
    proto = parse(MODEL, weights={"w": ones(16, 8)})
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=name)
    return proto.SerializeToString()


def bisected(commits: str, *more: str) -> tuple[Result, dict[str, Any]]:
    result = run("bisect", "models/m.onnx", *TIMED, "--commits", commits, "--json", "-", *more)
    assert result.out, result.err
    document: dict[str, Any] = json.loads(result.out)
    return result, document


def refusal(commits: str, model: str = "models/m.onnx") -> str:
    with pytest.raises(UsageError) as caught:
        commits_between(model, commits)
    return str(caught.value)


# -- which commits are versions


SIGNER = """#!/bin/sh
case "$*" in
*--verify*) echo "[GNUPG:] GOODSIG 0 a" ;;
*) cat > /dev/null; echo "-----BEGIN PGP SIGNATURE-----"; echo "[GNUPG:] SIG_CREATED " >&2 ;;
esac
echo "gpg: signed" >&2
"""


def test_signatures_and_encodings_that_git_is_set_to_are_not_read(
    repository: Repository, tmp_path: Path
) -> None:
    signer = tmp_path / "signer"
    signer.write_text(SIGNER)
    signer.chmod(0o755)
    first = repository.change("zuerst", 200)
    repository.change("größer", 300)
    for name, value in (
        ("gpg.program", str(signer)), ("log.showSignature", "true"),
        ("i18n.logOutputEncoding", "latin1"),
    ):  # fmt: skip
        git(repository.path, "config", name, value)
    git(repository.path, "commit", "--quiet", "--amend", "--no-edit", "--gpg-sign=a")
    last = git(repository.path, "rev-parse", "HEAD")
    found = commits_between("models/m.onnx", f"{first}..HEAD").versions
    assert [(each.name, each.title) for each in found] == [(first, "zuerst"), (last, "größer")]


def test_only_commits_that_changed_the_model_are_versions(repository: Repository) -> None:
    repository.change("first", 200)
    git(repository.path, "tag", "v1")
    slow = repository.change("slow", 300)
    repository.commit("prose", {"README": b"text"})
    fast = repository.change("fast again", 200, 2.0)
    found = commits_between("models/m.onnx", "v1..HEAD")
    assert [(each.title, each.name) for each in found.versions[1:]] == [
        ("slow", slow),
        ("fast again", fast),
    ]
    assert found.good.title == "first"
    assert found.notes == ("2 of 3 commits changed the model",)


def test_a_merge_represents_its_branch(repository: Repository) -> None:
    start = repository.change("first", 200)
    git(repository.path, "checkout", "--quiet", "-b", "work")
    repository.change("one", 210)
    repository.change("two", 220)
    git(repository.path, "checkout", "--quiet", "main")
    git(repository.path, "merge", "--quiet", "--no-ff", "--message", "merge work", "work")
    found = commits_between("models/m.onnx", f"{start}..main")
    assert [each.title for each in found.versions] == ["first", "merge work"]


def test_a_change_of_external_data_is_a_version(repository: Repository) -> None:
    data = ones(16, 8).tobytes()
    repository.commit("first", {"models/m.onnx": split("m.data"), "models/m.data": data})
    repository.commit("retrained", {"models/m.data": bytes(len(data))})
    found = commits_between("models/m.onnx", "HEAD~1..HEAD")
    assert [each.title for each in found.versions] == ["first", "retrained"]


def test_the_end_of_a_range_is_head_if_it_is_left_out(repository: Repository) -> None:
    start = repository.change("first", 200)
    last = repository.change("second", 300)
    assert commits_between("models/m.onnx", f"{start}..").bad.name == last


# -- what is found


@pytest.mark.slow
def test_the_commit_that_made_the_model_slower_is_found(repository: Repository) -> None:
    repository.change("first", 200)
    git(repository.path, "tag", "v1")
    for number in range(1, 4):
        repository.change(f"tune {number}", 200, 1.0 + number)
    guilty = repository.change("add a branch", 260)
    for number in range(1, 3):
        repository.change(f"more {number}", 260, 10.0 + number)
    result, document = bisected("v1..HEAD", "--html", "bisect.html")
    assert result.exit_code == 1
    assert f"git show {guilty}" in Path("bisect.html").read_text("utf-8")
    assert document["verdict"] == "regressed"
    (found,) = document["regressions"]
    assert found["first_bad"] == {"name": guilty, "title": "add a branch"}
    assert found["last_good"]["title"] == "tune 3"
    assert found["after"]["ratio"] == pytest.approx(1.3, rel=0.01)
    assert found["before"]["ratio"] == pytest.approx(1.0, rel=0.01)
    assert not found["gradual"]
    assert found["pair"]["ratio"] == pytest.approx(1.3, rel=0.01)
    assert found["comparison"]["verdict"] == "regressed"
    assert {step["against"] for step in document["steps"][:-1]} == {document["good"]["name"]}


@pytest.mark.slow
def test_two_commits_are_found_one_after_the_other(repository: Repository) -> None:
    repository.change("first", 200)
    for number, (title, time) in enumerate(
        [("same", 200), ("half", 240), ("same", 240), ("whole", 300), ("same", 300)]
    ):
        repository.change(f"{title} {number}", time, 2.0 + number)
    _, document = bisected("HEAD~5..HEAD", "--all")
    titles = [each["first_bad"]["title"] for each in document["regressions"]]
    assert titles == ["half 1", "whole 3"]
    assert document["all"]


def test_a_commit_without_the_model_is_stepped_around(repository: Repository) -> None:
    repository.change("first", 200)
    repository.commit("remove", {"models/m.onnx": None})
    guilty = repository.change("bring back", 300)
    result, document = bisected("HEAD~2..HEAD")
    assert result.exit_code == 1
    (found,) = document["regressions"]
    assert found["first_bad"]["name"] == guilty
    assert len(found["between"]) == 1
    (failed,) = (step for step in document["steps"] if step["answer"] == "failed")
    assert "models/m.onnx was not in" in failed["failure"]


def test_the_same_model_at_both_ends_is_reported_without_a_run(repository: Repository) -> None:
    repository.change("first", 200)
    repository.change("slower", 300)
    repository.change("revert", 200)
    result, document = bisected("HEAD~2..HEAD")
    assert result.exit_code == 0
    assert document["verdict"] == "unchanged"
    assert document["steps"][0]["same_model"]


def test_the_report_names_the_commit_and_its_subject(repository: Repository) -> None:
    repository.change("first", 200)
    guilty = repository.change("add a branch", 260)
    result = run("bisect", "models/m.onnx", *TIMED, "--commits", "HEAD~1..HEAD")
    assert result.exit_code == 1
    first, *rest = result.out.splitlines()
    assert first == f"models/m.onnx b2-c1 on timed: slower since the commit {guilty[:10]}"
    assert any(line.strip() == f"commit {guilty[:10]}: add a branch" for line in rest)
    assert "wrong answer is at most 1 %" in result.out


def test_the_model_need_not_be_in_the_work_tree(repository: Repository) -> None:
    """It may be a pointer of Git LFS there, or be removed by now."""
    repository.change("first", 200)
    repository.change("slower", 300)
    repository.model.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    result, document = bisected("HEAD~1..HEAD")
    assert result.exit_code == 1
    assert document["case"] == "b2-c1"
    assert repository.model.read_bytes().startswith(b"version https")


# -- what is refused


def test_a_range_that_is_none_is_refused(repository: Repository) -> None:
    start = repository.change("first", 200)
    repository.commit("prose", {"README": b"text"})
    assert "takes a range such as v1.0..HEAD, not 'HEAD'" in refusal("HEAD")
    assert "takes a range" in refusal("HEAD~1...HEAD")
    assert "takes a range" in refusal("..HEAD")
    assert "no commit of the git repository" in refusal("v9..HEAD")
    assert "begins and ends with the commit" in refusal(f"{start}..HEAD~1")
    assert "no commit of HEAD~1..HEAD changed models/m.onnx" in refusal("HEAD~1..HEAD")
    assert "does not come before" in refusal("HEAD..HEAD~1")
    assert "other.onnx was not in" in refusal("HEAD~1..HEAD", "models/other.onnx")


def test_a_folder_that_is_not_a_repository_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(timed(200))
    said = refusal("v1..HEAD", str(model))
    assert said.startswith("--commits v1:")
    assert "modelperf compare old.onnx new.onnx" in said
    assert "--modelperf-against" not in said
