"""Timed inferences, and the clocks that time them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_modelperf.comparing.gates import Gate, latency_metrics
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.engines.source import BUILT_IN, CALLABLE_ENGINE
from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE, SharedDuet
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY
from pytest_modelperf.profiler.sampling.rounds import sample_duet
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, Workload, set_up
from pytest_modelperf.profiler.worker.agent import Agent, serve
from pytest_modelperf.profiler.worker.inline import InlineWorker
from pytest_modelperf.profiler.worker.process import Meter
from pytest_modelperf.profiler.worker.timing import (
    ClocksError,
    measure_clocks,
    time_arrivals,
    wait_until,
)
from pytest_modelperf.systems.process import OWN_PROCESS
from tests.support import timed
from tests.support.fake_bench import MS, FakeClock

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Engine
    from pytest_modelperf.profiler.worker.starter import Channel


@dataclass
class Machine:
    """Time that passes with each reading of a clock; a tick of 0 is a clock that does not move."""

    wall_tick_ns: int = 1
    process_tick_ns: int = 1
    direction: int = 1
    reading_ns: int = 301
    now_ns: int = 10**12

    def wall(self) -> int:
        return self._read(self.wall_tick_ns)

    def process(self) -> int:
        return self.direction * self._read(self.process_tick_ns)

    def _read(self, tick_ns: int) -> int:
        # Readings take hardly ever exactly the same time.
        self.now_ns += self.reading_ns + self.now_ns % 7
        return self.now_ns // tick_ns * tick_ns if tick_ns else 0


@pytest.mark.parametrize("wall_ns", [1, 41, 1000, 100_000])
@pytest.mark.parametrize("process_ns", [1, 1000, 4_000_000, 10_000_000])
def test_the_tick_of_a_clock_is_found_whether_it_is_read_slower_or_faster(
    wall_ns: int, process_ns: int
) -> None:
    machine = Machine(wall_ns, process_ns)
    clocks = measure_clocks(machine.wall, machine.process)
    assert (clocks.wall_tick_ns, clocks.process_tick_ns) == (wall_ns, process_ns)
    assert clocks.knows_processor_time == (process_ns == 1)


def test_fine_clocks_are_measured_within_a_moment() -> None:
    machine = Machine()
    begun_ns = machine.now_ns
    measure_clocks(machine.wall, machine.process)
    assert machine.now_ns - begun_ns < 10**6


@pytest.mark.parametrize(
    ("machine", "wall_ms", "process_ms"),
    [
        pytest.param(
            Machine(process_tick_ns=0, reading_ns=20_000),
            "1000.",
            "0.000",
            id="the process clock stands",
        ),
        pytest.param(
            Machine(wall_tick_ns=0, reading_ns=20_000), "0.000", "1000.", id="the wall clock stands"
        ),
        pytest.param(Machine(direction=-1), "0.", "-0.", id="the process clock goes back"),
    ],
)
def test_clocks_that_contradict_each_other_are_an_error_with_both_figures(
    machine: Machine, wall_ms: str, process_ms: str
) -> None:
    with pytest.raises(ClocksError) as caught:
        measure_clocks(machine.wall, machine.process)
    said = str(caught.value)
    assert f"the wall clock moved by {wall_ms}" in said
    assert f"the process clock by {process_ms}" in said


# -- rigs on such clocks


class Inline(InlineWorker):
    """A worker in this process, on the clocks of a machine."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        super().__init__(folder, (0,))
        self._agent = Agent(machine.wall, Meter((), None), process_clock=machine.process)
        self._agent._cores = 1


def model_on(machine: Machine, work_ns: int) -> Callable[[], None]:
    def infer() -> None:
        machine.now_ns += work_ns + machine.now_ns % 1009

    return infer


