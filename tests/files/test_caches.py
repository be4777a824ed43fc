"""Where the caches of a user lie, on each system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.store import FOLDER_VARIABLE, user_cache_folder


def test_where_the_caches_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_a_user_without_a_home_folder_is_told_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    with pytest.raises(UsageError, match=FOLDER_VARIABLE):
        user_cache_folder({}, "linux")
    assert user_cache_folder({FOLDER_VARIABLE: "/own"}, "linux") == Path("/own")
