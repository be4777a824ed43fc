"""The end of a run: planning and writing baselines, and writing reports."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import iglob
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from msgspec import Struct, field

from pytest_modelperf.errors import ModelPerfError, UsageError
from pytest_modelperf.files.names import model_name
from pytest_modelperf.files.output import cannot_write, is_stdout, written_text
from pytest_modelperf.profiler.shown.report_files import check_report_files
from pytest_modelperf.spec.run_definitions import BENCHER_JSON, BENCHMARK_JSON, HTML, JSON, MARKDOWN
from pytest_modelperf.spec.sources import RunSettings
from pytest_modelperf.testing.left_out import (
    NO_MODEL,
    describe_unjudged,
    unread_tables,
    unused_tables,
)
from pytest_modelperf.testing.outcomes import (
    NO_OLDER_VERSION,
    NOT_SENT,
    NOTHING_JUDGED,
    NOTHING_RECORDED,
    CaseOutcome,
    RunReport,
)
from pytest_modelperf.testing.run import Run, case_of, may_judge, uses_fixture
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.version import __version__
from pytest_modelperf.text.words import count_of, shorten_list

if TYPE_CHECKING:
    from pytest_modelperf.baselines.records import Baseline, BaselineRecording, Fidelity, UpdatePlan
    from pytest_modelperf.baselines.store import BaselineStore

    # Baselines, each with the ids of its cases that no test uses.
    _Unused: TypeAlias = Sequence[tuple[Baseline, Sequence[str]]]

# The exit codes of runs that were not interrupted.
_ENDED = frozenset({pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED})
_WITHOUT_FAILURE = frozenset({pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED})
_SUMMARY_FILE = "GITHUB_STEP_SUMMARY"
_NOT_PRUNED = (
    "nothing was pruned: only a run of all tests, with none ignored and all finished, shows which "
    "baselines are unused"
)
# The settings of pytest that select tests. A typed one may differ from the project's.
_COLLECTING = frozenset({
    "collect_imported_tests", "norecursedirs", "python_classes", "python_files", "python_functions",
    "testpaths",
})  # fmt: skip
# The most tests that one note names.
_MOST_NAMED = 3


class KnownTests(Struct):
    """The tests of a run and their cases, even if they did not run.

    `tests` are those with a case, and `failed` are all that failed. `open` are tests that may name
    cases while they run. `passed` are tests whose call passed, and `skipped` those that the project
    skipped. `over` are all tests that were torn down, whether they ran or were skipped.

    `deselected` counts the reasons why used cases may be unknown: tests that were left out, files
    and models that were ignored or could not be read, and crashed workers. `left_out` are the known
    models and tests of models among them. `uncollected` are the files that could not be collected,
    with the reasons. `projects` are the pyproject.toml files that were found but not read.
    """

    cases: dict[tuple[str, str], tuple[str, object]] = field(default_factory=dict)
    tests: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    over: set[str] = field(default_factory=set)
    deselected: int = 0
    left_out: set[str] = field(default_factory=set)
    uncollected: dict[str, str] = field(default_factory=dict)
    projects: set[str] = field(default_factory=set)

    def deselect(self, items: Iterable[pytest.Item]) -> None:
        """Count tests that were left out, and keep the ids of those that may judge a model."""
        for item in items:
            self.deselected += 1
            if may_judge(item):
                self.left_out.add(item.nodeid)

    def add(self, run: Run, items: Iterable[pytest.Item]) -> None:
        for item in items:
            case = case_of(item)
            if case is not None:
                self.tests.add(item.nodeid)
            if case is not None and case.origin is not None:
                # Which cases of its baseline the test uses is unknown until the model exists.
                self.open.add(item.nodeid)
            elif case is not None and not case.is_function:
                # If the model has no name for its baseline, its test reports that.
                with suppress(UsageError):
                    conditions = (case.conditions, run.settings.engine_for(case.spec))
                    self._add_case((run.baseline_of(case), case.id), item, conditions)
            if uses_fixture(item):
                self.open.add(item.nodeid)

    def _add_case(self, key: tuple[str, str], item: pytest.Item, conditions: object) -> None:
        """Add a test's case. Raise pytest.UsageError if another test runs it differently."""
        first, known = self.cases.setdefault(key, (item.nodeid, conditions))
        if known != conditions:
            raise pytest.UsageError(
                f"{printable(first)} and {printable(item.nodeid)} both have the case "
                f"{printable(key[1])} of the baseline {model_name(key[0])}, but are run "
                'differently. Name all sizes in one place, as in dims={"seq": [64, 128]}, or give '
                "one of them a name of its own, as in baseline='models/encoder-long.onnx'."
            )

    def as_message(self) -> dict[str, Any]:
        """Return the message that a pytest-xdist worker sends."""
        return {
            "cases": [list(case) for case in sorted(self.cases)],
            "tests": sorted(self.tests),
            "open": sorted(self.open),
            "deselected": self.deselected,
            "left_out": sorted(self.left_out),
            "projects": sorted(self.projects),
        }

    def add_message(self, message: Mapping[str, Any]) -> None:
        """Add the message of a worker. All workers collect the same tests, so it adds little."""
        for folder, case_id in message["cases"]:
            self.cases.setdefault((folder, case_id), ("", None))
        self.tests |= set(message["tests"])
        self.open |= set(message["open"])
        self.deselected = max(self.deselected, message["deselected"])
        self.left_out |= set(message["left_out"])
        self.projects |= set(message["projects"])


