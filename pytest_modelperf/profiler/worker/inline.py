"""A worker in this process, for a function that exists only here."""

from __future__ import annotations

import gc
import importlib
import platform
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from pytest_modelperf.profiler.engines.source import EngineModule
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.worker.agent import Agent, describe_error
from pytest_modelperf.profiler.worker.client import Meanwhile
from pytest_modelperf.profiler.worker.endings import failure
from pytest_modelperf.profiler.worker.process import Meter, pin
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.systems.process import OWN_PROCESS

_T = TypeVar("_T")


class InlineWorker:
    """A worker that answers its requests in this process.

    Its `host` must serve while inferences are requested: they run in the thread that serves.
    """

    is_own_process = False
    machine: MachineFacts | None = None
    python: str | None = platform.python_version()

    def __init__(
        self,
        folder: Path,
        processors: tuple[int, ...] | None = None,
        unpinned_because: str | None = None,
    ) -> None:
        self.folder = folder
        self.host = MainThread()
        self._agent = Agent(meter=Meter((), processors), run=self.host.run)
        self.processors = processors
        self.unpinned_because = unpinned_because

    def use_engine(self, engine: EngineModule, options: Mapping[str, str]) -> Mapping[str, Any]:
        module: Any = importlib.import_module(engine.module)
        self._agent.use_engine(module)
        try:
            described: Mapping[str, Any] = module.describe(dict(options))
        except Exception as error:
            # A worker process would report this error with the same message.
            step = f"as the engine {engine.name} was loaded"
            raise failure(describe_error(error), step, shows_trace=True) from error
        return described

    def send_file(self, path: Path, name: str) -> str:  # noqa: ARG002  # the worker's interface
        return str(path)

    def ask(
        self,
        command: str,
        step: str,
        limit_s: float | None = None,  # noqa: ARG002  # the worker's interface
        meanwhile: Meanwhile | None = None,
        **arguments: object,
    ) -> Any:  # noqa: ANN401  # the worker's interface
        if meanwhile is not None:
            meanwhile()
        answer = self._agent.handle({"command": command, **arguments})
        if "error" in answer:
            raise failure(answer["error"], step, shows_trace=True)
        return answer["ok"]


@contextmanager
def work_inline(cores: int) -> Iterator[InlineWorker]:
    """Make this process a worker for a while, pinned to that many processors if the platform can.

    Without `cores` it keeps its own processors.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(working_folder("inline"))
        stack.callback(_use_processors, OWN_PROCESS.allowed_processors())
        pinned, why = pin(cores) if cores else (None, None)
        stack.enter_context(_garbage_set_aside())
        stack.enter_context(_event_loop_set_aside())
        yield InlineWorker(folder, None if pinned is None else tuple(pinned), why)


@contextmanager
def _event_loop_set_aside() -> Iterator[None]:
    """Let functions run their own event loop in an async test, as with `asyncio.run`."""
    asyncio = sys.modules.get("asyncio")
    # If a loop runs, its module is imported. Importing it here would slow down most runs.
    loop = None if asyncio is None else asyncio._get_running_loop()  # noqa: SLF001  # asyncio exports it for event loops
    if asyncio is None or loop is None:
        yield
        return
    task = asyncio.current_task(loop)
    if task is not None:
        asyncio.tasks._leave_task(loop, task)  # noqa: SLF001  # documented for authors of loops
    asyncio._set_running_loop(None)  # noqa: SLF001  # the same
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)  # noqa: SLF001  # the same
        if task is not None:
            asyncio.tasks._enter_task(loop, task)  # noqa: SLF001  # the same


@contextmanager
def _garbage_set_aside() -> Iterator[None]:
    """Freeze all existing objects, so that collections before a block do not go through them."""
    if gc.get_freeze_count():
        # Objects that were frozen before stay frozen.
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _use_processors(before: Collection[int] | None) -> None:
    """Undo the pinning. A system that refused the pinning also refuses this."""
    if before is not None:
        with suppress(OSError):
            OWN_PROCESS.use_processors(before)


class MainThread:
    """The thread that calls `serve`, which works for the thread that it starts.

    A program that inspects its stack, as some loggers do, takes longer the deeper it is called. So
    the thread of a test waits for calls, and the code that decides about them runs in another.
    """

    def __init__(self) -> None:
        # None is the last entry.
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()

    def run(self, work: Callable[[], _T]) -> _T:
        """Return the result of `work`, which the serving thread runs for the calling thread."""
        order = _Order(work)
        self._orders.put(order)
        return order.result()  # type: ignore[no-any-return]  # of this work

    def serve(self, job: Callable[[], _T]) -> _T:
        """Return the result of `job`, which another thread runs. Its work runs here.

        An interrupt between two pieces of work becomes the result of the next.
        """
        whole = _Order(job)
        thread = threading.Thread(target=self._run, args=(whole,), daemon=True)
        thread.start()
        interrupt: BaseException | None = None
        while True:
            order = None
            try:
                order = self._orders.get()
                if order is None:
                    break
                order.end(*((None, interrupt) if interrupt is not None else order.done()))
            except BaseException as error:  # noqa: BLE001  # raised when the other thread has ended
                interrupt = error
                if order is not None:
                    # The order may have ended already; then this is not read.
                    order.end(None, error)
        thread.join()
        if interrupt is not None:
            raise interrupt
        return whole.result()  # type: ignore[no-any-return]  # of this job

    def _run(self, whole: _Order) -> None:
        whole.end(*whole.done())
        self._orders.put(None)


class _Order:
    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._ended: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def done(self) -> tuple[Any, BaseException | None]:
        """Do the work, and return its result or the error that `result` will raise."""
        try:
            return self._work(), None
        except BaseException as error:  # noqa: BLE001  # an interrupt ends the work like an error
            return None, error

    def end(self, result: Any, error: BaseException | None) -> None:  # noqa: ANN401  # of any work
        self._ended.put((result, error))

    def result(self) -> Any:  # noqa: ANN401  # the same
        """Wait for the result. Raise what the work raised."""
        result, error = self._ended.get()
        if error is not None:
            raise error
        return result
