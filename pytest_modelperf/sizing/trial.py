"""Inferences that show whether a model runs at sizes that fit by shapes."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack

from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.model_file import ModelFile
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import make_workload, start_on, unchanged
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.request import ProfileRequest, profile_bound
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import set_up
from pytest_modelperf.profiler.worker.gateway import ProcessWorker
from pytest_modelperf.profiler.worker.lock import measuring_alone

# The longest that a worker may be silent, and that another measurement is waited for: the inference
# is a check, and not worth a long wait.
LIMIT_S = 10.0
_NS_PER_S = 1_000_000_000


class Trials(AbstractContextManager["Trials"]):
    """Single inferences of one model, in one worker that starts with the first of them.

    A context: no worker is left behind. Nothing else is measured on this machine meanwhile.
    `patience_s` is how long another measurement is waited for.
    """

    def __init__(
        self,
        file: ModelFile,
        setup: Setup,
        extensions: Extensions,
        patience_s: float = LIMIT_S,
    ) -> None:
        self._file = file
        self._setup = replace(setup, limit_s=min(setup.limit_s, LIMIT_S))
        self._extensions = extensions
        self._patience_s = patience_s
        self._open = ExitStack()
        self._worker: ProcessWorker | None = None

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def start(self) -> ProcessWorker:
        """The worker, started if none is there; MeasureError or EngineError if that fails."""
        if self._worker is None:
            self._open.enter_context(measuring_alone(longest_s=self._patience_s))
            worker = self._open.enter_context(start_on(self._setup, 1))
            worker.use_engine(self._setup.engine, self._setup.options)
            self._worker = worker
        return self._worker

    def run(self, binding: Binding, bound: BoundModel) -> MeasureError | None:
        """Run one inference; returns the error of a model that does not run at these sizes."""
        static = profile_bound(bound, self._extensions.operators)
        model = prepare(
            Model(self._file, binding, ProfileRequest(), self._extensions, bound, static)
        )
        worker = self.start()
        try:
            with unchanged(model):
                rig = set_up(worker, self._setup, 1, make_workload(model, worker))
                rig.open()
                rig.block(1, _NS_PER_S)
                rig.close()
        except MeasureError as error:
            self._forget_ended(worker)
            return error
        return None

    def _forget_ended(self, worker: ProcessWorker) -> None:
        """Forget a worker that an inference has ended, so that the next one starts another."""
        try:
            worker.ask("clocks", "as its clocks were read")
        except MeasureError:
            self._open.close()
            self._worker = None