class RunEnding(Struct):
    """The work after the last test: baselines and reports."""

    run: Run
    report: RunReport | None = None
    problems: list[str] = field(default_factory=list)
    # The tests whose recordings could not be stored, with the reason.
    unstored: dict[str, str] = field(default_factory=dict)

    def finish(
        self,
        outcomes: Sequence[CaseOutcome],
        known: KnownTests,
        exit_code: int,
        started: dt.datetime,
    ) -> None:
        """Write baselines and reports. Failures are problems that the summary shows."""
        settings = self.run.settings
        plans: Sequence[UpdatePlan] = ()
        written: Sequence[UpdatePlan] = ()
        unused: tuple[tuple[str, str], ...] | None = None
        notes = [*self.run.notes]
        if exit_code in _ENDED:
            found = self._find_unused(outcomes, known, notes)
            lost: dict[str, str] = {}
            updates, removals = self._updates(outcomes, lost), self._removals(found)
            programs = () if found is None else self._unused_programs(known)
            if found is not None and not settings.prune:
                unused = (
                    *((stored.name, gone) for stored, ids in found for gone in ids),
                    *programs,
                )
            plans = [*updates, *removals]
            written = [*self._write(updates, lost), *self._write(removals, {})]
            self._write_programs(outcomes, lost, notes)
            if settings.prune:
                notes += self._remove_programs(programs)
            outcomes = self._without_lost(outcomes, lost)
            self._write_history(outcomes, plans, started)
            self._store.tidy()
            notes += _untrusted(outcomes)
            notes += _unlinked(outcomes)
        elif any((each.recording or each.program) is not None for each in outcomes):
            notes.append("the run was interrupted: no baseline was written")
            outcomes = [outcome.without_recording() for outcome in outcomes]
        if exit_code not in _ENDED and settings.prune:
            notes.append(_NOT_PRUNED)
        left_out = self._left_out(outcomes, known, exit_code)
        if settings.strict:
            self.problems += left_out
        else:
            notes += left_out
        notes += _uncollected(known)
        notes += _without_result(outcomes, known)
        if exit_code != pytest.ExitCode.OK:
            notes += _not_reached(outcomes, known)
        notes += _functions_left_out(outcomes)
        if settings.strict:
            notes += _skipped(outcomes, known)
        self.report = RunReport(
            outcomes=tuple(outcomes),
            machine=next((o.machine for o in outcomes if o.machine is not None), None),
            seconds=sum(outcome.seconds for outcome in outcomes),
            is_strict=settings.strict,
            tolerance=settings.tolerances.of(50.0),
            # The problems contain each plan that could not be written.
            plans=tuple(written or plans),
            is_written=bool(written),
            unused=unused,
            started=started,
            errors=tuple(self.problems),
            notes=tuple(notes),
            typed=self.run.typed_options,
        )
        self._write_reports(self.report)

    def _left_out(
        self, outcomes: Sequence[CaseOutcome], known: KnownTests, exit_code: int
    ) -> list[str]:
        """Return the unread tables, or why no model was judged. A strict run fails for both."""
        settings, config = self.run.settings, self.run.config
        found = list(unread_tables(map(Path, known.projects), settings, config))
        if found or outcomes or exit_code not in _WITHOUT_FAILURE:
            return found
        if settings.strict:
            # A test that only takes profiles has its own assertions.
            has_judged = not known.open.isdisjoint(known.passed)
            skipped = known.skipped & (known.tests | known.open)
            return (
                [] if has_judged else [describe_unjudged(settings, config, known.left_out, skipped)]
            )
        if known.tests or known.open or known.deselected:
            return []
        has_none = exit_code == pytest.ExitCode.NO_TESTS_COLLECTED
        reason = unused_tables(settings, config) or (NO_MODEL if has_none else None)
        return [] if reason is None else [reason]

    # -- baselines

    @property
    def _store(self) -> BaselineStore:
        from pytest_modelperf.baselines.store import BaselineStore

        return BaselineStore(self.run.settings.baseline_dir)

    @contextmanager
    def _noting_problems(
        self, baseline: str = "", lost: dict[str, str] | None = None
    ) -> Iterator[None]:
        """Turn an error of one step into a problem, and keep why a baseline was lost."""
        try:
            yield
        except ModelPerfError as error:
            self.problems.append(str(error))
            if lost is not None:
                lost[baseline] = str(error)

    def _without_lost(
        self, outcomes: Sequence[CaseOutcome], lost: Mapping[str, str]
    ) -> list[CaseOutcome]:
        kept = []
        for outcome in outcomes:
            name = outcome.baseline if outcome.recording is None else outcome.recording.name
            is_recorded = (outcome.recording or outcome.program) is not None
            problem = lost.get(name) if is_recorded and name is not None else None
            changed = outcome if problem is None else outcome.without_recording(problem)
            if problem is not None and changed.has_failed:
                self.unstored[outcome.test] = problem
            kept.append(changed)
        return kept

    def _updates(self, outcomes: Sequence[CaseOutcome], lost: dict[str, str]) -> list[UpdatePlan]:
        recordings = [o.recording for o in outcomes if o.recording is not None]
        if not recordings:
            return []
        from pytest_modelperf.baselines.changes import plan_update
        from pytest_modelperf.baselines.recording import merge_recordings

        plans = []
        # Each kind of machine has its own file.
        parts_of: dict[tuple[str, str | None], list[BaselineRecording]] = {}
        for recording in recordings:
            key = None if recording.machine is None else recording.machine.key
            parts_of.setdefault((recording.name, key), []).append(recording)
        for (name, _), parts in parts_of.items():
            with self._noting_problems(name, lost):
                whole = merge_recordings(parts)
                keys = () if whole.machine is None else (whole.machine.key,)
                plans.append(plan_update(self._store.read(name, keys), whole))
        return plans

    def _removals(self, unused: _Unused | None) -> list[UpdatePlan]:
        if unused is None or not self.run.settings.prune:
            return []
        from pytest_modelperf.baselines.changes import plan_removal

        return [plan_removal(stored, gone) for stored, gone in unused]

    def _write(self, plans: Sequence[UpdatePlan], lost: dict[str, str]) -> list[UpdatePlan]:
        written = []
        for plan in plans:
            with self._noting_problems(plan.name, lost):
                written.append(self._store.apply(plan))
        return written

    def _write_programs(
        self, outcomes: Sequence[CaseOutcome], lost: dict[str, str], notes: list[str]
    ) -> None:
        recorded = [(o.baseline, o.program) for o in outcomes if o.program is not None]
        if not recorded:
            return
        from pytest_modelperf.baselines.program_store import write_program

        written = []
        for name, program in recorded:
            if name is None or program is None:
                continue
            with self._noting_problems(name, lost):
                if write_program(self.run.settings.baseline_dir, name, program):
                    written.append(name)
        if written:
            named = shorten_list([*map(printable, written)], _MOST_NAMED)
            notes.append(f"recorded {count_of(len(written), 'program')}: {named}")

    def _find_unused(
        self, outcomes: Sequence[CaseOutcome], known: KnownTests, notes: list[str]
    ) -> _Unused | None:
        if not _selects_all(self.run.config, known):
            if self.run.settings.prune:
                notes.append(_NOT_PRUNED)
            return None
        found = None
        with self._noting_problems():
            found = self._unused(outcomes, known)
        return found  # noqa: RET504  # None if a baseline could not be read

    def _unused(self, outcomes: Sequence[CaseOutcome], known: KnownTests) -> _Unused:
        used = set(known.cases) | {(o.baseline, o.comparison.id) for o in outcomes if o.baseline}
        found = []
        for name in self._store.names():
            stored = self._store.read(name)
            if stored is not None:
                gone = [c.id for c in stored.model.cases if (name, c.id) not in used]
                if gone:
                    found.append((stored, gone))
        return found

    def _unused_programs(self, known: KnownTests) -> tuple[tuple[str, str], ...]:
        from pytest_modelperf.baselines.program_store import program_names, read_program

        root = self.run.settings.baseline_dir
        used = known.tests | known.open
        gone = []
        with self._noting_problems():
            for name in program_names(root):
                stored = read_program(root, name)
                if stored is not None and stored.test not in used:
                    gone.append((name, stored.test))
        return tuple(gone)

    def _remove_programs(self, programs: Sequence[tuple[str, str]]) -> Iterator[str]:
        from pytest_modelperf.baselines.program_store import remove_program

        for name, test in programs:
            with self._noting_problems():
                remove_program(self.run.settings.baseline_dir, name)
                yield f"removed the baseline of {printable(test)}, which is not a test any more"

    # -- history and reports

    def _write_history(
        self, outcomes: Sequence[CaseOutcome], plans: Iterable[UpdatePlan], started: dt.datetime
    ) -> None:
        """Add the cases to the history. `plans` are this run's updates, even unwritten ones."""
        folder = self.run.settings.history_folder
        if folder is not None:
            from pytest_modelperf.testing.history_lines import write_history

            with self._noting_problems():
                write_history(folder, self.run.settings, outcomes, plans, started)

    def _write_reports(self, report: RunReport) -> None:
        settings = self.run.settings
        folder = self.run.config.invocation_params.dir
        if settings.json is not None:
            from pytest_modelperf.testing.report import dump_run

            self._write_text(folder / settings.json, dump_run(report))
        if settings.markdown is not None or in_github():
            from pytest_modelperf.report.markdown import MarkdownStyle
            from pytest_modelperf.report.render import render_report
            from pytest_modelperf.testing.report import MAX_BYTES, run_report

            text = render_report(run_report(report), MarkdownStyle(MAX_BYTES))
            if settings.markdown is not None:
                self._write_text(folder / settings.markdown, text)
            summary = os.environ.get(_SUMMARY_FILE)
            if in_github() and summary and report.outcomes:
                self._add_text(Path(summary), text)
        if settings.html is not None:
            from pytest_modelperf.history.repository import find_links
            from pytest_modelperf.report.html.render import render_page
            from pytest_modelperf.testing.report import run_report

            links = find_links(settings.root, os.environ)
            page = render_page(run_report(report, links=links))
            self._write_text(folder / settings.html, page)
        if settings.benchmark_json is not None:
            from pytest_modelperf.testing.formats import dump_benchmarks

            self._write_text(folder / settings.benchmark_json, dump_benchmarks(report, __version__))
        if settings.bencher_json is not None:
            from pytest_modelperf.testing.formats import dump_bencher_run

            self._write_text(folder / settings.bencher_json, dump_bencher_run(report))

    def _write_text(self, path: Path, text: str) -> None:
        with self._noting_problems(), written_text(path) as file:
            file.write(text)

    def _add_text(self, path: Path, text: str) -> None:
        with self._noting_problems():
            try:
                with path.open("a", encoding="utf-8", newline="\n") as file:
                    file.write(text)
            except OSError as error:
                raise cannot_write(str(path), error) from error


