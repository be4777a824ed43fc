"""One case checked: held against its baseline and its budgets, or recorded as the new baseline."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.baselines.recording import rebuilt_twin, record_case, record_counts
from pytest_modelperf.baselines.records import Baseline, BaselineRecording, StoredStatic
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.baselines.storing import store_static
from pytest_modelperf.comparing.by_counts import compare_cases, compare_with_stored
from pytest_modelperf.comparing.by_duet import Details, compare_case
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.judged_case import JudgedCase, describe_engine, side_run
from pytest_modelperf.comparing.limits import Budget
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.comparing.sides import Side, baseline_side
from pytest_modelperf.comparing.stored_case import (
    cannot_run_apart,
    find_missing,
    is_same_input,
    settle,
)
from pytest_modelperf.errors import MeasureError, ModelPerfError, UsageError
from pytest_modelperf.graph.model_file import (
    ModelFile,
    ModelSource,
    external_files,
    open_model,
)
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import Measurement, Progress
from pytest_modelperf.profiler.measuring import measure_case, measure_function
from pytest_modelperf.profiler.pair_run import Pair
from pytest_modelperf.profiler.preparation import Model, Place, Watch, check_cores
from pytest_modelperf.profiler.records import Case, CaseProfile, ModelFacts, Outcome
from pytest_modelperf.profiler.request import ProfileRequest, model_facts
from pytest_modelperf.profiler.rig import Setup
from pytest_modelperf.profiler.sampling_policy import coarsened
from pytest_modelperf.profiler.worker.gateway import interpreter_spec
from pytest_modelperf.stats.estimates import summarize
from pytest_modelperf.testing.against import older_version
from pytest_modelperf.testing.budgets import (
    Held,
    latency_limits,
    static_budget_metrics,
    timed_budget_metrics,
)
from pytest_modelperf.testing.options import BASELINE_PYTHON, UpdateMode
from pytest_modelperf.testing.outcomes import CaseOutcome, Source

_NOT_RUN = "budgets of what a run tells are not judged: nothing ran"


class CaseCheck(Struct, frozen=True, kw_only=True):
    """One case that is to be checked.

    `request` makes exactly one case. `gate` has the level of one judged figure. `baseline` names
    the folder of what is stored of the model; None for one that is held against budgets only.
    """

    test: str
    source: Source
    model: ModelSource | Callable[..., Any]
    baseline: str | None
    request: ProfileRequest
    setup: Setup
    gate: Gate
    budgets: tuple[Budget, ...] = ()
    accept: str | None = None

    @property
    def is_function(self) -> bool:
        """Whether it is Python code that is run, which nothing can be counted of or stored."""
        return callable(self.model) or self.setup.engine.name == "callable"

    @property
    def graph(self) -> ModelSource:
        """The model; UsageError for Python code."""
        if self.is_function or callable(self.model):
            raise UsageError("a Python function has no graph: give the path of an ONNX model.")
        return self.model


class Checker(Struct):
    """What all checks of a run share: the baselines, what they are held against, who is watching.

    `against` is a path or a git ref that stands for the baseline; `baseline_python` is the
    interpreter that the side before runs in.
    """

    store: BaselineStore
    root: Path
    extensions: Extensions
    today: dt.date
    update: UpdateMode | None = None
    is_static: bool = False
    against: str | None = None
    baseline_python: str | None = None
    keeps_samples: bool = False
    watch: Watch = lambda _: None
    _machine: MachineFacts | None = field(default=None)
    # What was read last: the cases of a model come one after the other, and all are in one file.
    _stored: tuple[str, Baseline | None] | None = field(default=None)

    @property
    def machine(self) -> MachineFacts:
        if self._machine is None:
            self._machine = describe_machine()
        return self._machine

    def stored(self, name: str) -> Baseline | None:
        """The baseline of a model, with what was recorded on machines of this kind."""
        if self._stored is None or self._stored[0] != name:
            self._stored = name, self.store.read(name, (self.machine.key,))
        return self._stored[1]

    def check(self, check: CaseCheck) -> Checked:
        """What becomes of a case.

        TooFewCoresError where this machine cannot run it, another error where the model, what is
        asked of it, or its baseline cannot be used.
        """
        begun, waits = time.monotonic(), _Waits(self.watch)
        if check.is_function:
            checked = self._check_function(check, waits)
        else:
            work = self._start(check, waits)
            if not self.is_static:
                check_cores(work.place.case.cores, check.setup)
            done = work.run()
            checked = Checked(work.outcome(done), done.profile, done.before)
        seconds = time.monotonic() - begun - waits.seconds
        outcome = replace(checked.outcome, seconds=seconds)
        return replace(checked, outcome=outcome)

    def measure(self, check: CaseCheck) -> CaseProfile:
        """The profile of a case alone, with its layers: MeasureError where it cannot be had."""
        if check.is_function:
            return self._measure_function(check, self.watch)
        work = self._start(check, self.watch)
        check_cores(work.place.case.cores, check.setup)
        return _measured(measure_case(work.model, check.setup, work.place))

    def count(self, check: CaseCheck) -> CaseProfile:
        """The static profile of a case; of a function only which case it is."""
        if check.is_function:
            (size,), (cores,) = check.request.batch_sizes, check.request.cores
            return CaseProfile(Case(size or 1, cores), None)
        work = self._start(check, self.watch)
        return CaseProfile(work.place.case, work.model.static)

    def _start(self, check: CaseCheck, watch: Watch) -> _Work:
        file = open_model(check.graph)
        facts = model_facts(file)
        (binding,), (cores,) = check.request.bindings(), check.request.cores
        model = Model.bind(file, binding, check.request, self.extensions)
        case = Case(model.bound.inputs.batch_size, cores, model.dims)
        return _Work(self, check, check.graph, file, facts, model, Place(case, 1, 1, watch))

    def _measure_function(self, check: CaseCheck, watch: Watch) -> CaseProfile:
        if not callable(check.model) and not isinstance(check.model, str):
            raise UsageError(
                "the engine callable runs a Python function: give one, or its name, such as "
                "'my_package.models:run'."
            )
        engine = self.extensions.engines.find("callable")
        setup = replace(check.setup, engine=engine)
        (size,) = check.request.batch_sizes
        gate = replace(check.gate, limits=latency_limits(check.budgets, size or 1))
        is_enough = gate.fits if gate.limits else None
        profile = measure_function(check.model, check.request, setup, watch, is_enough)
        return _measured(profile.cases[0])

    def _check_function(self, check: CaseCheck, watch: Watch) -> Checked:
        """Budgets are all that a function can be held against."""
        profile = self.count(check) if self.is_static else self._measure_function(check, watch)
        case, measured = profile.case, profile.measured
        held = Held(None, None, case.batch_size, measured)
        metrics = timed_budget_metrics(check.budgets, held, check.gate.limit_level)
        notes = (_NOT_RUN,) if self.is_static and check.budgets else ()
        alone = CaseComparison(case, metrics, (), notes=notes, after=side_run(measured))
        comparison = _run_alone(alone, measured)
        shown = check.model if isinstance(check.model, str) else _name_of(check.model)
        return Checked(
            _outcome(self, check, ModelFacts(shown, None, None, None), _Done(comparison, profile)),
            profile,
        )


class _Waits(Struct):
    """Passes on what is told of a check, and adds up how long it waits for others to measure."""

    watch: Watch
    seconds: float = 0.0
    _since: float | None = None

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if self._since is not None:
            self.seconds += now - self._since
        self._since = now if progress.is_waiting else None
        self.watch(progress)


class Checked(Struct, frozen=True):
    """A case checked, and what running it told, where it ran; `before` is the other side's."""

    outcome: CaseOutcome
    profile: CaseProfile
    before: Measurement | None = None


