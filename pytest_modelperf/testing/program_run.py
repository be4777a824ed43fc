"""A program that a test checks and that has to run: recorded, judged, or measured for budgets."""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.limits import LOAD, Budget
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.programs.check import check_program
from pytest_modelperf.programs.checked import CheckedProgram, ProgramCheck
from pytest_modelperf.programs.messages import StationPlace
from pytest_modelperf.programs.recording import measure_program, record_program
from pytest_modelperf.programs.rounds import Pace
from pytest_modelperf.programs.settling import ProgramState
from pytest_modelperf.spec.run_definitions import UpdateMode
from pytest_modelperf.stats.looks import share_level
from pytest_modelperf.testing.budgets import LimitedFigures, few_rounds_note, timed_budget_metrics
from pytest_modelperf.testing.outcomes import CaseOutcome
from pytest_modelperf.testing.program_words import ProgramWords
from pytest_modelperf.testing.run import Run
from pytest_modelperf.testing.station_options import id_below, options_of
from pytest_modelperf.testing.wording import PYTHON_WORDING

_STRETCH_SECONDS = 180.0
_USUAL_SECONDS = 30.0


class TestedProgram(Struct, frozen=True):
    """A program as its test checks it; `top` is the top folder of the repository."""

    __test__ = False

    item: pytest.Item
    words: ProgramWords
    top: Path
    state: ProgramState
    budgets: Sequence[Budget]


def run_program(
    run: Run, program: TestedProgram, outcome: CaseOutcome, *, is_recorded: bool
) -> CaseOutcome:
    """Return the outcome with what a run of the program adds to it."""
    _require_program_budgets(program.budgets)
    asked = check_of(run, program, outcome)
    checked = record_program(asked) if is_recorded else check_program(asked, program.state)
    is_improved = checked.comparison.verdict is Verdict.IMPROVED
    if run.settings.update is UpdateMode.IMPROVED and is_improved:
        checked = replace(checked, recording=record_program(asked).recording)
    if program.budgets and not checked.comparison.has_failed:
        checked = _with_budgets(asked, checked, program.budgets)
    measured = checked.measured
    return replace(
        outcome,
        comparison=checked.comparison,
        engine="" if measured is None else measured.engine.label,
        latency=None if measured is None else measured.latency,
        peak_rss_bytes=None if measured is None else measured.peak_rss_bytes,
        confidence=asked.gate.confidence,
        program=checked.recording,
    )


def check_of(run: Run, program: TestedProgram, outcome: CaseOutcome) -> ProgramCheck:
    """Return the check that the test asks for."""
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
            extensions,
            PYTHON_WORDING,
            spec=settings.gateway_spec,
            is_stretched=not has_seconds,
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


def _require_program_budgets(budgets: Sequence[Budget]) -> None:
    for budget in budgets:
        if budget.figure.percent is None and budget.word != "peak_memory_mb":
            raise UsageError(
                f"{budget.word} is for models, and this is a program: leave it out, and limit its "
                "latency or peak_memory_mb."
            )


def _with_budgets(
    asked: ProgramCheck, checked: CheckedProgram, budgets: Sequence[Budget]
) -> CheckedProgram:
    measured = checked.measured or measure_program(asked)
    figures = LimitedFigures(None, None, 1, measured)
    metrics = timed_budget_metrics(budgets, figures, asked.gate.limit_level)
    few = few_rounds_note(budgets, measured)
    found = checked.comparison
    comparison = replace(
        found,
        metrics=(*found.metrics, *metrics),
        notes=(*found.notes, *([few] if few is not None else [])),
    )
    return replace(checked, comparison=comparison, measured=measured)
