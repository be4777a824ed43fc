"""Files that are written in one step, the lock of a folder, and the folders that take files."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.files.store import (
    FOLDER_VARIABLE,
    LOCK_NAME,
    find_closed,
    locked,
    user_cache_folder,
    write_file,
)


def test_the_caches_are_in_the_folders_of_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache_folder({}, "linux") == tmp_path / ".cache" / "modelperf"
    assert user_cache_folder({}, "darwin") == tmp_path / "Library" / "Caches" / "modelperf"
    local = {"LOCALAPPDATA": "/users/a/local"}
    assert user_cache_folder(local, "win32") == Path("/users/a/local/modelperf")
    assert user_cache_folder(local, "linux") == user_cache_folder({}, "linux")
    named = {"XDG_CACHE_HOME": "/var/c"}
    assert user_cache_folder(named, "linux") == Path("/var/c/modelperf")
    assert user_cache_folder({"XDG_CACHE_HOME": "c"}, "linux") == user_cache_folder({}, "linux")
    assert user_cache_folder({**named, FOLDER_VARIABLE: "/own"}, "darwin") == Path("/own")


def test_without_a_home_folder_the_error_says_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    with pytest.raises(UsageError, match=FOLDER_VARIABLE):
        user_cache_folder({}, "linux")
    assert user_cache_folder({FOLDER_VARIABLE: "/own"}, "linux") == Path("/own")


def test_a_folder_that_is_not_there_yet_can_be_made(tmp_path: Path) -> None:
    assert find_closed(tmp_path) is None
    assert find_closed(tmp_path / "new" / "folder") is None


def test_the_path_that_takes_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    assert find_closed(tmp_path / "file") == tmp_path / "file"
    assert find_closed(tmp_path / "file" / "folder") == tmp_path / "file"
    assert find_closed(tmp_path / "link" / "folder") == tmp_path / "link"
    long = tmp_path / ("n" * 1000)
    assert find_closed(long) == long


def test_a_read_only_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)
    assert find_closed(tmp_path / "new") == tmp_path


def test_a_file_is_on_the_disk_before_its_name_is_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def watch(module: object, name: str) -> None:
        call = getattr(module, name)

        def watched(*arguments: Any) -> Any:  # noqa: ANN401  # of any function
            calls.append(name)
            return call(*arguments)

        monkeypatch.setattr(module, name, watched)

    for name in ("write", "fsync"):
        watch(os, name)
    watch(Path, "replace")
    write_file(tmp_path / "file", b"content")
    assert calls == ["write", "fsync", "replace", "fsync"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_lock_that_is_not_released_is_reported(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(OutputError, match="another process has been writing"),
        locked(tmp_path, seconds=0.0),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_whose_file_was_replaced_meanwhile_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that opened the file before its removal would share the lock with a newcomer."""
    path = tmp_path / LOCK_NAME
    lock = fcntl.flock
    newcomers: list[int] = []

    def replace_first(handle: int, operation: int) -> None:
        if not newcomers:
            path.unlink()
            newcomers.append(os.open(path, os.O_RDWR | os.O_CREAT))
            lock(newcomers[0], fcntl.LOCK_EX)
        lock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", replace_first)
    with (
        pytest.raises(OutputError, match="another process has been writing"),
        locked(tmp_path, seconds=0.0),
    ):
        pytest.fail("two hold the lock")
    os.close(newcomers[0])