class _Done(Struct, frozen=True):
    """A case judged or recorded."""

    comparison: CaseComparison
    profile: CaseProfile
    recording: BaselineRecording | None = None
    before: Measurement | None = None
    observed: StoredStatic | None = None

    @property
    def counted(self) -> StoredStatic | None:
        """The counts to show: of a run now or earlier, else what the graph alone tells."""
        counted = self.profile.counted
        if counted is None:
            return None
        if counted.graph_alone is None and self.observed is not None:
            return self.observed
        return store_static(counted)


class _Work(Struct, frozen=True):
    """One check on its way: the model is bound, and nothing has run yet."""

    run_of: Checker
    check: CaseCheck
    source: ModelSource
    file: ModelFile
    facts: ModelFacts
    model: Model
    place: Place

    def run(self) -> _Done:
        update = self.run_of.update
        if self.check.baseline is None:
            return self._judge(None)
        # Read also where it will be replaced: a broken one is not overwritten by mistake.
        stored = self.run_of.stored(self.check.baseline)
        case = None if stored is None else stored.model.case(self.place.case.id)
        if update is UpdateMode.ALL or (update is UpdateMode.NEW and case is None):
            return self._record()
        done = self._judge(stored)
        if update is UpdateMode.IMPROVED and done.comparison.verdict is Verdict.IMPROVED:
            recorded = self._record()
            return replace(done, recording=recorded.recording)
        return done

    @property
    def gate(self) -> Gate:
        """What is asked of this case, with its budgets."""
        limits = latency_limits(self._timed, self.place.case.batch_size)
        return replace(self.check.gate, limits=limits)

    # -- judged

    def _judge(self, stored: Baseline | None) -> _Done:
        compared = self._compare(stored)
        comparison, profile = compared.comparison, compared.profile
        is_new = comparison.outcome is Verdict.NEW
        if profile is None and comparison.failure is None and (is_new or self._timed):
            try:
                profile = self._measure(is_new=is_new)
            except MeasureError as error:
                comparison = replace(comparison, failure=str(error))
        counted = CaseProfile(self.place.case, self.model.static)
        judged = _Done(
            comparison, profile or counted, before=compared.before, observed=compared.observed
        )
        return self._with_budgets(judged)

    def _compare(self, stored: Baseline | None) -> JudgedCase:
        """The case against what it is to be held against; nothing where it is new."""
        run_of, case = self.run_of, self.place.case
        if run_of.against is not None and self.check.baseline is not None:
            with self._older(run_of.against) as before:
                return self._compare_sides(before)
        if self.check.baseline is None:
            return JudgedCase(CaseComparison(case, (), ()))
        if stored is None:
            reason = f"there is no baseline of {case.id}"
            return JudgedCase(CaseComparison(case, (), (), (reason,), outcome=Verdict.NEW))
        settled = self._settle(stored)
        if settled is not None:
            return settled
        request, extensions = self.check.request, run_of.extensions
        side = baseline_side(stored, run_of.machine.key, self._now(), request, extensions)
        with side as before:
            return self._compare_sides(replace(before, setup=self._setup_before()))

    def _settle(self, stored: Baseline) -> JudgedCase | None:
        """What the baseline says where its twin need not be rebuilt.

        UsageError where the baseline is to run in a Python of its own, and has no twin that may.
        """
        case = stored.model.case(self.place.case.id)
        if self.run_of.is_static:
            if case is None or not case.is_counted:
                return None
            missing = find_missing(self.place.case, case, self.model)
            if missing is not None:
                return missing
            # Nothing runs, so what an earlier run of the same model saw is all there is.
            is_same = (
                case.observed is not None
                and is_same_input(case, self.model)
                and case.model_sha256 == self.file.sha256(self.place.tell)
            )
            static = compare_with_stored(
                self.place.case,
                case,
                self.model.static,
                self.check.gate.tolerances,
                is_same=is_same,
            )
            found = self._with_layers(static, stored)
            return JudgedCase(found, observed=case.observed if is_same else None)
        machine = stored.machine(self.run_of.machine.key)
        before = Side(self.source, self._setup_before(), stored.model, machine)
        idle = cannot_run_apart(before, self.model, self.check.setup, self.place.case)
        if idle is not None:
            raise UsageError(
                f"{idle}. Give the older model itself with --modelperf-against, record the "
                "baseline again with --modelperf-update-baseline when less else runs here, or "
                "leave out --modelperf-baseline-python."
            )
        return settle(before, self.model, self.check.setup, self.place)

    def _with_layers(self, found: CaseComparison, stored: Baseline) -> CaseComparison:
        """The compared counts; where they are worse, with the layers behind it, if there is a twin.

        The stored counts have no layers. A twin has those of the model, and need not run for that.
        """
        is_worse = found.verdict is Verdict.REGRESSED
        if not is_worse or stored.twin is None or not stored.model.has_twin_of(found.id):
            return found
        model, extensions = self.model, self.run_of.extensions
        try:
            twin = open_model(stored.twin)
            old = Model.bind(twin, model.binding, self.check.request, extensions)
        except ModelPerfError:
            # A twin that cannot be read: the verdict stands without the layers.
            return found
        before, now = (CaseProfile(self.place.case, side.static) for side in (old, model))
        compared = compare_cases(before, now, self.check.gate.tolerances)
        return replace(found, reasons=compared.reasons)

    def _compare_sides(self, before: Side) -> JudgedCase:
        run_of = self.run_of
        old = Model.bind(
            open_model(before.source),
            self.model.binding,
            self.check.request,
            run_of.extensions,
        )
        if run_of.is_static:
            then = CaseProfile(self.place.case, old.static)
            now = CaseProfile(self.place.case, self.model.static)
            return JudgedCase(compare_cases(then, now, self.check.gate.tolerances))
        pair = Pair(old, self.model, before.setup, self.check.setup)
        return compare_case(pair, before, self.gate, self.place, Details.WHEN_WORSE)

    @contextmanager
    def _older(self, text: str) -> Iterator[Side]:
        if self.file.path is None:
            raise UsageError(
                f"{self.file.name} is no file, so --modelperf-against cannot name an older one: "
                "give the model by its path."
            )
        with older_version(text, self.file.path, self.run_of.root) as path:
            yield Side(path, self._setup_before())

    def _now(self) -> Side:
        return Side(self.source, self.check.setup)

    def _setup_before(self) -> Setup:
        python = self.run_of.baseline_python
        if python is None:
            return self.check.setup
        return replace(self.check.setup, spec=interpreter_spec(python, BASELINE_PYTHON.flag))

    @property
    def _timed(self) -> list[Budget]:
        """The budgets that a run tells."""
        if self.run_of.is_static:
            return []
        return [budget for budget in self.check.budgets if budget.figure.is_timed]

    def _measure(self, *, is_new: bool) -> CaseProfile | None:
        """The model alone: of one that is known only as long as its budgets take."""
        if self.run_of.is_static:
            return None
        gate = self.gate
        is_only_shown = is_new and not gate.limits
        policy = self.check.setup.policy
        if is_only_shown:
            policy = coarsened(policy, gate.tolerance)
        policy = replace(policy, min_samples=max(gate.samples_needed, policy.min_samples))
        setup = replace(self.check.setup, policy=policy)
        is_enough = None if is_only_shown else gate.fits
        return _measured(
            measure_case(self.model, setup, self.place, takes_layers=False, is_enough=is_enough)
        )

    # -- recorded

    def _record(self) -> _Done:
        run_of, name = self.run_of, str(self.check.baseline)
        new = CaseComparison(self.place.case, (), (), outcome=Verdict.NEW)
        counted = CaseProfile(self.place.case, self.model.static)
        if run_of.is_static:
            recording = record_counts(name, self.model, run_of.today, self.place)
            return self._with_budgets(_Done(new, counted, recording))
        try:
            with rebuilt_twin(self.file) as twin:
                recorded = record_case(
                    name, self.model, twin, self.check.setup, run_of.today, self.place
                )
        except MeasureError as error:
            return _Done(replace(new, failure=str(error)), counted)
        profile = _together(recorded.profiles)
        return self._with_budgets(_Done(new, profile, recorded.recording))

    # -- budgets, and what is told

    def _with_budgets(self, done: _Done) -> _Done:
        """What was judged, and the budgets with it."""
        comparison, profile = done.comparison, done.profile
        if comparison.failure is not None:
            return replace(done, comparison=_without_reason(comparison))
        profile = self._with_memory(profile)
        held = Held(
            profile.counted,
            _size_bytes(self.model),
            self.place.case.batch_size,
            profile.measured,
            done.observed,
        )
        counts = static_budget_metrics(self.check.budgets, held)
        metrics: tuple[Metric, ...] = (
            *timed_budget_metrics(self._timed, held, self.check.gate.limit_level),
            *counts,
        )
        notes = comparison.notes
        if profile.counted is not None and any(metric.is_open for metric in counts):
            # What only a run tells is why.
            notes = tuple(dict.fromkeys((*notes, *profile.counted.notes)))
        if self.run_of.is_static and any(b.figure.is_timed for b in self.check.budgets):
            notes = (*notes, _NOT_RUN)
        judged = comparison.metrics
        # Before what is only shown of the graph.
        is_shown = [not m.gated and not m.name.startswith("latency") for m in judged]
        place = is_shown.index(True) if True in is_shown else len(judged)
        metrics = (*judged[:place], *metrics, *judged[place:])
        after = comparison.after or side_run(profile.measured)
        comparison = replace(comparison, metrics=metrics, notes=notes, after=after)
        if comparison.rounds is None and self._timed:
            comparison = _run_alone(comparison, profile.measured)
        if comparison.verdict is not Verdict.NEW:
            comparison = _without_reason(comparison)
        return replace(done, comparison=comparison, profile=profile)

    def _with_memory(self, profile: CaseProfile) -> CaseProfile:
        """The peak of memory too, where a budget asks for it and two sides shared the process."""
        measured = profile.measured
        is_asked = any(budget.figure.metric == "peak_rss_bytes" for budget in self._timed)
        if measured is None or measured.peak_rss_bytes is not None or not is_asked:
            return profile
        policy = replace(self.check.setup.policy, min_rounds=1, max_rounds=1, min_samples=1)
        setup = replace(self.check.setup, policy=policy)
        alone = measure_case(self.model, setup, self.place, takes_layers=False).measured
        peak = None if alone is None else alone.peak_rss_bytes
        return replace(profile, measured=replace(measured, peak_rss_bytes=peak))

    def outcome(self, done: _Done) -> CaseOutcome:
        return _outcome(self.run_of, self.check, self.facts, done)


