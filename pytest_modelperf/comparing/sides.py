"""One side of a comparison: a model as it is now, or what a baseline stored of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from pytest_modelperf.baselines.recorded import require_recorded_twin
from pytest_modelperf.baselines.records import (
    Baseline,
    MachineBaseline,
    ModelBaseline,
    StoredLatency,
)
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, open_model
from pytest_modelperf.graph.replaced import rebuild
from pytest_modelperf.graph.twin import read_twin, write_twin_bytes
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.records import ModelFacts
from pytest_modelperf.profiler.request import ProfileRequest, request_of_each
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.working_folder import working_folder


class Side(Struct, frozen=True):
    """One of the two sides: a model on an engine in an interpreter.

    The `source` of a baseline is its rebuilt twin, or the model now if it has no twin. `machine` is
    what was recorded on machines of this kind, and `twin` the twin as it is stored.
    """

    source: ModelSource
    setup: Setup
    baseline: ModelBaseline | None = None
    machine: MachineBaseline | None = None
    twin: ModelFile | None = None

    @property
    def facts(self) -> ModelFacts | None:
        return None if self.baseline is None else self.baseline.model

    def recorded(self, case_id: str) -> StoredLatency | None:
        """Return the latency of a stored case on this kind of machine.

        If a case was recorded again on one kind of machine only, the files of the others have the
        times of an older model, which say nothing about it.
        """
        found = None if self.machine is None else self.machine.cases.get(case_id)
        stored = None if self.baseline is None else self.baseline.case(case_id)
        if found is None or stored is None or found.model_sha256 != stored.model_sha256:
            return None
        return found


@contextmanager
def baseline_side(
    baseline: Baseline, machine_key: str, now: Side, request: ProfileRequest, extensions: Extensions
) -> Iterator[Side]:
    """Open a stored baseline as the side before `now`, or raise BaselineError for a wrong twin."""
    machine = baseline.machine(machine_key)
    with working_folder("twin") as folder:
        source, file = now.source, None
        if baseline.twin is not None:
            stored = folder / "stored.onnx"
            write_twin_bytes(baseline.twin, stored)
            twin = read_twin(stored)
            file = open_model(stored)
            own, _ = request_of_each(request, (file, open_model(now.source)))
            require_recorded_twin(baseline, twin, Model.of_request(file, own, extensions))
            recorded_bytes = baseline.model.model.size_bytes
            source = rebuild(twin, folder / "twin.onnx", recorded_bytes=recorded_bytes)
        yield Side(source, now.setup, baseline.model, machine, file)
