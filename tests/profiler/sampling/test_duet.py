"""Two sides in two workers: they take turns, run equally often, and neither falls behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_modelperf.profiler.measurements import Block, Load, Noise
from pytest_modelperf.profiler.sampling.duet import SharedDuet, SplitDuet, StartRig
from pytest_modelperf.profiler.sampling.kernels import Profiled, run_kernels
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import PlacedPart, Rig, Workload
from pytest_modelperf.profiler.worker.client import Worker
from tests.support.facts import make_engine


@dataclass
class FakeSide:
    """A side whose inferences take equally long; `log` and `loaded` are shared by both."""

    name: str
    infer_ns: int
    log: list[str]
    loaded: list[str]
    running: int = 0
    started: int = 0
    fails: bool = False
    blocks: list[int] = field(default_factory=list)
    opened: int = 0
    next_step: int = 0
    begun_at: list[int] = field(default_factory=list)

    def go_to_step(self, step: int) -> None:
        self.next_step = step

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

    def open(self) -> tuple[Load]:
        self.loaded.append(self.name)
        return (Load(self.infer_ns * 3),)

    def take(self, count: int, max_ns: int) -> tuple[Block]:
        done = min(count, max(1, -(-max_ns // self.infer_ns)))
        self.blocks.append(done)
        self.begun_at.append(self.next_step)
        self.next_step += done
        self.log.append(self.name)
        times = (self.infer_ns,) * done
        return (Block(times_ns=times, noise=Noise(wall_ns=sum(times), cpu_ns=sum(times))),)


def make(before_ns: int = 10, after_ns: int = 20) -> tuple[SplitDuet, FakeSide, FakeSide]:
    log: list[str] = []
    loaded: list[str] = []
    before = FakeSide("before", before_ns, log, loaded)
    after = FakeSide("after", after_ns, log, loaded)
    duet = SplitDuet(cast("StartRig", before.start), cast("StartRig", after.start))
    return duet, before, after


def test_both_sides_run_equally_often_in_turns_of_random_order() -> None:
    duet, before, after = make()
    with closing(duet):
        assert duet.open() == (Load(30), Load(60))
        first, second = duet.take(100, 10**9)
    assert first.times_ns == (10,) * 100
    assert second.times_ns == (20,) * 100
    assert len(before.blocks) == len(after.blocks) == 13
    turns = [tuple(before.log[i : i + 2]) for i in range(0, len(before.log), 2)]
    assert set(turns) == {("before", "after"), ("after", "before")}


def test_a_block_ends_with_its_time_on_both_sides_alike() -> None:
    duet, _, _ = make()
    with closing(duet):
        duet.open()
        first, second = duet.take(1000, 600)
        assert 16 <= len(first.times_ns) == len(second.times_ns) <= 24
        first, second = duet.take(1000, 1)
        assert len(first.times_ns) == len(second.times_ns) == 1


def test_the_noise_of_a_block_is_that_of_all_its_turns() -> None:
    duet, _, _ = make()
    with closing(duet):
        duet.open()
        first, second = duet.take(20, 10**9)
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


def test_if_one_side_does_not_start_the_other_is_ended() -> None:
    duet, before, after = make()
    after.fails = True
    with pytest.raises(RuntimeError, match="does not start"), closing(duet):
        duet.open()
    assert before.running == 0


def test_in_two_workers_the_sides_are_loaded_first_by_turns() -> None:
    duet, before, _ = make()
    for first in ("before", "after", "before"):
        with closing(duet):
            assert duet.open() == (Load(30), Load(60))
        assert before.loaded[-2] == first
        assert sorted(before.loaded[-2:]) == ["after", "before"]


def test_in_one_worker_the_sides_are_loaded_first_by_turns() -> None:
    """The side that is loaded second can stay faster as long as it lives, so the order changes."""
    loaded: list[str] = []

    @dataclass
    class FakeRig:
        side: str
        load_ns: int

        def open(self) -> tuple[Load]:
            loaded.append(self.side)
            return (Load(self.load_ns),)

    before, after = (cast("Rig", FakeRig(side, ns)) for side, ns in (("before", 10), ("after", 20)))
    duet = SharedDuet(before, after)
    assert [duet.open() for _ in range(4)] == [(Load(10), Load(20))] * 4
    assert loaded == ["before", "after", "after", "before"] * 2


def test_both_sides_run_the_same_steps_of_a_generation() -> None:
    """A side that runs more of them within the time goes back to the last common one."""
    duet, before, after = make(before_ns=10, after_ns=25)
    duet.open()
    for _ in range(3):
        duet.take(40, 300)
    duet.close()
    assert before.begun_at == after.begun_at
    assert len(set(before.begun_at)) > 3


def test_a_round_in_two_workers_begins_at_another_step_than_the_one_before() -> None:
    duet, before, after = make()
    for number in range(3):
        duet.open()
        assert before.opened == after.opened == number
        duet.close()


# -- parts of a shared duet


@dataclass
class Holding:
    """A worker in which a part takes these shares of the whole, one for each block."""

    shares: list[float]
    asked: list[bool] = field(default_factory=list)
    processors: tuple[int, ...] = (0,)

    def ask(self, command: str, *_: object, **arguments: object) -> dict[str, object]:
        if command == "open":
            return {"load_ns": 1, "begun_ns": 0}
        if command != "block":
            return {}
        has_parts = bool(arguments["parts"])
        self.asked.append(has_parts)
        whole = np.full(3, 1000, np.int64).tobytes()
        part = np.full(3, 1000 * self.shares[len(self.asked) - 1], np.int64).tobytes()
        own, none = {"times": part, "switches": b"", "running": b"", "unstalled": b""}, b""
        turns = {"starts": whole, "switches": none, "running": none, "unstalled": none}
        parts = [{"in_place": own, "alone": own}] if has_parts else []
        return {
            "times": dict.fromkeys(("before", "after"), whole),
            "turns": dict.fromkeys(("before", "after"), turns),
            "parts": dict.fromkeys(("before", "after"), parts),
            "begun_ns": 0,
            "per_second": None,
            "noise": {"wall_ns": 1000},
        }


def part_duet(worker: Holding) -> SharedDuet:
    before, after = (replace(rig_of(worker, 1), side=side) for side in ("before", "after"))
    before.parts, after.parts = (PlacedPart("old", "p"),), (PlacedPart("new", "p"),)
    return SharedDuet(before, after)


def test_parts_that_are_most_of_the_model_do_not_run_after_the_first_round() -> None:
    worker = Holding([0.5] * 4)
    duet = part_duet(worker)
    for _ in range(2):
        duet.open()
        blocks = [duet.take(3, 10**9) for _ in range(2)]
        duet.close()
    assert worker.asked == [True, True, False, False]
    assert duet.too_large == pytest.approx(0.5)
    assert not blocks[0][0].parts


def test_parts_that_were_large_in_one_block_alone_go_on() -> None:
    """Another process may have taken the processor away while they ran."""
    worker = Holding([0.1, 0.9, 0.3, 0.9, 0.9])
    duet = part_duet(worker)
    duet.open()
    for _ in range(3):
        duet.take(3, 10**9)
    duet.close()
    duet.open()
    (before, _) = duet.take(3, 10**9)
    assert duet.too_large is None
    assert before.parts


# -- what is watched of a turn


@dataclass
class Answering:
    """A worker whose blocks are all alike; `others_ns` is what others ran meanwhile."""

    others_ns: int | None
    processors: tuple[int, ...] | None = (0, 1)

    def ask(self, command: str, *_: object, **__: object) -> dict[str, object]:
        assert command == "block"
        one = np.array([100, 110], np.int64).tobytes()
        turns = {"starts": one, "switches": one, "running": one, "unstalled": b""}
        return {
            "times": {"before": one, "after": one},
            "turns": {"before": turns, "after": turns},
            "parts": {},
            "begun_ns": 0,
            "per_second": None,
            "noise": {"wall_ns": 1000, "others_ns": self.others_ns},
        }


def rig_of(worker: Answering | Holding, cores: int) -> Rig:
    return Rig(cast("Worker", worker), Setup(), cores, Workload(model="m"), make_engine("e"))


@pytest.mark.parametrize(
    ("cores", "others_ns", "knows"),
    [
        (1, 0, True),
        (1, None, True),
        (2, 0, False),
        (2, 99, False),
        (2, 100, True),
        (2, None, False),
    ],
)
def test_waiting_on_several_cores_counts_only_if_others_ran_there(
    cores: int, others_ns: int | None, *, knows: bool
) -> None:
    """Otherwise a thread waited for our own threads only, and that is the model's time."""
    for block in rig_of(Answering(others_ns), cores).blocks(("before", "after"), 2, 1000):
        assert block.switches == (100, 110)
        assert block.running_ns == ((100, 110) if knows else None)


def test_an_unpinned_worker_knows_no_processors_that_others_ran_on() -> None:
    (block, _) = rig_of(Answering(1000, processors=None), 2).blocks(("before", "after"), 2, 1000)
    assert block.running_ns is None


@dataclass
class Profiling:
    """A worker that keeps its requests, and whose engine reports no kernels."""

    asked: dict[str, object] = field(default_factory=dict)

    def ask(self, command: str, *_: object, **arguments: object) -> object:
        if command == "layers":
            self.asked = arguments
        return {"available_bytes": 0} if command == "memory" else None


@pytest.mark.parametrize(("nodes", "most"), [(10, 100), (10_000, 20), (10**6, 0)])
def test_a_profiled_session_runs_as_often_as_time_and_the_policy_allow(
    nodes: int, most: int
) -> None:
    worker = Profiling()
    policy = SamplingPolicy(max_seconds=4, min_layer_runs=5, min_slow_layer_runs=2)
    rig = Rig(
        cast("Worker", worker), Setup(policy=policy), 1, Workload(model="m"), make_engine("e")
    )
    assert run_kernels([Profiled(rig, None, nodes, weight_bytes=1)]) is None
    assert worker.asked["limits"] == [(2, None), (5, 4 * 10**9), (most, 10**9)]
