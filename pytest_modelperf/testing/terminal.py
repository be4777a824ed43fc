"""The progress of a measurement on a terminal: one line, which disappears when the test ends.

Without a terminal, only states that look like a hang are reported: waiting for another measurement,
and the rounds of a slow model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.testing.pytest_internals import uncaptured, write_unseen

if TYPE_CHECKING:
    from pytest_modelperf.profiler.measurements import Progress

# VT100 codes: save the cursor, go back to it, and clear to the end of the line.
_KEEP, _BACK, _CLEAR = "\x1b7", "\x1b8", "\x1b[K"
# The least width of a readable line.
_LEAST_WIDTH = 20
# The least time between two redraws.
_EVERY_S = 0.1


class LiveLine:
    """The progress of the running case, shown after pytest's own text on the same line."""

    def __init__(self, reporter: pytest.TerminalReporter | None, config: pytest.Config) -> None:
        self._config = config
        self._is_drawing = _is_wanted(reporter, config)
        # pytest-xdist workers are silent, because they wait for one another all the time.
        self._log = None if hasattr(config, "workerinput") else reporter
        self._announced_waits: set[str] = set()
        self._drawn_at = 0.0
        self._is_drawn = False

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if not self._is_drawing:
            self._announce(progress)
            return
        if now - self._drawn_at < _EVERY_S and not progress.is_waiting:
            return
        from pytest_modelperf.profiler.shown.progress import progress_line

        self._drawn_at = now
        self.draw(lambda room: progress_line(progress, room))

    def draw(self, text: Callable[[int], str]) -> None:
        """Draw the text for the free columns, if there is a terminal with enough of them."""
        if not self._is_drawing:
            return
        # The text has to fit, because a text that wraps could not be erased.
        writer = self._config.get_terminal_writer()
        room = writer.fullwidth - writer.width_of_current_line - 2
        if room >= _LEAST_WIDTH:
            self._write(f" {text(room)}")
            self._is_drawn = True

    def clear(self) -> None:
        if self._is_drawn:
            self._write("")
            self._is_drawn = False

    def _announce(self, progress: Progress) -> None:
        """Write a line of its own, but only once for each process that is waited for."""
        text = progress.announcement
        if self._log is None or text is None or text in self._announced_waits:
            return
        if progress.is_waiting:
            self._announced_waits.add(text)
        with uncaptured(self._config):
            self._log.ensure_newline()
            self._log.write_line(f"{progress.case_id}: {text}")

    def _write(self, text: str) -> None:
        """Rewrite the rest of the line, and move the cursor back to where pytest continues."""
        # Otherwise, pytest would capture the text as output of the test.
        with uncaptured(self._config):
            write_unseen(self._config, f"{_KEEP}{text}{_CLEAR}{_BACK}")


def _is_wanted(reporter: pytest.TerminalReporter | None, config: pytest.Config) -> bool:
    """Whether to draw: not if pytest is quiet, or if tests write to the terminal too."""
    return (
        reporter is not None
        and bool(reporter.isatty)
        and reporter.verbosity >= 0
        and config.getoption("capture", "no") != "no"
        and os.environ.get("TERM") != "dumb"
        and not hasattr(config, "workerinput")
    )
