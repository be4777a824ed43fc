"""A program that a test checks: read from the call, checked, and kept as an outcome."""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.program_store import read_program
from pytest_modelperf.comparing.budgets import Budget, FigureSource
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.limits import Tolerances, read_tolerances
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.programs.check import (
    RECORDED_ENVIRONMENT,
    CheckedProgram,
    ProgramCheck,
    check_program,
    measure_program,
    record_program,
)
from pytest_modelperf.programs.commits import top_of
from pytest_modelperf.programs.messages import StationPlace
from pytest_modelperf.programs.rounds import Pace
from pytest_modelperf.spec.run_definitions import UpdateMode
from pytest_modelperf.stats.looks import share_level
from pytest_modelperf.testing.budget_figures import installed_for_budgets
from pytest_modelperf.testing.budgets import (
    LimitedFigures,
    budget_notes,
    item_metrics,
    static_budget_metrics,
    timed_budget_metrics,
)
from pytest_modelperf.testing.failed_case import source_of
from pytest_modelperf.testing.improvement import improvement_metric
from pytest_modelperf.testing.markers import read_mark_budgets
from pytest_modelperf.testing.outcomes import CaseOutcome
from pytest_modelperf.testing.run import Run
from pytest_modelperf.testing.station_options import id_below, options_of
from pytest_modelperf.testing.wording import PYTHON_WORDING
from pytest_modelperf.text.escaping import printable

# Two processes of a program differ by more than two sessions of a model.
_TOLERANCE = 0.05
_STRETCH_SECONDS = 180.0
_USUAL_SECONDS = 30.0
_MOST_CALLS = 1
# The sources of figures that programs have, and functions not.
_OF_PROGRAMS = frozenset({FigureSource.ITEMS, FigureSource.BASELINE})


class ProgramWords(Struct, frozen=True, kw_only=True):
    """The keywords of `modelperf.check` that are not those of the function."""

    against: object = None
    environment: object = None
    paths: object = ()
    tolerance: object = None
    outputs: object = None
    cores: object = None


def check_of(run: Run, item: pytest.Item, words: ProgramWords) -> ProgramCheck:
    """The check of a program, as the test asks for it."""
    settings = run.settings
    top = top_of(item.path.parent)
    tolerances = _tolerances(settings.tolerances, words.tolerance)
    place = StationPlace(
        side="after",
        tree=str(top),
        worktree=str(top),
        test=id_below(item, top),
        folder=Path(os.path.relpath(Path.cwd().resolve(), top.resolve())).as_posix(),
        python=sys.executable,
        options=options_of(run.config),
        sys_path=tuple(sys.path),
        paths=_paths(words.paths),
        cores=_cores(words.cores),
        scratch=".",
    )
    has_seconds = settings.has_given_seconds
    pace = Pace(
        seconds=settings.max_seconds if has_seconds else _USUAL_SECONDS,
        stretch_seconds=None if has_seconds else _STRETCH_SECONDS,
    )
    return ProgramCheck(
        test=str(item.nodeid),
        case=Case(1, len(place.cores or ()) or (os.cpu_count() or 1), program=item.name),
        gate=Gate(
            tolerances=tolerances,
            level=share_level(run.judged),
            rounds=pace.max_rounds,
            judges_starts=False,
        ),
        pace=pace,
        place=place,
        baselines=settings.baseline_dir,
        setup=settings.setup(
            run.checker.context.extensions,
            PYTHON_WORDING,
            spec=settings.gateway_spec,
            is_stretched=not has_seconds,
        ),
        machine=describe_machine().key,
        today=dt.datetime.now(dt.timezone.utc).date().isoformat(),
        against=_text(words.against, "against", "main") or settings.against,
        environment=_environment(words.environment),
        outputs=_outputs(words.outputs),
        is_uncommitted=settings.uncommitted,
        extensions=run.checker.context.extensions,
        watch=run.watch,
    )


def check(run: Run, item: pytest.Item, function: str, asked: ProgramCheck) -> CaseOutcome:
    """The outcome of a program: judged, or recorded if the run records baselines."""
    begun = dt.datetime.now(dt.timezone.utc)
    budgets = _budgets_of(item, asked.machine)
    update = run.settings.update
    is_new = update is UpdateMode.NEW and read_program(asked.baselines, asked.name) is None
    is_recorded = update is UpdateMode.ALL or is_new
    checked = record_program(asked) if is_recorded else check_program(asked)
    if update is UpdateMode.IMPROVED and checked.comparison.verdict is Verdict.IMPROVED:
        checked = replace(checked, recording=record_program(asked).recording)
    if budgets and not checked.comparison.has_failed:
        checked = _with_budgets(asked, checked, budgets, is_recorded=update is not None)
    measured = checked.measured
    return CaseOutcome(
        test=str(item.nodeid),
        source=source_of(item),
        model=ModelFacts.named(function, function_file=asked.place.test.partition("::")[0]),
        cores=asked.case.cores,
        batch_size=1,
        comparison=checked.comparison,
        baseline=asked.name,
        engine="" if measured is None else measured.engine.label,
        latency=None if measured is None else measured.latency,
        peak_rss_bytes=None if measured is None else measured.peak_rss_bytes,
        confidence=asked.gate.confidence,
        seconds=(dt.datetime.now(dt.timezone.utc) - begun).total_seconds(),
        machine=run.checker.context.machine,
        program=checked.recording,
        accept=run.accept(item),
    )


