"""The request with which a baseline was recorded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_modelperf.graph.binding import dim_names
from pytest_modelperf.graph.load import declared_inputs
from pytest_modelperf.graph.model_file import ModelSource, open_model
from pytest_modelperf.graph.phases import Generation, Phase
from pytest_modelperf.profiler.inputs.dim_sizes import PairedSizes, combine_sizes, pair_sizes
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest

if TYPE_CHECKING:
    from pytest_modelperf.baselines.records import ModelBaseline


def request_as_recorded(
    request: ProfileRequest, baseline: ModelBaseline, source: ModelSource
) -> ProfileRequest:
    """The request, with the recorded sizes of dimensions that it gives no size.

    The ids of cases name these sizes as the baseline does. Nothing is added to a request with given
    shapes, which may hold sizes, or with paired sizes, which are complete. If nothing but phases of
    generations was recorded and it names no generation, it gets these.
    """
    request = _with_generations(request, baseline)
    if request.inputs or request.given is not None or isinstance(request.dims, PairedSizes):
        return request
    declared = dim_names(declared_inputs(open_model(source).proto))
    recorded: dict[str, dict[int, None]] = {}
    named: dict[str, None] = {}
    for case in baseline.cases:
        own = case.id.removeprefix(Case(case.batch_size, case.cores).id)
        places = {name: _place(f"{name}{size}", own) for name, size in case.dims.items()}
        for name in sorted(declared & places.keys() - request.dims.keys(), key=places.__getitem__):
            recorded.setdefault(name, {})[case.dims[name]] = None
            if places[name] >= 0:
                named[name] = None
    dims: Mapping[str, tuple[int, ...]] = {
        **request.dims,
        **{name: tuple(sizes) for name, sizes in recorded.items()},
    }
    cases = [{n: case.dims[n] for n in recorded if n in case.dims} for case in baseline.cases]
    is_whole = not request.dims and all(case.keys() == recorded.keys() for case in cases)
    if is_whole and any(case not in cases for case in combine_sizes(dims)):
        # Not every combination was recorded, so the sizes of each case stay together.
        dims = pair_sizes([case for at, case in enumerate(cases) if case not in cases[:at]])
    return replace(request, dims=dims, named=(*request.named, *named))


def _with_generations(request: ProfileRequest, baseline: ModelBaseline) -> ProfileRequest:
    recorded = [case.generation for case in baseline.cases if case.generation is not None]
    if request.generations or not recorded or len(recorded) < len(baseline.cases):
        return request
    known = [Generation(each.prompt, each.generate, each.state) for each in recorded]
    phases = tuple(phase for phase in Phase if phase in {each.phase for each in recorded})
    distinct = tuple(each for at, each in enumerate(known) if each not in known[:at])
    return replace(request, generations=distinct, phases=phases)


def _place(dim: str, own: str) -> int:
    """The position of a dimension in an id, after batch size and cores; -1 if it is not named."""
    found = re.search(rf"-{re.escape(dim)}(?=-|$)", own)
    return -1 if found is None else found.start()
