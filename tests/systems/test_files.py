"""Locks and links of each system: the interface is the same on each."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_modelperf.systems.files import Files, WindowsFiles

if sys.platform != "linux":
    pytest.skip("the stand-in for Windows takes locks of Linux", allow_module_level=True)

from pytest_modelperf.systems.posix import PosixFiles
from tests.support.other_system.sitecustomize import lock_bytes


def windows_files() -> WindowsFiles:
    return WindowsFiles(SimpleNamespace(locking=lock_bytes, LK_NBLCK=2))


@pytest.fixture(params=[PosixFiles, windows_files], ids=["posix", "windows"])
def files(request: pytest.FixtureRequest) -> Files:
    made: Files = request.param()
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"content")
    return tmp_path / "file"


def test_a_lock_is_held_by_one_and_free_when_it_is_closed(files: Files, path: Path) -> None:
    first, second = files.open(path, os.O_RDWR), files.open(path, os.O_RDWR)
    assert files.take_lock(first)
    assert not files.take_lock(second)
    os.close(first)
    assert files.take_lock(second)
    os.close(second)


def test_a_lock_moves_nothing_of_what_is_written(files: Files, path: Path) -> None:
    handle = files.open(path, os.O_RDWR)
    os.write(handle, b"CON")
    assert files.take_lock(handle)
    os.write(handle, b"TENT")
    os.close(handle)
    assert path.read_bytes() == b"CONTENT"


def test_a_link_is_not_followed(files: Files, path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="link") as refused:
        files.open(tmp_path / "link", os.O_RDONLY)
    assert refused.value.errno == errno.ELOOP


def test_a_python_without_locks_says_so(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    with pytest.raises(OSError, match="has no file locks") as refused:
        WindowsFiles(None).take_lock(handle)
    assert refused.value.errno == errno.ENOLCK
    assert not WindowsFiles(None).has_locks
    os.close(handle)
