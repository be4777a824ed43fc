"""A thread that runs work for another one, so that the work is not called from deep in our frames.

A program that inspects its stack, as some loggers do, takes longer the deeper it is called. So the
thread of a test waits for calls, and the code that decides about them runs in another thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")


class MainThread:
    """The thread that calls `serve`, which works for the thread that it starts."""

    def __init__(self) -> None:
        # None is the last entry.
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()

    def run(self, work: Callable[[], _T]) -> _T:
        """Return the result of `work`, which the serving thread runs for the calling thread."""
        order = _Order(work)
        self._orders.put(order)
        return order.result()  # type: ignore[no-any-return]  # of this work

    def serve(self, job: Callable[[], _T]) -> _T:
        """Return the result of `job`, which another thread runs; its work runs here.

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
    """A piece of work and, once it is done, its result."""

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
        """Wait for the result; raise what the work raised."""
        result, error = self._ended.get()
        if error is not None:
            raise error
        return result
