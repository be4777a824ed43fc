"""The path of the lock of the machine."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.worker.lock import LOCK_VARIABLE, lock_path


def test_the_lock_reports_that_no_temporary_file_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.delenv(LOCK_VARIABLE, raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", find_none)
    with pytest.raises(MeasureError, match="set TMPDIR"):
        lock_path(tmp_path / "missing")
