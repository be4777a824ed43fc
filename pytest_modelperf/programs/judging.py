"""Judge the rounds of a program by all that changed, without sessions that do the same work.

The rest of a program and each session with different work are parts in the sense of `stats.parts`:
the sum of their differences is divided by the time of the whole call. The time of the whole call is
judged as well, and decides if it contradicts the parts.
"""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.program import CallWork, ProgramFigures, StoredRow
from pytest_modelperf.comparing.changes import StageChange, StageKind, StageTime, TimeChange
from pytest_modelperf.comparing.gates import Gate, judged_metric
from pytest_modelperf.comparing.judged_case import JudgedRounds, judge_rounds
from pytest_modelperf.comparing.limits import LEAST_MEMORY_BYTES, MEMORY
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.profiler.measurements import (
    Block,
    DuetRound,
    EngineFacts,
    Measurement,
    Noise,
    Round,
    SideRun,
)
from pytest_modelperf.programs.messages import Reached, Turn
from pytest_modelperf.programs.rounds import ProgramRound
from pytest_modelperf.programs.work import SessionPair, WorkComparison
from pytest_modelperf.stats.decisions import Decision, RatioAnswer
from pytest_modelperf.stats.duet import once_a_round_looks_worse
from pytest_modelperf.stats.estimates import summarize
from pytest_modelperf.stats.parts import PartFigure, undisturbed_ns
from pytest_modelperf.stats.processes import FEWEST_PAIRS, judge_processes
from pytest_modelperf.stats.records import PartTurns, Turns, spread_of_round

REST = "rest of the program"
# Code that runs on a processor for this share of its time only computes.
_CPU_BOUND = 0.9
# A part explains the difference if it has at least this share of it.
_CAUSE = 0.1


class Basis(Enum):
    """The time by which the code outside of sessions is judged."""

    PROCESSOR = "processor time"
    WALL = "wall time"


def basis_of(rounds: Sequence[ProgramRound]) -> Basis:
    """Return processor time if the code of both sides only computes, and wall time if it waits."""
    shares = [
        statistics.median(_running_share(turn) for made in rounds for turn in made.sides[side])
        for side in (0, 1)
    ]
    return Basis.PROCESSOR if min(shares) >= _CPU_BOUND else Basis.WALL


def _running_share(turn: Turn) -> float:
    own_ns = turn.rest_ns - (turn.rest_waited_ns or 0)
    return min(turn.cpu_ns / own_ns, 1.0) if own_ns > 0 else 1.0


def duet_rounds(
    rounds: Sequence[ProgramRound], work: WorkComparison, basis: Basis
) -> tuple[DuetRound, ...]:
    """Return the rounds for a gate, whose parts are the rest and each changed session."""
    pairs = _judged_pairs(work)
    return tuple(
        DuetRound(
            before=_round(made, 0, [pair.names[0] for pair in pairs], basis),
            after=_round(made, 1, [pair.names[1] for pair in pairs], basis),
        )
        for made in rounds
    )


def _judged_pairs(work: WorkComparison) -> Sequence[SessionPair]:
    return [pair for pair in work.pairs if not pair.is_same_work]


def _round(made: ProgramRound, side: int, sessions: Sequence[str | None], basis: Basis) -> Round:
    turns = made.sides[side]
    parts = [_rest_turns(turns, basis), *(_session_turns(turns, name) for name in sessions)]
    times_ns = tuple(turn.wall_ns for turn in turns)
    block = Block(
        times_ns=times_ns,
        running_ns=_all_known(
            [
                None if turn.waited_ns is None else max(turn.wall_ns - turn.waited_ns, 1)
                for turn in turns
            ]
        ),
        noise=Noise(wall_ns=sum(times_ns)),
        parts=tuple(PartTurns(in_place=part, alone=part) for part in parts),
    )
    reached = made.reached[side]
    return Round(
        load_ns=reached.start_ns, first_ns=times_ns[0], warmup_runs=0, is_steady=True, block=block
    )


