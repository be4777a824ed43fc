"""The counts of a phase of a generation: what its state takes, and its MACs at both ends."""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.phase_inputs import BoundPhase
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.graph.structure import byte_size
from pytest_modelperf.profiler.counting.count import profile_graph
from pytest_modelperf.profiler.counting.records import GenerationCounts
from pytest_modelperf.profiler.hookspecs import Operators


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
    """The MACs of a step; None where the graph alone does not tell them all."""
    binding = replace(phase.binding, step=step)
    graph = load_model(bound.file, binding, operators.shape_rules).graph
    counted = profile_graph(graph, operators.counters)
    is_whole = counted.coverage == 1.0 and counted.undecided == 0
    return counted.macs if is_whole else None


def _cache_bytes(bound: BoundModel, phase: BoundPhase) -> int | None:
    """The bytes by which the state of one item grows with a token; None if a shape is unknown."""
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
