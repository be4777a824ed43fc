"""Why outputs differ: both models run again, with tensors inside of them watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from pytest_modelperf.comparing.first_difference import (
    Look,
    Sight,
    differs,
    find_first_difference,
    pair_tensors,
)
from pytest_modelperf.comparing.output_changes import compare_outputs
from pytest_modelperf.comparing.records import FirstDifference, OutputChange
from pytest_modelperf.errors import MeasureError, ModelError
from pytest_modelperf.graph.chance import find_random
from pytest_modelperf.graph.structure import Graph
from pytest_modelperf.graph.watched import can_be_watched
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.pairs.outputs import MAX_BYTES, ReadTensors, reading_tensors
from pytest_modelperf.profiler.prepare import Pair


class SearchedOutputs(Struct, frozen=True):
    """Where outputs begin to differ; `notes` say why that was not found."""

    first: FirstDifference | None = None
    notes: tuple[str, ...] = ()


def search_difference(
    pair: Pair, place: CasePlace, outputs: Sequence[OutputChange], allowed: float
) -> SearchedOutputs:
    """Where the output begins to differ that differs most, if one does by more than `allowed`."""
    try:
        return SearchedOutputs(_search(pair, place, outputs, allowed))
    except (MeasureError, ModelError) as error:
        note = f"where the outputs begin to differ was not found: {error}"
        return SearchedOutputs(notes=(note,))


def _search(
    pair: Pair, place: CasePlace, outputs: Sequence[OutputChange], allowed: float
) -> FirstDifference | None:
    old, new = pair.before.bound.graph, pair.after.bound.graph
    random = find_random(new)
    makers = {tensor.name for node in new.nodes for tensor in node.outputs if tensor is not None}
    found = [
        (change.share or 0.0, names)
        for change, names in zip(outputs, _output_names(outputs, old, new), strict=False)
        if differs(change, allowed) and names[1] in makers - random
    ]
    if not found:
        return None
    _, (output_before, output) = max(found, key=lambda each: each[0])
    partners = {**pair_tensors(old, new), output: output_before}
    known = pair.before.bound.tensors
    watchable = [
        tensor
        for node in new.nodes
        for tensor in node.outputs
        if tensor is not None
        and tensor.name not in random
        and can_be_watched(tensor)
        and can_be_watched(known.get(partners.get(tensor.name, "")))
    ]
    place.tell("finding where outputs begin to differ")
    with reading_tensors(pair, place) as readers:
        look = _looking(*readers, partners)
        # Each side has half of what may be sent.
        return find_first_difference(new, output, allowed, Sight(look, watchable, MAX_BYTES // 2))


def _output_names(outputs: Sequence[OutputChange], old: Graph, new: Graph) -> list[tuple[str, str]]:
    """The names of each compared output in both models, which are by place if none is the same."""
    names = [tuple(tensor.name for tensor in graph.outputs) for graph in (old, new)]
    if set(names[0]) & set(names[1]):
        return [(change.name, change.name) for change in outputs]
    return list(zip(*names, strict=False))


def _looking(before: ReadTensors, after: ReadTensors, partners: Mapping[str, str]) -> Look:
    def look(names: Sequence[str]) -> Mapping[str, OutputChange]:
        old, new = before([partners[name] for name in names]), after(names)
        return {
            name: compare_outputs({name: old[partners[name]]}, {name: new[name]})[0]
            for name in names
            if partners[name] in old and name in new
        }

    return look
