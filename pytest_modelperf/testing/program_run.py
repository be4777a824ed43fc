"""Running the program of a test: recording it, judging it, or measuring it for budgets."""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.budgets import Budget, FigureSource
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.limits import LOAD
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.model_in_worker import Stopwatch
from pytest_modelperf.programs.changes import ProgramState
from pytest_modelperf.programs.check import check_program, measure_program, record_program
from pytest_modelperf.programs.checked import CheckedProgram, ProgramCheck
from pytest_modelperf.programs.messages import StationPlace
from pytest_modelperf.programs.rounds import Pace
from pytest_modelperf.programs.station.main import name_in_file
from pytest_modelperf.spec.run_definitions import UpdateMode
from pytest_modelperf.stats.decisions import share_level
from pytest_modelperf.testing.budgets import (
    LimitedFigures,
    budget_notes,
    item_metrics,
    static_budget_metrics,
    timed_budget_metrics,
)
from pytest_modelperf.testing.case_budgets import improvement_metric, installed_for_budgets
from pytest_modelperf.testing.outcomes import CaseOutcome
from pytest_modelperf.testing.run import Run
from pytest_modelperf.testing.wording import PYTHON_WORDING, ProgramWords

_STRETCH_SECONDS = 180.0
_USUAL_SECONDS = 30.0
# The sources of figures that programs have but functions do not.
_OF_PROGRAMS = frozenset({FigureSource.ITEMS, FigureSource.BASELINE})


class TestedProgram(Struct, frozen=True):
    """A program as its test checks it. `top` is the top folder of the repository."""

    __test__ = False

    item: pytest.Item
    words: ProgramWords
    top: Path
    state: ProgramState
    budgets: Sequence[Budget]


def run_program(
    run: Run, program: TestedProgram, outcome: CaseOutcome, *, is_recorded: bool
) -> CaseOutcome:
    stopwatch = Stopwatch(run.watch)
    asked = replace(check_of(run, program, outcome), watch=stopwatch)
    budgets = _of_program(program.budgets, asked.machine)
    checked = record_program(asked) if is_recorded else check_program(asked, program.state)
    update = run.settings.update
    if update is UpdateMode.IMPROVED and checked.comparison.verdict is Verdict.IMPROVED:
        checked = replace(checked, recording=record_program(asked).recording)
    if budgets and not checked.comparison.has_failed:
        checked = _with_budgets(asked, checked, budgets, is_recorded=update is not None)
    measured = checked.measured
    return replace(
        outcome,
        comparison=checked.comparison,
        engine="" if measured is None else measured.engine.label,
        latency=None if measured is None else measured.latency,
        peak_rss_bytes=None if measured is None else measured.peak_rss_bytes,
        confidence=asked.gate.confidence,
        program=checked.recording,
        seconds=stopwatch.seconds,
    )


def check_of(run: Run, program: TestedProgram, outcome: CaseOutcome) -> ProgramCheck:
    settings, words, top = run.settings, program.words, program.top
    place = StationPlace(
        side="after",
        tree=str(top),
        worktree=str(top),
        test=id_below(program.item, top),
        folder=Path(os.path.relpath(Path.cwd().resolve(), top.resolve())).as_posix(),
        python=sys.executable,
        options=options_of(run.config),
        sys_path=tuple(sys.path),
        paths=words.paths,
        cores=words.cores,
        scratch=".",
    )
    has_seconds = settings.has_given_seconds
    pace = Pace(
        seconds=settings.max_seconds if has_seconds else _USUAL_SECONDS,
        stretch_seconds=None if has_seconds else _STRETCH_SECONDS,
    )
    extensions = run.checker.context.extensions
    return ProgramCheck(
        test=outcome.test,
        case=outcome.comparison.case,
        gate=Gate(
            tolerances=words.tolerances,
            level=share_level(run.judged),
            rounds=pace.max_rounds,
            starts=(LOAD,),
        ),
        pace=pace,
        place=place,
        baselines=settings.baseline_dir,
        setup=settings.setup(
            extensions, PYTHON_WORDING, spec=settings.gateway_spec, is_stretched=not has_seconds
        ),
        machine=describe_machine().key,
        today=dt.datetime.now(dt.timezone.utc).date().isoformat(),
        against=words.against,
        environment=words.environment,
        outputs=words.outputs,
        is_uncommitted=settings.uncommitted,
        extensions=extensions,
        watch=run.watch,
    )


