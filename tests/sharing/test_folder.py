"""The folder of a shared model."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.files.output import check_folder, write_folder
from pytest_modelperf.profiler.engines.source import BUILT_IN
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.sharing.making import require_shareable, write_share
from tests.support.full_disk import room_for
from tests.support.shares import make_share

_FILES = {"a.txt": b"first", "b.txt": b"second"}


def _read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_has_the_files(tmp_path: Path) -> None:
    write_folder(_FILES, str(tmp_path / "new"))
    assert _read(tmp_path / "new") == _FILES


def test_an_archive_has_the_files_in_a_folder_of_its_name_and_is_always_the_same(
    tmp_path: Path,
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    write_folder(_FILES, str(inner / ".." / "issue.zip"))
    write_folder(_FILES, str(inner / "issue.ZIP"))
    with zipfile.ZipFile(tmp_path / "issue.zip") as archive:
        assert {each.filename: archive.read(each) for each in archive.infolist()} == {
            f"issue/{name}": data for name, data in _FILES.items()
        }
    assert (tmp_path / "issue.zip").read_bytes() == (inner / "issue.ZIP").read_bytes()


@pytest.mark.parametrize("name", ["there", "there.zip"])
def test_an_existing_target_is_replaced_only_on_request(name: str, tmp_path: Path) -> None:
    target = str(tmp_path / name)
    write_folder({"a.txt": b"of before"}, target)
    with pytest.raises(UsageError, match="exists already: give --output another name, or --force"):
        check_folder(target, may_replace=False)
    check_folder(target, may_replace=True)
    write_folder(_FILES, target)
    if name == "there":
        assert _read(tmp_path / name) == _FILES


def test_a_dangling_link_counts_as_existing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError):
        check_folder(str(tmp_path / "link"), may_replace=False)


def test_a_missing_parent_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"there is no folder .*missing.*mkdir -p"):
        check_folder(str(tmp_path / "missing" / "new"), may_replace=False)


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match="it is not a folder"):
        check_folder(str(tmp_path / "file"), may_replace=True)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no place here refuses even root")
@pytest.mark.parametrize("name", ["new", "new.zip"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(name: str) -> None:
    with pytest.raises(OutputError, match=f"cannot write /proc/{name}"):
        check_folder(f"/proc/{name}", may_replace=False)


def test_a_folder_that_could_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        write_folder({"a.txt": b"first", "no/such/b.txt": b""}, str(tmp_path / "new"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_could_not_be_replaced_is_the_old_one(tmp_path: Path) -> None:
    old = {"a.txt": b"old", "b.txt": b"old"}
    write_folder(old, str(tmp_path))
    with room_for(1 << 10), pytest.raises(OutputError, match=r"cannot write .*b\.txt"):
        write_folder({"a.txt": b"new", "b.txt": bytes(1 << 12)}, str(tmp_path), stale=["a.txt"])
    assert _read(tmp_path) == old


def test_files_of_others_in_the_folder_stay_and_stale_weights_go(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "weights.bin").write_bytes(b"of another model")
    write_share(make_share(), str(tmp_path))
    assert sorted(_read(tmp_path)) == [
        "README.md", "model.onnx", "notes.txt", "run.json", "run.py", "share.json",
    ]  # fmt: skip


def test_other_engines_are_refused() -> None:
    with pytest.raises(UsageError, match="runs onnxruntime, not openvino"):
        require_shareable(Setup(engine=BUILT_IN["openvino"]))


@pytest.mark.parametrize("option", ["custom_ops", "provider.cache_dir"])
def test_files_of_this_machine_are_refused(option: str) -> None:
    with pytest.raises(UsageError, match=f"the option {option} names something of this machine"):
        require_shareable(Setup(options={option: "/opt/secret"}))
