"""`modelperf baselines`: the list, the changes since a commit, and the error messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.baselines.changes import plan_update
from pytest_modelperf.baselines.store import BaselineStore
from tests.support.baseline_writer import NAME, make_recording
from tests.support.command import refusal, run
from tests.support.repository import git, needs_git


def put(name: str, version: int = 1, folder: str = "baselines") -> None:
    store = BaselineStore(Path(folder))
    recording = replace(make_recording(version=version), name=name)
    store.apply(plan_update(store.read(name), recording))


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two baselines that is not a repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("pyproject.toml").write_text("[tool.modelperf]\n", encoding="utf-8")
    put(NAME)
    put("decoder")
    return tmp_path


@pytest.fixture
def repository(project: Path) -> Path:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "all")
    return project


def test_baselines_are_listed() -> None:
    result = run("baselines")
    assert result.exit_code == 0
    assert result.out == snapshot("""\
2 baselines in baselines

folder           model         sha256        cases  MACs  params  recorded
────────────────────────────────────────────────────────────────────────────
decoder          encoder.onnx  6b86b273ff34  b1-c1   900      70  2026-01-31
models--encoder  encoder.onnx  6b86b273ff34  b1-c1   900      70  2026-01-31
""")


def test_the_list_as_json() -> None:
    document = json.loads(run("baselines", "--json", "-").out)
    assert document["folder"] == "baselines"
    assert [each["name"] for each in document["baselines"]] == ["decoder", NAME]
    assert document["baselines"][0]["cases"][0]["macs"] == 900


def test_the_folder_is_that_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("pyproject.toml").write_text('[tool.modelperf]\nbaseline_dir = "kept"\n', encoding="utf-8")
    put("other", folder="kept")
    assert run("baselines").out.startswith("1 baseline in kept\n")
    assert run("baselines", "--dir", "baselines").out.startswith("2 baselines in baselines\n")
    Path("deep").mkdir()
    monkeypatch.chdir("deep")
    assert "other" in run("baselines").out


def test_the_folder_of_the_project_may_be_in_the_home_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd() / "home"))
    Path("pyproject.toml").write_text('[tool.modelperf]\nbaseline_dir = "~/kept"\n', "utf-8")
    put("other", folder="home/kept")
    assert run("baselines").out.startswith("1 baseline in home/kept\n")


def test_a_folder_that_is_not_text_gives_the_same_error_as_in_a_run() -> None:
    Path("pyproject.toml").write_text("[tool.modelperf]\nbaseline_dir = 5\n", "utf-8")
    result = run("baselines")
    assert (result.exit_code, result.out) == (2, "")
    assert result.err == snapshot(
        "Error: pyproject.toml, [tool.modelperf]: baseline_dir takes a text, not 5.\n"
    )


def test_the_list_as_csv_has_a_row_for_each_case() -> None:
    header, row, _ = run("baselines", "--csv", "-").out.splitlines()
    assert header == "folder,model,sha256,case,macs,params,date"
    assert row.startswith("decoder,encoder.onnx,6b86b273")
    assert row.endswith(",b1-c1,900,70,2026-01-31")


@needs_git
@pytest.mark.usefixtures("repository")
def test_a_diff_as_csv_has_a_row_for_each_figure() -> None:
    put("decoder", version=2)
    rows = run("baselines", "--diff", "main", "--csv", "-").out.splitlines()
    assert rows[0] == "folder,status,case,machine,figure,before,after,ratio"
    assert "decoder,changed,b1-c1,,macs,900,1800,2.0" in rows


@needs_git
@pytest.mark.usefixtures("repository")
def test_a_diff_has_a_line_for_each_change_and_exits_with_0() -> None:
    put("decoder", version=2)
    put("third")
    result = run("baselines", "--diff", "main")
    assert result.exit_code == 0
    first, *lines = result.out.splitlines()
    assert first.startswith("2 of 3 baselines in baselines changed since main (")
    assert [line.split(":")[0] for line in lines] == ["changed decoder", "new third"]


@needs_git
def test_a_diff_as_json(repository: Path) -> None:
    put("decoder", version=2)
    document = json.loads(run("baselines", "--diff", "main", "--json", "-").out)
    assert document["commit"] == git(repository, "rev-parse", "main")
    assert document["unchanged"] == 1
    (decoder,) = document["baselines"]
    assert (decoder["status"], decoder["is_same_model"]) == ("changed", False)
    macs = next(each for each in decoder["changes"] if each["name"] == "macs")
    assert (macs["before"], macs["after"], macs["ratio"]) == (900, 1800, 2.0)


@needs_git
@pytest.mark.usefixtures("repository")
def test_a_broken_baseline_ends_with_2_and_the_others_are_shown() -> None:
    (Path("baselines") / NAME / "model.json").write_text("{", encoding="ascii")
    put("decoder", version=2)
    for arguments in ((), ("--diff", "main")):
        result = run("baselines", *arguments)
        assert result.exit_code == 2
        assert "decoder" in result.out
        assert f"broken {NAME}: baselines/{NAME}/model.json" in result.out


@needs_git
@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("arguments", [(), ("--diff", "main")])
def test_no_folder_is_an_error(arguments: tuple[str, ...]) -> None:
    assert "there is no folder base" in refusal("baselines", "--dir", "base", *arguments)


def test_a_folder_in_no_repository_is_an_error() -> None:
    assert "in no git repository" in refusal("baselines", "--diff", "main")


@needs_git
@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("ref", ["mian", "-q", "baselines"])
def test_an_unknown_ref_is_an_error(ref: str) -> None:
    assert "--diff names" in refusal("baselines", f"--diff={ref}")


def test_without_git_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "git is not installed" in refusal("baselines", "--diff", "main")
