"""A program checked: recorded, settled without a run, or judged against an older commit."""

from __future__ import annotations

import contextlib
import math
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.program import (
    CallWork,
    ProgramFigures,
    ProgramSources,
    StoredProgram,
    StoredRow,
)
from pytest_modelperf.baselines.program_store import program_name, program_path, read_program
from pytest_modelperf.comparing.by_duet import compare_models
from pytest_modelperf.comparing.gates import Gate, median_gate
from pytest_modelperf.comparing.limits import OUTPUTS
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.comparing.sides import Side as ModelSide
from pytest_modelperf.errors import MeasureError, ModelPerfError, UsageError
from pytest_modelperf.graph.binding import InputSpec
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import (
    Block,
    EngineFacts,
    Measurement,
    Noise,
    Progress,
    Round,
    SideRun,
)
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.lock import measuring_alone
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.programs.causes import grown_functions
from pytest_modelperf.programs.changes import changes_since
from pytest_modelperf.programs.commits import (
    accepted_commit,
    find_against,
    head_commit,
    require_committed,
)
from pytest_modelperf.programs.environments import python_of, python_with
from pytest_modelperf.programs.judging import JudgedProgram, is_decided, judge_program
from pytest_modelperf.programs.messages import StationPlace
from pytest_modelperf.programs.records import CallProfile, Reached, Turn
from pytest_modelperf.programs.rounds import OpenPair, Pace, ProgramRound, take_rounds
from pytest_modelperf.programs.side import SideStation, TestMissingError, WatchedWork, start_station
from pytest_modelperf.programs.tree_files import complete_tree
from pytest_modelperf.programs.work import (
    SessionPair,
    WorkComparison,
    compare_work,
    with_macs,
    work_metrics,
)
from pytest_modelperf.programs.worktrees import tree_of
from pytest_modelperf.stats.estimates import summarize
from pytest_modelperf.stats.records import Latency
from pytest_modelperf.stats.spread import spread_of_round
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

RECORDED_ENVIRONMENT = "recorded"
_NS_PER_MS = 1e6
_NS_PER_S = 1_000_000_000
_REQUIREMENT = re.compile(r"^[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?\s*(==|~=|>=|<=|!=|<|>)")
_RECORDED_ROUNDS = 3
_MEASURED_ROUNDS = 5
_RECORDED_NS = 1_000_000_000
_MOST_RECORDED = 200
_PROFILES = 2
_PROFILED_NS = 300_000_000
_MOST_PROFILED = 20
_MODEL_SECONDS = 10.0
_MOST_NAMED = 4
_INPUT = re.compile(r"^(?P<name>.*): (?P<shape>\d+(x\d+)*) (?P<dtype>\w+)$")


