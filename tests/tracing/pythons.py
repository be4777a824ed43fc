"""Pythons of their own, in which programs are traced: nothing is installed there, or the hook."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest_modelperf
from pytest_modelperf.tracing.hook import install_hook

PACKAGE = Path(pytest_modelperf.__file__).parent
# The packages of the tests: their `.pth` files are not read from here.
_PLACES = dict.fromkeys(
    [str(PACKAGE.parent), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
)
SEARCH_PATH = os.pathsep.join(_PLACES)


class Python:
    """An interpreter in a virtual environment of its own."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.executable = folder / "bin" / "python"
        (self.site_folder,) = folder.glob("lib/python*/site-packages")

    def run(
        self, folder: Path, *arguments: str, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.executable, *arguments],
            cwd=folder,
            env=environment(**variables),
            capture_output=True,
            text=True,
            check=False,
        )


def environment(**variables: str) -> dict[str, str]:
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("MODELPERF")},
        "PYTHONPATH": SEARCH_PATH,
        # The runtime's thread for it would have forked processes wait for ever as they exit.
        "ORT_DISABLE_TELEMETRY": "1",
        **variables,
    }


def hooked(folder: Path) -> Python:
    python = Python(folder)
    install_hook(python.site_folder)
    return python
