"""The sizes that help with an error about sizes."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.errors import ModelPerfError, OpenSizesError
from pytest_modelperf.graph.load import Asked
from pytest_modelperf.profiler.hookspecs import Extensions, Operators
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.sizing.finding import find_sizes
from pytest_modelperf.sizing.records import FoundSizes


def sizes_for(error: ModelPerfError, *, runs: bool = True) -> FoundSizes | None:
    """Sizes for the model that an error is about; None if it is about something else.

    The sizes that the user gave are kept; if nothing fits beside them, others take their place.
    With `runs`, one inference runs on this machine.
    """
    asked = error.asked
    if not isinstance(asked, Asked) or asked.binding.phase is not None:
        return None
    operators = Operators()
    for op, rule in asked.shape_rules.items():
        operators.register(op, shapes=rule)
    extensions, setup = Extensions(operators), Setup() if runs else None
    try:
        found = find_sizes(asked.file, asked.binding, setup=setup, extensions=extensions)
        if not found.is_found and asked.binding.dims:
            free = replace(asked.binding, dims={})
            found = find_sizes(asked.file, free, setup=setup, extensions=extensions)
    except ModelPerfError:
        # The first error is what the user has to see.
        return None
    return found if found.is_found or isinstance(error, OpenSizesError) else None
