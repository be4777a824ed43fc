"""The worker's own code: what it times, what it binds to, and what it says of errors."""

from __future__ import annotations

import array
import errno
import gc
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.profiler.worker.agent import Agent, error_kind
from pytest_modelperf.profiler.worker.process import choose_processors, throttled_ns
from pytest_modelperf.profiler.worker.sessions import ModelLocation
from pytest_modelperf.profiler.worker.timing import (
    Taken,
    TurnWatch,
    paused_gc,
    running_ns,
    time_at_once,
    time_chains,
    time_one,
    time_within,
)
from tests.support import timed

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Engine


class Clock:
    """Time that passes only if something is done."""

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
    sides = [[clock.takes(3)], [clock.takes(50)]]
    (before,), (after,) = time_chains(sides, count, 10**9, clock, random.Random(seed))
    assert before.times.tolist() == [3] * count
    assert after.times.tolist() == [50] * count


def test_the_order_within_a_turn_is_random() -> None:
    order: list[str] = []
    sides = [[lambda: order.append("a")], [lambda: order.append("b")]]
    time_chains(sides, 200, 10**12, Clock(), random.Random(1))
    first = order[::2].count("a")
    assert 70 < first < 130
    turns = [set(order[i : i + 2]) for i in range(0, len(order), 2)]
    assert turns == [{"a", "b"}] * 200


def test_the_members_of_a_chain_run_one_after_the_other_in_each_turn() -> None:
    order: list[str] = []
    chains = [[lambda name=name: order.append(name) for name in names] for names in ("Aab", "Bc")]
    runs = time_chains(chains, 50, 10**12, Clock(), random.Random(1))
    assert [[len(taken.times) for taken in chain] for chain in runs] == [[50] * 3, [50] * 2]
    turns = {"".join(order[i : i + 5]) for i in range(0, len(order), 5)}
    assert turns == {"AabBc", "BcAab"}


def test_the_last_turn_is_whole() -> None:
    clock = Clock()
    sides = [[clock.takes(10)], [clock.takes(10)]]
    (before,), (after,) = time_chains(sides, 100, 25, clock, random.Random(0))
    assert len(before.times) == len(after.times) == 2


@pytest.mark.parametrize(
    ("each_s", "turns"), [(0.01, 100), (0.1, 20), (0.3, 17), (1.1, 5), (4, 3), (60, 3)]
)
def test_slow_inferences_are_profiled_in_the_time_that_was_given(each_s: float, turns: int) -> None:
    """Three at the least, 20 in 10 seconds, 100 in a quarter of that, of two that take turns."""
    clock = Clock()
    infers = [clock.takes(int(each_s * 1e9)) for _ in range(2)]
    limits = [(3, None), (20, 10**10), (100, 2_500_000_000)]
    taken = time_within(infers, limits, clock)
    assert [len(times) for times in taken] == [turns, turns]


def turns_of(infers: list[Callable[[], object]], cores: int, count: int = 5) -> list[Taken]:
    """Turns on the machine's own clock, each of them watched."""
    watch = TurnWatch(cores)
    try:
        chains, order = [[infer] for infer in infers], random.Random(0)
        made = time_chains(chains, count, 10**12, time.perf_counter_ns, order, watch)
        return [taken for (taken,) in made]
    finally:
        watch.close()


def spin() -> int:
    return sum(range(20_000))


@pytest.mark.parametrize("cores", [1, 2])
def test_a_turn_runs_no_longer_than_it_takes(cores: int) -> None:
    for taken in turns_of([spin, spin], cores):
        assert len(taken.switches) == len(taken.starts) == len(taken.times) == 5
        assert min(taken.switches) >= 0
        # A system that does not count it leaves it empty.
        assert len(taken.running) in {0, 5}
        pairs = zip(taken.running, taken.times, strict=False)
        assert all(0 < running <= time_ns for running, time_ns in pairs)
        assert len(taken.unstalled) == (0 if cores == 1 else len(taken.running))
        trios = zip(taken.running, taken.unstalled, taken.times, strict=False)
        assert all(running <= unstalled <= time_ns for running, unstalled, time_ns in trios)


def test_a_pause_that_a_model_takes_by_itself_is_its_own_time() -> None:
    """A thread that sleeps waits for no processor, whatever its processor time is."""
    event = threading.Event()
    (taken,) = turns_of([lambda: event.wait(0.002)], cores=1)
    assert taken.running.tolist() in ([], taken.times.tolist())


