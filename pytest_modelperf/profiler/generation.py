"""The phases of generations in a profile: each prefill with its step, and their counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.graph.inference_inputs import BoundPhase
from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.structure import GenerationPhase, Phase, byte_size
from pytest_modelperf.profiler.counting.count import profile_graph
from pytest_modelperf.profiler.counting.records import GenerationCounts
from pytest_modelperf.profiler.hookspecs import Operators
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.rows import GenerationFigures


class NamedFigures(Struct, frozen=True):
    """The figures of a phase, and the name of its case, which ends in the id of the phase."""

    name: str
    phase: GenerationPhase
    figures: GenerationFigures


class WholeGeneration(Struct, frozen=True):
    """Both phases of a generation. Its id is the name of the cases without the phase."""

    id: str
    prefill: GenerationFigures | None
    step: GenerationFigures | None


def named_figures(cases: Sequence[CaseProfile]) -> Iterator[NamedFigures]:
    for case in cases:
        phase, figures = case.case.phase, case.generation
        if phase is not None and figures is not None:
            yield NamedFigures(case.case.id, phase, figures)


def whole_generations(named: Iterable[NamedFigures]) -> tuple[WholeGeneration, ...]:
    """Return the generations that the cases are phases of, each with the prefill of its prompt."""
    prefills: dict[str, GenerationFigures] = {}
    made: list[WholeGeneration] = []
    # The cases are in any order, and a step needs the prefill of its prompt.
    for each in sorted(named, key=lambda each: each.phase.phase is not Phase.PREFILL):
        phase = each.phase
        prompt = each.name.replace(phase.id, f"prompt{phase.prompt}")
        if phase.phase is Phase.PREFILL:
            prefills[prompt] = each.figures
        else:
            name = each.name.replace(phase.id, f"prompt{phase.prompt}-generate{phase.generate}")
            made.append(WholeGeneration(name, prefills.get(prompt), each.figures))
    with_steps = {id(each.prefill) for each in made}
    alone = [(name, own) for name, own in prefills.items() if id(own) not in with_steps]
    return (*(WholeGeneration(name, own, None) for name, own in alone), *made)


def count_generation(
    bound: BoundModel, phase: BoundPhase, operators: Operators
) -> GenerationCounts:
    first = last = None
    if phase.phase.phase is Phase.STEP:
        first = _macs_at(0, bound, phase, operators)
        last = _macs_at(phase.phase.steps - 1, bound, phase, operators)
    return GenerationCounts(
        cache_bytes=_cache_bytes(bound, phase), first_macs=first, last_macs=last
    )


def _macs_at(step: int, bound: BoundModel, phase: BoundPhase, operators: Operators) -> int | None:
    binding = replace(phase.binding, step=step)
    graph = load_model(bound.file, binding, operators.shape_rules).graph
    counted = profile_graph(graph, operators.counters)
    return counted.macs if counted.is_whole else None


def _cache_bytes(bound: BoundModel, phase: BoundPhase) -> int | None:
    """Return the bytes that each token adds to the state of one item, if all shapes are known."""
    dtypes = {tensor.name: tensor.dtype for tensor in bound.graph.inputs}
    total = 0
    for pair in phase.state.pairs:
        if pair.grows is None:
            continue
        shape, dtype = bound.inputs.shapes.get(pair.past), dtypes.get(pair.past)
        if shape is None or dtype is None:
            return None
        total += byte_size(dtype, prod(s for axis, s in enumerate(shape) if axis != pair.grows))
    return total // bound.inputs.batch_size
