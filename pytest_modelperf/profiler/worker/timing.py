"""Time inferences: one after the other, in turn or many at once, with clocks whose ticks are known.

Its source is sent to a worker with the agent's, so it needs only the standard library.
"""

from __future__ import annotations

import array
import contextlib
import gc
import itertools
import math
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_modelperf.systems.process import OWN_PROCESS

Clock = Callable[[], int]

# The fastest inferences take some microseconds, so a clock with this tick resolves them.
FINE_NS = 100
# The steps of a clock that are enough to find its tick.
_ENOUGH_STEPS = 100
# The time until a clock as coarse as 10 ms has made several steps; and the time after which a clock
# without any step counts as stopped.
_COARSE_NS = 100_000_000
_STANDING_NS = 1_000_000_000
# One reading takes less than a microsecond, or a few in a sandbox.
_MOST_READINGS = 2_000_000


class ClocksError(RuntimeError):
    """The clocks of this process contradict each other, so its times are meaningless."""


class Clocks:
    """The ticks of the two clocks of a process, in nanoseconds.

    `knows_processor_time` means that the process clock is fine enough for single inferences. The
    system reads the waits of threads from the same source.
    """

    def __init__(self, wall_tick_ns: int, process_tick_ns: int) -> None:
        self.wall_tick_ns = wall_tick_ns
        self.process_tick_ns = process_tick_ns
        self.knows_processor_time = process_tick_ns <= FINE_NS