@given(st.integers(1, 10**9), st.integers(0, 10**10))
def test_a_turn_ran_for_a_part_of_its_time(time_ns: int, waited_ns: int) -> None:
    assert 1 <= running_ns(time_ns, waited_ns) <= time_ns


@pytest.mark.parametrize(
    ("waited_ns", "ran_ns"),
    [
        pytest.param(0, 1000, id="no thread waited"),
        pytest.param(400, 600, id="one thread waited, and the others for it"),
        pytest.param(1600, 100, id="both threads waited at the same time"),
    ],
)
def test_the_running_time_leaves_out_what_threads_waited(waited_ns: int, ran_ns: int) -> None:
    assert running_ns(1000, waited_ns) == ran_ns


def test_a_thread_that_ends_in_a_turn_causes_no_error() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()

    def end_the_thread() -> None:
        over.set()
        thread.join()

    (taken,) = turns_of([end_the_thread], cores=2, count=2)
    # A system that does not count it leaves it empty.
    assert len(taken.running) in {0, 2}


# -- several at once


def counted(streams: int) -> tuple[list[Callable[[], None]], list[list[int]]]:
    """Inferences that keep which thread ran them."""
    threads: list[list[int]] = [[] for _ in range(streams)]

    def keep(own: list[int]) -> None:
        own.append(threading.get_ident())

    return [partial(keep, own) for own in threads], threads


@given(st.integers(1, 6), st.integers(1, 40))
def test_streams_share_the_inferences_and_each_has_a_thread(streams: int, count: int) -> None:
    infers, threads = counted(streams)
    times, _ = time_at_once(infers, count, 10**12, time.perf_counter_ns)
    assert len(times) == sum(map(len, threads)) == count
    used = [set(own) for own in threads if own]
    assert len(used) == min(streams, count)
    assert all(len(own) == 1 for own in used)
    assert len(set.union(*used)) == len(used)


def test_streams_end_with_their_time_and_each_has_run() -> None:
    infers, threads = counted(3)
    times, _ = time_at_once(infers, 10**6, 0, time.perf_counter_ns)
    assert len(times) == 3
    assert [len(own) for own in threads] == [1, 1, 1]


def test_all_streams_run_at_the_same_time() -> None:
    """Each waits for all others, which one by one would never end."""
    meeting = threading.Barrier(4, timeout=60)
    times, _ = time_at_once([meeting.wait] * 4, 4, 10**12, time.perf_counter_ns)
    assert len(times) == 4


def test_the_rate_is_that_of_all_streams_together() -> None:
    """Of two that take 10 and 40, there are 0.1 and 0.025 a nanosecond."""
    ticks = threading.local()

    def clock() -> int:
        return getattr(ticks, "now", 0)

    def takes(duration: int) -> Callable[[], None]:
        def infer() -> None:
            ticks.now = clock() + duration

        return infer

    _, per_second = time_at_once([takes(10), takes(40)], 2, 10**9, clock)
    assert per_second == pytest.approx(0.125e9)


def test_an_error_in_one_stream_is_that_of_the_block() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        time_at_once([lambda: None, fail, lambda: None], 30, 10**12, time.perf_counter_ns)


class OneAtATime:
    """An engine whose sessions do not say that they can be run by several threads."""

    def describe(self, options: object) -> dict[str, object]:  # noqa: ARG002  # the contract's
        return {}

    def load(self, model: object, threads: int, options: object) -> OneAtATime:  # noqa: ARG002
        return self

    def prepare(self, inputs: object, dtypes: object) -> Callable[[], None]:  # noqa: ARG002
        return lambda: None


def test_an_engine_that_runs_one_at_a_time_is_not_run_otherwise() -> None:
    agent = Agent()
    agent.use_engine(OneAtATime())  # type: ignore[arg-type]  # all that is needed of one
    agent.handle({"command": "inputs", "inputs": {}})
    place = {"command": "open", "side": "a", "model": "m", "folder": None, "threads": 1}
    one = agent.handle({**place, "options": {}})
    two = agent.handle({**place, "options": {}, "streams": 2})
    assert "ok" in one
    assert "one request at a time" in two["error"]["message"]


class Streaming(OneAtATime):
    """An engine that has an option for the number of requests at once."""

    loaded: dict[str, str]

    def stream_options(self, streams: int, options: object) -> dict[str, str]:  # noqa: ARG002
        return {"streams": str(streams)}

    def load(self, model: object, threads: int, options: dict[str, str]) -> Streaming:  # type: ignore[override]  # noqa: ARG002
        self.loaded = options
        return self

    prepare_another = OneAtATime.prepare