def _without_result(outcomes: Sequence[CaseOutcome], known: KnownTests) -> Iterator[str]:
    """Yield a note on the tests that failed without an outcome, if others have outcomes."""
    lost = sorted((known.tests & known.failed) - {outcome.test for outcome in outcomes})
    if outcomes and lost:
        named = shorten_list([*map(printable, lost)], _MOST_NAMED)
        yield f"no result of {named}: failed before there was one"


def _uncollected(known: KnownTests) -> Iterator[str]:
    """Yield a note for each file that could not be collected, as it may have tests of models."""
    found = list(known.uncollected.items())
    for file, reason in found[:_MOST_NAMED]:
        yield f"not tested: {printable(file)}: {reason.removeprefix(f'{printable(file)}: ')}"
    more = len(found) - _MOST_NAMED
    if more > 0:
        yield f"not tested: {more:,} more files that could not be collected"


def _not_reached(outcomes: Sequence[CaseOutcome], known: KnownTests) -> Iterator[str]:
    """Yield a note on tests that did not end. Without it, the report would look complete."""
    tests = known.tests | known.open
    left = len(tests - known.over - known.failed)
    if left:
        count = count_of(len(tests), "test")
        yield f"the run ended early: {left:,} of {count} of models did not end"
    elif outcomes and not tests:
        # After an interrupt, pytest-xdist workers do not report their tests.
        yield "the run ended early: tests of models may be missing"


