"""A thread that runs work for another one, so that a call is not deep in frames of ours.

A program that looks at its stack, as some that log do, takes longer the deeper it is called. So the
thread of a test waits for calls, and what decides about them runs in another thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")


class MainThread:
    """The thread that calls `serve`, for the work of the thread that this starts."""

    def __init__(self) -> None:
        # None: there is no more.
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()

    def run(self, work: Callable[[], _T]) -> _T:
        """The result of `work`, which the serving thread runs; called by the other thread."""
        order = _Order(work)
        self._orders.put(order)
        return order.result()  # type: ignore[no-any-return]  # of this very work

    def serve(self, job: Callable[[], _T]) -> _T:
        """The result of `job`, which another thread runs; its work runs here.

        An interrupt that comes between two pieces of work is the result of the next.
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
                    # It may have ended already: then this is not read.
                    order.end(None, error)
        thread.join()
        if interrupt is not None:
            raise interrupt
        return whole.result()  # type: ignore[no-any-return]  # of this very job

    def _run(self, whole: _Order) -> None:
        whole.end(*whole.done())
        self._orders.put(None)


class _Order:
    """A piece of work and, once it is done, its result."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._ended: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def done(self) -> tuple[Any, BaseException | None]:
        """Do the work, and return its result or its error, which is raised by `result`."""
        try:
            return self._work(), None
        except BaseException as error:  # noqa: BLE001  # an interrupt ends the work like an error
            return None, error

    def end(self, result: Any, error: BaseException | None) -> None:  # noqa: ANN401  # of any work
        self._ended.put((result, error))

    def result(self) -> Any:  # noqa: ANN401  # the same
        """Wait for the result; raises what the work raised."""
        result, error = self._ended.get()
        if error is not None:
            raise error
        return result