def _rest_turns(turns: Sequence[Turn], basis: Basis) -> Turns:
    def running_ns(turn: Turn) -> int | None:
        if basis is Basis.PROCESSOR:
            return turn.cpu_ns
        return None if turn.rest_waited_ns is None else max(turn.rest_ns - turn.rest_waited_ns, 0)

    return Turns(
        times_ns=tuple(turn.rest_ns for turn in turns),
        running_ns=_all_known([running_ns(turn) for turn in turns]),
    )


def _session_turns(turns: Sequence[Turn], name: str | None) -> Turns:
    return Turns(
        times_ns=tuple(_session_ns(turn, name) for turn in turns),
        running_ns=_all_known([_running_session_ns(turn, name) for turn in turns]),
    )


def _session_ns(turn: Turn, name: str | None) -> int:
    spent = None if name is None else turn.sessions.get(name)
    return 0 if spent is None else spent.ns


def _running_session_ns(turn: Turn, name: str | None) -> int | None:
    """Return the time of a session without its share of the waits, in proportion to its time."""
    if turn.waited_ns is None or turn.rest_waited_ns is None:
        return None
    ns, whole_ns = _session_ns(turn, name), sum(each.ns for each in turn.sessions.values())
    waited_ns = min(max(turn.waited_ns - turn.rest_waited_ns, 0), whole_ns)
    return round(ns - waited_ns * ns / whole_ns) if whole_ns else 0


def _all_known(found: Sequence[int | None]) -> tuple[int, ...] | None:
    known = [each for each in found if each is not None]
    return tuple(known) if len(known) == len(found) else None


class JudgedProgram(Struct, frozen=True):
    """The answer of the rounds, the time that it is based on, and the stages of a call."""

    rounds: JudgedRounds
    basis: Basis
    stages: tuple[StageChange, ...]

    @property
    def may_name_functions(self) -> bool:
        """Whether the rest explains the difference, or no part that changed does."""
        causes = [
            stage.kind
            for stage in self.stages
            if stage.is_judged and stage.time is not None and stage.time.explains(_CAUSE)
        ]
        return not causes or "rest" in causes

    @property
    def grew_outside_sessions(self) -> bool:
        """Whether the rest became slower by more than any session."""
        grown = [
            (stage.time.ns, stage.kind)
            for stage in self.stages
            if stage.is_judged and stage.time is not None and stage.time.ns > 0
        ]
        return bool(grown) and max(grown)[1] == "rest"


def is_decided(rounds: Sequence[ProgramRound], work: WorkComparison, gate: Gate) -> bool:
    """Whether no further round is needed.

    A growth of memory alone does not end the rounds, because they also show whether and why a call
    takes longer.
    """
    if not gate.is_decided(duet_rounds(rounds, work, basis_of(rounds))):
        return False
    is_open = gate.judges_starts and _judge_memory(rounds, gate).is_open
    return not is_open or not (
        gate.tolerances.names(MEMORY)
        or once_a_round_looks_worse(_peaks(rounds), gate.figure_rule(MEMORY))
    )


def memory_metric(rounds: Sequence[ProgramRound], gate: Gate) -> Metric | None:
    """Return the judged memory of both sides, or None if the system does not report it."""
    pairs = _peaks(rounds)
    if not pairs:
        return None
    decision = _judge_memory(rounds, gate)
    return judged_metric(
        "peak_rss_bytes",
        (statistics.median(old for old, _ in pairs), statistics.median(new for _, new in pairs)),
        decision,
        gate.figure_rule(MEMORY).tolerance,
        is_gated=gate.judges_starts,
        is_awaited=gate.tolerances.names(MEMORY),
    )


