"""The function of a test with its arguments: how it is called, and what a call returns."""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias, TypeVar

from pytest_modelperf.programs.station.call_record import CallRecord

Kind: TypeAlias = Literal["function", "coroutine", "generator", "async generator"]
_T = TypeVar("_T")


class Callee:
    """A function that is called with each of its inputs in order."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[tuple[Any, ...]],
        named: Mapping[str, Any],
    ) -> None:
        self.function = function
        self.inputs = inputs
        self.named = named
        self.kind: Kind = kind_of(function)

    @property
    def is_async(self) -> bool:
        return self.kind in {"coroutine", "async generator"}

    @property
    def name(self) -> str:
        plain = _unwrapped(self.function)
        return str(getattr(plain, "__qualname__", None) or type(plain).__qualname__)

    @property
    def source(self) -> str | None:
        """The file that defines the function."""
        plain = _unwrapped(self.function)
        for each in (plain, type(plain)):
            with suppress(TypeError, OSError):
                return inspect.getsourcefile(each)
        return None

    async def call(self, record: CallRecord | None = None, kept: list[Any] | None = None) -> None:
        """Call the function with each input; `kept` receives the results."""
        for arguments in self.inputs:
            start_ns = time.perf_counter_ns()
            result = await self._call_one(arguments, record, keeps=kept is not None)
            if record is not None:
                record.each_ns.append(time.perf_counter_ns() - start_ns)
            if kept is not None:
                kept.append(result)

    async def _call_one(
        self, arguments: tuple[Any, ...], record: CallRecord | None, *, keeps: bool
    ) -> Any:  # noqa: ANN401  # whatever the function returns
        if self.kind == "function":
            return self.function(*arguments, **self.named)
        if self.kind == "coroutine":
            return await self.function(*arguments, **self.named)
        items = _Items(record, keeps=keeps)
        if self.kind == "generator":
            for item in self.function(*arguments, **self.named):
                items.add(item)
        else:
            async for item in self.function(*arguments, **self.named):
                items.add(item)
        return items.end()


class _Items:
    """The items of a generator: when the first one came, and how many there are."""

    def __init__(self, record: CallRecord | None, *, keeps: bool) -> None:
        self._start_ns = time.perf_counter_ns()
        self._record = record
        self._keeps = keeps
        self._kept: list[Any] = []
        self._count = 0

    def add(self, item: Any) -> None:  # noqa: ANN401
        if not self._count and self._record is not None:
            self._record.first_ns.append(time.perf_counter_ns() - self._start_ns)
        self._count += 1
        if self._keeps:
            self._kept.append(item)

    def end(self) -> list[Any]:
        if self._record is not None:
            self._record.items += self._count
        return self._kept


def kind_of(function: Callable[..., Any]) -> Kind:
    """The kind of a function, also of a partial and of an object that can be called."""
    plain: Any = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    call = getattr(type(plain), "__call__", None)  # noqa: B004  # its own code is asked for
    for each in (plain, call):
        if inspect.iscoroutinefunction(each):
            return "coroutine"
        if inspect.isasyncgenfunction(each):
            return "async generator"
        if inspect.isgeneratorfunction(each):
            return "generator"
    return "function"


def kind_of_result(result: object) -> Kind:
    """The kind of a function whose code does not show it, such as a lambda, by its result."""
    if inspect.iscoroutine(result):
        return "coroutine"
    if inspect.isasyncgen(result):
        return "async generator"
    return "generator" if inspect.isgenerator(result) else "function"


def drive(steps: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits, without an event loop."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    steps.close()
    raise RuntimeError("a function that is not a coroutine function waited for something")


def is_loop_running() -> bool:
    """Whether an event loop of asyncio or trio runs on this thread."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            return True
    trio = sys.modules.get("trio")
    if trio is not None:
        with suppress(RuntimeError):
            trio.lowlevel.current_task()
            return True
    return False


def _unwrapped(function: Callable[..., Any]) -> Any:  # noqa: ANN401
    """The function inside of partials, methods and wrappers."""
    plain: Any = function
    while True:
        if isinstance(plain, functools.partial):
            plain = plain.func
        elif inspect.ismethod(plain):
            plain = plain.__func__
        elif hasattr(plain, "__wrapped__"):
            plain = plain.__wrapped__
        else:
            return plain
