"""The fixture `modelperf` in a station: `check` serves the orders of the parent."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_modelperf.programs.messages import (
    Answer,
    Begin,
    Failed,
    IsReached,
    NotReached,
    StationPlace,
)
from pytest_modelperf.programs.records import Reached
from pytest_modelperf.programs.station.callee import (
    Callee,
    drive,
    is_loop_running,
    kind_of_result,
)
from pytest_modelperf.programs.station.failures import failure_text
from pytest_modelperf.programs.station.reads import Reads
from pytest_modelperf.programs.station.serving import Pipe, Server, is_cancelled
from pytest_modelperf.programs.station.sessions import Sessions
from pytest_modelperf.programs.trees import SideTree

# What `check` takes for itself in the parent; of these only two matter here.
_RESERVED = ("against", "environment", "paths", "tolerance", "cores")
_AWAIT = (
    "the test ended without awaiting modelperf.check. In a coroutine, write: "
    "await modelperf.check(...)"
)


class ServedTest:
    """The value of the fixture in a station, and the state of its one test."""

    def __init__(self, begin: Begin, pipe: Pipe, tree: SideTree, reads: Reads) -> None:
        self.place: StationPlace = begin.place
        self._started_ns = begin.started_ns
        self._pipe = pipe
        self._tree = tree
        self._reads = reads
        self._sessions = Sessions(Path(begin.place.scratch))
        # Whether the parent knows how the test went.
        self.has_answered = False
        self._is_awaited: bool | None = None

    @property
    def sessions(self) -> Sessions:
        return self._sessions

    def __repr__(self) -> str:
        return "<modelperf>"

    def answer(self, answer: Answer) -> None:
        """Answer whether the test reached the call; only the first answer counts."""
        if not self.has_answered:
            self.has_answered = True
            self._pipe.answer(answer)

    def say_ended(self, reason: str) -> None:
        """Report a test that ended before it reached the call."""
        self.answer(NotReached(_AWAIT if self._is_awaited is False else reason))

    # -- the fixture

    def check(  # each is a keyword of the user
        self,
        function: Callable[..., Any],
        *arguments: Any,  # noqa: ANN401
        each: Sequence[tuple[Any, ...]] | None = None,
        outputs: object = None,
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Serve the parent's orders, then skip the rest of the test.

        Inside a running event loop and for a coroutine function, it returns what is to be awaited.
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
        self.answer(NotReached(reason))
        pytest.fail(reason, pytrace=False)

    def _give_up(self, error: BaseException) -> NoReturn:
        self.answer(Failed(failure_text(error)))
        raise error

    # -- serving

    @staticmethod
    def _find_kind(callee: Callee) -> None:
        """Call a function once; its result may show that it is not a plain one."""
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
            # A plain function was called already, for its kind.
            for _ in range(1 if callee.kind == "function" else 2):
                await callee.call()
        except BaseException as error:
            if is_cancelled(error) or isinstance(error, GeneratorExit):
                raise
            self._give_up(error)
        self.answer(
            IsReached(
                Reached(
                    function=callee.name,
                    source=callee.source,
                    kind=callee.kind,
                    inputs=len(callee.inputs),
                    start_ns=max(start_ns, 0),
                    of_worktree=self._reads.of_worktree(),
                )
            )
        )
        server = Server(
            self._pipe,
            callee,
            sessions=self._sessions,
            reads=self._reads,
            tree=self._tree,
            outputs=outputs,
        )
        await server.serve()


class _Awaited:
    """What the test awaits: it serves in the test's own event loop."""

    def __init__(self, test: ServedTest, steps: Any) -> None:  # noqa: ANN401
        self._test = test
        self._steps = steps

    def __await__(self) -> Generator[Any, None, NoReturn]:
        yield from self._steps.__await__()
        _skip()

    def __del__(self) -> None:
        # Without a warning that its coroutine was never awaited: the answer says so.
        self._steps.close()


def _skip() -> NoReturn:
    pytest.skip("the calls were made in a station of pytest-modelperf")