class _Acceptance(Struct, frozen=True):
    """How what a case says is accepted: by the command that records it, by something else."""

    accept: str | None
    advice: str | None = None


def _acceptance(checker: Checker, check: CaseCheck, comparison: CaseComparison) -> _Acceptance:
    """A new baseline helps where the old one is why: not against another version or engine."""
    if checker.against is not None and check.baseline is not None:
        return _Acceptance(
            None,
            f"it was held against {checker.against}, so a new baseline changes nothing: allow it "
            "with --modelperf-tolerance, or give another version with --modelperf-against",
        )
    is_timed = [metric.name.startswith("latency") for metric in comparison.regressed]
    if len(comparison.engines) == 1 or not any(is_timed):
        return _Acceptance(check.accept)
    before, after = comparison.engines
    return _Acceptance(
        # Counts do not depend on the engine, so a new baseline keeps them.
        None if all(is_timed) else check.accept,
        f"a new baseline keeps the model and no engine, so {after} stays slower than {before} "
        "where it is: leave out --modelperf-baseline-python to judge the model alone",
    )


def _outcome(checker: Checker, check: CaseCheck, facts: ModelFacts, done: _Done) -> CaseOutcome:
    case, measured = done.profile.case, done.profile.measured
    acceptance = _acceptance(checker, check, done.comparison)
    return CaseOutcome(
        test=check.test,
        source=check.source,
        model=facts,
        cores=case.cores,
        batch_size=case.batch_size,
        comparison=done.comparison,
        baseline=check.baseline,
        engine=describe_engine(done.profile),
        static=done.counted,
        latency=None if measured is None else measured.latency,
        load_ms=None if measured is None else measured.load_ms,
        first_inference_ms=None if measured is None else measured.first_inference_ms,
        peak_rss_bytes=None if measured is None else measured.peak_rss_bytes,
        confidence=check.gate.confidence,
        times_ns=_samples(done.profile) if checker.keeps_samples else (),
        machine=None if measured is None else measured.machine or checker.machine,
        recording=done.recording,
        accept=acceptance.accept,
        advice=acceptance.advice if done.comparison.regressed else None,
    )


