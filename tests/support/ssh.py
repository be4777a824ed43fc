"""A program in the place of ssh: it runs the command here, as another host would there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HOST = f"ssh=another-host//python={sys.executable}"
_RUNS_THE_COMMAND = 'for command; do :; done\nexec sh -c "$command"'


def put_in_place_of_ssh(
    folder: Path, monkeypatch: pytest.MonkeyPatch, program: str = _RUNS_THE_COMMAND
) -> None:
    """Have `ssh` run a program of the shell, which is written into a folder."""
    path = folder / "ssh"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
