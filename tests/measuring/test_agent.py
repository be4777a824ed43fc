"""The worker's own code: what it times, what it binds to, and what it says of errors."""

from __future__ import annotations

import errno
import gc
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.profiler.worker.agent import (
    Agent,
    choose_processors,
    error_kind,
    paused_gc,
    throttled_ns,
    time_in_turn,
    time_one,
)


class Clock:
    """Time that passes only where something is done."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def takes(self, duration: int) -> Callable[[], None]:
        def infer() -> None:
            self.now += duration

        return infer


def test_an_inference_takes_what_it_takes() -> None:
    clock = Clock()
    assert time_one(clock.takes(7), 4, 1000, clock).tolist() == [7, 7, 7, 7]


def test_a_block_ends_with_its_time_and_has_at_least_one_inference() -> None:
    clock = Clock()
    assert len(time_one(clock.takes(10), 100, 35, clock)) == 4
    assert len(time_one(clock.takes(10), 100, 0, clock)) == 1


@given(st.integers(0, 20), st.integers(0, 5))
def test_sides_that_take_turns_run_equally_often(count: int, seed: int) -> None:
    clock = Clock()
    sides = [clock.takes(3), clock.takes(50)]
    before, after = time_in_turn(sides, count, 10**9, clock, random.Random(seed))
    assert before.tolist() == [3] * count
    assert after.tolist() == [50] * count


def test_the_order_within_a_turn_is_random() -> None:
    order: list[str] = []
    sides = [lambda: order.append("a"), lambda: order.append("b")]
    time_in_turn(sides, 200, 10**12, Clock(), random.Random(1))
    first = order[::2].count("a")
    assert 70 < first < 130
    turns = [set(order[i : i + 2]) for i in range(0, len(order), 2)]
    assert turns == [{"a", "b"}] * 200


def test_the_last_turn_is_whole() -> None:
    clock = Clock()
    before, after = time_in_turn(
        [clock.takes(10), clock.takes(10)], 100, 25, clock, random.Random(0)
    )
    assert len(before) == len(after) == 2


def test_no_garbage_is_collected_inside_of_a_block_and_it_is_afterwards() -> None:
    def interrupted() -> None:
        with paused_gc():
            seen.append(gc.isenabled())
            raise KeyboardInterrupt

    seen = [gc.isenabled()]
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [*seen, gc.isenabled()] == [True, False, True]


def pairs(processor: int) -> frozenset[int]:
    """Two threads on each core: 0 and 1, 2 and 3, ..."""
    return frozenset({processor & ~1, processor | 1})


@pytest.mark.parametrize(
    ("cores", "chosen"), [(1, [7]), (2, [5, 7]), (4, [1, 3, 5, 7]), (5, [1, 3, 5, 6, 7])]
)
def test_each_physical_core_is_taken_before_a_second_thread_of_any(
    cores: int, chosen: list[int]
) -> None:
    assert choose_processors(cores, range(8), pairs) == chosen


def test_no_more_processors_are_chosen_than_there_are() -> None:
    assert choose_processors(5, [2, 3], pairs) == [2, 3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("usage_usec 5\nnr_throttled 2\nthrottled_usec 17\n", 17_000),
        ("nr_periods 1\nthrottled_time 1234\n", 1234),
        ("nr_periods 1\n", None),
        ("throttled_usec many\n", None),
    ],
)
def test_how_long_a_group_was_halted(text: str, expected: int | None, tmp_path: Path) -> None:
    path = tmp_path / "cpu.stat"
    path.write_text(text)
    assert throttled_ns(str(path)) == expected


def test_a_group_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    assert throttled_ns(str(tmp_path / "no")) is None


class OptionError(ValueError):
    """As an engine's own is called."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModuleNotFoundError("no", name="no"), "missing"),
        (ImportError("a library"), "failed"),
        (OptionError("no"), "option"),
        (MemoryError(), "memory"),
        (RuntimeError("std::bad_alloc"), "memory"),
        (RuntimeError("Failed to allocate memory for requested buffer"), "memory"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk"),
        (OSError(errno.ENOENT, "No such file"), "failed"),
        (ValueError("x"), "failed"),
    ],
)
def test_an_error_is_of_the_kind_that_its_user_can_act_on(error: Exception, kind: str) -> None:
    assert error_kind(error) == kind


def test_an_agent_without_an_engine_says_so() -> None:
    answer = Agent().handle(
        {"command": "open", "side": "a", "model": "m", "folder": None, "threads": 1, "options": {}}
    )
    assert answer["error"]["message"] == "no engine was chosen"
