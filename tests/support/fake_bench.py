"""A bench whose time is a number: models with known costs, for tests of what samples them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pytest_modelperf.profiler.measurements import Block, Load, Noise

US = 1_000
MS = 1_000_000
S = 1_000_000_000

# The time of an inference by its number within its session.
Curve = Callable[[int], int]


def steady(time_ns: int) -> Curve:
    return lambda _: time_ns


class FakeClock:
    """Time that passes only when something is said to take it."""

    def __init__(self) -> None:
        self.now_ns = 5 * S

    def __call__(self) -> int:
        return self.now_ns

    def pass_ns(self, duration_ns: int) -> None:
        self.now_ns += duration_ns


@dataclass
class FakeBench:
    """A model that takes `curve` for an inference, a factor of its own in each session, and noise.

    `sessions` and `jitter` are the standard deviations of the logs of both; `blocks` are the
    numbers of inferences that were asked for and taken, session by session. With `loads_once`, only
    the first load takes time.
    """

    clock: FakeClock
    curve: Curve
    load_ns: int = 10 * MS
    sessions: float = 0.0
    jitter: float = 0.0
    seed: int = 1
    loads_once: bool = False
    is_open: bool = False
    opened: int = 0
    blocks: list[list[tuple[int, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noise, no secret
        self._factor = 1.0
        self._done = 0

    def open(self) -> tuple[Load]:
        assert not self.is_open, "the session before was not closed"
        begun_ns = self.clock()
        load_ns = 0 if self.loads_once and self.opened else self.load_ns
        self.clock.pass_ns(load_ns)
        self.is_open = True
        self.opened += 1
        self._factor = math.exp(self._random.gauss(0.0, self.sessions))
        self._done = 0
        self.blocks.append([])
        return (Load(load_ns, begun_ns, self.loads_once),)

    def take(self, count: int, max_ns: int) -> tuple[Block]:
        """Measure as the worker does: an inference begun within `max_ns` is ended, and counts."""
        assert self.is_open
        assert count > 0
        assert max_ns > 0
        end = self.clock() + max_ns
        times: list[int] = []
        starts: list[int] = []
        while len(times) < count and self.clock() <= end:
            starts.append(self.clock())
            times.append(self.infer())
        self.blocks[-1].append((count, len(times)))
        noise = Noise(wall_ns=sum(times))
        return (Block(times_ns=tuple(times), noise=noise, starts_ns=tuple(starts)),)

    def infer(self) -> int:
        noise = math.exp(self._random.gauss(0.0, self.jitter))
        time_ns = max(round(self.curve(self._done) * self._factor * noise), 1)
        self._done += 1
        self.clock.pass_ns(time_ns)
        return time_ns

    def close(self) -> None:
        self.is_open = False

    @property
    def timed(self) -> Sequence[int]:
        """The inferences of the timed block of each round."""
        return [blocks[-1][1] for blocks in self.blocks]


@dataclass
class FakeDuetBench:
    """Two fake models that run in turn."""

    before: FakeBench
    after: FakeBench

    def open(self) -> tuple[Load, Load]:
        return *self.before.open(), *self.after.open()

    def take(self, count: int, max_ns: int) -> tuple[Block, Block]:
        clock = self.before.clock
        end = clock() + max_ns
        starts: tuple[list[int], list[int]] = ([], [])
        sides: tuple[list[int], list[int]] = ([], [])
        while len(sides[0]) < count and clock() <= end:
            for side, bench in enumerate((self.before, self.after)):
                starts[side].append(clock())
                sides[side].append(bench.infer())
        first, second = (
            Block(times_ns=tuple(times), noise=Noise(wall_ns=sum(times)), starts_ns=tuple(begun))
            for begun, times in zip(starts, sides, strict=True)
        )
        return first, second

    def close(self) -> None:
        self.before.close()
        self.after.close()
