"""The figures of a phase of a generation, computed from the profile of its case."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.graph.phases import GenerationPhase, Phase
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.stats.records import Percentile
from pytest_modelperf.stats.slopes import Slope, SteppedTimes, slope_of


class GenerationFigures(Struct, frozen=True, kw_only=True):
    """What a phase tells of a generation; None is unknown, or a figure of the other phase.

    `ttft` is the time to the first token, the median of the prefill. `token_p50` and `token_p95`
    are those of a step, `growth` how much longer each step takes than the one before it, and
    `tokens_per_second` those of all items of a batch together. `cache_bytes` is how much the state
    of one item grows with a token.
    """

    ttft: Percentile | None = None
    token_p50: Percentile | None = None
    token_p95: Percentile | None = None
    growth: Slope | None = None
    tokens_per_second: float | None = None
    cache_bytes: int | None = None
    first_macs: int | None = None
    last_macs: int | None = None


def generation_figures(case: CaseProfile) -> GenerationFigures | None:
    """The figures of a case; None if it is no phase of a generation."""
    phase = case.case.phase
    if phase is None:
        return None
    counts = None if case.counted is None else case.counted.generation
    cache_bytes = None if counts is None else counts.cache_bytes
    run = case.measured
    if phase.phase is Phase.PREFILL:
        ttft = None if run is None else run.latency.percentile(50.0)
        return GenerationFigures(ttft=ttft, cache_bytes=cache_bytes)
    return GenerationFigures(
        token_p50=None if run is None else run.latency.percentile(50.0),
        token_p95=None if run is None else run.latency.percentile(95.0),
        growth=None if run is None else _growth(run, phase),
        tokens_per_second=None if run is None else run.latency.items_per_second,
        cache_bytes=cache_bytes,
        first_macs=None if counts is None else counts.first_macs,
        last_macs=None if counts is None else counts.last_macs,
    )


def _growth(run: Measurement, phase: GenerationPhase) -> Slope | None:
    rounds = [
        SteppedTimes(made.block.first_step, made.times_ns)
        for made in run.rounds
        if made.block.first_step is not None
    ]
    return slope_of(rounds, phase.steps, run.latency.confidence)


class WholeGeneration(Struct, frozen=True):
    """Both phases of a generation side by side: the id of its cases without the phase."""

    id: str
    prefill: GenerationFigures | None
    step: GenerationFigures | None


def whole_generations(cases: Sequence[CaseProfile]) -> tuple[WholeGeneration, ...]:
    """The generations that the cases are phases of, each with the prefill of its prompt."""
    prefills: dict[str, GenerationFigures | None] = {}
    made: list[WholeGeneration] = []
    for case in cases:
        phase = case.case.phase
        if phase is None:
            continue
        prompt = _without_phase(case, phase, f"prompt{phase.prompt}")
        if phase.phase is Phase.PREFILL:
            prefills[prompt] = generation_figures(case)
        else:
            name = _without_phase(case, phase, f"prompt{phase.prompt}-generate{phase.generate}")
            made.append(WholeGeneration(name, prefills.get(prompt), generation_figures(case)))
    with_steps = {id(each.prefill) for each in made}
    alone = (
        WholeGeneration(name, figures, None)
        for name, figures in prefills.items()
        if id(figures) not in with_steps
    )
    return (*alone, *made)


def _without_phase(case: CaseProfile, phase: GenerationPhase, lengths: str) -> str:
    return case.case.id.replace(phase.id, lengths)