def _skipped(outcomes: Sequence[CaseOutcome], known: KnownTests) -> Iterator[str]:
    """Yield a note on tests of models that the project skipped before they judged a case."""
    skipped = known.skipped & (known.tests | known.open)
    tests = sorted(skipped - {outcome.test for outcome in outcomes})
    if tests:
        were = "1 test was" if len(tests) == 1 else f"{len(tests):,} tests were"
        named = shorten_list([*map(printable, tests)], _MOST_NAMED)
        yield f"{were} skipped by the project itself, and not judged: {named}"


def _functions_left_out(outcomes: Sequence[CaseOutcome]) -> Iterator[str]:
    """Yield notes on functions that were not judged, recorded, compared or sent."""
    for note in (NOTHING_JUDGED, NOTHING_RECORDED, NO_OLDER_VERSION, NOT_SENT):
        tests = [printable(o.test) for o in outcomes if note in o.comparison.notes]
        if tests:
            yield f"{note}: {shorten_list(tests, _MOST_NAMED)}"


def _untrusted(outcomes: Iterable[CaseOutcome]) -> Iterator[str]:
    """Yield a note on each recorded twin that is not trusted, with a remedy."""
    for outcome in outcomes:
        recording = outcome.recording if outcome.is_recorded else None
        for case in () if recording is None else recording.cases:
            if case.fidelity is not None and not case.fidelity.is_trusted:
                yield (
                    f"{outcome.test}: {case.fidelity.reason}, so later runs are compared with "
                    f"stored times: {_remedy(case.fidelity)}"
                )


