"""The hooks of a run that profiles models: its tests, their reports, and its end."""

from __future__ import annotations

import datetime as dt
import shutil
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from msgspec.structs import replace

from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import ModelPerfError, UsageError
from pytest_modelperf.files.interrupts import interrupt_held, lost_interrupts_raised
from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.spec.sources import RunSettings
from pytest_modelperf.testing.ending import (
    KnownTests,
    RunEnding,
    in_github,
    path_in_repository,
)
from pytest_modelperf.testing.items import OnnxItem, UnreadableItem, check_item, find_late_case
from pytest_modelperf.testing.left_out import file_above, files_above
from pytest_modelperf.testing.markers import (
    FindModel,
    case_ids,
    read_cases,
    read_mark_budgets,
    use_fixtures_named,
)
from pytest_modelperf.testing.outcomes import CaseOutcome
from pytest_modelperf.testing.packing import pack, unpack
from pytest_modelperf.testing.pytest_internals import (
    JunitEntries,
    is_skipped,
    is_stop,
    lack_of_memory_told,
    leaves_tests_out,
    list_as_failed,
    runs_tests,
)
from pytest_modelperf.testing.run import (
    OUTCOMES,
    PerfFailure,
    Run,
    case_of,
    read_late_budgets,
    uses_fixture,
)
from pytest_modelperf.testing.settings import describe_settings
from pytest_modelperf.testing.startup import (
    BUDGET,
    CASE,
    CASE_ARGUMENT,
    FIXTURE,
    has_markers,
    named_tests,
)
from pytest_modelperf.testing.terminal import LiveLine
from pytest_modelperf.testing.wording import in_python, in_table
from pytest_modelperf.text.escaping import encoding_of, is_utf8, printable, printable_lines

if TYPE_CHECKING:
    from pytest_modelperf.profiler.shared_worker import SharedWorkers
    from pytest_modelperf.testing.on_cluster import ClusterRun

    # The category of a test, its letter, and its word, perhaps with colours.
    _TestStatus: TypeAlias = tuple[str, str, str | tuple[str, Mapping[str, bool]]]

# Keys of the messages to and from a worker of pytest-xdist.
_WIDTH = "modelperf_width"
_ENCODING = "modelperf_encoding"
_KNOWN = "modelperf_known"
# The attribute of a test's report with the outcomes as text, because other plugins send reports
# to other processes in different ways.
_ATTACHED = "modelperf_outcomes"
# The attribute with the word shown after a test, and before it the outcome of the test.
_WORD = "modelperf_word"
# The number of outcomes of a test that are already in its reports.
_REPORTED = pytest.StashKey[int]()
# pytest's own words.
_PLAIN_WORDS = ("PASSED", "FAILED", "ERROR")
_INTERRUPTED = "interrupted at the end of the run: all its files were written"
_DOUBTFUL = frozenset({Verdict.INCONCLUSIVE.value, Verdict.NEW.value})


