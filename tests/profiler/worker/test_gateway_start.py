"""The start of a worker, and its channel."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, cast

import pytest

from pytest_modelperf.profiler.measurements import Block, Noise
from pytest_modelperf.profiler.sampling.duet import SharedDuet, SplitDuet, StartRig
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, Workload
from pytest_modelperf.profiler.worker.agent import Agent
from pytest_modelperf.profiler.worker.client import Worker
from pytest_modelperf.profiler.worker.process import Meter
from pytest_modelperf.profiler.worker.starter import Channel
from tests.support.facts import make_engine

TICK_NS = 5


class Clock:
    """A clock that goes on a little with each look at it."""

    def __init__(self) -> None:
        self.now_ns = 1000

    def __call__(self) -> int:
        self.now_ns += TICK_NS
        return self.now_ns

    def inference(self, time_ns: int) -> Callable[[], None]:
        def infer() -> None:
            self.now_ns += time_ns

        return infer


class InlineWorker:
    """Asks an agent in this process."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def ask(self, command: str, _: str, **arguments: Any) -> Any:  # noqa: ANN401  # as a worker's
        arguments.pop("limit_s")
        answer: Mapping[str, Any] = self._agent.handle({"command": command, **arguments})
        return answer["ok"]


def rigs(*sides: str, streams: int = 1) -> tuple[Clock, tuple[Rig, ...]]:
    clock = Clock()
    agent = Agent(clock, Meter((), None))
    worker = cast("Worker", InlineWorker(agent))
    made = []
    for number, side in enumerate(sides, 1):
        agent._infer[side] = [clock.inference(100 * number)] * streams
        made.append(Rig(worker, Setup(), 1, Workload(model="model"), make_engine("fake"), side))
    return clock, tuple(made)


def stretches(block: Block) -> list[tuple[int, int]]:
    assert block.starts_ns is not None
    times = zip(block.starts_ns, block.times_ns, strict=True)
    return [(start_ns, start_ns + time_ns) for start_ns, time_ns in times]


def test_sides_that_take_turns_never_run_at_the_same_time() -> None:
    clock, (before, after) = rigs("before", "after")
    blocks = SharedDuet(before, after).take(20, 10**9)
    sides = [[(*stretch, side) for stretch in stretches(b)] for side, b in enumerate(blocks)]
    in_order = sorted(itertools.chain(*sides))
    assert all(one[1] < other[0] for one, other in itertools.pairwise(in_order))
    assert in_order[0][0] > 1000
    assert in_order[-1][1] < clock.now_ns
    turns = {(one[2], other[2]) for one, other in zip(in_order[::2], in_order[1::2], strict=True)}
    assert turns == {(0, 1), (1, 0)}


def test_the_starts_of_one_side_are_added_up_from_the_first() -> None:
    clock, (rig,) = rigs("only")
    begun_ns = clock.now_ns
    block = rig.take(50, 10**9)[0]
    found = stretches(block)
    assert begun_ns < found[0][0]
    assert all(one[1] == other[0] for one, other in itertools.pairwise(found))
    assert found[-1][1] < clock.now_ns
    assert (block.start_ns, block.end_ns) == (found[0][0], found[-1][1])


def test_inferences_that_run_at_once_have_no_starts() -> None:
    _, (rig,) = rigs("only", streams=2)
    assert rig.take(8, 10**9)[0].starts_ns is None


def test_in_two_workers_each_chunk_starts_at_the_time_it_ran() -> None:
    _, (before, after) = rigs("before", "after")
    duet = SplitDuet(cast("StartRig", None), cast("StartRig", None))
    duet._rigs = (before, after)
    blocks = duet.take(20, 10**9)
    in_order = sorted(itertools.chain.from_iterable(map(stretches, blocks)))
    assert [len(block.times_ns) for block in blocks] == [20, 20]
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(in_order))


def test_a_chunk_without_starts_leaves_its_block_without() -> None:
    class PlannedRig:
        def __init__(self, *starts_ns: tuple[int, ...] | None) -> None:
            self._blocks = iter(starts_ns)
            self.next_step = 0

        def go_to_step(self, step: int) -> None:
            self.next_step = step

        def take(self, count: int, _: int) -> tuple[Block]:
            starts_ns = next(self._blocks)
            return (Block(times_ns=(1,) * count, noise=Noise(wall_ns=1), starts_ns=starts_ns),)

    duet = SplitDuet(cast("StartRig", None), cast("StartRig", None))
    first = tuple(range(8))
    duet._rigs = tuple(cast("Rig", PlannedRig(first, starts_ns)) for starts_ns in (None, (10, 20)))
    before, after = duet.take(10, 10**9)
    assert before.starts_ns is None
    assert after.starts_ns == (*first, 10, 20)


Pipe = tuple[Channel, BinaryIO]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A channel that reads what it sends, and its other end, for other bytes."""
    source, target = os.pipe()
    writing = os.fdopen(target, "wb")
    channel = Channel(os.fdopen(source, "rb"), writing)
    yield channel, writing
    channel.close()


@pytest.mark.parametrize(
    "value",
    [None, {"a": (1, 2.5, True), "b": [b"bytes", "text"]}, bytes(1 << 20), "half \udcff", 1 << 80],
)
def test_a_plain_value_arrives_as_it_is(pipe: Pipe, value: object) -> None:
    channel, _ = pipe
    channel.send(value)
    assert channel.receive(60.0) == value


@pytest.mark.parametrize(
    "data",
    [
        b"hello\n", pickle.dumps(print, 4), pickle.dumps(dt.date(2000, 1, 1), 4),
        pickle.dumps("cut off", 4)[:-3], b"\x80\x04garbage", b"",
    ],
)  # fmt: skip
def test_bytes_that_are_not_a_plain_value_end_the_connection(pipe: Pipe, data: bytes) -> None:
    channel, writing = pipe
    channel.send("before")
    writing.write(data)
    writing.close()
    assert list(channel) == ["before"]
    with pytest.raises(EOFError):
        channel.receive(60.0)


def test_silence_has_an_end(pipe: Pipe) -> None:
    channel, _ = pipe
    with pytest.raises(TimeoutError):
        channel.receive(0.01)
