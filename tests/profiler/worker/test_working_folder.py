"""Folders of temporary files: which process owns them, and what becomes of abandoned ones."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_modelperf.profiler.worker import working_folder as module
from pytest_modelperf.profiler.worker.working_folder import (
    WorkingFolder,
    leave_inherited,
    working_folder,
)

KILLED = f"""
import os, signal
from {module.__name__} import WorkingFolder

folder = WorkingFolder("killed")
(folder.path / "deep").mkdir()
(folder.path / "deep" / "file").touch()
print(folder.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, in which no folder was looked for yet."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    module._remove_abandoned.cache_clear()
    yield tmp_path
    module._remove_abandoned.cache_clear()


def age(folder: Path) -> Path:
    """The folder as if it had been there for an hour."""
    file = folder / module._HELD
    then = file.stat().st_mtime - 3600.0
    os.utime(file, (then, then))
    return folder


def make_abandoned(folder: Path) -> Path:
    folder.mkdir()
    (folder / module._HELD).touch()
    return age(folder)


def test_a_folder_goes_with_its_context(temporary: Path) -> None:
    with working_folder("twin") as folder:
        (folder / "file").touch()
        assert folder.parent == temporary
        assert folder.name.startswith("modelperf-twin-")
    assert not list(temporary.iterdir())


def test_the_folder_of_a_process_that_was_killed_goes_with_the_next(temporary: Path) -> None:
    command = [sys.executable, "-c", KILLED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = age(Path(done.stdout.strip()))
    with working_folder("twin") as folder:
        assert not left.exists()
        assert list(temporary.iterdir()) == [folder]


def test_a_folder_in_use_stays_however_old(temporary: Path) -> None:
    one = WorkingFolder("one")
    age(one.path)
    module._remove_abandoned.cache_clear()
    with working_folder("two"):
        assert one.path.exists()
    one.remove()
    one.remove()
    assert not list(temporary.iterdir())


def test_a_folder_that_may_be_new_stays(temporary: Path) -> None:
    new = temporary / "modelperf-new-1"
    new.mkdir()
    (new / module._HELD).touch()
    with working_folder("twin"):
        assert new.exists()


def test_a_folder_that_is_not_ours_stays_whatever_its_name_is(temporary: Path) -> None:
    somebodys = temporary / "modelperf-results"
    somebodys.mkdir()
    (somebodys / "figures.json").touch()
    target = make_abandoned(temporary / "target")
    (temporary / "modelperf-link-1").symlink_to(target)
    (temporary / "modelperf-file-1").touch()
    for path in temporary.iterdir():
        os.utime(path, (0, 0), follow_symlinks=False)
    before = sorted(temporary.rglob("*"))
    with working_folder("twin") as folder:
        found = set(temporary.rglob("*")) - {folder, folder / module._HELD}
    assert sorted(found) == before


def test_a_process_that_was_forked_leaves_the_folder_to_its_owner() -> None:
    folder = WorkingFolder("forked")
    child = os.fork()
    if child == 0:
        folder.remove()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert folder.path.exists()
    folder.remove()
    assert not folder.path.exists()


def test_a_process_that_was_forked_can_leave_what_it_has_open_there(tmp_path: Path) -> None:
    folder = WorkingFolder("forked")
    with (folder.path / "in").open("w") as inside, (tmp_path / "out").open("w") as outside:
        child = os.fork()
        if child == 0:
            leave_inherited(folder.path)
            for file in (inside, outside):
                file.write("child ")
                file.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        for file in (inside, outside):
            file.write("parent")
    assert (folder.path / "in").read_text() == "parent"
    assert (tmp_path / "out").read_text() == "child parent"
    folder.remove()


def test_a_system_that_removes_no_open_file_removes_both_folders(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows, a file stays as long as it is open."""
    remove = shutil.rmtree

    def remove_unless_open(folder: Path, *, ignore_errors: bool) -> None:
        places = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
        if not any(Path(place).is_relative_to(folder) for place in places):
            remove(folder, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", remove_unless_open)
    make_abandoned(temporary / "modelperf-old-1")
    with working_folder("new"):
        pass
    assert not list(temporary.iterdir())


def test_places_are_looked_at_once(temporary: Path) -> None:
    with working_folder("one"):
        pass
    late = make_abandoned(temporary / "modelperf-late-1")
    with working_folder("two"):
        assert late.exists()
