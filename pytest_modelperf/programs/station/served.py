"""Provide the fixture `modelperf` in a station, where `check` carries out the parent's orders.

The files of the project that this process reads are recorded by their paths in its tree.
"""

from __future__ import annotations

import inspect
import os
import pickle
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path, PurePath
from typing import IO, Any, NoReturn, TypeAlias

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.files.opened import OpenedFiles, digest_of, distributions, module_files
from pytest_modelperf.profiler.worker.timing import paused_gc
from pytest_modelperf.programs import messages
from pytest_modelperf.programs.messages import Reached, Turn
from pytest_modelperf.programs.station.callee import (
    Callee,
    drive,
    failure_text,
    first_difference,
    is_loop_running,
    kind_of_result,
)
from pytest_modelperf.programs.station.calls import CallRecord, ProcessorWait, Sessions
from pytest_modelperf.programs.trees import SideTree
from pytest_modelperf.systems.process import OWN_PROCESS

# Folders that tools keep for themselves.
_OTHERS = frozenset({".git", "__pycache__", ".pytest_cache", ".modelperf"})


class Reads:
    """The files that this process has opened to read since the audit hook was installed."""

    def __init__(self, tree: SideTree, scratch: str) -> None:
        self._tree = tree
        self._scratch = os.path.realpath(scratch)
        self._opened = OpenedFiles()

    def begin(self) -> None:
        self._opened.begin()

    def files(self) -> dict[str, str]:
        """Return the digests of the project's files that were read, by their path in its tree."""
        found: dict[str, str] = {}
        for path in self._all():
            place = self._tree.place(path)
            if place is None or self._is_other(path, place) or place in found:
                continue
            digest = digest_of(path)
            if digest is not None:
                found[place] = digest
        return dict(sorted(found.items()))

    def model(self, place: messages.ModelPlace) -> messages.ModelPlace:
        """Return the place of a model, which is temporary if this process wrote it."""
        if place.path is None or not self._opened.has_written(place.path):
            return place
        return replace(place, is_temporary=True)

    def of_worktree(self) -> tuple[str, ...]:
        """Return the files of the work tree that this side of another commit has read."""
        if not self._tree.is_other:
            return ()
        places = ((path, self._tree.place_in_worktree(path)) for path in self._all())
        found = {
            path
            for path, place in places
            if place is not None and not self._is_other(path, place) and os.path.isfile(path)  # noqa: PTH113
        }
        return tuple(sorted(found))

    def _all(self) -> list[str]:
        return [*module_files(), *self._opened.paths]

    def _is_other(self, path: str, place: str) -> bool:
        real = os.path.realpath(path)
        is_scratch = real.startswith(self._scratch + os.sep)
        return is_scratch or bool(_OTHERS & set(PurePath(place).parts))


# Compares results of the side before and the side now. True and None mean that they are equal.
OutputsEqual: TypeAlias = Callable[[Any, Any], object]


class Pipe(Struct, frozen=True):
    """The pipe to the parent and back."""

    orders: IO[bytes]
    answers: IO[bytes]

    def answer(self, answer: messages.Answer) -> None:
        messages.write_message(self.answers, answer)

    def next_order(self) -> messages.Order:
        """Return the next order, which is `End` if the parent is gone."""
        return messages.read_message(self.orders, messages.ORDERS) or messages.End()


