"""The commands that reports of a run name.

`typed` are the options that were typed about the engine and the baselines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_modelperf.profiler.records import Case
from pytest_modelperf.testing.wording import PYTHON_WORDING
from pytest_modelperf.text.quoting import shell_path, shell_word

if TYPE_CHECKING:
    from pytest_modelperf.testing.outcomes import CaseOutcome


def record(typed: Sequence[str], *tests: str) -> str:
    """The command that records the baselines of these tests, or of all."""
    return " ".join([PYTHON_WORDING.record, *typed, *tests])


def record_new(typed: Sequence[str]) -> str:
    """The command that records baselines for cases without one."""
    return " ".join([f"{PYTHON_WORDING.record}=new", *typed])


def prune(typed: Sequence[str]) -> str:
    """The command that deletes the baselines that no test uses."""
    return " ".join(["pytest --modelperf --modelperf-prune", *typed])


def profile_alone(outcome: CaseOutcome) -> str | None:
    """The command that runs a case without pytest; None if it takes more than sizes."""
    phase = outcome.comparison.case.phase
    plain = Case(outcome.batch_size, outcome.cores, phase=phase)
    if outcome.model.path is None or outcome.comparison.id != plain.id:
        return None
    words = ["modelperf profile", shell_path(outcome.model.path)]
    words += [f"--batch {outcome.batch_size}", f"--cores {outcome.cores}"]
    chosen = (*outcome.generation_options, *outcome.engine_options)
    return " ".join([*words, *map(shell_word, chosen)])
