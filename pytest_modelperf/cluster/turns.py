"""The queues of jobs, which wait here until a machine that may run them has room."""

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
    names: Names
    cores: int


class _Queue(Struct):
    """The jobs that the same machines may run: those that wait, and the number let go."""

    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    running: int = 0
    giving_up: asyncio.TimerHandle | None = None


class JobTurns:
    """The queues that let jobs go in order, one for each machine that may run them.

    One more job waits at each machine, so that the machine is not idle while messages travel. Near
    the end there are no such extra jobs, so that no job waits behind another while a machine is
    free. `describe_lack` makes the error of jobs that have had no machine for `patience_s`.
    """

    def __init__(self, describe_lack: Callable[[Names], Exception], patience_s: float) -> None:
        self._describe_lack = describe_lack
        self._patience_s = patience_s
        self._machines: Sequence[Machine] = ()
        self._queues: dict[_Need, _Queue] = {}

    def set_machines(self, machines: Sequence[Machine]) -> None:
        """Update the machines after some have joined or left, and let jobs go."""
        self._machines = machines
        for need in self._queues:
            self._let_go(need)

    @asynccontextmanager
    async def turn(self, names: Names, cores: int = 1) -> AsyncIterator[None]:
        """Wait until a machine with these names and cores has room, and take its turn."""
        need = _Need(names, cores)
        queue = self._queues.setdefault(need, _Queue())
        turn = asyncio.get_running_loop().create_future()
        queue.waiting.append(turn)
        self._let_go(need)
        try:
            await turn
        except BaseException:
            # A cancelled turn stays in the queue, which skips it later.
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
        """Start the timer that gives up on jobs without machines, or stop it if one is back."""
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
        """End all waiting jobs with an error."""
        for queue in self._queues.values():
            if queue.giving_up is not None:
                queue.giving_up.cancel()
            self._refuse(queue, error)

    def _refuse(self, queue: _Queue, error: Exception) -> None:
        while queue.waiting:
            turn = queue.waiting.popleft()
            if not turn.done():
                turn.set_exception(error)
