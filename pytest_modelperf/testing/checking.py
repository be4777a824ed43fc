"""Checking one case: judged by its baseline and budgets, or recorded as the new baseline."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.recording import record_case, record_counts
from pytest_modelperf.comparing.budgets import Budget
from pytest_modelperf.comparing.by_counts import compare_cases, with_size
from pytest_modelperf.comparing.judged_case import side_run
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.comparing.request import CompareRequest
from pytest_modelperf.errors import MeasureError, UsageError
from pytest_modelperf.graph.model_bytes import SeenFile
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, open_model
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.profiler.measured_cases import measure_case, measure_function
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.model_in_worker import StartRig, Stopwatch, Watch, check_cores
from pytest_modelperf.profiler.model_request import ModelRun
from pytest_modelperf.profiler.prepare import prepare
from pytest_modelperf.profiler.records import Case, CaseProfile, ModelFacts, Profile
from pytest_modelperf.profiler.request import ProfileRequest, profile_both, size_on_disk
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.spec.run_definitions import UpdateMode
from pytest_modelperf.stats.estimates import summarize
from pytest_modelperf.testing.budgets import (
    LimitedFigures,
    budget_notes,
    static_budget_metrics,
    time_limits,
    timed_budget_metrics,
)
from pytest_modelperf.testing.case_budgets import (
    NOTHING_RAN,
    installed_for_budgets,
    measure_for_budgets,
    require_history,
    require_measured,
    setup_for_limits,
    with_budgets,
    with_run,
)
from pytest_modelperf.testing.case_check import BoundCheck, CaseCheck, CaseResult, CheckContext
from pytest_modelperf.testing.judging import (
    judge_case,
    settle_alone,
    sketch_outputs,
    with_link,
    with_sketch_judged,
)
from pytest_modelperf.testing.older import engine_change_of, judge_upgrade
from pytest_modelperf.testing.outcomes import (
    NO_OLDER_VERSION,
    NOTHING_JUDGED,
    NOTHING_RECORDED,
    CaseOutcome,
)


def record_check(bound: BoundCheck, *, runs_for_budgets: bool) -> CaseResult:
    """Record a case as a new one, and run it until its budgets are decided."""
    context, setup, name = bound.context, bound.check.setup, str(bound.check.baseline)
    new = CaseComparison(bound.case, (), (), outcome=Verdict.NEW)
    if context.is_static:
        recording = record_counts(name, bound.model, context.today, bound.place)
        return CaseResult(new, bound.counted, recording)
    model, sketch = prepare(bound.model), None
    try:
        twin = context.twins.twin_of(bound.file)
        recorded = record_case(name, model, twin, setup, context.today, bound.place)
        if bound.check.sketches_outputs:
            sketch = sketch_outputs(model, setup, bound.place)
        # The processes of a recording are too short to decide budgets.
        profile = measure_for_budgets(bound, is_new=True) if runs_for_budgets else None
    except MeasureError as error:
        return CaseResult(replace(new, failure=error.worded(setup.wording)), bound.counted)
    recording = recorded.recording
    if sketch is not None:
        cases = tuple(replace(case, outputs=sketch) for case in recording.cases)
        recording = replace(recording, cases=cases)
    return CaseResult(new, profile or _merge(recorded.profiles), recording)


def _merge(profiles: Sequence[CaseProfile]) -> CaseProfile:
    known = [profile.measured for profile in profiles if profile.measured is not None]
    rounds = tuple(made for measured in known for made in measured.rounds)
    first = profiles[0]
    if first.measured is None:
        return first
    latency = summarize([made.times_ns for made in rounds], first.case.batch_size)
    return replace(first, measured=replace(first.measured, rounds=rounds, latency=latency))


# -- checking one case


class Checked(Struct, frozen=True):
    """A checked case with its profile, and `before`, the measurement of the other side.

    Another machine sends the profile only if it is used. `upgrade` is the outcome for an upgrade of
    the engine, if that was judged too.
    """

    outcome: CaseOutcome
    profile: CaseProfile | None
    before: Measurement | None = None
    upgrade: CaseOutcome | None = None

    def with_note(self, note: str) -> Checked:
        comparison = self.outcome.comparison
        noted = replace(comparison, notes=(*comparison.notes, note))
        return replace(self, outcome=replace(self.outcome, comparison=noted))

    @property
    def outcomes(self) -> tuple[CaseOutcome, ...]:
        return (self.outcome,) if self.upgrade is None else (self.outcome, self.upgrade)


class SettledCheck(Struct, frozen=True):
    """A case that passed without a measurement of its own, and the files of its model."""

    checked: Checked
    files: tuple[SeenFile, ...]

    def require_unchanged(self) -> None:
        """Raise ChangedModelError if the model is no longer the one that passed."""
        for seen in self.files:
            seen.require_unchanged()


class ChecksCases(Protocol):
    """The checker of the cases of a run: this machine, or a cluster."""

    @property
    def context(self) -> CheckContext: ...

    def check(self, check: CaseCheck) -> Checked: ...

    def measure(self, check: CaseCheck) -> CaseProfile: ...

    def count(self, check: CaseCheck) -> CaseProfile: ...

    def compare(self, before: CaseCheck, after: CaseCheck) -> CaseComparison: ...


class Checker(Struct, frozen=True):
    """The checker that measures on this machine."""

    context: CheckContext

    def check(self, check: CaseCheck) -> Checked:
        """Judge or record a case.

        Raise TooFewCoresError if this machine cannot run it, and other errors if the model, the
        request or the baseline cannot be used.
        """
        check = self._with_limits_here(check)
        require_history(self.context, check)
        stopwatch = Stopwatch(self.context.watch)
        bound = None
        if check.is_function:
            facts, result = check_function(self.context, check, stopwatch)
        else:
            bound = BoundCheck.bind(self.context, check, stopwatch)
            if not self.context.is_static:
                check_cores(bound.case.cores, check.setup)
            facts, result = bound.facts, _judge_or_record(bound)
        outcome = make_outcome(self.context, check, facts, result, stopwatch.seconds)
        checked = Checked(outcome, result.profile, result.before)
        return checked if bound is None else _with_upgrade(checked, bound)

    def settle(self, check: CaseCheck, file: ModelFile, start: StartRig) -> SettledCheck | None:
        """Settle a case that passes without a measurement, or return None for others.

        Call `may_settle` first.
        """
        context = self.context
        check = self._with_limits_here(check)
        require_history(context, check)
        stopwatch = Stopwatch(context.watch)
        bound = BoundCheck.bind(context, check, stopwatch, file)
        stored = context.baseline(str(check.baseline), bound.machine.key)
        if stored is None or bound.timed_budgets:
            return None
        settled = settle_alone(bound, stored, start)
        if settled is None:
            return None
        result = with_budgets(bound, settled)
        outcome = make_outcome(context, check, bound.facts, result, stopwatch.seconds)
        checked = _with_upgrade(Checked(outcome, result.profile, result.before), bound)
        return SettledCheck(checked, bound.file.seen_files)

    def may_settle(self, check: CaseCheck) -> bool:
        """Whether a plan alone may be enough for the check."""
        context = self.context
        is_compared = check.baseline is not None and context.against is None
        is_plain = not (context.is_static or context.judges_upgrades or check.sketches_outputs)
        is_recorded = context.update is UpdateMode.ALL
        return is_compared and is_plain and not is_recorded and not check.is_bound_here

    def _with_limits_here(self, check: CaseCheck) -> CaseCheck:
        if not any(budget.by_machine for budget in check.budgets):
            return check
        key = self.context.machine_of(check.setup).key
        return replace(check, budgets=tuple(b.of_machine(key) for b in check.budgets))

    def measure(self, check: CaseCheck) -> CaseProfile:
        """Measure a case alone, with its layers, or raise MeasureError if that fails."""
        if check.is_function:
            return run_function(self.context, check, self.context.watch)
        bound = BoundCheck.bind(self.context, check, self.context.watch)
        check_cores(bound.case.cores, check.setup)
        found = measure_case(prepare(bound.model), check.setup, bound.place)
        return require_measured(found.profile)

    def count(self, check: CaseCheck) -> CaseProfile:
        """Return the static profile of a case. That of a function has no counts."""
        if check.is_function:
            return count_function(check)
        return BoundCheck.bind(self.context, check, self.context.watch).counted

    def compare(self, before: CaseCheck, after: CaseCheck) -> CaseComparison:
        context, tolerances = self.context, after.gate.tolerances
        if context.is_static:
            counted = compare_cases(*self._count_both(before, after), tolerances)
            return with_size(counted, _size_of(before), _size_of(after), tolerances)
        return compare_request(before, after).run(context.extensions, context.watch).cases[0]

    def _count_both(self, before: CaseCheck, after: CaseCheck) -> tuple[CaseProfile, CaseProfile]:
        if before.is_function or after.is_function:
            return self.count(before), self.count(after)
        graphs, operators = (before.graph, after.graph), self.context.extensions.operators
        old, new = profile_both(*graphs, after.request, operators)
        return old.cases[0], new.cases[0]


def compare_request(before: CaseCheck, after: CaseCheck) -> CompareRequest:
    old, new = (ModelRun(check.graph, check.setup) for check in (before, after))
    return CompareRequest(before=old, after=new, request=after.request, gate=after.gate)


def _size_of(check: CaseCheck) -> int | None:
    return None if check.is_function else size_on_disk(open_model(check.graph))


def _judge_or_record(bound: BoundCheck) -> CaseResult:
    context, name = bound.context, bound.check.baseline
    try:
        machine = bound.machine
    except MeasureError as error:
        failure = error.worded(bound.check.setup.wording)
        return CaseResult(CaseComparison(bound.case, (), (), failure=failure), bound.counted)
    # Read even if it will be replaced, so that a broken file is not overwritten by mistake.
    stored = None if name is None else context.baseline(name, machine.key)
    case = None if stored is None else stored.model.case(bound.case.id)
    is_recorded = context.update is UpdateMode.ALL or (
        context.update is UpdateMode.NEW and case is None
    )
    if name is not None and is_recorded:
        recorded = record_check(bound, runs_for_budgets=bool(bound.timed_budgets))
        return with_budgets(bound, with_link(bound, recorded, stored))
    judged = with_sketch_judged(bound, judge_case(bound, stored), stored)
    result = with_budgets(bound, judged)
    is_improved = result.comparison.verdict is Verdict.IMPROVED
    if name is not None and context.update is UpdateMode.IMPROVED and is_improved:
        recorded = record_check(bound, runs_for_budgets=False)
        # If there is no recording, `recorded` has the failure.
        has_failed = recorded.recording is None
        return recorded if has_failed else replace(result, recording=recorded.recording)
    return result


def _with_upgrade(checked: Checked, bound: BoundCheck) -> Checked:
    context, check = bound.context, bound.check
    key = context.machine.key
    stored = None if check.baseline is None else context.baseline(check.baseline, key)
    change = engine_change_of(bound, stored)
    is_recorded = context.update is UpdateMode.ALL
    if stored is None or change is None or is_recorded:
        return checked
    outcome = replace(checked.outcome, engine_change=change)
    if not context.judges_upgrades:
        return replace(checked, outcome=outcome)
    stopwatch = Stopwatch(context.watch)
    bound = replace(bound, place=replace(bound.place, watch=stopwatch))
    result = judge_upgrade(bound, stored, change)
    judged = make_outcome(context, check, bound.facts, result, stopwatch.seconds)
    # Recording a new baseline accepts the installed version.
    judged = replace(
        judged, accept=check.accept, advice=None, engine_change=change, is_upgrade=True
    )
    return replace(checked, outcome=outcome, upgrade=judged)


# -- Python functions: they have budgets, but no graph, baseline or older version


_MEMORY = "peak_memory_mb"


def check_function(
    context: CheckContext, check: CaseCheck, watch: Watch
) -> tuple[ModelFacts, CaseResult]:
    """Judge a function by its budgets, and return the known facts about it with the result."""
    is_static = context.is_static
    _require_times(check)
    found = _not_run(check) if is_static else _run(context, check, watch)
    (profile,) = found.cases
    case, measured = profile.case, profile.measured
    installed = installed_for_budgets(check.budgets)
    figures = LimitedFigures(None, None, case.batch_size, measured, installed=installed)
    metrics = (
        *timed_budget_metrics(_timed(check), figures, check.gate.limit_level),
        *static_budget_metrics(check.budgets, figures),
    )
    notes = [
        *budget_notes(check.budgets, measured, context.machine.key),
        *([NOTHING_JUDGED] if not check.budgets else []),
        *([NOTHING_RECORDED] if context.update is not None else []),
        *([NO_OLDER_VERSION] if context.against is not None else []),
        *([NOTHING_RAN] if is_static and _timed(check) else []),
    ]
    comparison = CaseComparison(case, metrics, (), notes=tuple(notes), after=side_run(measured))
    return found.model, CaseResult(with_run(comparison, measured), profile)


def _timed(check: CaseCheck) -> list[Budget]:
    return [budget for budget in check.budgets if budget.figure.is_timed]


def _require_times(check: CaseCheck) -> None:
    """Raise UsageError for budgets of figures that a function does not have.

    A function has no load time per round, because its module is imported only once.
    """
    for budget in check.budgets:
        if not budget.figure.is_of_code:
            raise UsageError(
                f"{budget.word} is for models, and this is a Python function: leave it out, and "
                "limit its latency or peak_memory_mb."
            )
        if budget.word == _MEMORY and callable(check.model):
            raise UsageError(
                "peak_memory_mb needs a process of its own, and a function object runs in the "
                "process of the test: give the name of the function, as in "
                "'my_package.models:run', so that another process imports it."
            )


def count_function(check: CaseCheck) -> CaseProfile:
    """Return the profile of a function without a run, which has only its case."""
    (size,), (cores,) = check.request.batch_sizes, check.request.cores
    return CaseProfile(Case(size or 1, cores), None)


def run_function(context: CheckContext, check: CaseCheck, watch: Watch) -> CaseProfile:
    """Measure the function of a check, or raise MeasureError if that fails."""
    return _run(context, check, watch).cases[0]


def _run(context: CheckContext, check: CaseCheck, watch: Watch) -> Profile:
    if not callable(check.model) and not isinstance(check.model, str):
        raise UsageError(
            "the engine callable runs a Python function: give one, or its name, such as "
            "'my_package.models:run'."
        )
    engine = context.extensions.engines.find("callable")
    (size,) = check.request.batch_sizes
    gate = replace(check.gate, limits=time_limits(check.budgets, size or 1))
    setup = setup_for_limits(replace(check.setup, engine=engine), gate)
    is_enough = gate.fits if gate.limits else None
    profile = measure_function(check.model, check.request, setup, watch, is_enough)
    require_measured(profile.cases[0])
    return profile


def _not_run(check: CaseCheck) -> Profile:
    model = check.model
    name = model if isinstance(model, str) else getattr(model, "__qualname__", type(model).__name__)
    return Profile(ModelFacts.named(str(name)), (count_function(check),))


# -- the outcome of a result


def make_outcome(
    context: CheckContext, check: CaseCheck, facts: ModelFacts, result: CaseResult, seconds: float
) -> CaseOutcome:
    """Make the outcome of a result. `seconds` is the time that the check took."""
    case, measured = result.profile.case, result.profile.measured
    acceptance = _acceptance(context, check, result.comparison)
    return CaseOutcome(
        test=check.test,
        source=check.source,
        model=facts,
        cores=case.cores,
        batch_size=case.batch_size,
        comparison=result.comparison,
        baseline=check.baseline,
        engine="" if measured is None else measured.engine.label,
        engine_options=_engine_options(check.setup),
        generation_options=_generation_options(check.request),
        static=result.counted,
        generation=result.profile.generation,
        latency=None if measured is None else measured.latency,
        load_ms=None if measured is None else measured.load_ms,
        first_inference_ms=None if measured is None else measured.first_inference_ms,
        peak_rss_bytes=None if measured is None else measured.peak_rss_bytes,
        confidence=check.gate.confidence,
        seconds=seconds,
        times_ns=_samples(result.profile) if context.keeps_samples else (),
        machine=None if measured is None else measured.machine or context.machine,
        recording=result.recording,
        link=result.link,
        accept=acceptance.accept,
        advice=acceptance.advice if result.comparison.regressed else None,
    )


class _Acceptance(Struct, frozen=True):
    """The way to accept a result: a command that records it, or `advice`."""

    accept: str | None
    advice: str | None = None


def _acceptance(context: CheckContext, check: CaseCheck, comparison: CaseComparison) -> _Acceptance:
    """Return the way to accept a result.

    A new baseline helps only if the result was compared with the old one, on the same engine.
    """
    if context.against is not None and check.baseline is not None:
        return _Acceptance(
            None,
            "allow it with --modelperf-tolerance, or give another version with "
            f"--modelperf-against: it was compared with {context.against}, so a new "
            "baseline has no effect",
        )
    is_timed = [metric.name.startswith("latency") for metric in comparison.regressed]
    if len(comparison.engines) == 1 or not any(is_timed):
        return _Acceptance(check.accept)
    before, after = comparison.engines
    return _Acceptance(
        # Counts do not depend on the engine, so a new baseline keeps them.
        None if all(is_timed) else check.accept,
        f"leave out {context.option_before} to judge the model alone: a new baseline keeps the "
        f"model, not the engine, so {after} stays slower than {before} in such a case",
    )


def _engine_options(setup: Setup) -> tuple[str, ...]:
    name = setup.engine.name
    chosen = () if name == DEFAULT_ENGINE else ("--engine", name)
    pairs = [f"{key}={value}" for key, value in setup.options.items()]
    return (*chosen, *(word for pair in pairs for word in ("--engine-option", pair)))


def _generation_options(request: ProfileRequest) -> tuple[str, ...]:
    words: list[str] = []
    for each in request.generations:
        words += ["--prompt", str(each.prompt)] if each.prompt else []
        words += ["--generate", str(each.generate)] if each.generate else []
        for past, present in each.state.items():
            words += ["--state", f"{past}={present}"]
    return tuple(words)


def _samples(profile: CaseProfile) -> tuple[tuple[int, ...], ...]:
    return () if profile.measured is None else tuple(r.times_ns for r in profile.measured.rounds)


def of_model(outcome: CaseOutcome, source: ModelSource) -> CaseOutcome:
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    name = open_model(source).name if path is None else path.name
    model = replace(outcome.model, name=name, path=None if path is None else str(path))
    recording = outcome.recording
    if recording is not None:
        facts = replace(recording.model, name=name, path=model.path)
        recording = replace(recording, model=facts)
    return replace(outcome, model=model, recording=recording)
