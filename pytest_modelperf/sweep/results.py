"""A sweep of one model or two: measured, summed up, and its best configuration in detail."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pytest_modelperf.comparing.by_duet import compare_models
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.graph.structure import Generation
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measured_cases import measure_model
from pytest_modelperf.profiler.measurements import Round
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.model_request import ModelRun
from pytest_modelperf.profiler.records import Outcome
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.allowed_rounds import rounds_within
from pytest_modelperf.stats.estimates import rate_of_rounds, ratio_of_rounds, summarize
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.stats.spread import spread_of_round
from pytest_modelperf.sweep.passes import BoundSide, PassResults, SideConfiguration
from pytest_modelperf.sweep.records import (
    BATCH,
    CORES,
    STREAMS,
    Configuration,
    PointChange,
    Scaling,
    Sweep,
    SweepPoint,
    SweepSide,
    find_competing,
    find_sweet_spot,
)


def sum_up(
    found: PassResults,
    sides: Sequence[BoundSide],
    configurations: Sequence[Configuration],
    threshold_ms: float | None,
) -> Sweep:
    confidence = sides[-1].setup.policy.confidence
    changes = tuple(_changes(configurations, found, confidence)) if len(sides) > 1 else ()
    measured = [[_point(side, each, found) for each in configurations] for side in sides]
    swept = [
        SweepSide(
            model=side.facts,
            engine=found.engines.get(side.index),
            points=tuple(points),
            spot=find_sweet_spot(points, threshold_ms),
            scaling=tuple(_scaling(side.index, configurations, found, confidence)),
        )
        for side, points in zip(sides, at_changes(measured, changes), strict=True)
    ]
    return Sweep(
        sides=tuple(swept),
        changes=changes,
        threshold_ms=threshold_ms,
        confidence=confidence,
        passes=max(map(len, found.rounds.values()), default=0),
        machine=found.machine,
        notes=_notes(sides),
    )


def _notes(sides: Sequence[BoundSide]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for side in sides for m in side.models for n in m.static.notes))


def _point(side: BoundSide, configuration: Configuration, found: PassResults) -> SweepPoint:
    key = SideConfiguration(side.index, configuration)
    rounds = found.rounds.get(key, ())
    if not rounds:
        error = found.refused[key]
        reason = error.worded(side.setup.wording)
        return SweepPoint(configuration=configuration, outcome=Outcome.of(error), reason=reason)
    size, confidence = configuration.case.batch_size, side.setup.policy.confidence
    return SweepPoint(
        configuration=configuration,
        latency=summarize([made.times_ns for made in rounds], size, confidence),
        throughput=rate_of_rounds(_rates(key, rounds), confidence),
        rounds=tuple(spread_of_round(made.times_ns) for made in rounds),
    )


def at_changes(
    sides: Sequence[Sequence[SweepPoint]], changes: Sequence[PointChange]
) -> list[list[SweepPoint]]:
    """Move the points of both sides so that each pair differs by its change.

    Other processes may have disturbed one side more. Then the typical figures of all passes show
    another change than the passes do.
    """
    change_of = {change.id: change for change in changes}
    if len(sides) == 1:
        return [list(sides[0])]
    moved: list[list[SweepPoint]] = [[], []]
    for before, after in zip(*sides, strict=True):
        change = change_of.get(before.id)
        pair = (before, after) if change is None else _moved(before, after, change)
        for own, point in zip(moved, pair, strict=True):
            own.append(point)
    return moved


def _moved(
    before: SweepPoint, after: SweepPoint, change: PointChange
) -> tuple[SweepPoint, SweepPoint]:
    factor = _half_step(before.p50_ms, after.p50_ms, change.latency)
    old, new = before.throughput, after.throughput
    rate_factor = 1.0
    if old is not None and new is not None:
        rate_factor = _half_step(old.value, new.value, change.throughput)
    return _scaled(before, 1 / factor, 1 / rate_factor), _scaled(after, factor, rate_factor)


def _half_step(before: float | None, after: float | None, ratio: Ratio) -> float:
    """Return the factor that moves the second figure up and the first down to reach the ratio."""
    return math.sqrt(ratio.value * before / after) if before and after and ratio.value else 1.0


def _scaled(point: SweepPoint, factor: float, rate_factor: float) -> SweepPoint:
    latency, throughput = point.latency, point.throughput
    if latency is not None:
        percentiles = tuple(each.scaled(factor) for each in latency.percentiles)
        latency = replace(latency, percentiles=percentiles)
    if throughput is not None:
        throughput = throughput.scaled(rate_factor)
    return replace(point, latency=latency, throughput=throughput)


def _rates(key: SideConfiguration, rounds: Sequence[Round]) -> list[float]:
    return [key.configuration.case.batch_size * made.block.per_second for made in rounds]


def _changes(
    configurations: Sequence[Configuration], found: PassResults, confidence: float
) -> Iterator[PointChange]:
    for each in configurations:
        before, after = SideConfiguration(0, each), SideConfiguration(1, each)
        old, new = found.rounds.get(before, ()), found.rounds.get(after, ())
        # Rounds count only if both were measured in the same pass.
        count = min(len(old), len(new))
        if count:
            old, new = old[:count], new[:count]
            yield PointChange(
                id=each.id,
                latency=ratio_of_rounds(_medians(old), _medians(new), confidence),
                throughput=ratio_of_rounds(_rates(before, old), _rates(after, new), confidence),
            )


def _medians(rounds: Sequence[Round]) -> list[float]:
    return [statistics.median(made.times_ns) for made in rounds]


def _scaling(
    side: int, configurations: Sequence[Configuration], found: PassResults, confidence: float
) -> Iterator[Scaling]:
    """Compare each configuration with the one that has least of one thing, all else being equal."""
    for of in (BATCH, CORES, STREAMS):
        bases: dict[object, Configuration] = {}
        for each in sorted(configurations, key=lambda c: c.amounts[of]):
            key = SideConfiguration(side, each)
            if key not in found.rounds:
                continue
            base = bases.setdefault(each.all_else(of), each)
            if base is each:
                continue
            base_key = SideConfiguration(side, base)
            old, new = found.rounds[base_key], found.rounds[key]
            count = min(len(old), len(new))
            yield Scaling(
                of=of,
                base=base.id,
                id=each.id,
                factor=each.amounts[of] / base.amounts[of],
                gain=ratio_of_rounds(
                    _rates(base_key, old[:count]), _rates(key, new[:count]), confidence
                ),
            )


# -- the best configuration of a sweep in detail


# The share of its time in which a configuration may be loaded. The rest is for measuring.
LOAD_SHARE = 0.5
# The share of its time that the detail has if the passes left none.
_LEAST_SHARE = 0.25


def look_closer(  # noqa: PLR0913, PLR0917  # the whole request, and what is left of its time
    swept: Sweep,
    sources: Sequence[ModelRun],
    request: ProfileRequest,
    left_seconds: float,
    extensions: Extensions,
    watch: Watch,
) -> Sweep:
    """Add the layers at the sweet spot of the last side, or without one at its quickest point.

    It takes as long as a configuration, or less if less time is left.
    """
    point = choose_point(swept.sides[-1])
    if point is None:
        return swept
    case = point.configuration.case
    chosen = case.phase
    state = request.generations[0].state if request.generations else {}
    alone = replace(
        request,
        # A model whose inputs share no batch cannot be given a batch size.
        batch_sizes=(None if None in request.batch_sizes else case.batch_size,),
        cores=(case.cores,),
        # A dimension that does not vary may still be listed once for each case.
        dims={
            **{name: sizes[:1] for name, sizes in request.dims.items()},
            **{name: (size,) for name, size in case.dims},
        },
        named=tuple(name for name, _ in case.dims),
        generations=() if chosen is None else (Generation(chosen.prompt, chosen.generate, state),),
        phases=request.phases if chosen is None else (chosen.phase,),
    )
    share = left_seconds / (len(sources) * sources[-1].setup.policy.max_seconds)
    setups = [_shortened(each.setup, max(min(share, 1.0), _LEAST_SHARE)) for each in sources]
    now = sources[-1]
    if len(sources) == 1:
        # The rounds of a profile take half of it, and its layers take it again.
        profile = measure_model(now.source, alone, _shortened(setups[0], 0.5), extensions, watch)
        return replace(swept, profile=profile)
    gate = Gate(rounds=rounds_within(setups[-1].policy.max_seconds))
    before = Side(sources[0].source, setups[0])
    after = Side(now.source, setups[-1])
    comparison = compare_models(before, after, alone, gate, extensions, watch)
    return replace(swept, comparison=comparison)


def choose_point(side: SweepSide) -> SweepPoint | None:
    """Return the sweet spot of a side, or its quickest point if it has no sweet spot.

    The result is None if no point was measured.
    """
    if side.spot.best is not None:
        return side.point(side.spot.best)
    measured = [point for point in side.points if point.latency is not None]
    competing = find_competing(measured) or measured
    return min(competing, key=lambda each: each.median_ns, default=None)


def _shortened(setup: Setup, share: float) -> Setup:
    """Return the setup with this share of its time, in which loading counts as in the passes."""
    policy = setup.policy
    return replace(
        setup, policy=replace(policy, max_seconds=share * policy.max_seconds, load_share=LOAD_SHARE)
    )
