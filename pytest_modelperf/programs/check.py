"""Judge a program against an older commit, or measure it alone for its baseline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.program import CallWork, ProgramSources, StoredProgram
from pytest_modelperf.comparing.changes import CallChange
from pytest_modelperf.comparing.gates import Gate, median_gate
from pytest_modelperf.comparing.limits import OUTPUTS
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.model_in_worker import Stopwatch
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.programs.causes import (
    MODEL_SECONDS,
    MacsCounter,
    compare_versions,
    grown_functions,
    keep_changed_models,
    merged_calls,
)
from pytest_modelperf.programs.changes import ProgramState
from pytest_modelperf.programs.checked import CheckedProgram, ProgramCheck
from pytest_modelperf.programs.commits import head_commit, require_committed
from pytest_modelperf.programs.judging import (
    ITEM_FIGURES,
    JudgedProgram,
    is_decided,
    item_times,
    judge_program,
    judge_with_models,
    measured_alone,
    median_ms,
    memory_metric,
    program_figures,
    program_rows,
    side_run,
)
from pytest_modelperf.programs.messages import CallProfile, Reached, Turn
from pytest_modelperf.programs.rounds import OpenPair, ProgramRound, take_rounds
from pytest_modelperf.programs.sides import (
    BothSides,
    OpenSides,
    SideStation,
    TestMissingError,
    WatchedWork,
    both_sides,
    measuring_program,
)
from pytest_modelperf.programs.work import (
    SessionPair,
    WorkComparison,
    compare_work,
    with_macs,
    work_metrics,
)
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

_NS_PER_MS = 1e6
_NS_PER_S = 1_000_000_000
_PROFILES = 3
_PROFILED_NS = 300_000_000
_MOST_PROFILED = 20
_MOST_NAMED = 4
# The gate reports the time until the call as a model's load time, so it is renamed.
_NAMES = {"load_ms": "start_ms"}


def check_program(asked: ProgramCheck, state: ProgramState) -> CheckedProgram:
    """Judge a program against the accepted commit, or against another version."""
    stored = state.stored
    if asked.against is None:
        if stored is None:
            return _as_new(asked, "this program has no baseline")
        if state.is_unchanged:
            comparison = CaseComparison(asked.case, (), (), outcome=Verdict.UNCHANGED)
            return CheckedProgram(comparison=comparison)
    stopwatch = Stopwatch(asked.watch)
    asked = replace(asked, watch=stopwatch)
    try:
        with working_folder("models") as kept:
            with both_sides(asked, stored) as sides:
                seen = _see(asked, sides, kept)
            # The lock of the stations must be released by now, because models are measured alone.
            checked = _conclude(asked, seen)
    except TestMissingError as error:
        if error.side == "before":
            return _as_new(asked, str(error))
        raise
    except MeasureError as error:
        comparison = CaseComparison(
            asked.case, (), (), failure=error.message, failed_side=error.side
        )
        return CheckedProgram(comparison=comparison)
    found = checked.comparison
    notes = found.notes
    if asked.against is None:
        changes = [printable(change) for change in state.changes]
        notes = (f"since it was recorded: {shorten_list(changes, _MOST_NAMED)}", *notes)
    comparison = replace(found, notes=notes, seconds=stopwatch.seconds)
    return replace(checked, comparison=comparison)


def _as_new(asked: ProgramCheck, reason: str) -> CheckedProgram:
    comparison = CaseComparison(asked.case, (), (), (reason,), outcome=Verdict.NEW)
    return CheckedProgram(comparison=comparison)


class _Causes(Struct, frozen=True):
    functions: tuple[str, ...] = ()
    calls: tuple[CallChange, ...] = ()


class _Timed(Struct, frozen=True, kw_only=True):
    rounds: Sequence[ProgramRound]
    judged: JudgedProgram
    causes: _Causes


class _Seen(Struct, frozen=True, kw_only=True):
    """The findings of the stations.

    `timed` is None if the work already decided. `watched` has the model files of both sides.
    """

    work: WorkComparison
    metrics: tuple[Metric, ...]
    notes: tuple[str, ...]
    watched: tuple[WatchedWork, WatchedWork]
    gate: Gate
    timed: _Timed | None = None


def _see(asked: ProgramCheck, sides: BothSides, kept: Path) -> _Seen:
    asked.show_step("start both sides")
    with ExitStack() as stack:
        first = stack.enter_context(sides.opened())
        watched = first.after.watch()
        old = first.before.watch()
        # The MACs are counted again, because an edited baseline could name more MACs and let more
        # work pass.
        counters = MacsCounter(old), MacsCounter(watched)
        before = with_macs(old.work, counters[0])
        after = with_macs(watched.work, counters[1], before)
        work = compare_work(before, after)
        metrics = (*work_metrics(work, asked.gate.tolerances), *_output_metrics(asked, first))
        # If a model changed, its duet and all other parts share the level.
        has_other_model = any(pair.is_other_model for pair in work.pairs)
        gate = asked.gate.divided(2 + len(work.changed)) if has_other_model else asked.gate
        uncounted = [note for counter in counters for note in counter.notes]
        seen = _Seen(
            work=work,
            metrics=metrics,
            notes=(*_work_notes(watched), *dict.fromkeys(uncounted)),
            watched=(old, watched),
            gate=gate,
        )
        if any(metric.verdict is Verdict.REGRESSED for metric in metrics):
            return replace(seen, metrics=(*metrics, _unjudged_start(first)))
        if has_other_model:
            seen = replace(seen, watched=keep_changed_models(seen.watched, work.pairs, kept))
        return replace(seen, timed=_time(asked, sides, seen, first, stack))


def _conclude(asked: ProgramCheck, seen: _Seen) -> CheckedProgram:
    reasons, timed = seen.work.differences, seen.timed
    if timed is None:
        comparison = CaseComparison(asked.case, seen.metrics, (), reasons=reasons, notes=seen.notes)
        return CheckedProgram(comparison=comparison)
    p50 = timed.judged.rounds.p50
    if p50.ratio is not None and (p50.is_open or p50.ratio > 1.0 + (p50.allowed or 0.0)):
        duets = {
            pair.name: duet
            for pair in seen.work.pairs
            if pair.is_other_model
            and (
                duet := compare_versions(asked, pair, seen.watched, _model_gate(seen, timed, pair))
            )
        }
        changes = {name: duet.change for name, duet in duets.items() if duet.change is not None}
        judged = judge_with_models(timed.judged, seen.work, changes, seen.gate)
        if judged != timed.judged:
            names = ", ".join(map(printable, changes))
            note = f"what changed in {names} was judged by a duet of both versions"
            seen = replace(seen, notes=(*seen.notes, note))
        timed = replace(timed, judged=judged)
        reasons = (*reasons, *(reason for duet in duets.values() for reason in duet.reasons))
    functions = timed.causes.functions
    if not timed.judged.grew_outside_sessions:
        return _compared(asked, seen, timed, (*reasons, *functions))
    more_work = [each for each in seen.work.differences if each not in seen.work.other_models]
    others = [each for each in reasons if each not in more_work]
    return _compared(asked, seen, timed, (*more_work, *functions, *others))


def _model_gate(seen: _Seen, timed: _Timed, pair: SessionPair) -> Gate:
    """Return a gate that decides if a model alone makes the call slower than is allowed."""
    tolerance, parts = seen.gate.tolerance, timed.judged.rounds.parts
    stage = next((each for each in timed.judged.stages if each.name == pair.name), None)
    if parts is not None and stage is not None and stage.before is not None and stage.before.ns:
        tolerance *= max(parts.calm_ns / stage.before.ns, 1.0)
    return median_gate(tolerance, seen.gate.level, MODEL_SECONDS)


def _compared(
    asked: ProgramCheck, seen: _Seen, found: _Timed, reasons: tuple[str, ...]
) -> CheckedProgram:
    rounds, judged, work = found.rounds, found.judged, seen.work
    timed = [
        _with_reason(replace(each, name=_NAMES.get(each.name, each.name)), reasons)
        for each in judged.rounds.metrics
    ]
    memory = memory_metric(rounds, seen.gate)
    if memory is not None:
        timed.append(memory)
    turns = [[made.before for made in rounds], [made.after for made in rounds]]
    reached = [[made.reached[side] for made in rounds] for side in (0, 1)]
    before, after = map(side_run, turns, reached)
    basis = f"the code outside of sessions was judged by {judged.basis.value}"
    same = [printable(pair.name) for pair in work.pairs if pair.is_same_work]
    if same:
        basis += f"; {shorten_list(same, _MOST_NAMED)} did the same work on both sides"
    comparison = CaseComparison(
        asked.case,
        (*timed, *seen.metrics, *_item_metrics(rounds)),
        (),
        reasons=reasons,
        notes=(basis, *seen.notes),
        rounds=len(rounds),
        how=judged.rounds.how,
        before=before,
        after=after,
        stages=judged.stages,
        calls=found.causes.calls,
    )
    measured = measured_alone(turns[1], reached[1], [made.peaks_bytes[1] for made in rounds])
    return CheckedProgram(comparison=comparison, measured=measured, items=item_times(turns[1]))


def _with_reason(metric: Metric, reasons: Sequence[str]) -> Metric:
    if metric.verdict is not Verdict.REGRESSED or not reasons:
        return metric
    return replace(metric, reason=reasons[0])


def _time(
    asked: ProgramCheck, sides: BothSides, seen: _Seen, first: OpenSides, stack: ExitStack
) -> _Timed:
    """Time both sides round by round, beginning with the stations that were already started."""
    number = 0
    causes = _Causes()

    @contextmanager
    def open_pair() -> Iterator[OpenPair]:
        nonlocal number
        number += 1
        asked.show_step(f"round {number}")
        if number == 1:
            yield first.pair
            stack.close()
            return
        with sides.opened() as opened:
            yield opened.pair

    def look(rounds: Sequence[ProgramRound], pair: OpenPair, is_over: bool) -> bool:  # noqa: FBT001  # a callback
        nonlocal causes
        if not is_over and not is_decided(rounds, seen.work, seen.gate):
            return False
        judged = judge_program(rounds, seen.work, seen.gate)
        if judged.rounds.p50.verdict is Verdict.REGRESSED:
            asked.show_step("profile both sides")
            causes = _causes(pair, judged)
        return True

    rounds = take_rounds(open_pair, look, asked.pace, time.perf_counter_ns)
    judged = judge_program(rounds, seen.work, seen.gate)
    return _Timed(rounds=rounds, judged=judged, causes=causes)


def _causes(pair: OpenPair, judged: JudgedProgram) -> _Causes:
    if not judged.may_name_functions:
        return _Causes()
    p50 = judged.rounds.p50
    before_ns, after_ns = ((each or 0.0) * _NS_PER_MS for each in (p50.before, p50.after))
    calls = max(1, min(_MOST_PROFILED, round(_PROFILED_NS / max(after_ns, 1))))
    profiles: tuple[list[CallProfile], list[CallProfile]] = ([], [])
    for _ in range(_PROFILES):
        for found, station in zip(profiles, (pair.before, pair.after), strict=True):
            found.append(station.profile(calls))
    grown = grown_functions(*profiles, call_ns=after_ns - before_ns)
    named = tuple(change.describe() for change in grown)
    return _Causes(named, merged_calls(*profiles))


def _output_metrics(asked: ProgramCheck, first: OpenSides) -> Iterator[Metric]:
    if asked.outputs is None:
        return
    difference = first.after.compare(first.before.result(), asked.outputs)
    verdict = Verdict.PASSED if difference is None else Verdict.REGRESSED
    after = 0.0 if difference is None else None
    yield Metric(OUTPUTS, 0.0, after, verdict, allowed=0.0, reason=difference)


def _unjudged_start(first: OpenSides) -> Metric:
    """Return the time until the call, not judged because one round is not enough."""
    old, new = (reached.start_ns / _NS_PER_MS for reached in first.reached)
    return Metric("start_ms", old, new, Verdict.PASSED, gated=False)


def _item_metrics(rounds: Sequence[ProgramRound]) -> Iterator[Metric]:
    sides = [[turn for made in rounds for turn in made.sides[side]] for side in (0, 1)]
    for name, find in ITEM_FIGURES.items():
        old, new = (median_ms([find(turn) for turn in turns]) for turns in sides)
        if old is not None and new is not None:
            yield Metric(name, old, new, Verdict.PASSED, gated=False)


def _work_notes(watched: WatchedWork) -> Iterator[str]:
    if watched.next_work is not None:
        yield (
            "the next call did other work: a cache may answer it, or the call changes its inputs. "
            "Judge a call that can be repeated"
        )
    elif not watched.work.inferences:
        yield (
            "a call runs no inference: a cache may answer it, another process may run it, or the "
            "program has no session"
        )


# -- a program measured alone


_RECORDED_ROUNDS = 3
_MEASURED_ROUNDS = 5
_ROUND_NS = 600_000_000
_MOST_CALLS = 200


@dataclass
class _Alone:
    turns: list[tuple[Turn, ...]] = field(default_factory=list)
    reached: list[Reached] = field(default_factory=list)
    peaks: list[int | None] = field(default_factory=list)

    def measurement(self) -> Measurement:
        return measured_alone(self.turns, self.reached, self.peaks)


def record_program(asked: ProgramCheck) -> CheckedProgram:
    """Measure a program alone for its baseline, or raise UsageError if no commit could hold it."""
    stopwatch = Stopwatch(asked.watch)
    asked = replace(asked, watch=stopwatch)
    seen = ProgramSources(files={}, distributions={}, models=(), python="")
    commit: str | None = None
    work = CallWork(sessions=())
    notes: tuple[str, ...] = ()

    def look(station: SideStation) -> None:
        nonlocal seen, commit, work, notes
        watched, seen = station.watch(), station.seen()
        commit = _commit_to_record(asked, seen)
        counter = MacsCounter(watched)
        work = with_macs(watched.work, counter)
        notes = (*_work_notes(watched), *counter.notes)

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
        asked.case, (), (), notes=notes, outcome=Verdict.NEW, seconds=stopwatch.seconds
    )
    return CheckedProgram(
        comparison=comparison,
        measured=alone.measurement(),
        recording=recording,
        items=item_times(alone.turns),
    )


def measure_program(
    asked: ProgramCheck, comparison: CaseComparison, calls: int | None = None
) -> CheckedProgram:
    """Measure a program alone, for budgets that the rounds of its comparison do not decide.

    With `calls` it makes that many calls in all, if the time for rounds suffices.
    """
    alone = _measure(asked, "measure", _MEASURED_ROUNDS, calls=calls)
    return CheckedProgram(
        comparison=comparison, measured=alone.measurement(), items=item_times(alone.turns)
    )


def _measure(
    asked: ProgramCheck,
    verb: str,
    rounds: int,
    look: Callable[[SideStation], None] = lambda station: None,  # noqa: ARG005
    calls: int | None = None,
) -> _Alone:
    """Time the calls of some processes. `look` gets the first process before its calls."""
    alone = _Alone()
    most, max_ns = _MOST_CALLS, _ROUND_NS
    if calls is not None:
        most, max_ns = math.ceil(calls / rounds), round(asked.pace.seconds * _NS_PER_S / rounds)
    with measuring_program(asked), working_folder("programs") as scratch, ExitStack() as leaving:
        for number in range(rounds):
            asked.show_step(f"{verb}, process {number + 1} of {rounds}")
            place = replace(asked.place, scratch=str(scratch / f"{verb}-{number}"))
            station = leaving.enter_context(SideStation(place))
            alone.reached.append(station.wait_reached())
            if number == 0:
                look(station)
            alone.turns.append(station.call(most, max_ns))
            alone.peaks.append(station.peak_bytes)
            # The process ends while the next one starts.
            station.leave()
            leaving.callback(station.end)
    return alone


def _commit_to_record(asked: ProgramCheck, seen: ProgramSources) -> str | None:
    if asked.is_uncommitted:
        return None
    require_committed(seen, asked.top)
    return head_commit(asked.top)