class _Readings:
    """The steps of a clock between readings that follow each other directly."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_ns = self._last_ns = clock()
        self._shortest_ns = self._divisor_ns = 0
        self.steps = 0
        self._has_stood = False
        self.goes_back = False

    def read(self) -> None:
        now = self._clock()
        step, self._last_ns = now - self._last_ns, now
        if step > 0:
            self.steps += 1
            self._shortest_ns = min(self._shortest_ns or step, step)
            self._divisor_ns = math.gcd(self._divisor_ns, step)
        elif step == 0:
            self._has_stood = True
        else:
            self.goes_back = True

    @property
    def passed_ns(self) -> int:
        return self._last_ns - self._begun_ns

    @property
    def tick_ns(self) -> int:
        # Two readings of a clock that ticks faster than it is read are never equal.
        return self._shortest_ns if self._has_stood else self._divisor_ns


def measure_clocks(wall_clock: Clock, process_clock: Clock) -> Clocks:
    """Return the ticks of both clocks. Raise ClocksError if one stops or goes back."""
    wall, process = _Readings(wall_clock), _Readings(process_clock)
    for _ in range(_MOST_READINGS):
        wall.read()
        process.read()
        fewest = min(wall.steps, process.steps)
        passed_ns = max(wall.passed_ns, process.passed_ns)
        if (
            fewest >= _ENOUGH_STEPS
            or (fewest > 0 and passed_ns > _COARSE_NS)
            or passed_ns > _STANDING_NS
            or wall.goes_back
            or process.goes_back
        ):
            break
    if min(wall.steps, process.steps) == 0 or wall.goes_back or process.goes_back:
        wall_ms, process_ms = wall.passed_ns / 1e6, process.passed_ns / 1e6
        raise ClocksError(
            "while the worker computed without a pause, the wall clock moved by "
            f"{wall_ms:.3f} ms and the process clock by {process_ms:.3f} ms"
        )
    return Clocks(wall.tick_ns, process.tick_ns)


_NS_PER_S = 1_000_000_000
# Windows has neither this function nor the files that it reads.
_read_at: Any = getattr(os, "pread", None)


def time_one(infer: Callable[[], Any], count: int, max_ns: int, clock: Clock) -> array.array[int]:
    """Return the times of up to `count` inferences, at least one. Stop when `max_ns` are over."""
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


# A turn is taken to have run for at least one part in N of its time.
_MOST_WAITING = 10


class Taken:
    """The turns of one side: their times and starts, and with a watch also what disturbed them."""

    def __init__(self) -> None:
        self.times = array.array("q")
        self.starts = array.array("q")
        self.switches = array.array("q")
        self.running = array.array("q")
        self.unstalled = array.array("q")


class TurnWatch:
    """A watch of how the system disturbs this process during each turn.

    When another process takes a processor away, one of our threads has an involuntary switch. The
    running time of a turn leaves out the waiting for a processor:

    - on one processor, it is the processor time of this process, unless this thread gave the
      processor up by itself: without that the process either ran or waited;
    - on several, it is the turn without the time that all threads waited in the queue of a
      processor (`schedstat`, proc(5)): while one of them waits, the others soon wait for it.

    Waits of several threads at the same time are counted twice there. So on several processors the
    unstalled time of a turn leaves out only the longest wait of one thread. The running time is too
    short and the unstalled time too long, but for turns that are far longer than a wait the
    unstalled time is nearer to the truth.

    `running` stays empty if the system reports neither, or not to the nanosecond: then
    `knows_processor_time` is not set. `switches` stays empty if the system does not count them.
    """

    def __init__(
        self,
        cores: int,
        knows_processor_time: bool = True,  # noqa: FBT001, FBT002  # by keyword
        process_clock: Clock = time.process_time_ns,
    ) -> None:
        knows = knows_processor_time
        self._is_of_thread = knows and cores == 1 and OWN_PROCESS.switches_of_thread() is not None
        self._queues = _open_queues() if knows and cores > 1 else []
        self._process_clock = process_clock
        self._waits_ns = [0] * len(self._queues)
        self._switches: int | None = None
        self._given_up: int | None = None
        self._spent_ns = 0
        self._waited_ns: list[int] = []

    def close(self) -> None:
        for queue in self._queues:
            os.close(queue)

    def begin(self) -> None:
        self._switches = OWN_PROCESS.switches_forced()
        if self._queues:
            self._waited_ns = self._waits_so_far()
        if self._is_of_thread:
            self._given_up = OWN_PROCESS.switches_of_thread()
            self._spent_ns = self._process_clock()

    def end(self, taken: Taken, time_ns: int) -> None:
        if self._is_of_thread:
            spent_ns = self._process_clock() - self._spent_ns
            has_slept = OWN_PROCESS.switches_of_thread() != self._given_up
            taken.running.append(time_ns if has_slept else min(spent_ns, time_ns))
        if self._queues:
            pairs = zip(self._waits_so_far(), self._waited_ns)  # noqa: B905  # 3.9 has no strict
            waits_ns = [now - before for now, before in pairs]
            taken.running.append(running_ns(time_ns, sum(waits_ns)))
            taken.unstalled.append(running_ns(time_ns, max(waits_ns)))
        switches = OWN_PROCESS.switches_forced()
        if switches is not None and self._switches is not None:
            taken.switches.append(switches - self._switches)

    def _waits_so_far(self) -> list[int]:
        for index, queue in enumerate(self._queues):
            # A thread that has ended no longer waits.
            with contextlib.suppress(ProcessLookupError):
                self._waits_ns[index] = _waited_ns(queue)
        return list(self._waits_ns)


def running_ns(time_ns: int, waited_ns: int) -> int:
    """Return the time of a turn without waits of its threads.

    Threads that waited at the same time cost the turn less than the sum of their waits, and a wait
    may have begun before the turn. So at least a small part of the turn counts as running.
    """
    return max(time_ns - waited_ns, time_ns // _MOST_WAITING, 1)


def _open_queues() -> list[int]:
    queues: list[int] = []
    if _read_at is None:
        return queues
    try:
        for thread in Path("/proc/self/task").iterdir():
            # A thread that has ended is not one of the engine's threads.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                queues.append(os.open(thread / "schedstat", os.O_RDONLY))
                _waited_ns(queues[-1])
    except (OSError, ValueError, IndexError):
        for queue in queues:
            os.close(queue)
        return []
    return queues


def _waited_ns(queue: int) -> int:
    """Return the second of three numbers: time on a processor, time waiting for one, and slices."""
    return int(_read_at(queue, 64, 0).split()[1])


def time_chains(  # noqa: PLR0913, PLR0917  # one for each setting of the other side
    chains: Sequence[Sequence[Callable[[], Any]]],
    count: int,
    max_ns: int,
    clock: Clock,
    choose: random.Random,
    watch: TurnWatch | None = None,
) -> list[list[Taken]]:
    """Return up to `count` turns in which each chain runs once, its members one after the other.

    The chains are in random order within a turn. At least one turn runs, unless `count` is 0. No
    turn begins after `max_ns`.
    """
    sides = [[Taken() for _ in chain] for chain in chains]
    order = list(range(len(chains)))
    end = clock() + max_ns
    for _ in range(count):
        choose.shuffle(order)
        for index in order:
            for infer, taken in zip(chains[index], sides[index]):  # noqa: B905  # 3.9 has no strict
                if watch is not None:
                    watch.begin()
                start = clock()
                infer()
                stop = clock()
                if watch is not None:
                    watch.end(taken, stop - start)
                taken.times.append(stop - start)
                taken.starts.append(start)
        if clock() > end:
            break
    return sides


def time_within(
    infers: Sequence[Callable[[], Any]], limits: Sequence[tuple[int, int | None]], clock: Clock
) -> list[array.array[int]]:
    """Return the times of turns, within the limits.

    A limit is a total number of turns, and the nanoseconds after which no more turns are begun for
    it. None means no limit of time.
    """
    taken: list[array.array[int]] = [array.array("q") for _ in infers]
    begun = clock()
    for number, (turns, max_ns) in enumerate(limits):
        count = turns - len(taken[0])
        left = sys.maxsize if max_ns is None else max_ns - (clock() - begun)
        if left > 0:
            order = random.Random(number)  # noqa: S311  # not a secret
            more = time_chains([[infer] for infer in infers], count, left, clock, order)
            taken = [a + b.times for a, (b,) in zip(taken, more)]  # noqa: B905  # 3.9 has no strict
    return taken


def time_at_once(
    infers: Sequence[Callable[[], Any]], count: int, max_ns: int, clock: Clock
) -> tuple[array.array[int], float]:
    """Return the times of up to `count` parallel inferences, and their number per second.

    Each of `infers` has a thread of its own, and begins the next inference as soon as its last is
    over. At least one runs, and none is begun after `max_ns`. Threads finish at different times, so
    the rate is the sum of each thread's rate while it ran.
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
            # CPython's count hands out each number once, even to several threads.
            while not own or (next(tickets) < count - len(running) and start - begun < max_ns):
                start = clock()
                infer()
                stop = clock()
                own.append(stop - start)
                start = stop
            spent_ns[index] = start - begun
        except BaseException as error:  # noqa: BLE001  # raised after all have ended
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