@pytest.mark.parametrize(
    ("streams", "options", "loaded"),
    [
        (1, {}, {}),
        (3, {"a": "1"}, {"a": "1", "streams": "3"}),
        (3, {"streams": "2"}, {"streams": "2"}),
    ],
)
def test_a_session_of_several_requests_is_loaded_with_the_options_for_them_unless_set(
    streams: int, options: dict[str, str], loaded: dict[str, str]
) -> None:
    agent, engine = Agent(), Streaming()
    agent.use_engine(engine)  # type: ignore[arg-type]  # the same
    agent.handle({"command": "inputs", "inputs": {}})
    place = {"command": "open", "side": "a", "model": "m", "folder": None, "threads": 1}
    assert "ok" in agent.handle({**place, "options": options, "streams": streams})
    assert engine.loaded == loaded


def test_an_engine_that_has_a_clock_is_timed_by_it() -> None:
    agent = Agent()
    agent.use_engine(timed)  # type: ignore[arg-type]  # the same
    agent.handle({"command": "inputs", "inputs": {}})
    place = {"command": "open", "side": "a", "model": "m_7000000us.onnx", "folder": None}
    agent.handle({**place, "threads": 1, "options": {}})
    block = {"command": "block", "sides": ["a"], "count": 3, "max_ns": 10**12}
    times = array.array("q", agent.handle(block)["ok"]["times"]["a"])
    assert all(7e9 <= time < 7.1e9 for time in times)
    # Disturbances of a turn do not affect such a time.
    turns = agent.handle({**block, "sides": ["a", "a"]})["ok"]["turns"]["a"]
    assert turns["times"]
    assert not any(turns[name] for name in ("switches", "running", "unstalled"))


class Profiling(OneAtATime):
    """An engine whose sessions list these kernels, each session those of its turn."""

    def __init__(self, *sessions: str, seconds: float = 0.0) -> None:
        self._sessions = list(sessions)
        self._ns = int(seconds * 1e9)
        self._now = 0
        self.loaded: list[str] = []

    def clock(self) -> int:
        return self._now

    def load_profiled(
        self,
        model: ModelLocation,
        threads: int,  # noqa: ARG002
        options: object,  # noqa: ARG002
        folder: str,  # noqa: ARG002
    ) -> Profiling:
        self.loaded.append(str(model.path))
        return self

    def prepare(self, inputs: object, dtypes: object) -> Callable[[], None]:  # noqa: ARG002
        def infer() -> None:
            self._now += self._ns

        return infer

    def close(self) -> None:
        pass

    def report(self, runs: int) -> dict[str, object]:
        names = self._sessions.pop(0).split()
        facts = {"op_type": "Op", "provider": None, "precision": None, "calls": 1}
        kernels = [{"name": n, "self_ns": [float(ord(n))] * runs, **facts} for n in names]
        return {"kernels": kernels, "plan": None, "peak_bytes": 10 - len(self._sessions)}


def _profile(
    engine: Profiling, limits: list[tuple[int, int | None]], *models: str
) -> list[dict[str, Any]]:
    agent = Agent(clock=engine.clock)
    agent.use_engine(cast("Engine", engine))
    agent.handle({"command": "inputs", "inputs": {}})
    asked = [{"model": m, "folder": None, "feed": "", "beside": None} for m in models or ("m",)]
    wanted = {"threads": 1, "options": {}, "warmup_ns": 10**12, "sessions": 3, "limits": limits}
    found: list[dict[str, Any]] = agent.handle({"command": "layers", "models": asked, **wanted})[
        "ok"
    ]
    return found


def test_sessions_that_list_their_kernels_in_another_order_are_joined_by_name() -> None:
    (found,) = _profile(Profiling("a b", "b a", "a b"), [(6, 10**12)])
    assert found["sessions"] == [2, 2, 2]
    assert {k["name"]: k["self_ns"] for k in found["kernels"]} == {"a": [97.0] * 6, "b": [98.0] * 6}
    assert len(found["run_ns"]) == 6
    assert found["peak_bytes"] == 10


def test_each_model_is_loaded_first_in_every_other_session() -> None:
    """The one that is loaded second runs faster."""
    engine = Profiling("a", "b", "b", "a", "a", "b")
    first, second = _profile(engine, [(6, 10**12)], "m", "n")
    assert engine.loaded == ["m", "n", "n", "m", "m", "n"]
    assert [k["name"] for side in (first, second) for k in side["kernels"]] == ["a", "b"]
    assert (first["sessions"], second["sessions"]) == ([2, 2, 2], [2, 2, 2])


