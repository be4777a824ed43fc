"""A test run: its settings, the checks that it makes, and the outcome of each case."""

from __future__ import annotations

import datetime as dt
import inspect
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.comparing.budgets import FigureSource
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import ModelPerfError, OutputError, TooFewCoresError, UsageError
from pytest_modelperf.files.output import cannot_write, written_text
from pytest_modelperf.spec import run_definitions as definitions
from pytest_modelperf.spec.run_definitions import STRICT, Setting
from pytest_modelperf.spec.sized_case import SizedCase
from pytest_modelperf.spec.sources import RunSettings
from pytest_modelperf.testing.left_out import require_this_machine
from pytest_modelperf.testing.markers import (
    FindModel,
    FoundCase,
    LateModels,
    path_below,
    read_mark_budgets,
)
from pytest_modelperf.testing.outcome_names import failed_outcome, source_of
from pytest_modelperf.testing.outcomes import CaseOutcome
from pytest_modelperf.testing.pytest_internals import functions_of, is_skipped
from pytest_modelperf.testing.startup import CASE_ARGUMENT, FIXTURE, SUFFIXES
from pytest_modelperf.testing.wording import PYTHON_WORDING, record
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.comparing.budgets import Budget
    from pytest_modelperf.comparing.since_recorded import EngineChange
    from pytest_modelperf.obtaining.origins import ModelOrigin
    from pytest_modelperf.profiler.hookspecs import Extensions
    from pytest_modelperf.profiler.model_in_worker import Watch
    from pytest_modelperf.profiler.records import Case, CaseProfile
    from pytest_modelperf.profiler.shared_worker import SharedWorkers
    from pytest_modelperf.spec.case_spec import TestedModel
    from pytest_modelperf.testing.case_check import CaseCheck
    from pytest_modelperf.testing.checking import Checked, ChecksCases

_BAD = frozenset({Verdict.REGRESSED, Verdict.OVER_BUDGET})
_UNSURE = frozenset({Verdict.INCONCLUSIVE, Verdict.NEW})
OUTCOMES = pytest.StashKey["list[CaseOutcome]"]()
# The case of a test whose model did not exist when it was collected.
_FOUND = pytest.StashKey[FoundCase]()


