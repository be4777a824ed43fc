"""Commands as a user types them: a shell, where our programs are installed and no other plugin."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tests.support.command import environment

Type: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


def options_within(seconds: float) -> str:
    """The options of pytest that load our plugin, and let a case take so long."""
    return f"-p pytest_modelperf.plugin --modelperf-max-seconds={seconds}"


def make_shell(place: Path) -> Type:
    """Return a function that types commands in `folder`s; `place` is for programs and files."""
    programs = place / "bin"
    programs.mkdir()
    for name, module in (
        ("python", ""),
        ("pytest", "-m pytest"),
        ("modelperf", "-m pytest_modelperf"),
    ):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module} "$@"\n')
        program.chmod(0o755)
    temporary = place / "tmp"
    temporary.mkdir()

    def run(command: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
        settings = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(temporary),
            "COLUMNS": "80",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": options_within(0.5),
        }
        return subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env=environment({**settings, **more}),
            capture_output=True,
            text=True,
            check=False,
        )

    return run
