"""Where results go: files, standard output, and a line of progress on a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.plain_files import written_text
from pytest_modelperf.units import printable

if TYPE_CHECKING:
    from pytest_modelperf.measurements import Progress
    from pytest_modelperf.report.text import TextStyle

STDOUT = "-"
WAITING = "waiting for another measurement on this machine to end"
# Back to the start of the line, and clear to its end (ECMA-48).
_CLEAR_LINE = "\r\x1b[K"


def leaves_stdout(targets: Mapping[str, str | None]) -> bool:
    """Whether none of these documents, by their options, goes to standard output: a report can.

    UsageError where several of them want to, or want the same file.
    """
    wanting = [option for option, target in targets.items() if target == STDOUT]
    if len(wanting) > 1:
        raise UsageError(
            f"only one of {' and '.join(wanting)} can go to standard output: give a file for the "
            "others."
        )
    files: dict[str, str] = {}
    for option, target in targets.items():
        if target is None or target == STDOUT or _is_no_file(target):
            continue
        other = files.setdefault(os.path.realpath(target), option)
        if other != option:
            raise UsageError(
                f"{other} and {option} would both write {printable(target)}: give another file to "
                "one of them."
            )
    return not wanting


def _is_no_file(target: str) -> bool:
    """Whether it is something like a pipe or /dev/null, which takes one document after another."""
    path = Path(target)
    return path.exists() and not path.is_file()


def check_writable(*targets: str | None) -> None:
    """Raise OutputError where a result could not be written, before it is made at all."""
    for target in targets:
        if target is None or target == STDOUT:
            continue
        path = Path(target)
        existed = path.exists()
        try:
            path.open("a", encoding="utf-8").close()
        except OSError as error:
            raise _unwritable(target, error) from error
        if not existed:
            path.unlink(missing_ok=True)


def write(target: str, text: str) -> None:
    if target == STDOUT:
        click.echo(text, nl=False)
        return
    try:
        with written_text(Path(target)) as file:
            file.write(text)
    except OSError as error:
        raise _unwritable(target, error) from error


def _unwritable(target: str, error: OSError) -> OutputError:
    return OutputError(f"cannot write {printable(target)}: {error.strerror or error}.")


def terminal_style() -> TextStyle:
    """Colour and the terminal's width on a terminal; plain and whole in a pipe."""
    from pytest_modelperf.report.text import TextStyle

    on_terminal = sys.stdout.isatty()
    color = on_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    if on_terminal or "COLUMNS" in os.environ:
        return TextStyle(shutil.get_terminal_size().columns, color)
    return TextStyle(None, color)


class ProgressLine:
    """One line on standard error that shows where the work stands; nothing where no one looks."""

    def __init__(self) -> None:
        self._has_waited = False
        self._is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def __call__(self, progress: Progress) -> None:
        if not self._is_shown:
            # Where nothing else is shown, a wait without a word would look like a hang.
            if progress.step == WAITING and not self._has_waited:
                click.echo(f"{progress.case_id}: {WAITING}", err=True)
                self._has_waited = True
            return
        from pytest_modelperf.report.progress import progress_line

        line = progress_line(progress, shutil.get_terminal_size().columns - 1)
        click.echo(_CLEAR_LINE + line, nl=False, err=True)

    def clear(self) -> None:
        if self._is_shown:
            click.echo(_CLEAR_LINE, nl=False, err=True)
