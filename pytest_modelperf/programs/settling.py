"""Settle a program without a run, if no file that it read has changed since it was recorded.

This is the usual answer, so this module imports no code that runs or judges a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.baselines.program import StoredProgram
from pytest_modelperf.baselines.program_store import read_program
from pytest_modelperf.programs.changes import changes_since


class ProgramState(Struct, frozen=True):
    """The baseline of a program, if there is one, and what changed since it was recorded."""

    stored: StoredProgram | None
    changes: Sequence[str] = ()

    @property
    def is_unchanged(self) -> bool:
        return self.stored is not None and not self.changes


def read_state(baselines: Path, name: str, top: Path) -> ProgramState:
    """Return the state of the program `name` in the work tree below `top`."""
    stored = read_program(baselines, name)
    return ProgramState(stored, () if stored is None else changes_since(stored, top))