def _judge_memory(rounds: Sequence[ProgramRound], gate: Gate) -> Decision:
    """Judge the memory. What an allocator may add passes, unless the user named the memory."""
    pairs, rule = _peaks(rounds), gate.figure_rule(MEMORY)
    if len(pairs) < FEWEST_PAIRS:
        return Decision(confidence=rule.confidence, rounds=len(pairs))
    decision = judge_processes(pairs, rule)
    grown = statistics.median(new - old for old, new in pairs)
    if decision.is_open and grown <= LEAST_MEMORY_BYTES and not gate.tolerances.names(MEMORY):
        return replace(decision, answer=RatioAnswer.NOT_WORSE, rounds_needed=None)
    return decision


def _peaks(rounds: Sequence[ProgramRound]) -> list[tuple[float, float]]:
    return [
        (float(old), float(new))
        for old, new in (made.peaks_bytes for made in rounds)
        if old is not None and new is not None
    ]


def judge_program(
    rounds: Sequence[ProgramRound], work: WorkComparison, gate: Gate
) -> JudgedProgram:
    """Judge all rounds of a program by a gate."""
    basis = basis_of(rounds)
    judged = judge_rounds(duet_rounds(rounds, work, basis), gate)
    figures = () if judged.parts is None else judged.parts.figures
    stages = [*_sessions(rounds, work, figures), _rest(rounds, basis, figures)]
    whole_ns = sum(each.time.ns for each in stages if each.time is not None and each.is_judged)
    shared = [_with_share(each, whole_ns) for each in stages]
    return JudgedProgram(judged, basis, (*shared, *_labels(rounds), *_inputs(rounds)))


def judge_with_models(
    judged: JudgedProgram, work: WorkComparison, changes: Mapping[str, TimeChange], gate: Gate
) -> JudgedProgram:
    """Judge again by the duets of changed models, instead of the times of their sessions.

    The time of a session varies more between processes than the versions of its model differ. All
    other parts that changed keep their own bounds. A duet is not used if its bounds do not overlap
    those of the session in the program, because the model may run on other values there.
    """
    p50, parts = judged.rounds.p50, judged.rounds.parts
    if not changes or not p50.is_open or parts is None or not parts.figures:
        return judged
    rest, *sessions = (_bounded(figure) for figure in parts.figures)
    pairs = _judged_pairs(work)
    found = [
        known if (known := changes.get(pair.name)) and _overlap(known, own) else own
        for pair, own in zip(pairs, sessions, strict=True)
    ]
    ratio, low, high = (
        1.0 + sum(each) / parts.calm_ns for each in zip(*map(_three, (rest, *found)), strict=True)
    )
    metric = replace(
        p50,
        after=None if p50.before is None else p50.before * ratio,
        measured_ratio=ratio,
        interval=(low, high),
        verdict=_verdict_of(low, high, gate.tolerance),
    )
    names = {pair.name: change for pair, change in zip(pairs, found, strict=True)}
    return replace(
        judged,
        rounds=judged.rounds.with_median(metric),
        stages=tuple(
            replace(each, time=names[each.name])
            if each.kind == "session" and each.name in changes
            else each
            for each in judged.stages
        ),
    )


def _bounded(figure: PartFigure) -> TimeChange:
    return TimeChange(ns=figure.shift_ns, low_ns=figure.low_ns, high_ns=figure.high_ns)


def _overlap(one: TimeChange, other: TimeChange) -> bool:
    (_, low, high), (_, least, most) = _three(one), _three(other)
    return low <= most and least <= high


def _three(change: TimeChange) -> tuple[float, float, float]:
    bounds = (change.low_ns, change.high_ns)
    low_ns, high_ns = (change.ns if each is None else each for each in bounds)
    return change.ns, low_ns, high_ns


def _verdict_of(low: float, high: float, tolerance: float) -> Verdict:
    if low > 1.0 + tolerance:
        return Verdict.REGRESSED
    if high > 1.0 + tolerance:
        return Verdict.INCONCLUSIVE
    return Verdict.IMPROVED if high < 1.0 - tolerance else Verdict.PASSED


