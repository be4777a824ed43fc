"""Whose turn it is: jobs wait here until a machine that may run them has room."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct, field

from pytest_modelperf.cluster.records import Machine, fitting_machines

Names = tuple[str, ...]

# How long a job waits for a machine of its kind after the last one has gone.
PATIENCE_S = 60.0


class _Need(Struct, frozen=True):
    """The names of the machines that a job may run on, and the cores that it needs."""

    names: Names
    cores: int


class _Queue(Struct):
    """The jobs that the same machines may run: those that wait, and how many have been let go."""

    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    running: int = 0
    giving_up: asyncio.TimerHandle | None = None


class JobTurns:
    """Lets jobs go in the order that they came, as many as there are machines for them.

    One more waits at each machine, so that none is idle while messages travel; near the end none
    does, so that no job waits behind another while a machine is free. `describe_lack` is what a
    job is told that no machine may run any more, after `patience_s`.
    """

    def __init__(self, describe_lack: Callable[[Names], Exception], patience_s: float) -> None:
        self._describe_lack = describe_lack
        self._patience_s = patience_s
        self._machines: Sequence[Machine] = ()
        self._queues: dict[_Need, _Queue] = {}

    def set_machines(self, machines: Sequence[Machine]) -> None:
        """Machines have come or gone."""
        self._machines = machines
        for need in self._queues:
            self._let_go(need)

    @asynccontextmanager
    async def turn(self, names: Names, cores: int = 1) -> AsyncIterator[None]:
        """Waits until one of the machines with these names and cores has room, and takes it."""
        need = _Need(names, cores)
        queue = self._queues.setdefault(need, _Queue())
        turn = asyncio.get_running_loop().create_future()
        queue.waiting.append(turn)
        self._let_go(need)
        try:
            await turn
        except BaseException:
            # One that is cancelled stays in the queue, and is passed over there.
            if not turn.cancelled() and turn.exception() is None:
                self._end(need)
            raise
        try:
            yield
        finally:
            self._end(need)

    def _end(self, need: _Need) -> None:
        self._queues[need].running -= 1
        self._let_go(need)

    def _let_go(self, need: _Need) -> None:
        queue = self._queues[need]
        room = len(fitting_machines(self._machines, need.names, need.cores))
        self._watch_lack(need, queue, room)
        while queue.waiting:
            most = 2 * room if len(queue.waiting) > room else room
            if queue.running >= most:
                return
            turn = queue.waiting.popleft()
            if not turn.done():
                queue.running += 1
                turn.set_result(None)

    def _watch_lack(self, need: _Need, queue: _Queue, room: int) -> None:
        """Give up on jobs whose machines are gone, unless one comes back in time."""
        if room and queue.giving_up is not None:
            queue.giving_up.cancel()
            queue.giving_up = None
        elif not room and queue.waiting and queue.giving_up is None:
            loop = asyncio.get_running_loop()
            queue.giving_up = loop.call_later(self._patience_s, self._give_up, need)

    def _give_up(self, need: _Need) -> None:
        self._queues[need].giving_up = None
        self._refuse(self._queues[need], self._describe_lack(need.names))

    def end(self, error: Exception) -> None:
        """Have all that wait end with an error."""
        for queue in self._queues.values():
            if queue.giving_up is not None:
                queue.giving_up.cancel()
            self._refuse(queue, error)

    def _refuse(self, queue: _Queue, error: Exception) -> None:
        while queue.waiting:
            turn = queue.waiting.popleft()
            if not turn.done():
                turn.set_exception(error)
