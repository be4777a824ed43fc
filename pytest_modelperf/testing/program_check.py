"""Checking the program of a test, and finding the program that a command names by its test.

Most programs are unchanged, so the code that runs and judges one is imported only if needed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.program_store import program_name
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.errors import MeasureError, ModelPerfError, UsageError
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.programs.changes import ProgramState, read_state
from pytest_modelperf.programs.commits import top_of
from pytest_modelperf.programs.station.callee import last_lines
from pytest_modelperf.programs.station.main import OF_ONE_TEST, why_not_reached
from pytest_modelperf.spec.run_definitions import UpdateMode
from pytest_modelperf.testing.current_run import RUN
from pytest_modelperf.testing.markers import read_mark_budgets
from pytest_modelperf.testing.outcome_names import source_of
from pytest_modelperf.testing.outcomes import CaseOutcome
from pytest_modelperf.testing.run import OUTCOMES, Run
from pytest_modelperf.testing.settings import read_run_settings
from pytest_modelperf.testing.wording import ProgramWords
from pytest_modelperf.text.escaping import printable, printable_lines
from pytest_modelperf.text.words import shorten_list

if TYPE_CHECKING:
    from pytest_modelperf.profiler.model_in_worker import Watch
    from pytest_modelperf.programs.checked import ProgramCheck

_MOST_CALLS = 1


class NamedProgram(Struct, frozen=True):
    """A program that a command names by its test: its check, and its state with its baseline."""

    check: ProgramCheck
    state: ProgramState


# A command that runs pytest up to the check of a test gets the program from here.
TAKEN = pytest.StashKey["list[NamedProgram]"]()


def require_run(config: pytest.Config) -> None:
    """Raise UsageError if a command asks for a program but the test is about a model."""
    if TAKEN in config.stash:
        raise UsageError(
            "the test is about a model, and a command names a test for its program. Give the "
            "command the file of the model."
        )


def check(run: Run, item: pytest.Item, function: str, words: ProgramWords) -> CaseOutcome:
    """Return the outcome of a program: settled, judged, or recorded if the run records."""
    begun, settings = time.monotonic(), run.settings
    test, top = str(item.nodeid), top_of(item.path.parent)
    name = program_name(test)
    state = read_state(settings.baseline_dir, name, top)
    update = settings.update
    is_recorded = update is UpdateMode.ALL or (update is UpdateMode.NEW and state.stored is None)
    case = Case(1, len(words.cores or ()) or (os.cpu_count() or 1), program=item.name)
    budgets = read_mark_budgets(item)
    outcome = CaseOutcome(
        test=test,
        source=source_of(item),
        model=ModelFacts.named(function, function_file=os.path.relpath(item.path, top)),
        cores=case.cores,
        batch_size=1,
        comparison=CaseComparison(case, (), (), outcome=Verdict.UNCHANGED),
        baseline=name,
        machine=describe_machine(),
        accept=run.accept(item) if words.against is None else None,
        advice=None if words.against is None else _accept_against(words.against),
    )
    is_settled = state.is_unchanged and words.against is None
    taken = run.config.stash.get(TAKEN, None)
    if is_recorded or budgets or not is_settled or taken is not None:
        from pytest_modelperf.testing.program_run import TestedProgram, check_of, run_program

        program = TestedProgram(item, words, top, state, budgets)
        if taken is not None:
            taken.append(NamedProgram(check_of(run, program, outcome), state))
            pytest.skip("the command has the check of this test")
        return run_program(run, program, outcome, is_recorded=is_recorded)
    return replace(outcome, seconds=time.monotonic() - begun)


def _accept_against(version: str) -> str:
    return (
        "allow it with the `tolerance` of modelperf.check, or give another version with `against`: "
        f"it was compared with {printable(version)}, so a new baseline has no effect"
    )


def require_first(calls: int, item: pytest.Item) -> None:
    """Raise UsageError for a second program of a test, because stations end at the first."""
    if calls > _MOST_CALLS:
        raise UsageError(
            f"{printable(item.nodeid)} checks a second program, and a test can check one: a "
            "process of the other version runs the test up to the first call. Put each call into a "
            "test of its own, or give several inputs to one call by each=[(a,), (b,)]."
        )


# -- a program that a command names by its test


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
