"""The values to try for inputs that choose a branch: those that the graph compares them with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.structure import Graph, Tensor
from pytest_modelperf.profiler.inputs.uses import demand_on, find_uses
from pytest_modelperf.sizing.records import FoundInput
from pytest_modelperf.text.units import exact_number, format_shape


def value_choices(graph: Graph, binding: Binding) -> Iterator[tuple[FoundInput, ...]]:
    """The choices of values, the likeliest first; at last the made values, which need no option."""
    given = {spec.name for spec in binding.inputs}
    uses = find_uses(graph)
    choices = []
    for tensor in graph.inputs:
        is_scalar = tensor.dtype is not None and tensor.shape in ((), (1,))
        if tensor.name in given or not is_scalar:
            continue
        demand = demand_on(tensor, uses)
        values = demand.compared
        if tensor.dtype == "bool" and demand.decides:
            values = (1.0, 0.0)
        found = [
            FoundInput(tensor.name, _text(tensor, value), _reason(demand.decides, value))
            for value in values
        ]
        if found:
            choices.append(found)
    yield from product(*choices)
    if choices:
        yield ()


def _text(tensor: Tensor, value: float) -> str:
    size = format_shape(tensor.shape) if tensor.shape else ""
    return f"{tensor.name}:{tensor.dtype}:{size}:{exact_number(value)}"


def _reason(decides: str, value: float) -> str:
    return f"decides {decides}; the graph compares it with {exact_number(value)}"
