"""A program measured alone: to be its baseline, or for its budgets."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from msgspec.structs import replace

from pytest_modelperf.baselines.program import CallWork, ProgramSources, StoredProgram
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.programs.calls import (
    item_times,
    measured_alone,
    program_figures,
    program_rows,
)
from pytest_modelperf.programs.checked import CheckedProgram, ProgramCheck
from pytest_modelperf.programs.commits import require_committed
from pytest_modelperf.programs.models import MacsCounter
from pytest_modelperf.programs.records import Reached, Turn
from pytest_modelperf.programs.repository import head_commit
from pytest_modelperf.programs.side import SideStation, start_station
from pytest_modelperf.programs.sides import measuring_program
from pytest_modelperf.programs.work import with_macs

_RECORDED_ROUNDS = 3
_MEASURED_ROUNDS = 5
_ROUND_NS = 600_000_000
_MOST_CALLS = 200


@dataclass
class _Alone:
    """What the processes of one side measured: a round for each."""

    turns: list[tuple[Turn, ...]] = field(default_factory=list)
    reached: list[Reached] = field(default_factory=list)
    peaks: list[int | None] = field(default_factory=list)

    def measurement(self) -> Measurement:
        return measured_alone(self.turns, self.reached, self.peaks)


def record_program(asked: ProgramCheck) -> CheckedProgram:
    """Measure a program alone, to be its baseline; UsageError if no commit could hold it."""
    begun = time.monotonic()
    seen = ProgramSources(files={}, distributions={}, models=(), python="")
    commit: str | None = None
    work = CallWork(sessions=())
    notes: tuple[str, ...] = ()

    def look(station: SideStation) -> None:
        nonlocal seen, commit, work, notes
        watched, seen = station.watch(), station.seen()
        commit = _commit_to_record(asked, seen)
        counter = MacsCounter(watched)
        work, notes = with_macs(watched.work, counter), counter.notes

    alone = _measure(asked, "record", _RECORDED_ROUNDS, look)
    recording = StoredProgram(
        test=asked.test,
        commit=commit,
        recorded=asked.today,
        machine=asked.machine,
        seen=seen,
        work=work,
        figures=program_figures(alone.turns, alone.reached, alone.peaks),
        rows=tuple(program_rows([turn for each in alone.turns for turn in each], work)),
    )
    comparison = CaseComparison(
        asked.case, (), (), notes=notes, outcome=Verdict.NEW, seconds=time.monotonic() - begun
    )
    return CheckedProgram(
        comparison=comparison,
        measured=alone.measurement(),
        recording=recording,
        items=item_times(alone.turns),
    )


def measure_program(asked: ProgramCheck, comparison: CaseComparison) -> CheckedProgram:
    """Measure a program alone, for its budgets, with a comparison that did not run it."""
    alone = _measure(asked, "measure", _MEASURED_ROUNDS)
    return CheckedProgram(
        comparison=comparison, measured=alone.measurement(), items=item_times(alone.turns)
    )


def _measure(
    asked: ProgramCheck,
    verb: str,
    rounds: int,
    look: Callable[[SideStation], None] = lambda station: None,  # noqa: ARG005
) -> _Alone:
    """Time the calls of some processes; `look` gets the first one before its calls are timed."""
    alone = _Alone()
    with measuring_program(asked), working_folder("programs") as scratch, ExitStack() as leaving:
        for number in range(rounds):
            asked.show_step(f"{verb}, process {number + 1} of {rounds}")
            place = replace(asked.place, scratch=str(scratch / f"{verb}-{number}"))
            station = leaving.enter_context(start_station(place))
            alone.reached.append(station.wait_reached())
            if number == 0:
                look(station)
            alone.turns.append(station.call(_MOST_CALLS, _ROUND_NS))
            alone.peaks.append(station.peak_bytes)
            # It ends while the next one starts.
            station.leave()
            leaving.callback(station.end)
    return alone


def _commit_to_record(asked: ProgramCheck, seen: ProgramSources) -> str | None:
    """The commit that holds what was measured; None if one is made later."""
    if asked.is_uncommitted:
        return None
    require_committed(seen, asked.top)
    return head_commit(asked.top)
