"""Two sides in two workers: they take turns, run equally often, and none is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest

from pytest_modelperf.measurements import Block, Load, Noise
from pytest_modelperf.profiler.duet import SharedDuet, SplitDuet, StartRig
from pytest_modelperf.profiler.measure import Rig


@dataclass
class FakeSide:
    """A side whose inferences take equally long; `log` is shared by both."""

    name: str
    infer_ns: int
    log: list[str]
    running: int = 0
    started: int = 0
    fails: bool = False
    blocks: list[int] = field(default_factory=list)

    @contextmanager
    def start(self) -> Iterator[Rig]:
        if self.fails:
            raise RuntimeError("it does not start")
        self.running += 1
        self.started += 1
        try:
            yield cast("Rig", self)
        finally:
            self.running -= 1

    def open(self) -> Load:
        return Load(self.infer_ns * 3)

    def block(self, count: int, max_ns: int) -> Block:
        done = min(count, max(1, -(-max_ns // self.infer_ns)))
        self.blocks.append(done)
        self.log.append(self.name)
        times = (self.infer_ns,) * done
        return Block(times_ns=times, noise=Noise(wall_ns=sum(times), cpu_ns=sum(times)))


def make(before_ns: int = 10, after_ns: int = 20) -> tuple[SplitDuet, FakeSide, FakeSide]:
    log: list[str] = []
    before, after = FakeSide("before", before_ns, log), FakeSide("after", after_ns, log)
    duet = SplitDuet(cast("StartRig", before.start), cast("StartRig", after.start))
    return duet, before, after


def test_both_sides_run_equally_often_in_turns_of_random_order() -> None:
    duet, before, after = make()
    with closing(duet):
        assert duet.open() == (Load(30), Load(60))
        first, second = duet.pair_block(100, 10**9)
    assert first.times_ns == (10,) * 100
    assert second.times_ns == (20,) * 100
    assert len(before.blocks) == len(after.blocks) == 13
    turns = [tuple(before.log[i : i + 2]) for i in range(0, len(before.log), 2)]
    assert set(turns) == {("before", "after"), ("after", "before")}


def test_a_block_ends_with_its_time_on_both_sides_alike() -> None:
    duet, _, _ = make()
    with closing(duet):
        duet.open()
        first, second = duet.pair_block(1000, 600)
        assert 16 <= len(first.times_ns) == len(second.times_ns) <= 24
        first, second = duet.pair_block(1000, 1)
        assert len(first.times_ns) == len(second.times_ns) == 1


def test_the_noise_of_a_block_is_that_of_all_its_turns() -> None:
    duet, _, _ = make()
    with closing(duet):
        duet.open()
        first, second = duet.pair_block(20, 10**9)
    assert (first.noise.wall_ns, first.noise.cpu_ns) == (200, 200)
    assert second.noise.wall_ns == 400
    assert first.noise.stolen_ns is None


def test_each_round_has_processes_of_its_own() -> None:
    duet, before, after = make()
    for _ in range(3):
        duet.open()
        assert (before.running, after.running) == (1, 1)
        duet.close()
        assert (before.running, after.running) == (0, 0)
    assert (before.started, after.started) == (3, 3)


def test_where_one_side_does_not_start_the_other_is_ended() -> None:
    duet, before, after = make()
    after.fails = True
    with pytest.raises(RuntimeError, match="does not start"), closing(duet):
        duet.open()
    assert before.running == 0


def test_in_one_worker_the_sides_are_loaded_first_by_turns() -> None:
    """Whoever is loaded second can be faster for as long as it lives, so nobody always is."""
    loaded: list[str] = []

    @dataclass
    class FakeRig:
        side: str
        load_ns: int

        def open(self) -> Load:
            loaded.append(self.side)
            return Load(self.load_ns)

    before, after = (cast("Rig", FakeRig(side, ns)) for side, ns in (("before", 10), ("after", 20)))
    duet = SharedDuet(before, after)
    assert [duet.open() for _ in range(4)] == [(Load(10), Load(20))] * 4
    assert loaded == ["before", "after", "after", "before"] * 2