class ProgramCheck(Struct, frozen=True, kw_only=True):
    """A program that is to be checked: the test that reaches it, and how it is judged.

    `place` is that of the work tree, and `baselines` the folder of all baselines. `against` is a
    commit or a requirement that replaces what was accepted. With `environment` the side before
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
        """The folder of its baseline."""
        return program_name(self.test)

    def tell(self, step: str) -> None:
        """Show a step that takes a while."""
        self.watch(Progress(case_id=self.case.id, case_number=1, cases=1, step=step))


class CheckedProgram(Struct, frozen=True, kw_only=True):
    """A checked program: its comparison, how it ran now if it did, and what is stored of it.

    `items` are the times of the items of a generator by their figures, a sequence for each process.
    """

    comparison: CaseComparison
    measured: Measurement | None = None
    recording: StoredProgram | None = None
    items: Mapping[str, Sequence[Sequence[int]]] = {}


def check_program(asked: ProgramCheck) -> CheckedProgram:
    """The program held against the commit that was accepted, or against another version."""
    stored = read_program(asked.baselines, asked.name)
    if asked.against is None and stored is None:
        return _as_new(asked, "this program has no baseline")
    changes: Sequence[str] = ()
    if asked.against is None and stored is not None:
        changes = [change.text for change in changes_since(stored, asked.top)]
        if not changes:
            return CheckedProgram(
                comparison=CaseComparison(asked.case, (), (), outcome=Verdict.UNCHANGED)
            )
    begun = time.monotonic()
    try:
        with _stations_of(asked, stored) as stations:
            judged = _judge(asked, stations)
        # Models are measured alone too, so the lock of the stations is released by now.
        found = _with_model_reasons(asked, judged)
    except TestMissingError as error:
        if error.side == "before":
            return _as_new(asked, str(error))
        raise
    except MeasureError as error:
        comparison = CaseComparison(
            asked.case, (), (), failure=error.message, failed_side=error.side
        )
        return CheckedProgram(comparison=comparison)
    notes = found.notes
    if changes:
        named = shorten_list([*map(printable, changes)], _MOST_NAMED)
        notes = (f"since it was recorded: {named}", *notes)
    comparison = replace(found, notes=notes, seconds=time.monotonic() - begun)
    return replace(judged.checked, comparison=comparison)


def record_program(asked: ProgramCheck) -> CheckedProgram:
    """The program measured alone, to be the baseline; UsageError if no commit could hold it."""
    begun = time.monotonic()
    turns: list[tuple[Turn, ...]] = []
    reached: list[Reached] = []
    with _alone(asked), working_folder("programs") as scratch:
        watched: WatchedWork | None = None
        seen: ProgramSources | None = None
        for number in range(_RECORDED_ROUNDS):
            asked.tell(f"record, process {number + 1} of {_RECORDED_ROUNDS}")
            place = replace(asked.place, scratch=str(scratch / f"record-{number}"))
            with start_station(place) as station:
                reached.append(station.wait_reached())
                if watched is None or seen is None:
                    watched, seen = station.watch(), station.seen()
                    commit = _commit_to_record(asked, seen)
                    work = with_macs(watched.work, _counter(watched))
                turns.append(station.call(_MOST_RECORDED, _RECORDED_NS))
                station.end()
    latency = summarize([tuple(turn.wall_ns for turn in each) for each in turns], 1)
    recording = StoredProgram(
        test=asked.test,
        commit=commit,
        recorded=asked.today,
        machine=asked.machine,
        seen=seen or ProgramSources(files={}, distributions={}, models=(), python=""),
        work=work,
        figures=_figures(latency, turns, reached),
        rows=tuple(_rows([turn for each in turns for turn in each], work)),
    )
    comparison = CaseComparison(
        asked.case, (), (), outcome=Verdict.NEW, seconds=time.monotonic() - begun
    )
    measured, items = _measured(turns, reached), _item_times(turns)
    return CheckedProgram(
        comparison=comparison, measured=measured, recording=recording, items=items
    )


def measure_program(asked: ProgramCheck, comparison: CaseComparison) -> CheckedProgram:
    """The program measured alone, for its budgets, with a comparison that did not run it."""
    turns: list[tuple[Turn, ...]] = []
    reached: list[Reached] = []
    with _alone(asked), working_folder("programs") as scratch:
        for number in range(_MEASURED_ROUNDS):
            asked.tell(f"measure, process {number + 1} of {_MEASURED_ROUNDS}")
            with start_station(
                replace(asked.place, scratch=str(scratch / f"alone-{number}"))
            ) as station:
                reached.append(station.wait_reached())
                turns.append(station.call(_MOST_RECORDED, _RECORDED_NS))
                station.end()
    measured, items = _measured(turns, reached), _item_times(turns)
    return CheckedProgram(comparison=comparison, measured=measured, items=items)


def _measured(turns: Sequence[Sequence[Turn]], reached: Sequence[Reached]) -> Measurement:
    """The calls of one side as a measurement: a round is a process."""
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
    peaks = [each.peak_rss_bytes for each in reached if each.peak_rss_bytes is not None]
    return Measurement(
        engine=_engine(),
        rounds=tuple(rounds),
        latency=summarize([made.times_ns for made in rounds], 1),
        seconds=sum(sum(made.times_ns) for made in rounds) / _NS_PER_S,
        peak_rss_bytes=max(peaks, default=None),
    )


def _item_times(turns: Sequence[Sequence[Turn]]) -> Mapping[str, Sequence[Sequence[int]]]:
    """The times of the items of a generator in each process, by their figures."""
    return {
        name: [[round(ns) for turn in each if (ns := find(turn)) is not None] for each in turns]
        for name, find in _ITEM_FIGURES.items()
    }


def _engine() -> EngineFacts:
    return EngineFacts(
        name="Python", version=platform.python_version(), python=None, options={}, providers=()
    )


def _as_new(asked: ProgramCheck, reason: str) -> CheckedProgram:
    comparison = CaseComparison(asked.case, (), (), (reason,), outcome=Verdict.NEW)
    return CheckedProgram(comparison=comparison)


# -- recording


def _commit_to_record(asked: ProgramCheck, seen: ProgramSources) -> str | None:
    """The commit that holds what was measured; None if one is made later."""
    if asked.is_uncommitted:
        return None
    require_committed(seen, asked.top)
    return head_commit(asked.top)


def _figures(
    latency: Latency, turns: Sequence[Sequence[Turn]], reached: Sequence[Reached]
) -> ProgramFigures:
    found = [turn for each in turns for turn in each]
    peaks = [each.peak_rss_bytes for each in reached if each.peak_rss_bytes is not None]
    return ProgramFigures(
        p50_ms=latency.median_ns / _NS_PER_MS,
        p95_ms=latency.p95_ms,
        first_item_ms=_median_ms([turn.first_ns for turn in found]),
        item_ms=_median_ms([_item_ns(turn) for turn in found]),
        start_ms=_median_ms([each.start_ns for each in reached]),
        peak_rss_bytes=max(peaks, default=None),
    )


def _median_ms(found: Sequence[float | None]) -> float | None:
    known = [each for each in found if each is not None]
    return statistics.median(known) / _NS_PER_MS if known else None


def _item_ns(turn: Turn) -> float | None:
    return turn.wall_ns / turn.items if turn.items else None


_ITEM_FIGURES: Mapping[str, Callable[[Turn], float | None]] = {
    "first_item_ms": lambda turn: turn.first_ns,
    "item_ms": _item_ns,
}


def _rows(turns: Sequence[Turn], work: CallWork) -> Iterator[StoredRow]:
    names = dict.fromkeys(name for turn in turns for name in turn.sessions)
    for name in dict.fromkeys([*(session.model for session in work.sessions), *names]):
        spent = [turn.sessions[name] for turn in turns if name in turn.sessions]
        if spent:
            calls = statistics.median(each.calls for each in spent)
            yield StoredRow(
                name=name, calls=calls, ms=_median_ms([each.ns for each in spent]) or 0.0
            )
    rest = _median_ms([turn.rest_ns for turn in turns]) or 0.0
    yield StoredRow(name="rest of the program", calls=1, ms=rest)


# -- both sides


class _Stations(Struct, frozen=True):
    """Where the stations of both sides run."""

    before: StationPlace
    after: StationPlace
    scratch: Path

    @contextmanager
    def opened(self, number: int) -> Iterator[_OpenStations]:
        """Both stations of a round, started at the same time; they end with the context."""
        with ExitStack() as stack:
            both = [
                stack.enter_context(
                    start_station(replace(place, scratch=str(self.scratch / f"{side}-{number}")))
                )
                for side, place in (("b", self.before), ("a", self.after))
            ]
            reached = (both[0].wait_reached(), both[1].wait_reached())
            self._require_own_files(reached)
            yield _OpenStations(both[0], both[1], reached)
            for station in both:
                station.leave()
            for station in both:
                station.end()

    def _require_own_files(self, reached: tuple[Reached, Reached]) -> None:
        """Raise UsageError if the side before runs code of the work tree."""
        if self.before.tree == self.after.tree:
            return
        old, new = reached
        shared = set(old.of_worktree)
        if old.source is not None and old.source == new.source:
            source = Path(old.source)
            if source.is_absolute() and source.is_relative_to(self.after.worktree):
                shared.add(old.source)
        if shared:
            named = shorten_list(sorted(map(printable, shared)), _MOST_NAMED)
            raise UsageError(
                f"the side at the accepted commit read files of the work tree: {named}. So both "
                "sides would run the same code. Name the folder that it imports from, as in "
                'modelperf.check(..., paths=["src"]).'
            )


class _OpenStations(Struct, frozen=True):
    """Both stations of a round, which have reached the call."""

    before: SideStation
    after: SideStation
    reached: tuple[Reached, Reached]

    @property
    def pair(self) -> OpenPair:
        return OpenPair(self.before, self.after, self.reached)


@contextmanager
def _alone(asked: ProgramCheck) -> Iterator[None]:
    with measuring_alone(lambda holder: asked.tell(f"wait for {holder}")):
        yield


@contextmanager
def _stations_of(asked: ProgramCheck, stored: StoredProgram | None) -> Iterator[_Stations]:
    """The stations of both sides, of which the older one is in a tree of its own."""
    top, place = asked.top, asked.place
    with _alone(asked), working_folder("programs") as scratch:
        before = replace(place, side="before")
        if asked.against is not None and _REQUIREMENT.match(asked.against):
            seen = stored.seen if stored is not None else _seen_now(asked, scratch)
            asked.tell(f"make an environment with {asked.against}")
            python = python_with(asked.against, seen, top)
            before = replace(before, python=str(python), sys_path=None)
        else:
            if asked.against is not None:
                commit = find_against(asked.against, top).sha
            elif stored is not None:
                commit = accepted_commit(stored, program_path(asked.baselines, asked.name), top)
            else:
                raise UsageError("this program has no older version to compare with.")
            tree = tree_of(commit, top, on_progress=asked.tell)
            if stored is not None and asked.against is None:
                complete_tree(tree, stored.seen, top)
            before = replace(before, tree=str(tree))
            if asked.environment == RECORDED_ENVIRONMENT and stored is not None:
                asked.tell("make the recorded environment")
                before = replace(before, python=str(python_of(stored, top)), sys_path=None)
        yield _Stations(before, place, scratch)


def _seen_now(asked: ProgramCheck, scratch: Path) -> ProgramSources:
    with start_station(replace(asked.place, scratch=str(scratch / "seen"))) as station:
        station.wait_reached()
        seen = station.seen()
        station.end()
    return seen


# -- judging


class _Judged(Struct, frozen=True, kw_only=True):
    """A judged program, its work, and the files of the models of both sides."""

    checked: CheckedProgram
    work: WorkComparison
    before: Mapping[str, Path]
    after: Mapping[str, Path]


def _judge(asked: ProgramCheck, stations: _Stations) -> _Judged:
    """The work of both sides compared, and if none of it grew, their times."""
    asked.tell("start both sides")
    with ExitStack() as stack:
        first = stack.enter_context(stations.opened(0))
        watched = first.after.watch()
        old = first.before.watch()
        # Counted again: an edited baseline could name more MACs and let more work pass.
        before = with_macs(old.work, _counter(old))
        after = with_macs(watched.work, _counter(watched), before)
        work = compare_work(before, after)
        metrics = (
            *work_metrics(work, asked.gate.tolerances),
            *_output_metrics(asked, first),
            *_shown_metrics(first.reached),
        )
        notes = tuple(_work_notes(watched))
        if any(metric.verdict is Verdict.REGRESSED for metric in metrics):
            comparison = CaseComparison(
                asked.case, metrics, (), reasons=work.differences, notes=notes
            )
            checked = CheckedProgram(comparison=comparison)
            return _Judged(checked=checked, work=work, before=old.models, after=watched.models)
        rounds = list(_rounds(asked, stations, work, first, stack))
    judged = judge_program(rounds, work, asked.gate)
    reasons = list(work.differences)
    if judged.rounds.p50.verdict is Verdict.REGRESSED:
        reasons += _function_reasons(asked, stations, judged)
    checked = _compared(asked, work, rounds, judged, (metrics, tuple(reasons), notes))
    return _Judged(checked=checked, work=work, before=old.models, after=watched.models)


def _with_model_reasons(asked: ProgramCheck, judged: _Judged) -> CaseComparison:
    """The comparison with the reasons why a changed model takes longer, if the program does."""
    found, work = judged.checked.comparison, judged.work
    p50 = found.metric("latency_p50")
    if p50 is None or p50.ratio is None or p50.ratio <= 1.0 + (p50.allowed or 0.0):
        return found
    reasons = [
        reason
        for pair in work.pairs
        if pair.is_other_model
        for reason in _model_reasons(asked, pair, judged.before, judged.after)
    ]
    place = len(work.differences)
    return replace(found, reasons=(*found.reasons[:place], *reasons, *found.reasons[place:]))


def _compared(
    asked: ProgramCheck,
    work: WorkComparison,
    rounds: Sequence[ProgramRound],
    judged: JudgedProgram,
    others: tuple[tuple[Metric, ...], tuple[str, ...], tuple[str, ...]],
) -> CheckedProgram:
    metrics, reasons, notes = others
    timed = [_with_reason(each, reasons) for each in judged.rounds.metrics]
    before, after = (_side_run(rounds, side) for side in (0, 1))
    basis = f"the code outside of sessions was judged by {judged.basis.value}"
    same = [printable(pair.name) for pair in work.pairs if pair.is_same_work]
    if same:
        basis += f"; {shorten_list(same, _MOST_NAMED)} did the same work on both sides"
    comparison = CaseComparison(
        asked.case,
        (*timed, *metrics, *_item_metrics(rounds)),
        (),
        reasons=reasons,
        notes=(basis, *notes),
        rounds=len(rounds),
        how=judged.rounds.how,
        before=before,
        after=after,
        stages=judged.stages,
    )
    turns = [made.after for made in rounds]
    measured = _measured(turns, [made.reached[1] for made in rounds])
    return CheckedProgram(comparison=comparison, measured=measured, items=_item_times(turns))


def _with_reason(metric: Metric, reasons: Sequence[str]) -> Metric:
    if metric.verdict is not Verdict.REGRESSED or not reasons:
        return metric
    return replace(metric, reason=reasons[0])


def _rounds(
    asked: ProgramCheck,
    stations: _Stations,
    work: WorkComparison,
    first: _OpenStations,
    stack: ExitStack,
) -> Iterator[ProgramRound]:
    """The rounds; the stations of the first one were started already."""
    number = 0

    @contextmanager
    def open_pair() -> Iterator[OpenPair]:
        nonlocal number
        number += 1
        asked.tell(f"round {number}")
        if number == 1:
            yield first.pair
            stack.close()
            return
        with stations.opened(number) as opened:
            yield opened.pair

    def is_enough(rounds: Sequence[ProgramRound]) -> bool:
        return is_decided(rounds, work, asked.gate)

    yield from take_rounds(open_pair, is_enough, asked.pace, time.perf_counter_ns)


def _side_run(rounds: Sequence[ProgramRound], side: int) -> SideRun:
    turns = [(made.before, made.after)[side] for made in rounds]
    times = [tuple(turn.wall_ns for turn in each) for each in turns]
    return SideRun(
        engine=_engine(),
        latency=summarize(times, 1),
        rounds=tuple(spread_of_round(each) for each in times),
        load_ms=_median_ms([made.reached[side].start_ns for made in rounds]) or 0.0,
        first_inference_ms=_median_ms([each[0] for each in times]) or 0.0,
    )


# -- further figures


def _output_metrics(asked: ProgramCheck, first: _OpenStations) -> Iterator[Metric]:
    if asked.outputs is None:
        return
    difference = first.after.compare(first.before.result(), asked.outputs)
    verdict = Verdict.PASSED if difference is None else Verdict.REGRESSED
    after = 0.0 if difference is None else None
    yield Metric(OUTPUTS, 0.0, after, verdict, allowed=0.0, reason=difference)


def _shown_metrics(reached: tuple[Reached, Reached]) -> Iterator[Metric]:
    """The time until the call, and the memory by then: shown, and not judged."""
    old, new = reached
    starts = old.start_ns / _NS_PER_MS, new.start_ns / _NS_PER_MS
    yield Metric("start_ms", *starts, Verdict.PASSED, gated=False)
    peaks = old.peak_rss_bytes, new.peak_rss_bytes
    if None not in peaks:
        yield Metric("peak_rss_bytes", *peaks, Verdict.PASSED, gated=False)


def _item_metrics(rounds: Sequence[ProgramRound]) -> Iterator[Metric]:
    """The times of the items of a generator: shown, and not judged."""
    sides = [
        [turn for made in rounds for turn in (made.before, made.after)[side]] for side in (0, 1)
    ]
    for name, find in _ITEM_FIGURES.items():
        old, new = (_median_ms([find(turn) for turn in turns]) for turns in sides)
        if old is not None and new is not None:
            yield Metric(name, old, new, Verdict.PASSED, gated=False)


def _work_notes(watched: WatchedWork) -> Iterator[str]:
    if watched.next_work is not None:
        yield (
            "the next call did other work: a cache may answer it, or the call changes its inputs. "
            "Judge a call that can be repeated"
        )
    elif not watched.work.inferences:
        yield "a call runs no inference: a cache may answer it, or the program has no session"


# -- models and functions


def _counter(watched: WatchedWork) -> _CountMacs:
    paths = {
        session.sha256: watched.models[session.model]
        for session in watched.work.sessions
        if session.sha256 is not None and session.model in watched.models
    }
    return _CountMacs(paths)


class _CountMacs(Struct, frozen=True):
    """Counts the MACs of one inference; None if that is not possible."""

    paths: Mapping[str, Path]

    def __call__(self, sha256: str, inputs: Sequence[str]) -> int | None:
        path = self.paths.get(sha256)
        specs = _specs(inputs)
        if path is None or specs is None:
            return None
        with contextlib.suppress(ModelPerfError):
            (case,) = profile_model(path, ProfileRequest(inputs=specs)).cases
            return case.static.macs
        return None


def _specs(inputs: Sequence[str]) -> tuple[InputSpec, ...] | None:
    """The inputs of an inference for a request; None if a shape is unknown."""
    found = []
    for text in inputs:
        match = _INPUT.match(text)
        if match is None:
            return None
        shape = tuple(int(size) for size in match["shape"].split("x"))
        found.append(InputSpec(match["name"], match["dtype"], shape))
    return tuple(found)


def _model_reasons(
    asked: ProgramCheck,
    pair: SessionPair,
    before: Mapping[str, Path],
    after: Mapping[str, Path],
) -> Iterator[str]:
    """Why a changed model takes longer: a duet of both models, as of models alone."""
    old, new = pair.before, pair.after
    if old is None or new is None or old.model not in before or new.model not in after:
        return
    specs = _specs(new.inferences[0].inputs) if new.inferences else None
    if specs is None:
        return
    policy = replace(asked.setup.policy, max_seconds=_MODEL_SECONDS)
    setup = replace(asked.setup, policy=policy)
    asked.tell(f"compare both versions of {new.model}")
    gate = median_gate(asked.gate.tolerance, asked.gate.level, _MODEL_SECONDS)
    request, extensions = ProfileRequest(inputs=specs), asked.extensions
    name = printable(new.model)
    try:
        found = compare_models(
            ModelSide(before[old.model], setup),
            ModelSide(after[new.model], setup),
            request,
            gate,
            extensions,
            asked.watch,
        )
    except ModelPerfError as error:
        yield f"{name}: both versions could not be compared: {error.worded(setup.wording)}"
        return
    for reason in found.cases[0].reasons[:_MOST_NAMED]:
        yield f"{name}: {reason}"


def _function_reasons(
    asked: ProgramCheck, stations: _Stations, judged: JudgedProgram
) -> Iterator[str]:
    """The functions whose own time grew, if the code outside of sessions did."""
    rest = next(stage for stage in judged.stages if stage.kind == "rest")
    if rest.time is None or not rest.time.explains(0.1):
        return
    calls = max(1, min(_MOST_PROFILED, round(_PROFILED_NS / max(_typical_ns(judged), 1))))
    profiles: tuple[list[CallProfile], list[CallProfile]] = ([], [])
    for number in range(_PROFILES):
        asked.tell("profile both sides")
        with stations.opened(1000 + number) as opened:
            for place, station in enumerate((opened.before, opened.after)):
                profiles[place].append(station.profile(calls))
    for change in grown_functions(*profiles):
        yield change.describe()


def _typical_ns(judged: JudgedProgram) -> float:
    after = judged.rounds.p50.after
    return math.inf if after is None else after * _NS_PER_MS