class Run(Struct):
    """The state that all tests of a run share.

    `judged` is the number of figures that the whole run judges. They share its chance of a false
    alarm. `width` and `encoding` are those of the terminal. `current` is the running test, and
    `checked` is the profile of its case once it is checked. The report shows the `notes`. `early`
    are workers that already start, for the first cases that need plans.
    """

    config: pytest.Config
    settings: RunSettings
    width: int
    encoding: str
    watch: Watch
    early: SharedWorkers | None = None
    judged: int = 1
    current: pytest.Item | None = None
    checked: CaseProfile | None = None
    notes: list[str] = field(default_factory=list)
    _checker: ChecksCases | None = None
    _checks: int = 0
    _programs: int = 0
    _engine_changes: Mapping[EngineChange, int] | None = None
    _late: LateModels | None = None

    @property
    def late_models(self) -> LateModels:
        """The models that did not exist when their tests were collected."""
        if self._late is None:
            self._late = LateModels(self.config, self.settings)
        return self._late

    def find_case(self, item: pytest.Item, case: SizedCase, fixtures: Mapping[str, object]) -> None:
        """Find the model of a test's case, and keep the case for this run of the test."""
        __tracebackhide__ = True
        item.stash[_FOUND] = self.late_models.find_case(item, case, fixtures)

    @property
    def checker(self) -> ChecksCases:
        """The checker, made at the first check because it imports everything that measures."""
        if self._checker is None:
            from pytest_modelperf.baselines.store import BaselineStore
            from pytest_modelperf.testing.case_check import CheckContext
            from pytest_modelperf.testing.checking import Checker

            settings = self.settings
            context = CheckContext(
                store=BaselineStore(settings.baseline_dir),
                root=settings.root,
                extensions=_extensions_of(self.config),
                today=dt.datetime.now(dt.timezone.utc).date(),
                update=settings.update,
                is_static=settings.static_only,
                against=settings.against,
                baseline_python=settings.baseline_python,
                baseline_requirements=settings.baseline_requirements,
                judges_upgrades=settings.judges_upgrades,
                keeps_samples=settings.benchmark_json is not None,
                history=settings.history_folder,
                watch=self.watch,
            )
            self._checker = Checker(context)
        return self._checker

    @checker.setter
    def checker(self, checker: ChecksCases) -> None:
        self._checker = checker

    def close(self) -> None:
        """Remove the twins that were kept for the next test."""
        if self._checker is not None:
            self._checker.context.twins.close()

    # -- cases to check

    def settle_ahead(self, items: Iterable[pytest.Item]) -> None:
        """Settle the cases of these tests that need no measurement, before the first test runs."""
        from pytest_modelperf.baselines.store import BaselineStore
        from pytest_modelperf.testing.ahead import SettledCache
        from pytest_modelperf.testing.checking import Checker

        run = getattr(self.config, "workerinput", {}).get("testrunuid")
        cache = None if self.settings.no_cache else SettledCache.of_user(run)
        checker = self.checker
        # A pytest-xdist worker collects all tests, and does not know yet which of them it runs.
        if not isinstance(checker, Checker) or (cache is None and run is not None):
            return
        try:
            stored = set(BaselineStore(self.settings.baseline_dir).names())
        except ModelPerfError:
            # Each test reports the folder that cannot be read.
            return
        checks = [check for check in self.first_checks(items) if check.baseline in stored]
        if checks:
            from pytest_modelperf.testing.ahead import settle_ahead

            self.checker = settle_ahead(checker, checks, cache, self.early)

    def end_early(self) -> None:
        """End the workers that started early. No test needs them."""
        early, self.early = self.early, None
        if early is not None:
            early.end()

    def begin(self, item: pytest.Item) -> None:
        """Note that a test starts, perhaps for the second time."""
        self.current, self.checked, self._checks, self._programs = item, None, 0, 0
        if _FOUND in item.stash:
            del item.stash[_FOUND]

    def count(self, items: Iterable[pytest.Item]) -> None:
        """Count the figures that these tests judge.

        The number of calls of the fixture is not known before a test runs, so the figures of a test
        with the fixture count twice.
        """
        self.judged = max(1, sum(map(self._judged_by, items)))

    def _judged_by(self, item: pytest.Item) -> int:
        case = case_of(item)
        if self.settings.static_only or (case is None and not uses_fixture(item)):
            return 0
        budgets = read_mark_budgets(item) if case is None else case.budgets
        return self._count_figures(budgets) * (2 if uses_fixture(item) else 1)

    def spend_level(self, item: pytest.Item, check: CaseCheck) -> CaseCheck:
        """Set the error level of each figure of the check.

        A test with the fixture spends half of its level on the first check, a sixth on the second,
        and 1 / (k (k + 1)) on the k-th: at most the whole level, for any number of calls.
        """
        self._checks += 1
        return self._with_level(item, check, self._checks)

    def first_checks(self, items: Iterable[pytest.Item]) -> Iterator[CaseCheck]:
        """Yield the first check of each test, unless its markers skip the test.

        Errors are ignored here, because the test itself reports them.
        """
        for item in items:
            case = case_of(item)
            if case is not None and case.origin is None and not is_skipped(item):
                with suppress(ModelPerfError):
                    yield self._with_level(item, self.case_check(item, case), 1)

    def _with_level(self, item: pytest.Item, check: CaseCheck, number: int) -> CaseCheck:
        judged = self._judged_by(item)
        if not judged:
            return check
        parts = number * (number + 1) if uses_fixture(item) else 1
        figures = self._count_figures(check.budgets)
        level = check.gate.level * judged / parts / figures
        return replace(check, gate=replace(check.gate, level=level))

    def _count_figures(self, budgets: Iterable[Budget]) -> int:
        """Count the figures of a case: its ratio, uncertain limits, and perhaps its engine."""
        is_upgrade = self.settings.judges_upgrades and bool(self.engine_changes)
        limits = sum(not b.figure.is_exact for b in budgets)
        return 1 + is_upgrade + limits

    @property
    def engine_changes(self) -> Mapping[EngineChange, int]:
        """The engines that changed since baselines were recorded, if the run uses baselines."""
        settings = self.settings
        names_engine = settings.baseline_python is not None or bool(settings.baseline_requirements)
        if names_engine or not settings.runs_beside_baselines:
            return {}
        if self._engine_changes is None:
            from pytest_modelperf.baselines.store import BaselineStore
            from pytest_modelperf.testing.older import find_engine_changes

            self._engine_changes = find_engine_changes(BaselineStore(settings.baseline_dir))
        return self._engine_changes

    def case_check(
        self, item: pytest.Item, case: SizedCase, *, has_baseline: bool = True
    ) -> CaseCheck:
        from pytest_modelperf.comparing.gates import Gate
        from pytest_modelperf.stats.decisions import share_level
        from pytest_modelperf.stats.records import rounds_within
        from pytest_modelperf.testing.case_check import CaseCheck

        settings = self.settings.for_model(case.spec)
        has_baseline = has_baseline and not case.is_function
        self.require_machine(case)
        return CaseCheck(
            test=str(item.nodeid),
            case_id=case.id,
            source=source_of(item),
            model=case.existing_model,
            baseline=self.baseline_of(case) if has_baseline else None,
            request=case.request,
            setup=settings.setup(
                self.checker.context.extensions,
                PYTHON_WORDING,
                spec=settings.gateway_spec,
                is_stretched=not settings.has_given_seconds,
            ),
            gate=Gate(
                tolerances=settings.tolerances.of_phase(case.phase),
                level=share_level(self.judged),
                rounds=rounds_within(settings.max_seconds),
            ),
            budgets=self._located(item, case.budgets),
            measure=settings.measure,
            sketches_outputs=settings.output_sketch,
            accept=self.accept(item) if has_baseline else None,
            machine=case.machine,
            keeps_profile=uses_fixture(item) or settings.trace is not None,
        )

    def _located(self, item: pytest.Item, budgets: Sequence[Budget]) -> tuple[Budget, ...]:
        find = FindModel(item.path, self.settings.root)
        return tuple(
            replace(budget, companion=str(find(str(budget.companion))))
            if budget.figure.source is FigureSource.OTHER_MODEL and not budget.names_function
            else budget
            for budget in budgets
        )

    def require_machine(self, case: SizedCase) -> None:
        """Raise UsageError for another machine's case, unless a cluster is used or nothing runs."""
        settings = self.settings
        if case.machine is not None and not settings.uses_cluster and not settings.static_only:
            require_this_machine(case.machine)

    def baseline_of(self, case: SizedCase) -> str:
        """Return the folder of the baseline, or raise UsageError for a model without a name."""
        from pytest_modelperf.files.names import folder_name

        if case.spec.baseline is not None:
            return folder_name(case.spec.baseline)
        model, root = case.existing_model, self.settings.root
        if isinstance(model, str | os.PathLike):
            path = Path(os.path.normpath(root / model))
            inner = path_below(path, root)
            if inner is not None:
                return folder_name(inner)
            found = f"{path} is not below {root}"
        else:
            found = "a model that is not a file has no path"
        raise UsageError(f"{found}: name its baseline, as in baseline='models/encoder.onnx'.")

    def accept(self, item: pytest.Item) -> str:
        """Return the command that records this case, with the typed engine."""
        file, separator, name = _id_to_type(item).partition("::")
        folder = self.config.invocation_params.dir
        # The id has no path if the test was named on the command line and is not below the root.
        path = self.config.rootpath / (file or item.path)
        test = f"{os.path.relpath(path, folder)}{separator}{name}"
        # pytest reads a text with these first characters as an option or a file of arguments.
        test = f"./{test}" if test.startswith(("-", "@")) else test
        # Double quotes are easier to read, but a shell interprets some characters in them.
        quoted = shlex.quote(test) if set('"$`\\!') & set(test) else f'"{test}"'
        return record(self.typed_options, quoted)

    @property
    def typed_options(self) -> tuple[str, ...]:
        """The typed options that a command for the same baselines must repeat."""
        settings = self.settings
        pairs = [f"{key}={value}" for key, value in settings.engine_options.items()]
        values: tuple[tuple[Setting, list[str]], ...] = (
            (definitions.BASELINE_DIR, [str(settings.baseline_dir)]),
            (definitions.ENGINE, [settings.engine]),
            (definitions.ENGINE_OPTION, pairs),
            (definitions.GATEWAY, [str(settings.gateway)]),
        )
        overridden = [
            text
            for text in self.config.getoption("override_ini") or ()
            if text.partition("=")[0] in {setting.ini for setting, _ in values}
        ]
        typed = [
            # These set the root, which contains the baselines and the settings.
            ("--rootdir", self.config.getoption("rootdir")),
            ("--config-file", self.config.getoption("inifilename")),
            *(("--override-ini", text) for text in overridden),
            *(
                (setting.flag, value)
                for setting, found in values
                if setting.key in settings.typed
                for value in found
            ),
        ]
        return tuple(
            f"{flag}={shlex.quote(str(value))}" for flag, value in typed if value is not None
        )

    # -- outcomes

    def check(self, item: pytest.Item, check: CaseCheck) -> Checked:
        """Check a case, and keep its outcome for the reports."""
        checked = self.checker.check(self.spend_level(item, check))
        found = item.stash.get(_FOUND, None)
        if found is not None and found.note is not None and found.case.request is check.request:
            checked = checked.with_note(found.note)
        item.stash.setdefault(OUTCOMES, []).extend(checked.outcomes)
        if self.settings.trace is not None and not self.settings.static_only:
            self._write_trace(item, check, checked)
        return checked

    def _write_trace(self, item: pytest.Item, check: CaseCheck, checked: Checked) -> None:
        from pytest_modelperf.files.names import shorten_name
        from pytest_modelperf.profiler.records import Profile
        from pytest_modelperf.tracing.chrome_trace import dump_trace

        if checked.outcome.has_failed:
            # The failed test says why.
            return
        profile = checked.profile
        has_layers = profile is not None and profile.has_layer_times
        if profile is None or not has_layers:
            profile = self.checker.measure(check)
        others = {}
        if has_layers and checked.before is not None:
            others = {profile.case.id: checked.before}
        folder = self.config.invocation_params.dir / str(self.settings.trace)
        parts = re.split("/|::", item.nodeid)
        if self._checks > 1:
            # A test may check several cases.
            parts.append(str(self._checks))
        name = shorten_name("--".join(quote(part, safe="[] ") for part in parts))
        profile_of_model = Profile(checked.outcome.model, (profile,), checked.outcome.machine)
        text = dump_trace(profile_of_model, others)
        try:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise cannot_write(str(folder), error) from error
            with written_text(folder / f"{name}.json") as file:
                file.write(text)
        except OutputError as error:
            raise OutputError(f"{error} Give another folder with --modelperf-trace.") from error

    def note_failure(self, item: pytest.Item, case: SizedCase, message: str) -> None:
        """Keep an unjudged case for the reports, with the message of its test."""
        baseline = None
        if not case.is_function and case.origin is None:
            # The error may be that the model has no name for its baseline.
            with suppress(UsageError):
                baseline = self.baseline_of(case)
        self.note_failed_model(item, case.model, message, case.case, baseline)

    def note_failed_model(
        self,
        item: pytest.Item,
        model: TestedModel | ModelOrigin,
        message: str,
        case: Case | None = None,
        baseline: str | None = None,
    ) -> None:
        """Keep an unreadable or unmeasured model for the reports. Its case may be unknown."""
        failed = failed_outcome(item, model, message, case, baseline)
        item.stash.setdefault(OUTCOMES, []).append(failed)

    def is_failure(self, outcome: CaseOutcome) -> bool:
        if outcome.has_failed or outcome.verdict in _BAD:
            return True
        is_accepted = (outcome.recording or outcome.program) is not None
        return self.settings.strict and outcome.verdict in _UNSURE and not is_accepted

    def skips(self, error: ModelPerfError) -> bool:
        """Whether an error skips the test. In a strict run, it fails the test."""
        return isinstance(error, TooFewCoresError) and not self.settings.strict

    def with_way_out(self, error: ModelPerfError, item: pytest.Item | None) -> ModelPerfError:
        """Add advice to the error of a test that fails only because the run is strict."""
        if isinstance(error, TooFewCoresError) and item is not None:
            test = shlex.quote(printable(_id_to_type(item)))
            way_out = (
                f"{STRICT.flag} fails a case that cannot run here: leave it out of strict "
                f"runs with --deselect {test}, or skip its test there by a marker."
            )
            error.details = (*error.details, way_out)
        return error

    def keep(self, item: pytest.Item, outcome: CaseOutcome) -> None:
        item.stash.setdefault(OUTCOMES, []).append(outcome)

    def count_program(self) -> int:
        self._programs += 1
        return self._programs

    def require_passed(self, outcomes: Iterable[CaseOutcome], margin: int = 0) -> None:
        """Raise PerfFailure with all outcomes that fail the test."""
        failed = [outcome for outcome in outcomes if self.is_failure(outcome)]
        if failed:
            from pytest_modelperf.report.page import TextStyle
            from pytest_modelperf.report.render import render_report
            from pytest_modelperf.testing.report import outcome_report

            style = TextStyle(max(40, self.width - margin), encoding=self.encoding)
            has_details = self.config.get_verbosity() > 0
            reports = map(outcome_report, failed)
            texts = [render_report(each, style, has_details=has_details) for each in reports]
            raise PerfFailure("\n".join(texts))


