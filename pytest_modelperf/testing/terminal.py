"""What a terminal shows while a model is measured: one line, which goes when the test ends.

Elsewhere only a wait for another measurement is told, which would look like a hang.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from pytest_modelperf.text.escaping import printable_lines

if TYPE_CHECKING:
    from pytest_modelperf.profiler.measurements import Progress

# Of the VT100: keep the place of the cursor, go back to it, clear to the end of the line.
_KEEP, _BACK, _CLEAR = "\x1b7", "\x1b8", "\x1b[K"
# Less is no use to read.
_LEAST_WIDTH = 20
# Redrawn so often at most.
_EVERY_S = 0.1


class LiveLine:
    """The progress of the case that runs, behind what pytest has written of its line."""

    def __init__(self, reporter: pytest.TerminalReporter | None, config: pytest.Config) -> None:
        self._reporter = reporter if _is_wanted(reporter, config) else None
        # Those that pytest-xdist starts wait for one another all the time.
        self._log = None if hasattr(config, "workerinput") else reporter
        self._told_waits: set[str] = set()
        self._capture = config.pluginmanager.get_plugin("capturemanager")
        self._drawn_at = 0.0
        self._is_drawn = False

    def __call__(self, progress: Progress) -> None:
        reporter, now = self._reporter, time.monotonic()
        if reporter is None:
            if progress.is_waiting:
                self._tell_wait(progress)
            return
        if now - self._drawn_at < _EVERY_S and not progress.is_waiting:
            return
        from pytest_modelperf.profiler.progress import progress_line

        # Without room behind the text it would wrap, and could not be taken back.
        writer = reporter._tw  # noqa: SLF001  # nothing public tells the place in a line
        room = writer.fullwidth - writer.width_of_current_line - 2
        if room < _LEAST_WIDTH:
            return
        self._write(writer, f" {progress_line(progress, room)}")
        self._drawn_at, self._is_drawn = now, True

    def clear(self) -> None:
        if self._reporter is not None and self._is_drawn:
            self._write(self._reporter._tw, "")  # noqa: SLF001  # as above
            self._is_drawn = False

    def _tell_wait(self, progress: Progress) -> None:
        """A line of its own, once for each that is waited for."""
        if self._log is None or progress.step in self._told_waits:
            return
        self._told_waits.add(progress.step)
        with self._uncaptured():
            self._log.ensure_newline()
            self._log.write_line(f"{progress.case_id}: {progress.step}")

    def _uncaptured(self) -> AbstractContextManager[None]:
        return nullcontext() if self._capture is None else _uncaptured(self._capture)

    def _write(self, writer: Any, text: str) -> None:  # noqa: ANN401  # not public
        """The rest of the line anew; the cursor stays where pytest goes on."""
        # While a test runs, what is written belongs to it.
        with self._uncaptured():
            # The writer itself would count it as part of the line.
            writer._file.write(f"{_KEEP}{text}{_CLEAR}{_BACK}")  # noqa: SLF001  # as above
            writer.flush()


def fail_afterwards(config: pytest.Config, tests: Mapping[str, str]) -> None:
    """Have the summary of pytest list tests as failed that had passed, each with the reason.

    What a test recorded is stored as the run ends.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    passed = reporter.stats.get("passed", [])
    failed = [each for each in passed if each.when == "call" and each.nodeid in tests]
    for report in failed:
        passed.remove(report)
        report.outcome, report.longrepr = "failed", printable_lines(tests[report.nodeid])
    if failed:
        reporter._add_stats("failed", failed)  # noqa: SLF001  # nothing public changes the color


def _uncaptured(capture: Any) -> AbstractContextManager[None]:  # noqa: ANN401  # not public
    found: AbstractContextManager[None] = capture.global_and_fixture_disabled()
    return found


def _is_wanted(reporter: pytest.TerminalReporter | None, config: pytest.Config) -> bool:
    """On a terminal that can go back, unless pytest is to be quiet or tests write there too."""
    return (
        reporter is not None
        and bool(reporter.isatty)
        and reporter.verbosity >= 0
        and config.getoption("capture") != "no"
        and os.environ.get("TERM") != "dumb"
        and not hasattr(config, "workerinput")
    )