def _sessions(
    rounds: Sequence[ProgramRound], work: WorkComparison, figures: Sequence[PartFigure]
) -> Iterator[StageChange]:
    judged = _judged_pairs(work)
    for pair in work.pairs:
        is_judged = pair in judged
        place = judged.index(pair) + 1 if is_judged else None
        yield _stage(
            pair.name,
            "session",
            _spent(rounds, 0, partial(_session, pair.names[0])),
            _spent(rounds, 1, partial(_session, pair.names[1])),
            figures[place] if place is not None and place < len(figures) else None,
            is_judged=is_judged,
        )


def _session(name: str | None, turn: Turn) -> tuple[int, float] | None:
    spent = None if name is None else turn.sessions.get(name)
    if spent is None:
        return None
    running_ns = _running_session_ns(turn, name)
    return spent.calls, spent.ns if running_ns is None else running_ns


def _rest(
    rounds: Sequence[ProgramRound], basis: Basis, figures: Sequence[PartFigure]
) -> StageChange:
    def rest(turn: Turn) -> tuple[int, float]:
        ns = turn.cpu_ns if basis is Basis.PROCESSOR else turn.rest_ns - (turn.rest_waited_ns or 0)
        return 1, float(ns)

    old, new = (_spent(rounds, side, rest) for side in (0, 1))
    figure = figures[0] if figures else None
    return _stage(REST, "rest", old, new, figure, is_judged=True)


def _labels(rounds: Sequence[ProgramRound]) -> Iterator[StageChange]:
    turns = [turn for made in rounds for turn in (*made.before, *made.after)]
    for name in dict.fromkeys(name for turn in turns for name in turn.labels):
        find = partial(_label, name)
        yield _stage(name, "label", _spent(rounds, 0, find), _spent(rounds, 1, find))


def _label(name: str, turn: Turn) -> tuple[int, float] | None:
    spent = turn.labels.get(name)
    return None if spent is None else (spent.calls, spent.ns)


def _inputs(rounds: Sequence[ProgramRound]) -> Iterator[StageChange]:
    turns = [turn for made in rounds for turn in (*made.before, *made.after)]
    count = min(len(turn.each_ns) for turn in turns)
    for place in range(count if count > 1 else 0):
        find = partial(_input, place)
        yield _stage(f"{place + 1}", "input", _spent(rounds, 0, find), _spent(rounds, 1, find))


def _input(place: int, turn: Turn) -> tuple[int, float]:
    return 1, float(turn.each_ns[place])


_Find = Callable[[Turn], "tuple[int, float] | None"]


def _spent(rounds: Sequence[ProgramRound], side: int, find: _Find) -> StageTime | None:
    found = [[find(turn) for turn in made.sides[side]] for made in rounds]
    known = [known for each in found if (known := [spent for spent in each if spent is not None])]
    if not known:
        return None
    return StageTime(
        calls=statistics.median(calls for each in known for calls, _ in each),
        # The median of the whole call is one of undisturbed calls, too.
        ns=undisturbed_ns([[ns for _, ns in each] for each in known]),
    )


def _stage(  # noqa: PLR0913  # all facts of a stage
    name: str,
    kind: StageKind,
    before: StageTime | None,
    after: StageTime | None,
    figure: PartFigure | None = None,
    *,
    is_judged: bool = False,
) -> StageChange:
    time = None
    if figure is not None:
        time = _bounded(figure)
    elif before is not None and after is not None:
        time = TimeChange(ns=after.ns - before.ns)
    return StageChange(
        name=name, kind=kind, before=before, after=after, time=time, is_judged=is_judged
    )


def _with_share(stage: StageChange, whole_ns: float) -> StageChange:
    if stage.time is None or not stage.is_judged or not whole_ns:
        return stage
    return replace(stage, time=replace(stage.time, share=stage.time.ns / whole_ns))


_NS_PER_MS = 1e6
_NS_PER_S = 1_000_000_000