# The last part of a wait spins instead of sleeping: a system wakes a thread about 0.1 ms late.
_SPUN_NS = 500_000


def wait_until(moment_ns: int, clock: Clock) -> None:
    left_ns = moment_ns - clock()
    if left_ns > _SPUN_NS:
        time.sleep((left_ns - _SPUN_NS) / _NS_PER_S)
    while clock() < moment_ns:
        pass


def time_arrivals(  # noqa: PLR0913, PLR0917  # as `time_at_once`, and when they arrive
    infers: Sequence[Callable[[], Any]],
    count: int,
    max_ns: int,
    every_ns: int,
    clock: Clock,
    wait: Callable[[int], None],
) -> array.array[int]:
    """Return the times of up to `count` inferences that arrive one by one, every `every_ns`.

    A time counts from the arrival, so it includes the wait for a free stream: each of `infers` is a
    stream with a thread of its own. At least one runs, and none arrives after `max_ns`.
    """
    tickets = itertools.count()
    times = array.array("q", bytes(8 * count))
    done = array.array("b", bytes(count))
    errors: list[BaseException] = []
    begun = clock()

    def serve(infer: Callable[[], Any]) -> None:
        try:
            # CPython's count hands out each number once, even to several threads.
            for number in tickets:
                arrived = begun + number * every_ns
                if number >= count or (number and arrived - begun > max_ns) or errors:
                    return
                wait(arrived)
                infer()
                times[number] = clock() - arrived
                done[number] = 1
        except BaseException as error:  # noqa: BLE001  # raised after all have ended
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(infer,)) for infer in infers[1:]]
    for thread in threads:
        thread.start()
    serve(infers[0])
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return array.array("q", itertools.compress(times, done))


@contextlib.contextmanager
def paused_gc(*, collects: bool = True) -> Any:  # noqa: ANN401  # a generator, as contextlib requires
    """Switch the garbage collector off for a while, by default after a collection."""
    was_on = gc.isenabled()
    if collects:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
