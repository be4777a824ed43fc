"""Inferences that arrive at a pace: their times hold the wait for a free stream."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pytest_modelperf.profiler.worker.timing import time_arrivals, wait_until
from tests.support.fake_bench import MS, FakeClock


def arrive(
    clock: FakeClock,
    takes_ns: int,
    *,
    count: int = 5,
    every_ns: int = 20 * MS,
    max_ns: int = 10**12,
) -> list[int]:
    def wait(moment_ns: int) -> None:
        clock.pass_ns(max(moment_ns - clock(), 0))

    infers: list[Callable[[], None]] = [lambda: clock.pass_ns(takes_ns)]
    return time_arrivals(infers, count, max_ns, every_ns, clock, wait).tolist()


def test_an_inference_that_is_over_before_the_next_takes_its_own_time() -> None:
    assert arrive(FakeClock(), 5 * MS) == [5 * MS] * 5


def test_a_slower_one_makes_each_of_the_next_wait_longer() -> None:
    assert arrive(FakeClock(), 25 * MS) == [25 * MS, 30 * MS, 35 * MS, 40 * MS, 45 * MS]


def test_none_arrives_after_the_time_is_over_and_the_first_always_does() -> None:
    assert len(arrive(FakeClock(), MS, max_ns=40 * MS)) == 3
    assert len(arrive(FakeClock(), MS, max_ns=0)) == 1


def test_streams_serve_each_arrival_once() -> None:
    seen: list[int] = []
    lock = threading.Lock()

    def infer() -> None:
        with lock:
            seen.append(1)

    times = time_arrivals([infer] * 3, 40, 10**12, 1, lambda: 0, lambda _: None)

    assert len(times) == len(seen) == 40


def test_an_error_in_a_stream_ends_all_of_them() -> None:
    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        time_arrivals([fail, fail], 40, 10**12, 1, lambda: 0, lambda _: None)


def test_a_wait_ends_at_its_moment() -> None:
    clock = FakeClock()
    moment = clock() + 300

    def ticking() -> int:
        clock.pass_ns(100)
        return clock()

    wait_until(moment, ticking)

    assert moment <= clock() <= moment + 200