def test_a_session_with_another_plan_is_left_out() -> None:
    (found,) = _profile(Profiling("a b", "a c", "a b"), [(6, 10**12)])
    assert found["sessions"] == [2, 2]


def test_a_slow_model_is_profiled_in_fewer_sessions() -> None:
    engine = Profiling("a", "a", "a", seconds=1.0)
    (found,) = _profile(engine, [(1, None), (6, 3 * 10**9)])
    assert found["sessions"] == [1]


def test_a_slow_model_has_the_sessions_that_the_error_of_its_times_needs() -> None:
    limits = [(1, None), (3, 40 * 10**9), (6, 3 * 10**9)]
    (found,) = _profile(Profiling("a", "a", "a", seconds=1.0), limits)
    assert len(found["sessions"]) == 3


def test_no_garbage_is_collected_inside_of_a_block_and_it_is_afterwards() -> None:
    def interrupted() -> None:
        with paused_gc():
            seen.append(gc.isenabled())
            raise KeyboardInterrupt

    seen = [gc.isenabled()]
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [*seen, gc.isenabled()] == [True, False, True]


ONE_ENGINE = """
import gc
from pytest_modelperf.profiler.worker.agent import Agent

# Some Pythons freeze what they start with.
before = gc.get_freeze_count()
agent = Agent()
agent.handle({"command": "begin", "cores": 1, "is_child": %s})
source = "import gc\\ndef describe(options): return {'collects': gc.isenabled()}"
engine = {"source": source, "file": "e.py", "options": {}}
loaded = agent.handle({"command": "engine", **engine})["ok"]
print(gc.get_freeze_count() > before, not loaded["collects"], gc.isenabled())
"""


@pytest.mark.parametrize("child", ["True", "False"])
def test_only_a_process_of_its_own_collects_nothing_that_the_engine_imports(child: str) -> None:
    command = [sys.executable, "-c", ONE_ENGINE % child]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{child} {child} True\n"


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


@pytest.mark.parametrize(("cores", "chosen"), [(2, [1, 3]), (3, [1, 3, 5]), (5, [1, 2, 3, 4, 5])])
def test_slower_processors_are_taken_after_every_core_of_the_faster(
    cores: int, chosen: list[int]
) -> None:
    """Processors of Intel are like this: two threads on each fast core, and one on a slow core."""

    def siblings_of(processor: int) -> frozenset[int]:
        return pairs(processor) if processor < 4 else frozenset({processor})

    assert choose_processors(cores, range(6), siblings_of, frozenset({4, 5})) == chosen


@pytest.mark.parametrize(
    ("cores", "place", "chosen"), [(1, 1, [5]), (2, 1, [1, 3]), (3, 1, [1, 4, 6])]
)
def test_processes_in_other_places_get_other_processors_as_far_as_there_are_any(
    cores: int, place: int, chosen: list[int]
) -> None:
    assert choose_processors(cores, range(8), pairs, place=place) == chosen


def test_no_more_processors_are_chosen_than_there_are() -> None:
    assert choose_processors(5, [2, 3], pairs) == [2, 3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("usage_usec 5\nnr_throttled 2\nthrottled_usec 17\n", 17_000),
        ("nr_periods 1\n", None),
        ("throttled_usec many\n", None),
    ],
)
def test_how_long_a_group_was_halted(text: str, expected: int | None, tmp_path: Path) -> None:
    path = tmp_path / "cpu.stat"
    path.write_text(text)
    assert throttled_ns(str(path)) == expected


def test_a_group_that_does_not_exist_has_no_figures(tmp_path: Path) -> None:
    assert throttled_ns(str(tmp_path / "no")) is None


class OptionError(ValueError):
    """An error with the class name of an engine's own."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModuleNotFoundError("no", name="no"), "missing"),
        (ModuleNotFoundError("it needs another package"), "failed"),
        (ImportError("a library"), "failed"),
        (OptionError("no"), "option"),
        (MemoryError(), "memory"),
        (RuntimeError("std::bad_alloc"), "memory"),
        (RuntimeError("Failed to allocate memory for requested buffer"), "memory"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk"),
        (RuntimeError("Failed to write external initializers to file: plan.weights"), "disk"),
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
