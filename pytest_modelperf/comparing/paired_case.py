"""One case of two models that are compared, with all that judges it."""

from __future__ import annotations

from msgspec import Struct

from pytest_modelperf.baselines.records import StoredCase, StoredLatency
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.prepare import Model, Pair, PairOf
from pytest_modelperf.profiler.request import (
    ProfileRequest,
    request_of_each,
    require_equal_batches,
    require_equal_phases,
)


class PairedCase(Struct, frozen=True):
    """A case of a pair: the side before, the gate that judges it, and its place among all cases."""

    pair: Pair
    before: Side
    gate: Gate
    place: CasePlace

    @property
    def id(self) -> str:
        return self.place.case.id

    @property
    def stored(self) -> StoredCase | None:
        """The case as the baseline stores it; None without a baseline that has it."""
        return None if self.before.baseline is None else self.before.baseline.case(self.id)

    @property
    def recorded(self) -> StoredLatency | None:
        """The latency of the stored case on this kind of machine."""
        return self.before.recorded(self.id)


def bind_pairs(
    before: Side, after: Side, request: ProfileRequest, extensions: Extensions
) -> list[PairOf[Model]]:
    """Both models at each set of dimensions of the request."""
    files = open_model(before.source), open_model(after.source)
    requests = request_of_each(request, files)
    require_equal_phases(files, requests)
    models = [
        [Model.bind(file, binding, own, extensions) for binding in own.bindings_of(file)]
        for file, own in zip(files, requests, strict=True)
    ]
    require_equal_batches(files, [[m.bound.inputs.batch_size for m in side] for side in models])
    return [PairOf(old, new, before.setup, after.setup) for old, new in zip(*models, strict=True)]
