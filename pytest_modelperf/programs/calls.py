"""Turn the timed calls of a side into a measurement, a recorded baseline or a side of a duet."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from pytest_modelperf.baselines.program import CallWork, ProgramFigures, StoredRow
from pytest_modelperf.profiler.measurements import (
    Block,
    EngineFacts,
    Measurement,
    Noise,
    Round,
    SideRun,
)
from pytest_modelperf.programs.judging import REST
from pytest_modelperf.programs.records import Reached, Turn
from pytest_modelperf.stats.estimates import summarize
from pytest_modelperf.stats.records import spread_of_round

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