class PerfFailure(Exception):  # noqa: N818  # pytest calls it a failure, and so do users
    """A test of a model failed. pytest shows only the text, without a traceback."""


def case_of(item: pytest.Item) -> SizedCase | None:
    """Return the case of a test, from its markers or as a collected model."""
    found = item.stash.get(_FOUND, None)
    own = found.case if found is not None else getattr(item, "case", None)
    return own if isinstance(own, SizedCase) else _parameters(item).get(CASE_ARGUMENT)


def read_late_budgets(item: pytest.Item) -> None:
    """Add the budgets of markers that were added after the case of a test was made.

    These are the markers of parameters, and those that a conftest adds.
    """
    case: SizedCase | None = _parameters(item).get(CASE_ARGUMENT)
    if case is not None:
        budgets = read_mark_budgets(item)
        if budgets != case.spec.budgets:
            spec = replace(case.spec, budgets=budgets)
            _parameters(item)[CASE_ARGUMENT] = replace(case, spec=spec)


def _id_to_type(item: pytest.Item) -> str:
    """Return the id that selects a test. pytest-xdist may append its group to `nodeid`."""
    return item.nodeid if item.parent is None else f"{item.parent.nodeid}::{item.name}"


def _parameters(item: pytest.Item) -> dict[str, Any]:
    found: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return found


def uses_fixture(test: pytest.Item) -> bool:
    """Whether a test or its fixtures take the fixture, or have its name to request it later."""
    if FIXTURE in getattr(test, "fixturenames", ()):
        return True
    codes = (getattr(inspect.unwrap(each), "__code__", None) for each in functions_of(test))
    return any(FIXTURE in getattr(code, "co_consts", ()) for code in codes)


def may_judge(test: pytest.Item) -> bool:
    """Whether a test is a model, is marked with cases, or uses the fixture."""
    return test.path.suffix in SUFFIXES or case_of(test) is not None or uses_fixture(test)


def _extensions_of(config: pytest.Config) -> Extensions:
    """Return the extensions that are installed or that a conftest registers."""
    from pytest_modelperf.profiler.hookspecs import (
        collect_extensions,
        is_hook_name,
        make_plugin_manager,
        register_plugin,
    )

    manager = make_plugin_manager()
    for plugin in config.pluginmanager.get_plugins():
        if any(map(is_hook_name, dir(plugin))):
            register_plugin(manager, plugin)
    return collect_extensions(manager)