class Server(Struct, frozen=True):
    """The server of orders for one function. It runs in the thread of the test that made it."""

    pipe: Pipe
    callee: Callee
    sessions: Sessions
    reads: Reads
    tree: SideTree
    outputs: OutputsEqual | None
    waited: ProcessorWait = field(default_factory=ProcessorWait)

    async def serve(self) -> None:
        """Answer each order until the last one. An error of the function is an answer, too."""
        while not isinstance(order := self.pipe.next_order(), messages.End):
            try:
                answer = await self._answer(order)
            except GeneratorExit:
                raise
            except BaseException as error:
                if is_cancelled(error):
                    raise
                answer = messages.Failed(failure_text(error))
            self.pipe.answer(answer)
        self.waited.close()

    async def _answer(self, order: messages.Order) -> messages.Answer:
        match order:
            case messages.TimeCalls(count=count, max_ns=max_ns):
                return await self._time(count, max_ns)
            case messages.Watch():
                return await self._watch()
            case messages.ProfileCalls(calls=calls):
                return await self._profile(calls)
            case messages.GiveSeen():
                return self._seen()
            case messages.GiveResult():
                return messages.Result(pickle.dumps(await self._result()))
            case messages.CompareResult(other=other, way=way):
                return await self._compare(other, way)
            case messages.End():
                raise AssertionError("the end is not an order to answer")

    async def _time(self, count: int, max_ns: int) -> messages.TimedTurns:
        records: list[CallRecord] = []
        spent_ns = 0
        with paused_gc():
            while len(records) < max(count, 1) and (not records or spent_ns < max_ns):
                record = CallRecord(self.waited)
                await self._record(record)
                records.append(record)
                spent_ns += record.wall_ns
        turns: list[Turn] = [record.turn() for record in records]
        return messages.TimedTurns(tuple(turns), OWN_PROCESS.peak_bytes())

    async def _record(self, record: CallRecord) -> None:
        self.sessions.record = record
        record.begin()
        try:
            await self.callee.call(record)
        finally:
            record.end()
            self.sessions.record = None

    async def _watch(self) -> messages.Watched:
        works = []
        for _ in range(2):
            record = CallRecord(self.waited, is_watched=True)
            await self._record(record)
            works.append(self.sessions.work_of(record))
        work, following = works
        return messages.Watched(
            work, None if following == work else following, self.sessions.models()
        )

    async def _profile(self, calls: int) -> messages.ProfiledCalls:
        import cProfile

        from pytest_modelperf.programs.station.call_profile import read_profile

        profiler = cProfile.Profile()
        with paused_gc():
            profiler.enable()
            try:
                for _ in range(calls):
                    await self.callee.call()
            finally:
                profiler.disable()
        return messages.ProfiledCalls(read_profile(profiler, calls, self.tree))

    def _seen(self) -> messages.SeenHere:
        import platform

        # Listed first, because the other calls import modules and read files.
        files = self.reads.files()
        models = {name: self.reads.model(place) for name, place in self.sessions.models().items()}
        return messages.SeenHere(files, distributions(), models, platform.python_version())

    async def _result(self) -> object:
        kept: list[object] = []
        await self.callee.call(kept=kept)
        return kept if len(self.callee.inputs) > 1 else kept[0]

    async def _compare(self, other: bytes, way: str) -> messages.Compared:
        before, after = pickle.loads(other), await self._result()  # noqa: S301  # from our own station
        if way != "given":
            return messages.Compared(first_difference(before, after, is_close=way == "allclose"))
        if self.outputs is None:
            raise ValueError("the test gives no function that compares outputs")
        try:
            is_equal = self.outputs(before, after)
        except AssertionError as error:
            return messages.Compared(str(error) or "the function that compares outputs failed")
        if is_equal is None or is_equal:
            return messages.Compared(None)
        return messages.Compared("the function that compares outputs returned a false value")


def is_cancelled(error: BaseException) -> bool:
    """Whether the event loop ends the task, which is not an error of the function."""
    if isinstance(error, KeyboardInterrupt):
        return True
    return type(error).__name__ in {"CancelledError", "Cancelled"} and not isinstance(
        error, Exception
    )


# -- the fixture `modelperf` in a station


# Arguments of `check` for the parent, which are ignored here and not passed to the function.
_RESERVED = ("against", "environment", "paths", "tolerance", "cores")
_AWAIT = (
    "the test ended without awaiting modelperf.check. In a coroutine, write: "
    "await modelperf.check(...)"
)


