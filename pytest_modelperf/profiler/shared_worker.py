"""Workers for one model after another, for work that does not judge their times."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Condition
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.machine.describe import ROOT, cgroup_folders
from pytest_modelperf.profiler.sampling.setup import Setup, worker_request
from pytest_modelperf.profiler.worker.client import ProcessWorker, Waiting, WorkerRequest
from pytest_modelperf.systems.process import OWN_PROCESS

if TYPE_CHECKING:
    from pytest_modelperf.profiler.model_in_worker import CasePlace
    from pytest_modelperf.profiler.prepare import PreparedModel
    from pytest_modelperf.profiler.sampling.worker_bench import Rig

# A runtime keeps some memory of each model, and more of a large one.
_MOST_KEPT_BYTES = 256 << 20
# The threads that start workers. A further worker waits for one of them.
_MOST_STARTING = 8
# The share of the available memory that models may use while their plans are made.
_MEMORY_SHARE = 0.5
# The weights of a model, their copy in the runtime, and another copy in the plan.
_COPIES = 3


class SharedTime:
    """The turns of threads: one runs, and the others wait for their workers or for memory.

    The code that they call need not be thread-safe, such as the first reading of a type.
    `limit_bytes` is the memory that the models of all workers may take together.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0
        self._turn = Condition()

    @classmethod
    def of_machine(cls) -> SharedTime:
        """Return turns for models that may take half of the memory that is available now."""
        available = OWN_PROCESS.available_bytes()
        return cls(None if available is None else round(_MEMORY_SHARE * available))

    def turn(self) -> AbstractContextManager[bool]:
        """Run while no other thread does."""
        return self._turn

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let another thread run until the context ends."""
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()

    @contextmanager
    def memory(self, weight_bytes: int) -> Iterator[None]:
        """Reserve memory for a model. One that needs more than all of it runs alone."""
        wanted = _COPIES * weight_bytes
        self._turn.wait_for(lambda: self._fits(wanted))
        self._taken_bytes += wanted
        try:
            yield
        finally:
            self._taken_bytes -= wanted
            self._turn.notify_all()

    def _fits(self, wanted: int) -> bool:
        if self._limit_bytes is None or not self._taken_bytes:
            return True
        return self._taken_bytes + wanted <= self._limit_bytes


class SharedWorker:
    """A worker that stays for the next model. Its process starts with the first one.

    A measurement that judges times gives each model a process of its own: this one may keep memory
    and threads of earlier models. Several of these workers run at the same time, in different
    places, each for a thread that has its turn.
    """

    def __init__(self, place: int, time: SharedTime) -> None:
        self._place = place
        self._time = time
        self._worker: ProcessWorker | None = None
        self._request: WorkerRequest | None = None
        self._is_over = False

    @contextmanager
    def rig(self, model: PreparedModel, setup: Setup, place: CasePlace) -> Iterator[Rig]:
        """Yield a rig as `started_rig` does, but not alone on this machine."""
        # Imported here, because workers start before anything else that measures is needed.
        from pytest_modelperf.profiler.model_in_worker import (
            adding_notes,
            check_cores,
            make_workload,
            unchanged,
        )
        from pytest_modelperf.profiler.sampling.worker_bench import set_up

        check_cores(place.case.cores, setup)
        weight_bytes = model.static.weight_bytes
        with unchanged(model), self._time.memory(weight_bytes):
            try:
                worker = self._ready(setup, place.case.cores, self._time.waiting)
                workload = make_workload(model, worker)
                with adding_notes(workload.notes):
                    rig = set_up(worker, setup, place.case.cores, workload)
                    yield rig
                # A session may have made a plan and not run.
                rig.close()
            except BaseException:
                self._stop()
                raise
            if weight_bytes > _MOST_KEPT_BYTES:
                self._stop()
            else:
                _remove_models(worker)

    def start(self, setup: Setup, cores: int) -> None:
        """Start the process and load the engine, before a model is there and without a turn."""
        self._ready(setup, cores, nullcontext).use_engine(setup.engine, setup.options)

    def end(self) -> None:
        """End the process. A rig that another thread still uses fails."""
        self._is_over = True
        self._stop()

    def _ready(self, setup: Setup, cores: int, waiting: Waiting) -> ProcessWorker:
        stats = [str(folder / "cpu.stat") for folder in cgroup_folders(ROOT)]
        request = replace(worker_request(setup, cores, stats), place=self._place)
        worker, known = self._worker, self._request
        if worker is not None and known is not None and request.differs_by_paths(known):
            worker.use_paths(request.paths)
        elif worker is None or request != known:
            self._stop()
            if self._is_over:
                raise MeasureError("the run has ended.")
            self._worker = worker = ProcessWorker(request, waiting)
            worker.__enter__()
        self._request = request
        worker.waiting = waiting
        return worker

    def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()


class SharedWorkers:
    """Shared workers in different places. Each model has the next one that is idle.

    All processes start while the first model is read, which takes about as long. Their start takes
    no turn, because it would wait for that.
    """

    def __init__(self, time: SharedTime) -> None:
        self.time = time
        self._workers: list[SharedWorker] = []
        self._idle: SimpleQueue[SharedWorker] = SimpleQueue()
        # Linux ends a worker with the thread that started it, and these threads stay.
        self._threads = ThreadPoolExecutor(_MOST_STARTING, "modelperf-start")
        self._surroundings = _surroundings()

    def start(self, setup: Setup, cores: int, places: int) -> None:
        """Let workers start in so many places, unless they did. Do not wait for them."""
        for place in range(len(self._workers), places):
            worker = SharedWorker(place, self.time)
            self._workers.append(worker)
            self._threads.submit(self._start, worker, setup, cores)

    @property
    def are_as_new(self) -> bool:
        """Whether processes that start now would inherit the same from this one."""
        return self._surroundings == _surroundings()

    @contextmanager
    def rig(self, model: PreparedModel, setup: Setup, place: CasePlace) -> Iterator[Rig]:
        """Yield a rig of an idle worker. Wait for one if necessary."""
        with self.time.waiting():
            worker = self._idle.get()
        try:
            with worker.rig(model, setup, place) as rig:
                yield rig
        finally:
            self._idle.put(worker)

    def end(self) -> None:
        """End all processes. A rig that another thread still uses fails."""
        for worker in self._workers:
            worker.end()
        self._threads.shutdown()
        # A process that a thread was just starting was not known above.
        for worker in self._workers:
            worker.end()

    def _start(self, worker: SharedWorker, setup: Setup, cores: int) -> None:
        try:
            # The first model that needs this worker has the same error.
            with suppress(Exception):
                worker.start(setup, cores)
        finally:
            self._idle.put(worker)


def _surroundings() -> tuple[object, ...]:
    """Return what a process inherits: variables, folder and processors."""
    folder = None
    # A process inherits a removed folder as well.
    with suppress(FileNotFoundError):
        folder = Path.cwd()
    return dict(os.environ), folder, OWN_PROCESS.allowed_processors()


def _remove_models(worker: ProcessWorker) -> None:
    """Remove the copies and the plans of a model, but not what the worker printed."""
    for path in worker.folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix == ".onnx":
            with suppress(OSError):
                path.unlink()