def _run_alone(comparison: CaseComparison, measured: Measurement | None) -> CaseComparison:
    """A case that ran for its budgets, with nothing beside it."""
    if measured is None:
        return comparison
    rounds, seconds = len(measured.rounds), measured.seconds
    return replace(comparison, rounds=rounds, seconds=seconds, is_duet=False)


def _without_reason(comparison: CaseComparison) -> CaseComparison:
    """Why a case is new is no reason for whatever else is said of it."""
    if comparison.outcome is not Verdict.NEW:
        return comparison
    return replace(comparison, reasons=(), notes=(*comparison.reasons, *comparison.notes))


def _name_of(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _measured(profile: CaseProfile) -> CaseProfile:
    """The profile; MeasureError where it has no measurement."""
    if profile.outcome in {Outcome.FAILED, Outcome.SKIPPED} and profile.measured is None:
        raise MeasureError(profile.reason)
    return profile


def _together(profiles: Sequence[CaseProfile]) -> CaseProfile:
    """What several processes told of one case, as if one had."""
    known = [profile.measured for profile in profiles if profile.measured is not None]
    rounds = tuple(made for measured in known for made in measured.rounds)
    first = profiles[0]
    if first.measured is None:
        return first
    latency = summarize([made.times_ns for made in rounds], first.case.batch_size)
    return replace(first, measured=replace(first.measured, rounds=rounds, latency=latency))


def _samples(profile: CaseProfile) -> tuple[tuple[int, ...], ...]:
    return () if profile.measured is None else tuple(r.times_ns for r in profile.measured.rounds)


def _size_bytes(model: Model) -> int:
    """The file, and those beside it in which some of its weights lie."""
    beside = sum(path.stat().st_size for path in external_files(model.file).values())
    return model.file.size_bytes + beside
