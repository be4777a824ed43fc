"""What times inferences: one after the other, in turn with others, or many at once.

Its source is sent to a worker with the agent's: the standard library is all that it needs.
"""

from __future__ import annotations

import array
import contextlib
import gc
import itertools
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

Clock = Callable[[], int]

_NS_PER_S = 1_000_000_000


def time_one(infer: Callable[[], Any], count: int, max_ns: int, clock: Clock) -> array.array[int]:
    """The times of up to `count` inferences, at least one; it stops when `max_ns` are over."""
    times = array.array("q", bytes(8 * count))
    done = 0
    end = clock() + max_ns
    while done < count:
        start = clock()
        infer()
        stop = clock()
        times[done] = stop - start
        done += 1
        if stop > end:
            break
    return times[:done]


def time_in_turn(  # noqa: PLR0913, PLR0917  # one for each thing that the other side may say
    infers: Sequence[Callable[[], Any]],
    count: int,
    max_ns: int,
    clock: Clock,
    choose: random.Random,
    starts: Sequence[array.array[int]] = (),
) -> list[array.array[int]]:
    """The times of up to `count` turns in which each of `infers` runs once, in random order.

    At least one turn, unless `count` is 0; none is begun after `max_ns`. When each began is added
    to `starts`, where it is wanted.
    """
    times = [array.array("q") for _ in infers]
    order = list(range(len(infers)))
    end = clock() + max_ns
    for _ in range(count):
        choose.shuffle(order)
        for index in order:
            infer = infers[index]
            start = clock()
            infer()
            stop = clock()
            times[index].append(stop - start)
            if starts:
                starts[index].append(start)
        if clock() > end:
            break
    return times


def time_at_once(
    infers: Sequence[Callable[[], Any]], count: int, max_ns: int, clock: Clock
) -> tuple[array.array[int], float]:
    """The times of up to `count` inferences that run at once, and how many there were a second.

    Each of `infers` has a thread of its own, and takes the next inference as soon as its last is
    over; at least one runs, and none is begun after `max_ns`. A stream that has nothing left to do
    leaves the others alone, so the rate is the sum of those that each had while it ran.
    """
    running = infers[:count]
    tickets = itertools.count()
    times = [array.array("q") for _ in running]
    spent_ns = [0] * len(running)
    errors: list[BaseException] = []
    ready = threading.Barrier(len(running))

    def run(index: int) -> None:
        infer, own = running[index], times[index]
        try:
            ready.wait()
            begun = start = clock()
            # CPython's count hands out each number once, whatever thread asks.
            while not own or (next(tickets) < count - len(running) and start - begun < max_ns):
                start = clock()
                infer()
                stop = clock()
                own.append(stop - start)
                start = stop
            spent_ns[index] = start - begun
        except BaseException as error:  # noqa: BLE001  # raised where all have ended
            errors.append(error)
            ready.abort()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(1, len(running))]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join()
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    taken = array.array("q")
    for own in times:
        taken.extend(own)
    rates = [len(own) / max(ns, 1) for own, ns in zip(times, spent_ns)]  # noqa: B905  # 3.9 has no strict
    return taken, sum(rates) * _NS_PER_S


@contextlib.contextmanager
def paused_gc() -> Any:  # noqa: ANN401  # a generator, as contextlib wants it
    """The garbage collector switched off for as long as something is timed."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
