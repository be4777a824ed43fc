"""A run that measures on a cluster, which gets its cases ahead of the tests that await them.

A lost scheduler ends the run.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.baselines.records import Baseline
from pytest_modelperf.cluster.cluster import Cluster, open_cluster, request_job
from pytest_modelperf.cluster.machines import status_line
from pytest_modelperf.cluster.models import read_content
from pytest_modelperf.cluster.places import parse_place
from pytest_modelperf.cluster.records import ClusterStatus, Job, ModelContent
from pytest_modelperf.cluster.wire import from_text
from pytest_modelperf.comparing.budgets import FigureSource
from pytest_modelperf.comparing.records import CaseComparison, Comparison
from pytest_modelperf.errors import ModelPerfError, UsageError
from pytest_modelperf.graph.model_file import ModelSource, open_model
from pytest_modelperf.profiler.hookspecs import Extensions, is_hook_name
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.model_request import (
    MeasureRequest,
    ModelRun,
    SentRequest,
    case_label,
)
from pytest_modelperf.profiler.records import CaseProfile, Profile
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.spec.run_definitions import CLUSTER, UpdateMode
from pytest_modelperf.testing.case_budgets import require_measured
from pytest_modelperf.testing.case_check import CaseCheck, CheckContext, CheckOf, baseline_of_case
from pytest_modelperf.testing.checking import Checked, Checker, compare_request, of_model
from pytest_modelperf.testing.judging import older_model
from pytest_modelperf.testing.left_out import allowed_names, names_of_kinds
from pytest_modelperf.testing.outcomes import NOT_SENT
from pytest_modelperf.testing.pytest_internals import distributes
from pytest_modelperf.testing.run import Run
from pytest_modelperf.testing.wording import PYTHON_WORDING
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of, shorten_list


class CheckRequest(Struct, frozen=True, kw_only=True):
    """A check for a machine, with the settings of the run that concern it.

    `check` is without its model, which is in `model`. `stored` is the packed baseline of the case.
    With `takes_layers`, the profile has the times of layers.
    """

    model: ModelRun
    check: CheckOf[None]
    stored: bytes | None
    against: str | None
    older: ModelRun | None
    today: dt.date
    update: UpdateMode | None
    keeps_samples: bool
    keeps_history: bool
    takes_layers: bool

    @property
    def request(self) -> ProfileRequest:
        return self.check.request

    def run(self, extensions: Extensions, watch: Watch) -> Checked:
        """Check the case on this machine."""
        checker = Checker(
            CheckContext(
                store=SentBaseline(None if self.stored is None else _unpack(self.stored)),
                root=Path(),
                extensions=extensions,
                today=self.today,
                update=self.update,
                against=self.against,
                older=None if self.older is None else Path(str(self.older.source)),
                keeps_samples=self.keeps_samples,
                # The folder is never read: a path only means that a recorded case needs its link.
                history=Path() if self.keeps_history else None,
                watch=watch,
            )
        )
        setup = replace(self.model.setup, wording=PYTHON_WORDING)
        check: CaseCheck = self.check.of(self.model.source, self.request, setup)
        with closing(checker.context.twins):
            checked = checker.check(check)
        outcome = checked.outcome
        if outcome.machine is None:
            # Nothing ran. The client could not find out which machine checked the case.
            checked = replace(checked, outcome=replace(outcome, machine=checker.context.machine))
        answer = checked if check.keeps_profile else Checked(checked.outcome, None)
        if self.takes_layers and not _has_layers(checked):
            # Measured on the same machine, so that the trace belongs to it.
            answer = replace(answer, profile=checker.measure(check), before=None)
        return answer


class SentBaseline(Struct, frozen=True):
    """The baseline that was sent with a job, in place of a folder of baselines."""

    baseline: Baseline | None

    def read(self, name: str, machines: Sequence[str] | None = None) -> Baseline | None:  # noqa: ARG002  # as a store
        """Return the baseline with its measurements on these machines, or on all."""
        if self.baseline is None or machines is None:
            return self.baseline
        kept = tuple(each for each in self.baseline.machines if each.key in machines)
        return replace(self.baseline, machines=kept)


def check_request(
    check: CaseCheck,
    context: CheckContext,
    stored: Baseline | None,
    *,
    older: Path | None,
    takes_layers: bool,
) -> CheckRequest:
    (case,) = check.request.split()
    return CheckRequest(
        model=ModelRun(check.graph, check.setup),
        check=check.of(None, case, check.setup),
        stored=None if stored is None else _pack(stored, check.case_id),
        against=context.against,
        older=None if older is None else ModelRun(older),
        today=context.today,
        update=context.update,
        keeps_samples=context.keeps_samples,
        keeps_history=context.history is not None,
        takes_layers=takes_layers,
    )


def _has_layers(checked: Checked) -> bool:
    """Whether layers were timed, or are not needed because the case failed."""
    profile = checked.profile
    return checked.outcome.has_failed or (profile is not None and profile.has_layer_times)


def _pack(stored: Baseline, case_id: str) -> bytes:
    """Pack the part of a baseline for one case. This shrinks samples to a third."""
    return zlib.compress(msgspec.msgpack.encode(baseline_of_case(stored, case_id)))


def _unpack(data: bytes) -> Baseline:
    return msgspec.msgpack.decode(zlib.decompress(data), type=Baseline)


# -- checks the cases of a run on a cluster


# How often the status of the jobs is shown.
_SHOWN_EVERY_S = 0.2

_Result = TypeVar("_Result")


class ClusterTerms(Struct, frozen=True, kw_only=True):
    """The settings for the use of a cluster by a run.

    `machines` are the keys and tags of machines that it may use. Without any, it may use all.
    `plugins` are the modules of extensions. `folder` is for models that are not files. `kept` holds
    older models until the run ends. `show` is called while a test waits.
    """

    folder: Path
    kept: ExitStack
    machines: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    takes_layers: bool = False
    show: Callable[[], None] = lambda: None


class _Submitted(Struct, frozen=True):
    check: CaseCheck
    future: Future[str]


class ClusterChecker(Struct, frozen=True):
    """The checker that uses a cluster. Cases that only this process can measure run here."""

    here: Checker
    cluster: Cluster
    terms: ClusterTerms
    _ahead: dict[str, _Submitted] = field(default_factory=dict)
    _older: dict[Path, Path] = field(default_factory=dict)
    _contents: dict[tuple[object, ...], ModelContent] = field(default_factory=dict)

    @property
    def context(self) -> CheckContext:
        return self.here.context

    # -- ahead of the tests

    def require(self, checks: Iterable[CaseCheck]) -> None:
        """Raise ClusterError if no machine may run one of these checks, or if software differs."""
        by_engine: dict[str | None, set[tuple[str, ...]]] = {}
        for check in checks:
            if not check.is_bound_here:
                by_engine.setdefault(check.setup.engine.name, set()).add(self._allowed(check))
        # A run needs a machine even if no case is known before its tests run.
        for engine, wanted in (by_engine or {None: {self.terms.machines}}).items():
            self.cluster.require(sorted(wanted), engine, self.terms.plugins)

    def submit(self, checks: Iterable[CaseCheck]) -> None:
        """Submit these checks in order. If one is invalid, its test reports the error."""
        for check in checks:
            if check.test not in self._ahead and not check.is_bound_here:
                with suppress(ModelPerfError):
                    future = self.cluster.submit(self._check_job(check))
                    self._ahead[check.test] = _Submitted(check, future)

    def finish(self, test: str) -> None:
        """Cancel the check of a test that ended without waiting for it."""
        submitted = self._ahead.pop(test, None)
        if submitted is not None:
            submitted.future.cancel()

    # -- in the tests

    def check(self, check: CaseCheck) -> Checked:
        if check.is_bound_here:
            return _measured_here(self.here.check(_without_machine(check)), check)
        submitted = self._ahead.get(check.test)
        if submitted is not None and submitted.check.is_same(check):
            future = self._ahead.pop(check.test).future
        else:
            future = self.cluster.submit(self._check_job(check))
        checked = from_text(self._wait(future), Checked)
        return replace(checked, outcome=of_model(checked.outcome, check.graph))

    def measure(self, check: CaseCheck) -> CaseProfile:
        if check.is_bound_here:
            return self.here.measure(_without_machine(check))
        (case,) = check.request.split()
        asked = MeasureRequest(ModelRun(check.graph, check.setup), case, names_machine=True)
        title, names = case_label(case), self._names(check, self._stored(check))
        return require_measured(self._carry_out(asked, title, names, Profile).cases[0])

    def count(self, check: CaseCheck) -> CaseProfile:
        return self.here.count(check)

    def compare(self, before: CaseCheck, after: CaseCheck) -> CaseComparison:
        """Compare two models on one machine, by the gate of the second one."""
        if before.is_bound_here or after.is_bound_here:
            return self.here.compare(_without_machine(before), _without_machine(after))
        (case,) = after.request.split()
        asked = replace(compare_request(before, after), request=case, names_machine=True)
        names = self._allowed(after)
        return self._carry_out(asked, "case 1 of 1", names, Comparison).cases[0]

    # -- jobs

    def _carry_out(
        self, asked: SentRequest[_Result], title: str, names: Sequence[str], kind: type[_Result]
    ) -> _Result:
        """Run a request on one of these machines. Its name is the model's name and the title."""
        job = self._job(asked, title, names)
        job = replace(job, name=f"{job.models[-1].name} {title}")
        return from_text(self._wait(self.cluster.submit(job)), kind)

    def _wait(self, future: Future[str]) -> str:
        try:
            while not wait([future], _SHOWN_EVERY_S).done:
                self.terms.show()
            return future.result()
        finally:
            # After an interrupt, the test no longer waits for the job, so cancel it.
            future.cancel()

    def _check_job(self, check: CaseCheck) -> Job:
        if any(budget.figure.is_change for budget in check.budgets):
            raise UsageError(
                "the budget drift needs the history, which the machines of a cluster do not have: "
                f"run this test without {CLUSTER.flag}, or leave drift out and type `modelperf "
                "history --fail-on-drift` after the run."
            )
        if any(budget.figure.source is FigureSource.OTHER_MODEL for budget in check.budgets):
            raise UsageError(
                "the budget speedup needs a second model, which is not sent to a cluster: run this "
                f"test without {CLUSTER.flag}, or leave speedup out."
            )
        stored = self._stored(check)
        names = self._names(check, stored)
        if stored is not None:
            used = {m.key for m in self.cluster.machines if m.is_any_of(names)}
            kept = tuple(machine for machine in stored.machines if machine.key in used)
            stored = replace(stored, machines=kept)
        asked = check_request(
            check,
            self.context,
            stored,
            older=None if check.baseline is None else self._older_model(check),
            takes_layers=self.terms.takes_layers,
        )
        return self._job(asked, check.test.rpartition("/")[2], names)

    def _job(self, asked: SentRequest[Any], title: str, names: Sequence[str]) -> Job:
        return request_job(
            asked, title, plugins=self.terms.plugins, machines=names, read=self._content
        )

    def _older_model(self, check: CaseCheck) -> Path | None:
        """Return the older model to compare with, or None if that is the baseline."""
        against = self.context.against
        if against is None:
            return None
        path = self._path_of(check.graph)
        if path not in self._older:
            found = older_model(self.context, against, open_model(check.graph))
            self._older[path] = self.terms.kept.enter_context(found)
        return self._older[path]

    def _stored(self, check: CaseCheck) -> Baseline | None:
        return None if check.baseline is None else self.context.whole_baseline(check.baseline)

    def _allowed(self, check: CaseCheck) -> tuple[str, ...]:
        return allowed_names(check.machine, self.terms.machines)

    def _names(self, check: CaseCheck, stored: Baseline | None) -> tuple[str, ...]:
        """Return the names of machines for a case: those of its baseline's kind, if any."""
        machines = () if stored is None else stored.machines
        kinds = {each.key for each in machines if each.cases.get(check.case_id) is not None}
        return names_of_kinds(self._allowed(check), kinds, self.cluster.machines)

    def _content(self, model: ModelSource) -> ModelContent:
        path = self._path_of(model)
        try:
            state = path.stat()
        except OSError:
            return read_content(path)
        known = (path, state.st_ino, state.st_size, state.st_mtime_ns)
        if known not in self._contents:
            self._contents[known] = read_content(path)
        return self._contents[known]

    def _path_of(self, model: ModelSource) -> Path:
        if isinstance(model, str | os.PathLike):
            return Path(model)
        file = open_model(model)
        path = self.terms.folder / f"{file.sha256()}.onnx"
        if not path.exists():
            path.write_bytes(file.data)
        return path


