"""The phases of generations among the cases of a profile, each prefill with its step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from pytest_modelperf.graph.phases import GenerationPhase, Phase
from pytest_modelperf.profiler.records import CaseProfile, GenerationFigures


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
        phase, figures = case.case.phase, case.generation
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
