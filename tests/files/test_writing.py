"""Where files can be made, as far as that can be told before anything is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_modelperf.files.writing import find_closed


def test_a_folder_that_is_not_there_yet_can_be_made(tmp_path: Path) -> None:
    assert find_closed(tmp_path) is None
    assert find_closed(tmp_path / "new" / "folder") is None


def test_whatever_takes_no_file_is_named(tmp_path: Path) -> None:
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
