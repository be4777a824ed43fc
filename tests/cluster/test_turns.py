"""Whose turn it is, in an event loop without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from pytest_modelperf.cluster.machines import JobTurns
from pytest_modelperf.cluster.records import Machine, fitting_machines

ANY = ()
BOARD = ("board",)


def machine(number: int, *tags: str) -> Machine:
    return Machine(
        address=f"tcp://{number}", host=f"host-{number}", key="k", tags=tags, versions={}
    )


class Crowd:
    """Jobs that wait for their turn, and say when they have it."""

    def __init__(self, machines: Sequence[Machine], patience_s: float = 60.0) -> None:
        self.turns = JobTurns(lambda names: LookupError(*names), patience_s)
        self.turns.set_machines(machines)
        self.begun: list[int] = []
        self._ends: list[asyncio.Event] = []

    def add(self, names: tuple[str, ...] = ANY, cores: int = 1) -> asyncio.Task[None]:
        self._ends.append(asyncio.Event())
        return asyncio.ensure_future(self._run(len(self._ends) - 1, names, cores))

    async def _run(self, number: int, names: tuple[str, ...], cores: int) -> None:
        async with self.turns.turn(names, cores):
            self.begun.append(number)
            await self._ends[number].wait()

    async def end(self, *numbers: int) -> None:
        for number in numbers:
            self._ends[number].set()
        await settle()


async def settle() -> None:
    """Let every job go on as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_job_waits_for_machines_with_its_cores() -> None:
    """A machine with fewer cores runs it only if there is no other, and reports the lack."""
    small, large = (replace(machine(n), cores=cores) for n, cores in ((1, 2), (2, 4)))

    async def begun(*machines: Machine) -> list[int]:
        crowd = Crowd(machines)
        tasks = [crowd.add(cores=4) for _ in range(2)]
        await settle()
        for task in tasks:
            task.cancel()
        return crowd.begun

    assert fitting_machines([small, large], ANY, 4) == [large]
    assert fitting_machines([small, large], ANY, 2) == [small, large]
    assert fitting_machines([small], ANY, 4) == [small]
    assert asyncio.run(begun(small, small, large)) == asyncio.run(begun(large))


def test_jobs_begin_in_the_order_that_they_came() -> None:
    async def scenario() -> None:
        crowd = Crowd([machine(1), machine(2)])
        tasks = [crowd.add() for _ in range(9)]
        await settle()
        # One more waits at each machine.
        assert crowd.begun == [0, 1, 2, 3]
        await crowd.end(0, 1, 2, 3, 4, 5, 6, 7, 8)
        assert crowd.begun == list(range(9))
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_near_the_end_no_job_waits_behind_another() -> None:
    async def scenario() -> None:
        crowd = Crowd([machine(1), machine(2)])
        tasks = [crowd.add() for _ in range(3)]
        await settle()
        assert crowd.begun == [0, 1]
        await crowd.end(1)
        assert crowd.begun == [0, 1, 2]
        await crowd.end(0, 2)
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_jobs_wait_for_machines_of_their_kind() -> None:
    async def scenario() -> None:
        crowd = Crowd([machine(1)])
        tasks = [crowd.add(BOARD), crowd.add()]
        await settle()
        assert crowd.begun == [1]
        crowd.turns.set_machines([machine(1), machine(2, "board")])
        await settle()
        assert crowd.begun == [1, 0]
        await crowd.end(0, 1)
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_a_cancelled_job_takes_no_turn() -> None:
    async def scenario() -> None:
        crowd = Crowd([machine(1)])
        tasks = [crowd.add() for _ in range(3)]
        await settle()
        tasks[1].cancel()
        tasks[0].cancel()
        await settle()
        assert 2 in crowd.begun
        await crowd.end(2)
        await tasks[2]

    asyncio.run(scenario())


def test_jobs_without_a_machine_are_given_up_after_a_while() -> None:
    async def scenario() -> None:
        crowd = Crowd([machine(1)], patience_s=0.0)
        jobs = [crowd.add(BOARD), crowd.add(BOARD)]
        for job in jobs:
            with pytest.raises(LookupError, match="board"):
                await job

    asyncio.run(scenario())


def test_a_machine_that_comes_back_in_time_is_waited_for() -> None:
    async def scenario() -> None:
        crowd = Crowd([machine(1, "board")])
        crowd.turns.set_machines([])
        job = crowd.add(BOARD)
        await settle()
        crowd.turns.set_machines([machine(2, "board")])
        await settle()
        assert crowd.begun == [0]
        await crowd.end(0)
        await job

    asyncio.run(scenario())


def test_the_end_of_all_ends_those_that_wait() -> None:
    async def scenario() -> None:
        crowd = Crowd([])
        job = crowd.add()
        await settle()
        crowd.turns.end(ConnectionError("gone"))
        with pytest.raises(ConnectionError, match="gone"):
            await job

    asyncio.run(scenario())
