"""The records of a program check: the program to check, and what a check finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.baselines.program import StoredProgram
from pytest_modelperf.baselines.program_store import program_name
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import Measurement, Progress
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.programs.messages import StationPlace
from pytest_modelperf.programs.rounds import Pace


class ProgramCheck(Struct, frozen=True, kw_only=True):
    """A program to check: the test that reaches it, and how it is judged.

    `place` is that of the work tree, and `baselines` is the folder of all baselines. `against` is a
    commit or a requirement that replaces the accepted version. With `environment`, the side before
    has the recorded versions of distributions. `outputs` is how results are compared.
    """

    test: str
    case: Case
    gate: Gate
    pace: Pace
    place: StationPlace
    baselines: Path
    setup: Setup
    machine: str
    today: str
    against: str | None = None
    environment: str | None = None
    outputs: str | None = None
    is_uncommitted: bool = False
    extensions: Extensions
    watch: Watch = lambda _: None

    @property
    def top(self) -> Path:
        return Path(self.place.worktree)

    @property
    def name(self) -> str:
        """The folder name of its baseline."""
        return program_name(self.test)

    def show_step(self, step: str) -> None:
        self.watch(Progress(case_id=self.case.id, case_number=1, cases=1, step=step))


class CheckedProgram(Struct, frozen=True, kw_only=True):
    """A checked program: its comparison, its measurement if it ran, and what to store.

    `items` are the times of the items of a generator by their figures, a sequence for each process.
    """

    comparison: CaseComparison
    measured: Measurement | None = None
    recording: StoredProgram | None = None
    items: Mapping[str, Sequence[Sequence[int]]] = {}
