"""The command as the tests call it: inside of this process, or as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

import pytest_modelperf
from pytest_modelperf.cli import main
from tests.support.checkout import ROOT


class Result(NamedTuple):
    """The result of one call of the command."""

    exit_code: int
    out: str
    err: str


def run(*arguments: str, core: object = None) -> Result:
    """The command inside of this process; `core` stands in for the function that it calls."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stopped:
        main(arguments, prog_name="modelperf", obj=core)
    code = stopped.value.code
    return Result(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())


def refusal(*arguments: str) -> str:
    """Return the message of the command about input that it refuses."""
    result = run(*arguments)
    assert result.exit_code == 2
    return result.err


def spawn(*arguments: str) -> Result:
    """The command as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest_modelperf", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    return Result(done.returncode, done.stdout, done.stderr)


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "TERM")}
    # The package and the engines of the tests, which need not be in one place.
    package = Path(pytest_modelperf.__file__).parents[1]
    places = dict.fromkeys((str(package), str(ROOT)))
    return {**kept, "PYTHONPATH": os.pathsep.join(places), "TERM": "xterm", **(more or {})}
