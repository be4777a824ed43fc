"""How a function is called: its kind, its name and its file."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from pytest_modelperf.programs.station.callee import (
    Callee,
    drive,
    is_loop_running,
    kind_of,
    kind_of_result,
)


def _plain(n: int) -> int:
    return n


async def _later(n: int) -> int:
    return n


def _items(n: int) -> Iterator[int]:
    yield from range(n)


async def _items_later(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


class _Reader:
    def __call__(self, n: int) -> int:
        return n

    async def read(self, n: int) -> int:
        return n


class _AsyncReader:
    async def __call__(self, n: int) -> int:
        return n


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (_plain, "function"),
        (_Reader(), "function"),
        (int, "function"),
        (_later, "coroutine"),
        (functools.partial(_later, 1), "coroutine"),
        (_Reader().read, "coroutine"),
        (_AsyncReader(), "coroutine"),
        (functools.partial(_AsyncReader(), 1), "coroutine"),
        (_items, "generator"),
        (_items_later, "async generator"),
    ],
)
def test_the_kind_of_a_function(function: Callable[..., Any], kind: str) -> None:
    assert kind_of(function) == kind


def test_the_result_of_a_lambda_shows_its_kind() -> None:
    later = _later(1)
    assert kind_of_result(later) == "coroutine"
    later.close()
    assert kind_of_result(_items(1)) == "generator"
    assert kind_of_result(_items_later(1)) == "async generator"
    assert kind_of_result([1]) == "function"


def test_each_input_is_called_in_order() -> None:
    kept: list[object] = []
    drive(Callee(_plain, [(1,), (2,)], {}).call(kept=kept))
    drive(Callee(_items, [(2,)], {}).call(kept=kept))
    assert kept == [1, 2, [0, 1]]


def test_the_source_is_found_through_partials_and_wrappers() -> None:
    @functools.wraps(_plain)
    def wrapper(n: int) -> int:
        return _plain(n)

    for function in (wrapper, functools.partial(_plain, 1), _Reader(), _Reader().read):
        assert Callee(function, [()], {}).source == __file__
    assert Callee(int, [()], {}).source is None


def test_a_running_loop_is_known() -> None:
    async def ask() -> bool:
        return is_loop_running()

    assert asyncio.run(ask())
    assert not is_loop_running()