def _of_program(budgets: Sequence[Budget], machine: str) -> Sequence[Budget]:
    """Return budgets with this machine's limits, or raise UsageError for budgets of models."""
    for budget in budgets:
        figure = budget.figure
        if not figure.is_of_code and figure.source not in _OF_PROGRAMS:
            raise UsageError(
                f"{budget.word} is for models, and this is a program: leave it out, and limit its "
                "latency or peak_memory_mb."
            )
    return [budget.of_machine(machine) for budget in budgets]


def _with_budgets(
    asked: ProgramCheck, checked: CheckedProgram, budgets: Sequence[Budget], *, is_recorded: bool
) -> CheckedProgram:
    if checked.measured is None and any(each.figure.needs_run for each in budgets):
        checked = replace(measure_program(asked, checked.comparison), recording=checked.recording)
    _require_items(checked, budgets)
    timed = _timed_budgets(asked, checked, budgets)
    calls = max((each.samples_needed or 0 for each in timed if each.is_open), default=0)
    if calls:
        # A tail needs more calls than the rounds of a comparison make.
        measured = measure_program(asked, checked.comparison, calls)
        checked = replace(checked, measured=measured.measured, items=measured.items)
        timed = _timed_budgets(asked, checked, budgets)
    found = checked.comparison
    improvement = None if is_recorded else improvement_metric(budgets, found)
    metrics = (
        *timed,
        *([] if improvement is None else [improvement]),
        *static_budget_metrics(budgets, _limited(checked, budgets)),
    )
    comparison = replace(
        found,
        metrics=(*found.metrics, *metrics),
        notes=(*found.notes, *budget_notes(budgets, checked.measured, asked.machine)),
    )
    return replace(checked, comparison=comparison)


def _timed_budgets(
    asked: ProgramCheck, checked: CheckedProgram, budgets: Sequence[Budget]
) -> Sequence[Metric]:
    level, figures = asked.gate.limit_level, _limited(checked, budgets)
    return (
        *timed_budget_metrics([b for b in budgets if b.figure.is_timed], figures, level),
        *item_metrics(budgets, figures, level),
    )


def _limited(checked: CheckedProgram, budgets: Sequence[Budget]) -> LimitedFigures:
    return LimitedFigures(
        None,
        None,
        1,
        checked.measured,
        installed=installed_for_budgets(budgets),
        items=checked.items,
    )


def _require_items(checked: CheckedProgram, budgets: Sequence[Budget]) -> None:
    for budget in budgets:
        if budget.figure.source is FigureSource.ITEMS and checked.measured is not None:
            times_ns = checked.items.get(budget.figure.metric, ())
            if not any(times_ns):
                raise UsageError(
                    f"{budget.word} is for generators, and a call of this program yielded no "
                    f"item: leave out {budget.word}, or limit its latency_ms."
                )


# -- what a station needs of this run


def options_of(config: pytest.Config) -> Mapping[str, object]:
    """Return the options that JSON can represent. A station uses defaults for the others."""
    return {name: value for name, value in vars(config.option).items() if _is_plain(value)}


def id_below(item: pytest.Item, top: Path) -> str:
    """Return the id of a test, with the path of its file relative to the top folder."""
    place = os.path.relpath(os.path.realpath(item.path), os.path.realpath(top))
    return f"{Path(place).as_posix()}::{name_in_file(item)}"


def _is_plain(value: object) -> bool:
    """Whether JSON preserves the value. A tuple or a set would come back as a list."""
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(value)) == value)
    except (TypeError, ValueError, OverflowError):
        return False