def _without_machine(check: CaseCheck) -> CaseCheck:
    if check.machine is None:
        return check
    if check.is_function:
        raise UsageError(
            "a Python function cannot be sent to a machine of a cluster: leave out its machine."
        )
    raise UsageError("a gateway names where a case runs: leave out its machine, or the gateway.")


def _measured_here(checked: Checked, check: CaseCheck) -> Checked:
    if not check.is_function:
        return checked
    outcome = checked.outcome
    notes = (*outcome.comparison.notes, NOT_SENT)
    comparison = replace(outcome.comparison, notes=notes)
    return replace(checked, outcome=replace(outcome, comparison=comparison))


# Draws a text, given as a function of the number of columns.
Draw = Callable[[Callable[[int], str]], None]
_CONFTEST = "conftest.py"
_MOST_NAMED = 4


def check_cluster(config: pytest.Config, place: str) -> None:
    """Raise UsageError for a cluster that this run cannot use, before anything is collected."""
    parse_place(place)
    if distributes(config):
        raise UsageError(
            f"{CLUSTER.flag} goes with one process of pytest, which gives all cases to the cluster "
            "at once: leave out -n, or -n and --dist of pytest-xdist."
        )


class ClusterRun:
    """The cases of a run on a cluster, from the first test to the last."""

    def __init__(self, cluster: Cluster, checker: ClusterChecker, cases: int) -> None:
        self._cluster = cluster
        self._checker = checker
        self._cases = cases

    def describe(self) -> str:
        """Return `modelperf: 9 cases for 2 machines of tcp://host:8786: pi-1 (...), pi-2 (...)`."""
        machines = self._cluster.machines
        counts = Counter(printable(machine.label) for machine in machines)
        labels = [f"{label} ({n})" if n > 1 else label for label, n in sorted(counts.items())]
        cases, found = count_of(self._cases, "case"), count_of(len(machines), "machine")
        place = printable(self._cluster.name)
        return f"modelperf: {cases} for {found} of {place}: {shorten_list(labels, _MOST_NAMED)}"

    def end_test(self, item: pytest.Item) -> None:
        """Cancel the job that a test did not wait for, and end the run if the scheduler is gone."""
        self._checker.finish(item.nodeid)
        if self._cluster.is_gone and not item.session.shouldfail:
            item.session.shouldfail = (
                f"the scheduler at {printable(self._cluster.name)} is gone: start it again and "
                "run the rest"
            )


