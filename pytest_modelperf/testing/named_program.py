"""A program that a command names by its test.

pytest runs the test up to its check, so that the command has the same arguments, settings and
import paths as a run of pytest. Options in the project's pytest configuration apply, except those
that make no sense for a single test.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.errors import MeasureError, ModelPerfError, UsageError
from pytest_modelperf.programs.station.callee import last_lines
from pytest_modelperf.programs.station.main import OF_ONE_TEST, why_not_reached
from pytest_modelperf.testing.current_run import RUN
from pytest_modelperf.testing.program_check import TAKEN, NamedProgram
from pytest_modelperf.testing.run import OUTCOMES, Run
from pytest_modelperf.testing.settings import read_run_settings
from pytest_modelperf.text.escaping import printable, printable_lines
from pytest_modelperf.text.words import shorten_list

if TYPE_CHECKING:
    from pytest_modelperf.profiler.model_in_worker import Watch

_WIDTH = 80
_MOST_NAMED = 6
_INTERRUPTED = pytest.ExitCode.INTERRUPTED


def find_program(test: str, watch: Watch, options: Sequence[str] = ()) -> NamedProgram:
    """Return the program of a test. Raise UsageError unless the id selects exactly one test.

    Raise MeasureError if the test does not reach its check. `options` are more options of pytest.
    """
    hooks = _UpToCheck(watch)
    shown = printable(test)
    output, errors = StringIO(), StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        # -p, because the fixture must exist even if PYTEST_DISABLE_PLUGIN_AUTOLOAD is set.
        code = pytest.main(["-p", "modelperf", *options, "--", test], plugins=[hooks])
    if code == _INTERRUPTED and hooks.is_interrupted:
        raise KeyboardInterrupt
    if hooks.error is not None:
        raise hooks.error
    if hooks.taken:
        return hooks.taken[0]
    if len(hooks.tests) > 1:
        named = shorten_list([*map(printable, hooks.tests)], _MOST_NAMED)
        raise UsageError(f"{shown} names {len(hooks.tests)} tests, give one of them: {named}.")
    if hooks.reason:
        raise MeasureError(
            printable_lines(f"{test} did not reach modelperf.check:\n{hooks.reason}")
        )
    found = last_lines(errors.getvalue() or output.getvalue()).removeprefix("ERROR: ")
    raise UsageError(f"pytest finds no test {shown}: {printable_lines(found.strip())}")


class _UpToCheck:
    """The plugin of a run of pytest that ends with the check of one test."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.taken: list[NamedProgram] = []
        self.tests: list[str] = []
        self.reason = ""
        self.error: ModelPerfError | None = None
        self.is_interrupted = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        vars(config.option).update(OF_ONE_TEST)

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[TAKEN] = self.taken
        try:
            settings = read_run_settings(config)
        except ModelPerfError as error:
            self.error = error
            raise pytest.UsageError(str(error)) from error
        config.stash[RUN] = Run(config, settings, _WIDTH, "utf-8", self._watch)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.reason = why_not_reached(report) or self.reason

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.tests = [item.nodeid for item in session.items]
        if len(self.tests) > 1:
            session.items.clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.config.stash[RUN].begin(item)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reason = self.reason or why_not_reached(report) or ""

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Keep the message of a check that failed. A pytest report would add the frames."""
        for outcome in item.stash.get(OUTCOMES, ()):
            if outcome.comparison.failure is not None:
                self.error = UsageError(outcome.comparison.failure)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.is_interrupted = issubclass(excinfo.type, KeyboardInterrupt)
