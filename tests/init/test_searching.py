"""The search for models takes those of the project, and says what it leaves out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.init.records import ModelSearch, Project
from pytest_modelperf.init.surveying import find_models, find_project, why_no_model
from tests.support.project import DENSE, write_dense
from tests.support.repository import git, needs_git
from tests.support.small_models import ones, parse, save_beside

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"
FOREIGN = (
    ".cache/a.onnx", ".venv/lib/a.onnx", "build/a.onnx", "env/lib/site-packages/a.onnx",
    "node_modules/deep/a.onnx", "src/__pycache__/a.onnx", "x.egg-info/a.onnx",
    "baselines/a/b.onnx",
)  # fmt: skip


def search(root: Path, *places: str) -> ModelSearch:
    project = Project(root=root, reason="")
    return find_models(project, [root / each for each in places] or [root], root / "baselines")


def reasons(found: ModelSearch) -> dict[str, str]:
    return {remark.path: remark.reason for remark in found.remarks}


@pytest.mark.parametrize("path", FOREIGN)
def test_a_model_of_a_tool_or_a_package_is_left_out(tmp_path: Path, path: str) -> None:
    write_dense(tmp_path / path)
    write_dense(tmp_path / "models" / "own.onnx")
    assert search(tmp_path).models == ("models/own.onnx",)


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "CACHEDIR.TAG", ".git"])
def test_a_folder_is_left_out_by_what_it_has_inside(tmp_path: Path, mark: str) -> None:
    write_dense(tmp_path / "other" / "deep" / "a.onnx")
    (tmp_path / "other" / mark).touch()
    found = search(tmp_path)
    assert found.models == ()
    assert found.skipped == ("other",)


def test_a_twin_of_another_project_is_left_out(tmp_path: Path) -> None:
    write_dense(tmp_path / "sub" / "kept" / "a" / "twin.onnx")
    (tmp_path / "sub" / "kept" / "a" / "model.json").touch()
    write_dense(tmp_path / "twin.onnx")
    assert search(tmp_path).models == ("twin.onnx",)


def test_a_file_that_was_named_is_taken_from_a_skipped_folder(tmp_path: Path) -> None:
    write_dense(tmp_path / "build" / "a.onnx")
    write_dense(tmp_path / "b.onnx")
    assert search(tmp_path, "build/a.onnx").models == ("build/a.onnx",)
    assert search(tmp_path, "build").models == ("build/a.onnx",)


def test_a_place_must_be_there_and_in_the_project(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_dense(tmp_path / "out" / "a.onnx")
    with pytest.raises(UsageError, match=r"there is no file or folder .*absent\.onnx"):
        search(tmp_path, "absent.onnx")
    with pytest.raises(UsageError, match="is outside the project"):
        search(tmp_path / "in", "../out/a.onnx")


def test_a_file_that_is_not_a_model_is_reported_in_one_line(tmp_path: Path) -> None:
    write_dense(tmp_path / "good.onnx")
    (tmp_path / "text.onnx").write_text("hello\n")
    (tmp_path / "pointer.onnx").write_text(POINTER)
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "gone.onnx").symlink_to("nowhere.onnx")
    (tmp_path / "loop.onnx").symlink_to("loop.onnx")
    (tmp_path / "up.onnx").symlink_to("..", target_is_directory=True)
    os.mkfifo(tmp_path / "pipe.onnx")
    (tmp_path / "folder.onnx").mkdir()
    found = search(tmp_path)
    assert found.models == ("good.onnx",)
    assert reasons(found) == {
        "empty.onnx": "it is empty",
        "gone.onnx": "it is a broken link",
        "loop.onnx": "it cannot be read: Too many levels of symbolic links",
        "pipe.onnx": "it cannot be read: Not a file",
        "pointer.onnx": "it is a Git LFS pointer, not the model: run git lfs pull",
        "text.onnx": "it is not an ONNX model but a text",
        "up.onnx": "it cannot be read: Is a directory",
    }


def test_the_external_weights_of_a_model_must_exist(tmp_path: Path) -> None:
    model = parse(DENSE.format(width=5), weights={"w": ones(3, 5)})
    path = tmp_path / "large.onnx"
    data = save_beside(model, path, "large.onnx.data")
    assert why_no_model(path) is None
    data.write_text(POINTER)
    assert why_no_model(path) is not None or data.stat().st_size >= 60
    data.write_text(POINTER[:40])
    assert why_no_model(path) == (
        "its weights in large.onnx.data are a Git LFS pointer: run git lfs pull"
    )
    data.unlink()
    reason = why_no_model(path)
    assert reason is not None
    assert "which is not there" in reason


def test_a_link_to_a_model_of_the_project_does_not_count_as_a_second_model(tmp_path: Path) -> None:
    write_dense(tmp_path / "project" / "b.onnx")
    write_dense(tmp_path / "store" / "c.onnx")
    (tmp_path / "project" / "a.onnx").symlink_to("b.onnx")
    (tmp_path / "project" / "c.onnx").symlink_to("../store/c.onnx")
    assert search(tmp_path / "project").models == ("b.onnx", "c.onnx")


def test_links_between_folders_end(tmp_path: Path) -> None:
    write_dense(tmp_path / "a" / "model.onnx")
    (tmp_path / "a" / "up").symlink_to("..", target_is_directory=True)
    assert search(tmp_path).models == ("a/model.onnx",)


def test_a_name_that_no_table_can_have_is_reported(tmp_path: Path) -> None:
    source = write_dense(tmp_path / "a.onnx")
    try:
        shutil.copy(os.fsencode(source), os.fsencode(tmp_path) + b"/\xff.onnx")
    except OSError:
        pytest.skip("this file system takes no such name")
    found = search(tmp_path)
    assert found.models == ("a.onnx",)
    assert [remark.reason for remark in found.remarks] == [
        "its name is not UTF-8, so no table can name it: rename it"
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    write_dense(tmp_path / "closed" / "a.onnx")
    write_dense(tmp_path / "b.onnx")
    (tmp_path / "closed").chmod(0)
    found = search(tmp_path)
    (tmp_path / "closed").chmod(0o700)
    assert found.models == ("b.onnx",)
    assert reasons(found) == {"closed": "the folder cannot be read: Permission denied"}


@needs_git
def test_git_decides_what_belongs_to_the_project(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    for name in ("own.onnx", "scratch/new.onnx", "scratch/kept.onnx"):
        write_dense(tmp_path / name)
    (tmp_path / ".gitignore").write_text("/scratch/\n")
    git(tmp_path, "add", "--force", "scratch/kept.onnx")
    project = find_project(tmp_path)
    found = find_models(project, [tmp_path], tmp_path / "baselines")
    assert found.models == ("own.onnx", "scratch/kept.onnx")
    assert "git ignores it" in reasons(found)["scratch/new.onnx"]
    named = find_models(project, [tmp_path / "scratch/new.onnx"], tmp_path / "baselines")
    assert named.models == ("scratch/new.onnx",)


def test_thousands_of_files_are_gone_through(tmp_path: Path) -> None:
    for number in range(40):
        folder = tmp_path / f"data{number}"
        folder.mkdir()
        for each in range(100):
            (folder / f"{each}.txt").touch()
    write_dense(tmp_path / "data7" / "deep" / "a.onnx")
    found = search(tmp_path)
    assert found.models == ("data7/deep/a.onnx",)
    assert found.folders == 42