@contextmanager
def measuring_on_cluster(
    run: Run, items: Sequence[pytest.Item], draw: Draw
) -> Iterator[ClusterRun]:
    """Submit all cases of these tests to the cluster, and cancel unfinished ones at the end.

    Raise ClusterError if no machine may run one of them, before anything runs.
    """
    here = run.checker
    if not isinstance(here, Checker):
        raise TypeError("a run has one cluster")
    settings = run.settings
    plugins = tuple(_extension_modules(run.config))
    statuses = [ClusterStatus(0, 0, ())]

    def show() -> None:
        draw(lambda room: status_line(statuses[0], room))

    def note(status: ClusterStatus) -> None:
        # Called in another thread, which must not write to the terminal.
        statuses[0] = status

    with (
        working_folder("models") as folder,
        ExitStack() as kept,
        open_cluster(str(settings.cluster), note, on_warning=run.notes.append) as cluster,
    ):
        terms = ClusterTerms(
            folder=folder,
            kept=kept,
            machines=settings.machine,
            plugins=plugins,
            takes_layers=settings.trace is not None,
            show=show,
        )
        checker = ClusterChecker(here, cluster, terms)
        checks = list(run.first_checks(items))
        checker.require(checks)
        checker.submit(checks)
        run.checker = checker
        try:
            yield ClusterRun(cluster, checker, sum(not check.is_bound_here for check in checks))
        finally:
            run.checker = here


def _extension_modules(config: pytest.Config) -> Iterator[str]:
    """Yield the modules with the hooks of this run's extensions, which the machines import too.

    Raise UsageError for a hook that exists only here. The machines have extensions from entry
    points installed.
    """
    found = {
        _module_of(plugin, name): None
        for plugin in config.pluginmanager.get_plugins()
        for name in dir(plugin)
        if is_hook_name(name)
    }
    yield from found


def _module_of(plugin: object, name: str) -> str:
    hook = getattr(plugin, name)
    module = sys.modules.get(getattr(hook, "__module__", None) or "")
    if isinstance(module, ModuleType) and getattr(module, name, None) is hook:
        file = Path(getattr(module, "__file__", None) or "")
        if file.name != _CONFTEST:
            return module.__name__
    origin = getattr(plugin, "__file__", None) or type(plugin).__name__
    raise UsageError(
        f"{name} in {printable(str(origin))} is only here, and the machines of a cluster need it "
        "too: move it into a module that is installed there, and import it from that module, or "
        f"load that module with `pytest -p MODULE`. Or leave out {CLUSTER.flag}."
    )
