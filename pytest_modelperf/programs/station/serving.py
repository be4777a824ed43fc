"""The orders of the parent, carried out one after the other."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import IO, Any, TypeAlias

from pytest_modelperf.files.opened import distributions
from pytest_modelperf.profiler.worker.timing import paused_gc
from pytest_modelperf.programs.messages import (
    ORDERS,
    Answer,
    Compared,
    CompareResult,
    End,
    Failed,
    GiveResult,
    GiveSeen,
    Order,
    ProfileCalls,
    ProfiledCalls,
    Result,
    SeenHere,
    TimeCalls,
    TimedTurns,
    Watch,
    Watched,
    read_message,
    write_message,
)
from pytest_modelperf.programs.records import Turn
from pytest_modelperf.programs.station.call_record import CallRecord, ProcessorWait
from pytest_modelperf.programs.station.callee import Callee
from pytest_modelperf.programs.station.failures import failure_text
from pytest_modelperf.programs.station.reads import Reads
from pytest_modelperf.programs.station.results import first_difference
from pytest_modelperf.programs.station.sessions import Sessions
from pytest_modelperf.programs.trees import SideTree
from pytest_modelperf.systems.process import OWN_PROCESS

# Compares a result of before with one of now: true or None if they are equal.
OutputsEqual: TypeAlias = Callable[[Any, Any], object]


class Pipe:
    """The way to the parent and back."""

    def __init__(self, orders: IO[bytes], answers: IO[bytes]) -> None:
        self._orders = orders
        self._answers = answers

    def answer(self, answer: Answer) -> None:
        write_message(self._answers, answer)

    def next_order(self) -> Order:
        """The next order; the end if the parent is gone."""
        return read_message(self._orders, ORDERS) or End()


class Server:
    """Carries out the orders about one function, in the thread of its test."""

    def __init__(  # noqa: PLR0913  # what a process has one of each
        self,
        pipe: Pipe,
        callee: Callee,
        *,
        sessions: Sessions,
        reads: Reads,
        tree: SideTree,
        outputs: OutputsEqual | None,
    ) -> None:
        self._pipe = pipe
        self._callee = callee
        self._sessions = sessions
        self._reads = reads
        self._tree = tree
        self._outputs = outputs
        self._waited = ProcessorWait()

    async def serve(self) -> None:
        """Answer each order until the last one. An error of the function is an answer, too."""
        while not isinstance(order := self._pipe.next_order(), End):
            try:
                answer = await self._answer(order)
            except GeneratorExit:
                raise
            except BaseException as error:
                if is_cancelled(error):
                    raise
                answer = Failed(failure_text(error))
            self._pipe.answer(answer)
        self._waited.close()

    async def _answer(self, order: Order) -> Answer:
        match order:
            case TimeCalls(count=count, max_ns=max_ns):
                return await self._time(count, max_ns)
            case Watch():
                return await self._watch()
            case ProfileCalls(calls=calls):
                return await self._profile(calls)
            case GiveSeen():
                return self._seen()
            case GiveResult():
                return Result(pickle.dumps(await self._result()))
            case CompareResult(other=other, way=way):
                return await self._compare(other, way)
            case End():
                raise AssertionError("the end is not an order to answer")

    async def _time(self, count: int, max_ns: int) -> TimedTurns:
        records: list[CallRecord] = []
        spent_ns = 0
        with paused_gc():
            while len(records) < max(count, 1) and (not records or spent_ns < max_ns):
                record = CallRecord(self._waited)
                await self._record(record)
                records.append(record)
                spent_ns += record.wall_ns
        turns: list[Turn] = [record.turn() for record in records]
        return TimedTurns(tuple(turns), OWN_PROCESS.peak_bytes())

    async def _record(self, record: CallRecord) -> None:
        self._sessions.record = record
        record.begin()
        try:
            await self._callee.call(record)
        finally:
            record.end()
            self._sessions.record = None

    async def _watch(self) -> Watched:
        works = []
        for _ in range(2):
            record = CallRecord(self._waited, is_watched=True)
            await self._record(record)
            works.append(self._sessions.work_of(record))
        work, following = works
        return Watched(work, None if following == work else following, self._sessions.models())

    async def _profile(self, calls: int) -> ProfiledCalls:
        import cProfile

        from pytest_modelperf.programs.station.call_profile import read_profile

        profiler = cProfile.Profile()
        with paused_gc():
            profiler.enable()
            try:
                for _ in range(calls):
                    await self._callee.call()
            finally:
                profiler.disable()
        return ProfiledCalls(read_profile(profiler, calls, self._tree))

    def _seen(self) -> SeenHere:
        import platform

        # Listed first: the others import modules and read files.
        files = self._reads.files()
        return SeenHere(files, distributions(), self._sessions.models(), platform.python_version())

    async def _result(self) -> object:
        kept: list[object] = []
        await self._callee.call(kept=kept)
        return kept if len(self._callee.inputs) > 1 else kept[0]

    async def _compare(self, other: bytes, way: str) -> Compared:
        before, after = pickle.loads(other), await self._result()  # noqa: S301  # of our own station
        if way != "given":
            return Compared(first_difference(before, after, is_close=way == "allclose"))
        if self._outputs is None:
            raise ValueError("the test gives no function that compares outputs")
        try:
            is_equal = self._outputs(before, after)
        except AssertionError as error:
            return Compared(str(error) or "the function that compares outputs failed")
        if is_equal is None or is_equal:
            return Compared(None)
        return Compared("the function that compares outputs returned a false value")


def is_cancelled(error: BaseException) -> bool:
    """Whether the event loop ends the task, which is not an error of the function."""
    if isinstance(error, KeyboardInterrupt):
        return True
    return type(error).__name__ in {"CancelledError", "Cancelled"} and not isinstance(
        error, Exception
    )
