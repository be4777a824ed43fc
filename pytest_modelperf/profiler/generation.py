"""The figures of a phase of a generation, computed from the profile of its case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from pytest_modelperf.graph.phases import GenerationPhase, Phase
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.records import CaseProfile, GenerationFigures
from pytest_modelperf.stats.records import Slope


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
    # Imported here: a static profile loads no scipy.
    from pytest_modelperf.stats.slopes import SteppedTimes, slope_of

    rounds = [
        SteppedTimes(made.block.first_step, made.times_ns)
        for made in run.rounds
        if made.block.first_step is not None
    ]
    return slope_of(rounds, phase.steps, run.latency.confidence)


class NamedFigures(Struct, frozen=True):
    """The figures of a phase, and the name of its case, which ends in the id of the phase."""

    name: str
    phase: GenerationPhase
    figures: GenerationFigures


class WholeGeneration(Struct, frozen=True):
    """Both phases of a generation side by side: the name of its cases without the phase."""

    id: str
    prefill: GenerationFigures | None
    step: GenerationFigures | None


def named_figures(cases: Sequence[CaseProfile]) -> Iterator[NamedFigures]:
    """The figures of the cases that are phases of generations, by their ids."""
    for case in cases:
        phase, figures = case.case.phase, generation_figures(case)
        if phase is not None and figures is not None:
            yield NamedFigures(case.case.id, phase, figures)


def whole_generations(named: Iterable[NamedFigures]) -> tuple[WholeGeneration, ...]:
    """The generations that the cases are phases of, each with the prefill of its prompt."""
    prefills: dict[str, GenerationFigures] = {}
    made: list[WholeGeneration] = []
    # The cases come in any order, and a step needs the prefill of its prompt.
    for each in sorted(named, key=lambda each: each.phase.phase is not Phase.PREFILL):
        phase = each.phase
        prompt = each.name.replace(phase.id, f"prompt{phase.prompt}")
        if phase.phase is Phase.PREFILL:
            prefills[prompt] = each.figures
        else:
            name = each.name.replace(phase.id, f"prompt{phase.prompt}-generate{phase.generate}")
            made.append(WholeGeneration(name, prefills.get(prompt), each.figures))
    with_steps = {id(each.prefill) for each in made}
    alone = (
        WholeGeneration(name, figures, None)
        for name, figures in prefills.items()
        if id(figures) not in with_steps
    )
    return (*alone, *made)