def rigs_on(machine: Machine, folder: Path, *works_ns: int) -> list[Rig]:
    """A rig for each model, all of them in one worker; a model works for so long."""
    worker = Inline(folder, machine)
    setup = Setup(engine=BUILT_IN[CALLABLE_ENGINE])
    loads = [Workload(model=model_on(machine, work_ns)) for work_ns in works_ns]
    sides = (BEFORE, AFTER)
    return [set_up(worker, setup, 1, load, side) for load, side in zip(loads, sides, strict=False)]


def judge(machine: Machine, folder: Path, before_ns: int, after_ns: int) -> Verdict:
    """The verdict of a duet on the median."""
    gate = Gate()
    before, after = rigs_on(machine, folder, before_ns, after_ns)
    rounds = sample_duet(
        SharedDuet(before, after), DUET_POLICY, machine.wall, lambda _: None, gate.is_decided
    )
    median = latency_metrics(rounds, gate)[0]
    assert median.name == "latency_p50"
    return median.verdict


@pytest.mark.parametrize("tick_ns", [1, 4_000_000, 10_000_000])
def test_a_slower_model_is_one_however_coarse_the_process_clock_is(
    tick_ns: int, tmp_path: Path
) -> None:
    machine = Machine(process_tick_ns=tick_ns)
    assert judge(machine, tmp_path, 500_000, 600_000) is Verdict.REGRESSED
    assert judge(machine, tmp_path, 500_000, 500_000) is Verdict.PASSED


@pytest.mark.parametrize("tick_ns", [1, 4_000_000])
def test_a_coarse_process_clock_gives_no_running_time_and_a_note_says_so(
    tick_ns: int, tmp_path: Path
) -> None:
    rigs = rigs_on(Machine(process_tick_ns=tick_ns), tmp_path, 500_000, 500_000)
    for rig in rigs:
        rig.open()
    (block, _) = rigs[0].blocks((BEFORE, AFTER), 5, 10**12)
    assert (block.running_ns is None) == (tick_ns > 1)
    assert [note.count("every 4.000 ms") for note in rigs[0].notes] == [1] * (tick_ns > 1)


def test_no_case_is_measured_by_clocks_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="the clocks of the worker disagree") as caught:
        judge(Machine(process_tick_ns=0, reading_ns=20_000), tmp_path, 500_000, 600_000)
    assert "faketime" in str(caught.value)


@pytest.mark.parametrize("work_ns", [500_000, 3_999_000])
def test_a_time_that_the_wall_clock_cannot_resolve_gives_no_figure(
    work_ns: int, tmp_path: Path
) -> None:
    (rig,) = rigs_on(Machine(wall_tick_ns=100_000), tmp_path, work_ns)
    rig.open()
    with pytest.raises(MeasureError, match=r"ticks every 0\.1000 ms") as caught:
        rig.take(5, 10**12)
    assert "cannot time inferences below 20.00 ms" in str(caught.value)


def test_a_coarse_wall_clock_times_long_inferences(tmp_path: Path) -> None:
    machine = Machine(wall_tick_ns=100_000)
    assert judge(machine, tmp_path, 30_000_000, 36_000_000) is Verdict.REGRESSED


def test_an_engine_with_a_clock_of_its_own_needs_no_other(tmp_path: Path) -> None:
    worker = Inline(tmp_path, Machine(process_tick_ns=0))
    worker._agent.use_engine(cast("Engine", timed))
    assert worker.ask("clocks", "") is None


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


class Line:
    """A channel whose other side is gone after some requests."""

    def __init__(self, *requests: dict[str, Any]) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._requests)

    def send(self, answer: dict[str, Any]) -> None:
        assert "ok" in answer


def test_a_worker_leaves_nothing_if_the_other_side_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    begin = {"command": "begin", "cores": 1, "is_child": False, "folder": str(folder)}
    put = {"command": "put", "name": "model/m.onnx", "data": b"model", "start": True}
    was_restored: list[bool] = []

    def run() -> None:
        before = OWN_PROCESS.allowed_processors()
        serve(cast("Channel", Line(begin, put)))
        was_restored.append(OWN_PROCESS.allowed_processors() == before)

    # Only this thread is pinned.
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert was_restored == [True]
    assert not folder.exists()
