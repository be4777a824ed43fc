"""Call the function of a test with its arguments, and compare results."""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from pytest_modelperf.programs.station.calls import CallRecord

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
    def source(self) -> str | None:
        """The file that defines the function."""
        plain = _unwrapped(self.function)
        for each in (plain, type(plain)):
            with suppress(TypeError, OSError):
                return inspect.getsourcefile(each)
        return None

    async def call(self, record: CallRecord | None = None, kept: list[Any] | None = None) -> None:
        """Call the function with each input. `kept` receives the results."""
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
    def __init__(self, record: CallRecord | None, *, keeps: bool) -> None:
        self._start_ns = time.perf_counter_ns()
        self._record = record
        self._made = 0 if record is None else len(record.inferences)
        self._keeps = keeps
        self._kept: list[Any] = []
        self._count = 0

    def add(self, item: Any) -> None:  # noqa: ANN401
        if not self._count and self._record is not None:
            self._record.first_ns.append(time.perf_counter_ns() - self._start_ns)
            self._record.first_item_inferences += len(self._record.inferences) - self._made
        self._count += 1
        if self._keeps:
            self._kept.append(item)

    def end(self) -> list[Any]:
        if self._record is not None:
            self._record.items += self._count
        return self._kept


def kind_of(function: Callable[..., Any]) -> Kind:
    """Return the kind of a function, including partials and callable objects."""
    plain: Any = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    call = getattr(type(plain), "__call__", None)  # noqa: B004  # its function is needed, not whether it is callable
    for each in (plain, call):
        if inspect.iscoroutinefunction(each):
            return "coroutine"
        if inspect.isasyncgenfunction(each):
            return "async generator"
        if inspect.isgeneratorfunction(each):
            return "generator"
    return "function"


def kind_of_result(result: object) -> Kind:
    """Return the kind of a function by its result, if its code does not show it, as in a lambda."""
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


# -- whether two results are equal, and how they differ


_RELATIVE, _ABSOLUTE = 1e-5, 1e-8
_SHOWN = 60


def first_difference(
    before: object, after: object, *, is_close: bool, place: str = "the result"
) -> str | None:
    """Return a sentence on the first difference between two results, or None if they are equal.

    With `is_close`, numbers may differ as `numpy.allclose` allows.
    """
    if _is_array(before) or _is_array(after):
        return _array_difference(before, after, is_close=is_close, place=place)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        if before.keys() != after.keys():
            was, now = _short(list(before)), _short(list(after))
            return f"{place} has other keys: {was} before, {now} now"
        inner = [(f"{place}[{key!r}]", before[key], after[key]) for key in before]
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
        if len(before) != len(after):
            return f"{place} had {len(before)} items and has {len(after)} now"
        pairs = enumerate(zip(before, after, strict=True))
        inner = [(f"{place}[{index}]", *pair) for index, pair in pairs]
    elif _has_fields(before) and type(before).__qualname__ == type(after).__qualname__:
        inner = [(place, vars(before), vars(after))]
    elif before == after or _is_near(before, after, is_close=is_close):
        return None
    else:
        return f"{place} was {_short(before)} and is {_short(after)} now"
    found = (first_difference(was, now, is_close=is_close, place=at) for at, was, now in inner)
    return next((each for each in found if each is not None), None)


def _is_near(before: object, after: object, *, is_close: bool) -> bool:
    if not (isinstance(before, float) and isinstance(after, float)):
        return False
    if math.isnan(before) or math.isnan(after):
        return math.isnan(before) and math.isnan(after)
    return is_close and math.isclose(before, after, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def _array_difference(before: Any, after: Any, *, is_close: bool, place: str) -> str | None:  # noqa: ANN401
    import numpy as np

    old, new = np.asarray(before), np.asarray(after)
    if old.shape != new.shape or old.dtype != new.dtype:
        was, now = (f"{list(each.shape)} {each.dtype}" for each in (old, new))
        return f"{place} was {was} and is {now} now"
    has_numbers = old.dtype.kind in "fc"
    if is_close and has_numbers:
        differs = ~np.isclose(old, new, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)
    else:
        differs = old != new
        if has_numbers:
            differs &= ~(np.isnan(old) & np.isnan(new))
    count = int(np.count_nonzero(differs))
    if not count:
        return None
    at = tuple(int(i) for i in np.argwhere(differs)[0])
    shown = "" if not at else f", at {list(at)} from {old[at]} to {new[at]}"
    return f"{place} differs in {count} of {old.size} values{shown}"


def _is_array(value: Any) -> bool:  # noqa: ANN401
    return hasattr(value, "__array__") and hasattr(value, "dtype")


def _has_fields(value: object) -> bool:
    """Whether this object compares by identity, so that a copy is never equal."""
    return type(value).__eq__ is object.__eq__ and hasattr(value, "__dict__")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


# -- errors of a user's code as short texts


_OUR_FOLDER = str(Path(__file__).parent) + os.sep
_MOST_FRAMES = 6
_MOST_LINES = 40


def failure_text(error: BaseException) -> str:
    """Return the error with its last frames, without those of the station."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OUR_FOLDER)
    ]
    lines = traceback.format_list(frames[-_MOST_FRAMES:])
    lines += traceback.format_exception_only(type(error), error)
    return "".join(lines).rstrip()


def last_lines(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-_MOST_LINES:])
