"""The best configuration of a sweep in detail: layers of one model, or a comparison of both."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pytest_modelperf.comparing.by_duet import compare_models
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.graph.phases import Generation
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measuring import measure_model
from pytest_modelperf.profiler.preparation import Watch
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.rig import Setup
from pytest_modelperf.stats.allowed_rounds import rounds_within
from pytest_modelperf.sweep.records import Sweep
from pytest_modelperf.sweep.sides import SweepSource


def look_closer(
    swept: Sweep,
    sources: Sequence[SweepSource],
    request: ProfileRequest,
    extensions: Extensions,
    watch: Watch,
) -> Sweep:
    """Adds the layers at the sweet spot of the last side, or without one at its quickest point."""
    measured = [point for point in swept.sides[-1].points if point.latency is not None]
    if not measured:
        return swept
    best = swept.sides[-1].spot.best
    point = next(
        (each for each in measured if each.id == best),
        min(measured, key=lambda each: each.p50_ms or float("inf")),
    )
    case = point.configuration.case
    chosen = case.phase
    state = request.generations[0].state if request.generations else {}
    alone = replace(
        request,
        batch_sizes=(case.batch_size,),
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
    now = sources[-1]
    if len(sources) == 1:
        profile = measure_model(now.source, alone, _halved(now.setup), extensions, watch)
        return replace(swept, profile=profile)
    gate = Gate(rounds=rounds_within(now.setup.policy.max_seconds))
    before = Side(sources[0].source, sources[0].setup)
    after = Side(now.source, now.setup)
    comparison = compare_models(before, after, alone, gate, extensions, watch)
    return replace(swept, comparison=comparison)


def _halved(setup: Setup) -> Setup:
    """Half of the time: the rounds of a profile take that long, and its layers take it again."""
    policy = setup.policy
    return replace(setup, policy=replace(policy, max_seconds=policy.max_seconds / 2))
