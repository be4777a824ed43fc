"""Writing results to files and standard output, and a progress line to a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

from pytest_modelperf.files.output import written_text
from pytest_modelperf.text.escaping import encodable, encoding_of

if TYPE_CHECKING:
    from pytest_modelperf.cli.options import OutputOptions
    from pytest_modelperf.profiler.measurements import Progress
    from pytest_modelperf.report.model import Report
    from pytest_modelperf.report.page import PageStyle, TextStyle

# Back to the start of the line, and clear to its end (ECMA-48).
_CLEAR_LINE = "\r\x1b[K"


def write(target: str, text: str) -> None:
    with _going_on_if_closed(sys.stdout), written_text(target) as file:
        file.write(encodable(text, encoding_of(file)))


def show(text: str, *, err: bool = False) -> None:
    """Print whole lines on standard output or standard error, in its encoding."""
    stream = sys.stderr if err else sys.stdout
    with _going_on_if_closed(stream):
        click.echo(encodable(text, encoding_of(stream)), nl=False, err=err)


@contextmanager
def _going_on_if_closed(stream: TextIO) -> Iterator[None]:
    """Let the command continue if the reader of a stream has closed it, as `head` does.

    The command still has files to write, and its exit code shows what it found.
    """
    try:
        yield
    except BrokenPipeError:
        # The stream still has text in its buffer, which would fail again at the end of the process.
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123  # devnull is a str
            os.dup2(nowhere.fileno(), stream.fileno())


def show_report(
    render: Callable[[PageStyle], str], markdown_file: str | None, *, is_shown: bool
) -> None:
    """Show a report, and write it as Markdown if requested.

    It is not shown if another file goes to standard output.
    """
    if is_shown:
        show(render(terminal_style()))
    if markdown_file is not None:
        from pytest_modelperf.report.markdown import MarkdownStyle

        write(markdown_file, render(MarkdownStyle()))


def write_report(
    report: Report,
    document: Callable[[], str],
    outputs: OutputOptions,
    *,
    is_shown: bool,
    has_details: bool = True,
) -> None:
    """Show a report, and write the requested files.

    It is not shown if a file goes to standard output. `document` makes the JSON. The files have the
    details even if the terminal does not.
    """
    from pytest_modelperf.report.model import On
    from pytest_modelperf.report.render import render_report

    def render(style: PageStyle) -> str:
        shows_details = has_details or style.face is not On.TERMINAL
        return render_report(report, style, has_details=shows_details)

    show_report(render, outputs.markdown_file, is_shown=is_shown)
    if outputs.json_file is not None:
        write(outputs.json_file, document())
    if outputs.csv_file is not None:
        from pytest_modelperf.report.exports import render_csv

        write(outputs.csv_file, render_csv(report))
    if outputs.html_file is not None:
        from pytest_modelperf.report.html.render import render_page

        write(outputs.html_file, render_page(report))


def terminal_style() -> TextStyle:
    """Return the style: coloured and as wide as the terminal, or plain and unlimited in a pipe."""
    from pytest_modelperf.report.page import TextStyle

    on_terminal = sys.stdout.isatty()
    color = on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    is_bounded = on_terminal or "COLUMNS" in os.environ
    width = shutil.get_terminal_size().columns if is_bounded else None
    return TextStyle(width, color, encoding_of(sys.stdout))


class ProgressLine:
    """A progress line on standard error, hidden unless that is a terminal."""

    def __init__(self) -> None:
        self._has_waited = False
        self._has_shown = False
        self._is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def __call__(self, progress: Progress) -> None:
        if not self._is_shown:
            self._announce(progress)
            return
        from pytest_modelperf.profiler.shown.progress import progress_line

        self.show(progress_line(progress, shutil.get_terminal_size().columns - 1))

    def _announce(self, progress: Progress) -> None:
        """Print the progress on a separate line, but waiting only once."""
        text = progress.announcement
        if text is None or (progress.is_waiting and self._has_waited):
            return
        click.echo(f"{progress.case_id}: {text}", err=True)
        self._has_waited |= progress.is_waiting

    def show(self, text: str) -> None:
        if self._is_shown:
            click.echo(_CLEAR_LINE + text, nl=False, err=True)

    def tell(self, text: str) -> None:
        """Show what happens before the first case, but only the first line without a terminal."""
        if self._is_shown:
            self.show(text[: shutil.get_terminal_size().columns - 1])
        elif not self._has_shown:
            click.echo(text, err=True)
            self._has_shown = True

    def warn(self, text: str) -> None:
        self.clear()
        click.echo(f"warning: {text}", err=True)

    def clear(self) -> None:
        if self._is_shown:
            click.echo(_CLEAR_LINE, nl=False, err=True)


@contextmanager
def shown_progress() -> Iterator[ProgressLine]:
    line = ProgressLine()
    try:
        yield line
    finally:
        line.clear()