class RunHooks:
    """The hooks of one run, as a plugin object."""

    def __init__(
        self, config: pytest.Config, settings: RunSettings, early: SharedWorkers | None
    ) -> None:
        self.config = config
        self.settings = settings
        self.started = dt.datetime.now(dt.timezone.utc)
        self.live = LiveLine(None, config)
        self.run = Run(config, settings, _width(config), _encoding(config), self._watch, early)
        self.outcomes: dict[str, tuple[CaseOutcome, ...]] = {}
        places = [config.invocation_params.dir, *(path for path, _ in named_tests(config))]
        above = [file for place in places for file in files_above(place, settings.root)]
        further = file_above(settings.root)
        above += [] if further is None else [further]
        self.known = KnownTests(projects=set(map(str, above)))
        self.ending = RunEnding(self.run)
        # The number of `perf_case` markers that each test function had when its cases were made.
        self.read_markers: dict[tuple[str, str], int] = {}
        self.has_words = True
        # The reason why a pytest-xdist worker runs no test.
        self.refusal: str | None = None
        # Whether the loop over the tests began, and the session was not interrupted.
        self.is_whole = False
        # Set while the tests run.
        self.cluster: ClusterRun | None = None
        self.junit = JunitEntries(config)

    def _watch(self, progress: Progress) -> None:
        self.live(progress)

    # -- collection

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, collector: pytest.Collector, obj: object) -> None:
        """Make tests use the fixtures that their markers name, so that parameters are known."""
        use_fixtures_named(collector, obj)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        definition = metafunc.definition
        try:
            find = FindModel(definition.path, self.settings.root)
            cases = read_cases(definition, find)
            if read_mark_budgets(definition) and not cases and not uses_fixture(definition):
                raise UsageError(
                    f"@pytest.mark.{BUDGET} needs something to measure: name a model with "
                    f"@pytest.mark.{CASE}(model=...), or use the fixture {FIXTURE}."
                )
            ids = case_ids(cases, printable(definition.nodeid))
        except ModelPerfError as error:
            if is_skipped(definition):
                # The skip condition may be that the model is missing.
                return
            message = in_python(error)
            if definition.nodeid not in message:
                message = f"{printable(definition.nodeid)}: {message}"
            # pytest shows all other errors with the frames of the plugin.
            raise pytest.Collector.CollectError(message) from None
        self.read_markers[_function_key(definition)] = _count_case_markers(definition)
        if cases:
            metafunc.fixturenames.append(CASE_ARGUMENT)
            metafunc.parametrize(CASE_ARGUMENT, cases, ids=ids, indirect=True)

    # Outermost, because a conftest may drop tests without calling pytest_deselected.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        collected = set(items)
        result = yield
        self.known.deselect(collected.difference(items))
        try:
            judged = []
            for item in items:
                if isinstance(item, OnnxItem):
                    item.read_late_budgets()
                read_late_budgets(item)
                is_unread = self._is_skipped_unread(item)
                if not is_unread:
                    judged.append(item)
                if is_unread or isinstance(item, UnreadableItem):
                    # This test represents unknown cases.
                    self.known.tests.add(item.nodeid)
                    self.known.deselected += 1
            self.known.add(self.run, items)
            self.run.count(judged)
        except pytest.UsageError as error:
            self._refuse(str(error))
        except ModelPerfError as error:
            self._refuse(in_python(error))
        return result

    def _is_skipped_unread(self, item: pytest.Item) -> bool:
        """Whether a test has a marker that was not read or makes no cases, and is skipped.

        Raise pytest.UsageError for such a marker on a test that is not skipped.
        """
        has_late_cases = self._has_late_cases(item)
        if not has_late_cases and (not has_markers(item) or case_of(item) is not None):
            return False
        is_idle = not uses_fixture(item)
        if is_skipped(item):
            return has_late_cases or is_idle or not _has_readable_budgets(item)
        if not has_late_cases and not is_idle:
            return False
        name = CASE if has_late_cases else BUDGET
        raise pytest.UsageError(
            f"{printable(item.nodeid)}: @pytest.mark.{name} is for test functions and their "
            "classes, which have it when they are collected. A unittest.TestCase cannot be run "
            "once per case, and no parameter or conftest can add what makes cases."
        )

    def _has_late_cases(self, item: pytest.Item) -> bool:
        """Whether a `perf_case` marker was added after the cases of the test were made."""
        if isinstance(item, pytest.Function):
            known = self.read_markers.get(_function_key(item), 0)
            return _count_case_markers(item) > known
        return isinstance(item, OnnxItem) and _count_case_markers(item) > 0

    def _refuse(self, message: str) -> None:
        """Raise pytest.UsageError, or let a pytest-xdist worker report it in its first test.

        The main process of pytest-xdist would not see the error of a worker, and would fail because
        of the remaining tests.
        """
        if not hasattr(self.config, "workerinput"):
            raise pytest.UsageError(message) from None
        self.refusal = message

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.known.deselect(items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self.known.deselected += 1
        if report.failed:
            lines = printable_lines(str(report.longrepr)).strip().splitlines()
            self.known.uncollected[report.nodeid] = lines[0] if lines else ""

    # -- tests

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        self.is_whole = True
        with ExitStack() as stack:
            stack.enter_context(lost_interrupts_raised())
            stack.callback(self.run.close)
            if runs_tests(session):
                _load_lasting_modules()
                try:
                    self._find_machines(session.items, stack)
                    self._settle_ahead(session.items)
                except ModelPerfError as error:
                    self._refuse(in_table(error))
            return (yield)

    def _find_machines(self, items: Sequence[pytest.Item], stack: ExitStack) -> None:
        """Submit the cases to the cluster, or raise ModelPerfError before anything runs."""
        cases = [case for case in map(case_of, items) if case is not None]
        for case in cases:
            self.run.require_machine(case)
        if self.settings.uses_cluster and (cases or any(map(uses_fixture, items))):
            from pytest_modelperf.testing.on_cluster import measuring_on_cluster

            self.cluster = stack.enter_context(
                measuring_on_cluster(self.run, items, self.live.draw)
            )
            reporter = self.config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None and reporter.verbosity >= 0:
                reporter.write_line(self.cluster.describe())

    def _settle_ahead(self, items: Sequence[pytest.Item]) -> None:
        judges = self.cluster is None and self.settings.runs_beside_baselines
        if judges and any(map(case_of, items)):
            self.run.settle_ahead(items)
        self.run.end_early()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self.refusal is not None:
            item.session.shouldfail = self.refusal
            pytest.fail(self.refusal, pytrace=False)
        # A test may run several times.
        item.stash[OUTCOMES] = []
        item.stash[_REPORTED] = 0
        self.run.begin(item)

    # Last, so that the fixtures of the test have their values.
    @pytest.hookimpl(trylast=True, specname="pytest_runtest_setup")
    def pytest_find_late_case(self, item: pytest.Item) -> None:
        __tracebackhide__ = _is_of_user
        find_late_case(self.run, item)

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        case = case_of(pyfuncitem)
        if case is not None:
            try:
                check_item(self.run, pyfuncitem, case)
            except PerfFailure as error:
                raise pytest.fail.Exception(str(error), pytrace=False) from None
            except ModelPerfError as error:
                message = in_python(error)
                self.run.note_failure(pyfuncitem, case, message)
                raise pytest.fail.Exception(message, pytrace=False) from None
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            # An interrupted test has no report.
            self.live.clear()
            if self.cluster is not None:
                self.cluster.end_test(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        self.live.clear()
        outcomes = item.stash.get(OUTCOMES, [])
        reported = item.stash.get(_REPORTED, 0)
        # Fixtures may also check models, before and after the test itself.
        is_new = len(outcomes) > reported and (call.when != "setup" or call.excinfo is not None)
        report = yield
        if is_new:
            from pytest_modelperf.testing.formats import add_properties
            from pytest_modelperf.testing.wording import rank_outcome

            new = outcomes[reported:]
            has_bad = any(map(self.run.is_failure, new))
            if has_bad and not report.failed:
                # A marker expected the failure, or the test caught it.
                new = [replace(each, is_xfailed=self.run.is_failure(each)) for each in new]
                outcomes[reported:] = new
            for properties in (item.user_properties, report.user_properties):
                add_properties(properties, outcomes)
            setattr(report, _ATTACHED, pack(outcomes))
            item.stash[_REPORTED] = len(outcomes)
            worst = min(new, key=rank_outcome)
            # The test may have failed for another reason, or have expected the failure.
            if report.failed is has_bad:
                setattr(report, _WORD, f"{report.outcome} {worst.word}")
                _shorten(report, worst)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            # If a test runs several times, its last run counts.
            self.outcomes.pop(report.nodeid, None)
        attached = getattr(report, _ATTACHED, None)
        if attached is not None:
            self.outcomes[report.nodeid] = unpack(attached)
            self.junit.add(report)
        if report.when == "call" and report.passed:
            self.known.passed.add(report.nodeid)
        if report.failed:
            self.known.failed.add(report.nodeid)
        if report.skipped and (report.when == "setup" or self._is_own_skip(report)):
            self.known.skipped.add(report.nodeid)
        if report.when == "teardown":
            self.known.over.add(report.nodeid)

    def _is_own_skip(self, report: pytest.TestReport) -> bool:
        """Whether the body of a test skipped it. In a static run, the fixture may have done so."""
        return not hasattr(report, "wasxfail") and not self.settings.static_only

    # A wrapper, because in this hook pytest itself fails a test whose subtests failed.
    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> Generator[None, _TestStatus | None, _TestStatus | None]:
        """Show the verdict as the word after a test, unless another plugin has a word for it."""
        status = yield
        outcome, _, word = getattr(report, _WORD, "").partition(" ")
        if status is None or status[2] not in _PLAIN_WORDS or outcome != report.outcome:
            return status
        if not self.has_words or word == Verdict.PASSED.value:
            return status
        color = "red" if report.failed else "yellow" if word in _DOUBTFUL else "green"
        # The category stays, so that the error of a fixture remains an error.
        return status[0], status[1], (word.upper(), {color: True})

    # -- the end

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        self.live = LiveLine(reporter, self.config)

    def pytest_report_header(self) -> list[str]:
        changes = self.run.engine_changes
        if not changes:
            return [describe_settings(self.settings)]
        from pytest_modelperf.testing.older import describe_engine_changes

        are_judged = self.settings.judges_upgrades
        return [
            describe_settings(self.settings),
            *describe_engine_changes(changes, are_judged=are_judged),
        ]

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note an interrupt, a `pytest.exit` with any exit code, or a run that stops."""
        self.is_whole = is_stop(excinfo.value)
        # A pytest-xdist worker may not have reported its tests.
        self.known.deselected += 1

    # Outermost, because in this hook junitxml writes its file, and pytest its summary.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, object, object]:
        with lack_of_memory_told(_exit_with), interrupt_held() as held:
            self._finish(session, exitstatus)
            result = yield
        if held.has_come:
            session.exitstatus = pytest.ExitCode.INTERRUPTED
            reporter = self.config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                reporter.write_line(_INTERRUPTED, red=True)
        return result

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[_KNOWN] = self.known.as_message()
            return
        if leaves_tests_out(self.config):
            return
        outcomes = [outcome for of_test in self.outcomes.values() for outcome in of_test]
        exit_code: int = pytest.ExitCode.INTERRUPTED
        if self.is_whole:
            has_stopped = exitstatus == pytest.ExitCode.INTERRUPTED
            exit_code = pytest.ExitCode.TESTS_FAILED if has_stopped else exitstatus
        self.ending.finish(outcomes, self.known, exit_code, self.started)
        if self.ending.unstored:
            from pytest_modelperf.comparing.verdict_lines import FAILED
            from pytest_modelperf.testing.formats import VERDICT_PROPERTY

            list_as_failed(self.config, self.ending.unstored)
            self.junit.fail(self.ending.unstored, {VERDICT_PROPERTY: FAILED})
        if self.ending.problems and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        # Other tools look for the words at the beginning of pytest's list of failures.
        self.has_words = False
        report = self.ending.report
        if report is None:
            return
        from pytest_modelperf.report.page import TextStyle
        from pytest_modelperf.report.render import render_report
        from pytest_modelperf.testing.formats import github_annotations
        from pytest_modelperf.testing.report import run_report

        writer = self.config.get_terminal_writer()
        style = TextStyle(writer.fullwidth, writer.hasmarkup, self.run.encoding)
        summary = run_report(report, verbosity=terminalreporter.verbosity)
        text = render_report(summary, style).lstrip("\n")
        if text:
            terminalreporter.section("model performance")
            terminalreporter.write(text)
        for problem in self.ending.problems:
            terminalreporter.write_line(f"error: {problem}", red=True)
        if in_github():
            for line in github_annotations(report, path_in_repository(self.settings.root)):
                terminalreporter.write_line(line)

    # -- pytest-xdist: workers measure in turn, and this process writes and reports

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:  # noqa: ANN401  # a plugin's own type
        node.workerinput[_WIDTH] = self.run.width
        node.workerinput[_ENCODING] = self.run.encoding

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:  # noqa: ANN401, ARG002  # likewise
        message = getattr(node, "workeroutput", {}).get(_KNOWN)
        if message is not None:
            self.known.add_message(message)
        else:
            # Perhaps no other worker reports its tests.
            self.known.deselected += 1


def _exit_with(error: ModelPerfError) -> BaseException:
    return pytest.exit.Exception(error.message, pytest.ExitCode.INTERNAL_ERROR)


def check_sendable(sent: Iterable[object]) -> None:
    """Raise UsageError for a text that pytest-xdist cannot send to its workers."""
    for text in map(str, sent):
        if not is_utf8(text):
            raise UsageError(
                f"pytest-xdist cannot send its workers text that is not UTF-8, such as "
                f"{printable(text)}: give the file or the folder another name, or leave out -n."
            )


def _is_of_user(error: pytest.ExceptionInfo[BaseException]) -> bool:
    """Whether an error has frames of the user. If not, pytest would say that all are hidden."""
    return not error.errisinstance(pytest.fail.Exception)


def _shorten(report: pytest.TestReport, outcome: CaseOutcome) -> None:
    """Show the verdict as the line of a failure in lists of failures."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        from pytest_modelperf.testing.report import short_verdict

        crash.message = printable(short_verdict(outcome))
        # The error was raised in a file of the plugin.
        crash.path, crash.lineno = outcome.source.path, outcome.source.line or 1


def _has_readable_budgets(item: pytest.Item) -> bool:
    try:
        read_mark_budgets(item)
    except UsageError:
        return False
    return True


def _function_key(function: pytest.Function) -> tuple[str, str]:
    parent = "" if function.parent is None else function.parent.nodeid
    return parent, function.originalname


def _count_case_markers(item: pytest.Item) -> int:
    return sum(1 for _ in item.iter_markers(CASE))


def _load_lasting_modules() -> None:
    """Load numpy and onnx, which the end of a run needs and which cannot be loaded twice."""
    # A test that runs pytest in this process (pytester) makes it forget what the test imported.
    import pytest_modelperf.graph.model_file  # noqa: F401


def _width(config: pytest.Config) -> int:
    given: dict[str, Any] = getattr(config, "workerinput", {})
    return int(given.get(_WIDTH) or shutil.get_terminal_size().columns)


def _encoding(config: pytest.Config) -> str:
    """Return the encoding of the terminal, even in a pytest-xdist worker."""
    given: dict[str, Any] = getattr(config, "workerinput", {})
    return given.get(_ENCODING) or encoding_of(sys.stdout)