class ServedTest:
    """The value of the fixture in a station, and the state of its one test."""

    def __init__(self, begin: messages.Begin, pipe: Pipe, tree: SideTree, reads: Reads) -> None:
        self.place: messages.StationPlace = begin.place
        self._started_ns = begin.started_ns
        self._pipe = pipe
        self._tree = tree
        self._reads = reads
        self.sessions = Sessions(Path(begin.place.scratch))
        # Whether the parent has been informed about the outcome of the test.
        self.has_answered = False
        self._is_awaited: bool | None = None

    def __repr__(self) -> str:
        return "<modelperf>"

    def answer(self, answer: messages.Answer) -> None:
        """Answer whether the test reached the call. Only the first answer counts."""
        if not self.has_answered:
            self.has_answered = True
            self._pipe.answer(answer)

    def say_ended(self, reason: str) -> None:
        """Report a test that ended before it reached the call."""
        self.answer(messages.NotReached(_AWAIT if self._is_awaited is False else reason))

    def check(  # each is a keyword of the user
        self,
        function: Callable[..., Any],
        *arguments: Any,  # noqa: ANN401
        each: Sequence[tuple[Any, ...]] | None = None,
        outputs: object = None,
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Serve the parent's orders, then skip the rest of the test.

        For a coroutine function inside a running event loop, it returns an object to await.
        """
        __tracebackhide__ = True
        for name in _RESERVED:
            named.pop(name, None)
        if not callable(function):
            self._refuse("modelperf.check(model)")
        start_ns = time.monotonic_ns() - self._started_ns
        inputs = [arguments] if each is None else [(*arguments, *given) for given in each]
        callee = Callee(function, inputs, named)
        try:
            if callee.kind == "function":
                self._find_kind(callee)
        except BaseException as error:
            if is_cancelled(error):
                raise
            self._give_up(error)
        steps = self._serve(callee, outputs if callable(outputs) else None, start_ns)
        if not callee.is_async:
            drive(steps)
        elif is_loop_running():
            self._is_awaited = False
            return _Awaited(self, steps)
        else:
            import asyncio

            asyncio.run(steps)
        return _skip()

    def __call__(self, *_: object, **__: object) -> NoReturn:
        self._refuse("modelperf(model)")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse(f"modelperf.{name}")

    def _refuse(self, what: str) -> NoReturn:
        reason = (
            f"the test uses {what} before it checks a program. Measure models in a test of their "
            "own."
        )
        self.answer(messages.NotReached(reason))
        pytest.fail(reason, pytrace=False)

    def _give_up(self, error: BaseException) -> NoReturn:
        self.answer(messages.Failed(failure_text(error)))
        raise error

    @staticmethod
    def _find_kind(callee: Callee) -> None:
        """Call a function once, because its result may show that it is not a plain function."""
        kept: list[object] = []
        drive(callee.call(kept=kept))
        callee.kind = kind_of_result(kept[0])
        if callee.kind != "function":
            for result in kept:
                if inspect.iscoroutine(result) or inspect.isgenerator(result):
                    result.close()

    async def _serve(
        self, callee: Callee, outputs: Callable[[Any, Any], object] | None, start_ns: int
    ) -> None:
        self._is_awaited = True
        try:
            # A plain function has already been called once, to find its kind.
            for _ in range(1 if callee.kind == "function" else 2):
                await callee.call()
        except BaseException as error:
            if is_cancelled(error) or isinstance(error, GeneratorExit):
                raise
            self._give_up(error)
        self.answer(
            messages.IsReached(
                Reached(
                    source=callee.source,
                    kind=callee.kind,
                    start_ns=max(start_ns, 0),
                    of_worktree=self._reads.of_worktree(),
                )
            )
        )
        await Server(self._pipe, callee, self.sessions, self._reads, self._tree, outputs).serve()


class _Awaited:
    def __init__(self, test: ServedTest, steps: Any) -> None:  # noqa: ANN401
        self._test = test
        self._steps = steps

    def __await__(self) -> Generator[Any, None, NoReturn]:
        yield from self._steps.__await__()
        _skip()

    def __del__(self) -> None:
        # Closed to avoid the warning that its coroutine was never awaited. The answer reports that
        # instead.
        self._steps.close()


def _skip() -> NoReturn:
    pytest.skip("the calls were made in a station of pytest-modelperf")
