"""The best configuration of a sweep in detail: layers of one model, or a comparison of both."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pytest_modelperf.comparing.by_duet import compare_models
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.graph.phases import Generation
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measured_cases import measure_model
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.model_request import ModelRun
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.allowed_rounds import rounds_within
from pytest_modelperf.sweep.records import Sweep, SweepPoint, SweepSide, find_competing

# The share of its time in which a configuration may be loaded. The rest is for measuring.
LOAD_SHARE = 0.5
# The share of its time that the detail has where the passes left none.
_LEAST_SHARE = 0.25


def look_closer(  # noqa: PLR0913, PLR0917  # the whole request, and what is left of its time
    swept: Sweep,
    sources: Sequence[ModelRun],
    request: ProfileRequest,
    left_seconds: float,
    extensions: Extensions,
    watch: Watch,
) -> Sweep:
    """Adds the layers at the sweet spot of the last side, or without one at its quickest point.

    It takes as long as a configuration, or less where less time is left.
    """
    point = choose_point(swept.sides[-1])
    if point is None:
        return swept
    case = point.configuration.case
    chosen = case.phase
    state = request.generations[0].state if request.generations else {}
    alone = replace(
        request,
        # A model whose inputs share no batch cannot be given a size of it.
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
    """The sweet spot of a side, or without one its quickest point; None if none was measured."""
    if side.spot.best is not None:
        return side.point(side.spot.best)
    measured = [point for point in side.points if point.latency is not None]
    competing = find_competing(measured) or measured
    return min(competing, key=lambda each: each.median_ns, default=None)


def _shortened(setup: Setup, share: float) -> Setup:
    """The setup with this share of its time, in which loading counts as in the passes."""
    policy = setup.policy
    return replace(
        setup,
        policy=replace(policy, max_seconds=share * policy.max_seconds, load_share=LOAD_SHARE),
    )