def measured_alone(
    turns: Sequence[Sequence[Turn]], reached: Sequence[Reached], peaks: Sequence[int | None]
) -> Measurement:
    """Return the calls of one side as a measurement, with one round per process."""
    rounds = []
    for each, start in zip(turns, reached, strict=True):
        times_ns = tuple(turn.wall_ns for turn in each)
        block = Block(times_ns=times_ns, noise=Noise(wall_ns=sum(times_ns)))
        rounds.append(
            Round(
                load_ns=start.start_ns,
                first_ns=times_ns[0],
                warmup_runs=2,
                is_steady=True,
                block=block,
            )
        )
    return Measurement(
        engine=_engine(),
        rounds=tuple(rounds),
        latency=summarize([made.times_ns for made in rounds], 1),
        seconds=sum(sum(made.times_ns) for made in rounds) / _NS_PER_S,
        peak_rss_bytes=_largest(peaks),
    )


def _engine() -> EngineFacts:
    return EngineFacts(
        name="Python", version=platform.python_version(), python=None, options={}, providers=()
    )


def side_run(turns: Sequence[Sequence[Turn]], reached: Sequence[Reached]) -> SideRun:
    """Return the calls of one side of a duet."""
    times = [tuple(turn.wall_ns for turn in each) for each in turns]
    return SideRun(
        engine=_engine(),
        latency=summarize(times, 1),
        rounds=tuple(spread_of_round(each) for each in times),
        load_ms=median_ms([start.start_ns for start in reached]) or 0.0,
        first_inference_ms=median_ms([each[0] for each in times]) or 0.0,
    )


def program_figures(
    turns: Sequence[Sequence[Turn]], reached: Sequence[Reached], peaks: Sequence[int | None]
) -> ProgramFigures:
    """Return the figures that a baseline stores."""
    latency = summarize([tuple(turn.wall_ns for turn in each) for each in turns], 1)
    found = [turn for each in turns for turn in each]
    return ProgramFigures(
        p50_ms=latency.median_ns / _NS_PER_MS,
        p95_ms=latency.p95_ms,
        first_item_ms=median_ms([turn.first_ns for turn in found]),
        item_ms=median_ms([_item_ns(turn) for turn in found]),
        start_ms=median_ms([each.start_ns for each in reached]),
        peak_rss_bytes=_largest(peaks),
    )


def item_times(turns: Sequence[Sequence[Turn]]) -> Mapping[str, Sequence[Sequence[int]]]:
    """Return the times of a generator's items in each process, by their figures."""
    return {
        name: [[round(ns) for turn in each if (ns := find(turn)) is not None] for each in turns]
        for name, find in ITEM_FIGURES.items()
    }


def median_ms(found: Sequence[float | None]) -> float | None:
    """Return the median of the known values, in milliseconds."""
    known = [each for each in found if each is not None]
    return statistics.median(known) / _NS_PER_MS if known else None


def _item_ns(turn: Turn) -> float | None:
    return turn.wall_ns / turn.items if turn.items else None


ITEM_FIGURES: Mapping[str, Callable[[Turn], float | None]] = {
    "first_item_ms": lambda turn: turn.first_ns,
    "item_ms": _item_ns,
}


def program_rows(turns: Sequence[Turn], work: CallWork) -> Iterator[StoredRow]:
    """Yield the rows that a baseline stores: each session, and the rest of the program."""
    names = dict.fromkeys(name for turn in turns for name in turn.sessions)
    for name in dict.fromkeys([*(session.model for session in work.sessions), *names]):
        spent = [turn.sessions[name] for turn in turns if name in turn.sessions]
        if spent:
            calls = statistics.median(each.calls for each in spent)
            yield StoredRow(
                name=name, calls=calls, ms=median_ms([each.ns for each in spent]) or 0.0
            )
    rest = median_ms([turn.rest_ns for turn in turns]) or 0.0
    yield StoredRow(name=REST, calls=1, ms=rest)


def _largest(peaks: Sequence[int | None]) -> int | None:
    return max((peak for peak in peaks if peak is not None), default=None)