def _remedy(fidelity: Fidelity) -> str:
    """Advise to keep the older model if its twin differs, or else to record with more time."""
    if fidelity.shows_difference:
        return (
            "keep the older model and name it with --modelperf-against, which runs it instead of "
            "its twin"
        )
    return "record it again with more --modelperf-max-seconds, or when less else runs here"


def _unlinked(outcomes: Iterable[CaseOutcome]) -> Iterator[str]:
    """Yield a note on each recorded case whose curve in the history may begin again."""
    for outcome in outcomes:
        problem = None if outcome.link is None else outcome.link.problem
        if problem is not None and outcome.is_recorded:
            yield (
                f"{outcome.test}: the history has no ratio of this model to the previous baseline "
                f"({problem}), so its curve starts over, unless an earlier run measured it"
            )


def check_targets(settings: RunSettings, folder: Path, inputs: Iterable[Path]) -> None:
    """Raise UsageError for a file that cannot be written, before anything is measured."""
    if settings.html is not None:
        from pytest_modelperf.report.html.render import check_html_extra

        check_html_extra(HTML.flag)
    if settings.history_folder is not None:
        from pytest_modelperf.history.store import HistoryStore

        HistoryStore(settings.history_folder).check_writable()
    if settings.update is not None or settings.prune:
        from pytest_modelperf.baselines.store import BaselineStore

        BaselineStore(settings.baseline_dir).check_writable()
    targets = {}
    for report in (JSON, MARKDOWN, HTML, BENCHMARK_JSON, BENCHER_JSON):
        target = getattr(settings, report.field)
        if target is None:
            continue
        if is_stdout(target):
            raise UsageError(
                f"{report.flag} takes a file: standard output has the report of pytest."
            )
        targets[report.flag] = folder / target
    # Folders are excluded: a folder of tests may contain the report of an earlier run.
    check_report_files(targets, [path for path in inputs if not path.is_dir()])


def in_github() -> bool:
    """Whether this is a step of GitHub Actions, which reads annotations from the output."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def path_in_repository(root: Path) -> str:
    """Return the root of a run relative to the top of the repository, with slashes.

    The workspace of a job is the repository, unless that was checked out into a subfolder.
    """
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or root)
    tops = [folder for folder in (workspace, root, *root.parents) if (folder / ".git").exists()]
    top = next((folder for folder in tops if root.is_relative_to(folder)), root)
    return root.relative_to(top).as_posix()


def _selects_all(config: pytest.Config, known: KnownTests) -> bool:
    """Whether all tests were collected, and those that name cases while they run all passed."""
    is_narrowed = (
        config.args_source is pytest.Config.ArgsSource.ARGS
        or config.invocation_params.dir != config.rootpath
        or not set(_whole_project(config)) <= set(config.args)
        or known.deselected
        # --lf leaves tests out silently. Without pytest's cache, the option does not exist.
        or config.getoption("lf", default=False)
        or any(
            setting.partition("=")[0] in _COLLECTING
            for setting in config.getoption("override_ini") or ()
        )
    )
    # A test passes its call even if subtests failed. It may also pass some of them and not end.
    return not is_narrowed and known.open <= known.passed - known.failed


def _whole_project(config: pytest.Config) -> Iterator[str]:
    """Yield the paths that pytest collects by default. A plugin may have named others."""
    folder = config.invocation_params.dir
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        yield str(folder)
        return
    for pattern in config.getini("testpaths"):
        yield from iglob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207  # as pytest does