def _with_budgets(
    asked: ProgramCheck, checked: CheckedProgram, budgets: Sequence[Budget], *, is_recorded: bool
) -> CheckedProgram:
    """The checked program with the verdicts of its budgets, for which it may have to run."""
    if checked.measured is None and any(each.figure.needs_run for each in budgets):
        checked = replace(measure_program(asked, checked.comparison), recording=checked.recording)
    _require_items(checked, budgets)
    figures = LimitedFigures(
        None,
        None,
        1,
        checked.measured,
        installed=installed_for_budgets(budgets),
        items=checked.items,
    )
    level, found = asked.gate.limit_level, checked.comparison
    improvement = None if is_recorded else improvement_metric(budgets, found)
    metrics = (
        *timed_budget_metrics([b for b in budgets if b.figure.is_timed], figures, level),
        *item_metrics(budgets, figures, level),
        *([] if improvement is None else [improvement]),
        *static_budget_metrics(budgets, figures),
    )
    comparison = replace(
        found,
        metrics=(*found.metrics, *metrics),
        notes=(*found.notes, *budget_notes(budgets, checked.measured, asked.machine)),
    )
    return replace(checked, comparison=comparison)


def _require_items(checked: CheckedProgram, budgets: Sequence[Budget]) -> None:
    """UsageError for a budget of the items of a call that yields none."""
    for budget in budgets:
        if budget.figure.source is FigureSource.ITEMS and checked.measured is not None:
            times_ns = checked.items.get(budget.figure.metric, ())
            if not any(times_ns):
                raise UsageError(
                    f"{budget.word} is for generators, and a call of this program yielded no "
                    f"item: leave out {budget.word}, or limit its latency_ms."
                )


def _budgets_of(item: pytest.Item, machine: str) -> Sequence[Budget]:
    """The budgets of a program on this machine; UsageError for those that only a model has."""
    budgets = read_mark_budgets(item)
    for budget in budgets:
        figure = budget.figure
        if not figure.is_of_code and figure.source not in _OF_PROGRAMS:
            raise UsageError(
                f"{budget.word} is for models, and this is a program: leave it out, and limit its "
                "latency or peak_memory_mb."
            )
    return [budget.of_machine(machine) for budget in budgets]


def _tolerances(settings: Tolerances, given: object) -> Tolerances:
    """The tolerances of the call, or those of the run if they are not the defaults for models."""
    if given is not None:
        found = read_tolerances(given, "modelperf.check: tolerance")
        is_median_given = not isinstance(given, Mapping) or bool({"p50"} & set(given))
    else:
        found, is_median_given = settings, settings != Tolerances()
    median = found.of(50.0) if is_median_given else _TOLERANCE
    named = {percent: found.of(percent) for percent in found.named}
    return replace(found, shares=tuple(sorted({**named, 50.0: median}.items())))


def _text(value: object, word: str, example: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UsageError(
            f"modelperf.check: {word} takes a text such as {example!r}, not {value!r}."
        )
    return value


def _environment(value: object) -> str | None:
    if value not in {None, RECORDED_ENVIRONMENT}:
        raise UsageError(
            f"modelperf.check: environment can be {RECORDED_ENVIRONMENT!r}, not {value!r}."
        )
    return None if value is None else RECORDED_ENVIRONMENT


def _outputs(value: object) -> str | None:
    if callable(value):
        return "given"
    if value not in {None, "==", "allclose"}:
        raise UsageError(
            f"modelperf.check: outputs can be '==', 'allclose' or a function of both results, not "
            f"{value!r}."
        )
    return None if value is None else str(value)


def _paths(value: object) -> tuple[str, ...]:
    if isinstance(value, str | os.PathLike):
        value = (value,)
    if not isinstance(value, Sequence) or not all(isinstance(v, str | os.PathLike) for v in value):
        raise UsageError(
            f"modelperf.check: paths takes folders of the project such as ['src'], not {value!r}."
        )
    return tuple(str(each) for each in value)


def _cores(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"modelperf.check: cores takes a number such as 1, not {value!r}.")
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if value > len(allowed):
        raise UsageError(
            f"modelperf.check: {value} cores are wanted, and a program can be pinned to "
            f"{len(allowed)} here."
        )
    return tuple(allowed[:value])


def require_first(calls: int, item: pytest.Item) -> None:
    """UsageError for a second program of a test: the first one ends its stations."""
    if calls > _MOST_CALLS:
        raise UsageError(
            f"{printable(item.nodeid)} checks a second program, and a test can check one: a "
            "process of the other version runs the test up to the first call. Put each call into a "
            "test of its own, or give several inputs to one call by each=[(a,), (b,)]."
        )
