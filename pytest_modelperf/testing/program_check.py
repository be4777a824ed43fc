"""Checking the program of a test, with an outcome as the result.

Most programs are unchanged, so the code that runs and judges one is imported only if needed.
"""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.program_store import program_name
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.programs.repository import top_of
from pytest_modelperf.programs.settling import ProgramState, read_state
from pytest_modelperf.spec.run_definitions import UpdateMode
from pytest_modelperf.testing.markers import read_mark_budgets
from pytest_modelperf.testing.outcome_names import source_of
from pytest_modelperf.testing.outcomes import CaseOutcome
from pytest_modelperf.testing.program_words import ProgramWords
from pytest_modelperf.testing.run import Run
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
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
    begun = dt.datetime.now(dt.timezone.utc)
    settings = run.settings
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
        accept=run.accept(item),
    )
    is_settled = state.is_unchanged and words.against is None
    taken = run.config.stash.get(TAKEN, None)
    if is_recorded or budgets or not is_settled or taken is not None:
        from pytest_modelperf.testing.program_run import TestedProgram, check_of, run_program

        program = TestedProgram(item, words, top, state, budgets)
        if taken is not None:
            taken.append(NamedProgram(check_of(run, program, outcome), state))
            pytest.skip("the command has the check of this test")
        outcome = run_program(run, program, outcome, is_recorded=is_recorded)
    seconds = (dt.datetime.now(dt.timezone.utc) - begun).total_seconds()
    return replace(outcome, seconds=seconds)


def require_first(calls: int, item: pytest.Item) -> None:
    """Raise UsageError for a second program of a test, because stations end at the first."""
    if calls > _MOST_CALLS:
        raise UsageError(
            f"{printable(item.nodeid)} checks a second program, and a test can check one: a "
            "process of the other version runs the test up to the first call. Put each call into a "
            "test of its own, or give several inputs to one call by each=[(a,), (b,)]."
        )
