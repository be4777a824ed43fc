"""The fate of jobs when machines and schedulers of a real cluster are lost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from pytest_modelperf.cluster.cluster import open_cluster
from pytest_modelperf.cluster.records import JobAnswer, JobOrder, Machine, Message, NeededSoftware
from pytest_modelperf.cluster.runner import Runner, _Running
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.errors import ClusterError, EngineOptionError, MeasureError
from pytest_modelperf.text.version import __version__
from tests.cluster.test_real_jobs import Held, job, result
from tests.support import cluster_work
from tests.support.clusters import ClusterProcesses, joined, kill_group
from tests.support.processes import children, ends, on_linux, wait_until

pytestmark = pytest.mark.slow

DASK_SETS = {"MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS"}


def test_a_job_whose_worker_is_killed_runs_once_more(
    own_processes: ClusterProcesses, tmp_path: Path
) -> None:
    own_processes.start_scheduler()
    own_processes.start_worker("one")
    own_processes.start_dask_worker("two")
    with joined(own_processes.file, machines=2) as (cluster, _):
        held = Held(cluster, tmp_path)
        (first,) = held.wait_until_begun()
        others = [cluster.submit(job(cluster_work.tell_process)) for _ in range(5)]
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(held.wait_until_begun()) == 2)
        assert held.wait_until_begun()[1] != first
        assert held.let_go() == "done"
        assert all(map(result, others))


def test_a_job_that_ends_two_machines_fails_and_the_others_go_on(
    own_processes: ClusterProcesses, tmp_path: Path
) -> None:
    own_processes.start_scheduler()
    own_processes.start_worker()
    for _ in range(2):
        own_processes.start_dask_worker()
    with joined(own_processes.file, machines=3) as (cluster, watched):
        os.mkfifo(tmp_path / "go")
        deadly = cluster.submit(job(cluster_work.end_process, str(tmp_path)))
        others = [cluster.submit(job(cluster_work.tell_process)) for _ in range(9)]
        ended: set[str] = set()

        def begun() -> set[str]:
            running = cluster.status.running
            return {each.machine.address for each in running if each.progress} - ended

        for _ in range(2):
            watched.wait_for(lambda: bool(begun()))
            ended |= begun()
            (tmp_path / "go").write_text("now")
        with pytest.raises(MeasureError, match=r"job was not measured: .* and then .* was lost"):
            result(deadly)
        assert len((tmp_path / "begun").read_text().splitlines()) == 2
        assert all(map(result, others))


def test_a_job_whose_machine_leaves_in_order_is_taken_back(
    own_processes: ClusterProcesses, tmp_path: Path
) -> None:
    own_processes.start_scheduler()
    machine = own_processes.start_worker("board")
    own_processes.start_dask_worker("other")
    with joined(own_processes.file, machines=2) as (cluster, watched):
        held = Held(cluster, tmp_path, "board")
        held.wait_until_begun()
        machine.send_signal(signal.SIGTERM)
        watched.wait_for(lambda: len(cluster.machines) == 1)
        # It has left, and would wait some seconds for the job that it held.
        kill_group(machine)
        own_processes.start_worker("board")
        wait_until(lambda: len(held.wait_until_begun()) == 2)
        assert held.let_go() == "done"


def test_jobs_whose_last_machine_is_gone_end_with_what_there_is(
    own_processes: ClusterProcesses, tmp_path: Path
) -> None:
    own_processes.start_scheduler()
    machine = own_processes.start_worker("board")
    own_processes.start_dask_worker("other")
    with joined(own_processes.file, machines=2, patience_s=0.5) as (cluster, _):
        held = Held(cluster, tmp_path, "board")
        waiting = cluster.submit(job(cluster_work.tell_process, "", "board"))
        held.wait_until_begun()
        kill_group(machine)
        for future in (held.future, waiting):
            with pytest.raises(ClusterError, match=r"has no machine board\. It has: .*other"):
                result(future)
        assert result(cluster.submit(job(cluster_work.tell_process)))


def test_a_scheduler_that_vanishes_ends_the_jobs_that_are_left(
    own_processes: ClusterProcesses, tmp_path: Path
) -> None:
    scheduler = own_processes.start_scheduler()
    own_processes.start_worker()
    with joined(own_processes.file, machines=1) as (cluster, _):
        ended = cluster.submit(job(cluster_work.tell_process))
        assert result(ended)
        held = Held(cluster, tmp_path)
        waiting = [cluster.submit(job(cluster_work.tell_process)) for _ in range(5)]
        held.wait_until_begun()
        kill_group(scheduler)
        for future in (held.future, *waiting):
            with pytest.raises(ClusterError, match=r"the scheduler at .* is gone"):
                result(future)
        assert result(ended)
        with pytest.raises(ClusterError, match=r"the scheduler at .* is gone"):
            result(cluster.submit(job(cluster_work.tell_process)))


def test_a_machine_with_another_engine_is_one_error(
    own_processes: ClusterProcesses, tmp_path: Path
) -> None:
    fake = tmp_path / "packages" / "onnxruntime-0.0.1.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime\nVersion: 0.0.1\n")
    own_processes.start_scheduler()
    own_processes.start_dask_worker("same")
    paths = os.pathsep.join([str(fake.parent), str(Path(__file__).parents[2])])
    own_processes.start_worker("old", environment={"PYTHONPATH": paths})
    with joined(own_processes.file, machines=2) as (cluster, _):
        cluster.require([("same",)], "onnxruntime")
        cluster.require([("old",)], "timed")
        message = r"here onnxruntime is \d+\.\d.*, and on .*old.* it is 0\.0\.1"
        with pytest.raises(ClusterError, match=message):
            cluster.require([()], "onnxruntime")


def test_local_workers_set_no_variable_that_a_model_would_see() -> None:
    """Dask sets some that slow down memory, in this process and in its workers."""
    before = dict(os.environ)
    with joined("local:1", machines=1) as (cluster, _):
        there = json.loads(result(cluster.submit(job(cluster_work.tell_environment))))
        assert DASK_SETS.isdisjoint(there.keys() - before.keys())
        assert DASK_SETS.isdisjoint(os.environ.keys() - before.keys())


@on_linux
def test_local_workers_that_cannot_start_are_one_error() -> None:
    program = (
        "import resource\n"
        "from pytest_modelperf.cluster.cluster import open_cluster\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))\n"
        "with open_cluster('local:6'): pass\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    message = b"ClusterError: the workers of local:6 could not be started: "
    assert ended.stderr.splitlines()[-1].partition(message)[1] == message


@on_linux
def test_local_workers_leave_no_process_behind() -> None:
    before = children()
    with joined("local:2", machines=2) as (cluster, _):
        processes = {int(result(cluster.submit(job(cluster_work.tell_process)))) for _ in range(4)}
        assert processes
    assert all(map(ends, processes))
    # Python's own, which a process that starts others keeps to its end.
    tracker = {resource_tracker._resource_tracker._pid}  # type: ignore[attr-defined]  # its own
    assert not [pid for pid in children() - before - tracker if not ends(pid)]


def test_the_command_ends_in_order(own_processes: ClusterProcesses) -> None:
    own_processes.start_scheduler()
    machine = own_processes.start_worker()
    with joined(own_processes.file, machines=1) as (cluster, watched):
        process = int(result(cluster.submit(job(cluster_work.tell_process))))
        machine.send_signal(signal.SIGTERM)
        assert machine.wait() == 0
        assert ends(process)
        watched.wait_for(lambda: not cluster.machines)


def test_the_tags_of_the_variable_hold_if_none_is_given(own_processes: ClusterProcesses) -> None:
    own_processes.start_scheduler()
    own_processes.start_worker(environment={"MODELPERF_TAGS": "board"})
    own_processes.start_worker("given", environment={"MODELPERF_TAGS": "board"})
    with joined(own_processes.file, machines=2) as (cluster, _):
        assert {machine.tags for machine in cluster.machines} == {("board",), ("given",)}


def test_a_worker_whose_scheduler_is_gone_says_that_it_ends(
    own_processes: ClusterProcesses,
) -> None:
    scheduler = own_processes.start_scheduler()
    machine = own_processes.start_worker()
    # A machine that is on its way would say that no scheduler answers.
    wait_until(lambda: "measuring for " in own_processes.log)
    kill_group(scheduler)
    assert machine.wait() == 0
    assert "stopped, or closed this worker: start the worker again " in own_processes.log


def test_an_address_without_a_scheduler_is_one_error() -> None:
    with (
        pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        open_cluster("tcp://127.0.0.1:9", timeout_s=1.0),
    ):
        pass


def test_a_cluster_without_machines_says_how_to_start_one(own_processes: ClusterProcesses) -> None:
    own_processes.start_scheduler()
    with (
        joined(own_processes.file, machines=0) as (cluster, _),
        pytest.raises(ClusterError, match=r"Start one on each machine: modelperf worker"),
    ):
        cluster.require([()])


class _BusyClient:
    """A Dask client whose network loses the first answers of a machine.

    It misses its first `late` events.
    """

    id = "busy"

    def __init__(self, lost: int = 0, late: int = 0) -> None:
        self.asked: list[list[str] | None] = []
        self.events = 0
        self._lost = lost
        self._late = late
        self._handlers: dict[str, Callable[[tuple[float, object]], None]] = {}

    def subscribe_topic(self, topic: str, handler: Callable[[tuple[float, object]], None]) -> None:
        self._handlers[topic] = handler

    def unsubscribe_topic(self, topic: str) -> None:
        del self._handlers[topic]

    async def log_event(self, topic: str, msg: object) -> None:
        assert self.asked == []
        self.events += 1
        if self.events > self._late:
            self._handlers[topic]((0.0, msg))

    async def run(
        self,
        function: object,  # noqa: ARG002  # as Dask is called
        workers: list[str] | None,
        on_error: str,  # noqa: ARG002  # likewise
    ) -> dict[str, object]:
        self.asked.append(workers)
        if len(self.asked) <= self._lost:
            return {"tcp://a": OSError("timed out")}
        versions = {"pytest-modelperf": __version__}
        machine = Machine(address="tcp://a", host="a", key="k", versions=versions)
        return {"tcp://a": to_text(machine)}


@pytest.mark.parametrize(("lost", "found"), [(0, ["a"]), (2, ["a"]), (3, [])])
def test_a_machine_whose_answer_is_lost_is_asked_again(lost: int, found: list[str]) -> None:
    async def ask(client: _BusyClient) -> list[str]:
        runner = Runner(client, "cluster", lambda _: None, patience_s=1.0)
        await runner.start()
        while runner._background:
            await asyncio.gather(*runner._background)
        return [machine.host for machine in runner.machines]

    client = _BusyClient(lost)
    assert asyncio.run(ask(client)) == found
    assert client.asked == [None, ["tcp://a"], ["tcp://a"]][: lost + 1]


def test_machines_are_asked_for_once_the_scheduler_reports_new_ones() -> None:
    """A machine that came in between would stay unknown."""
    client = _BusyClient(late=2)
    asyncio.run(Runner(client, "cluster", lambda _: None, patience_s=1.0).start())
    assert client.events == 3
    assert client.asked == [None]


def test_the_status_can_be_asked_for_while_a_job_begins() -> None:
    """By another thread: a job begins here as soon as the status looks at the first one."""
    runner = Runner(_BusyClient(), "cluster", lambda _: None, patience_s=1.0)
    machine = Machine(address="tcp://a", host="a", key="k", versions={})

    class Known(dict[str, Machine]):
        def __contains__(self, address: object) -> bool:
            runner._running[f"job {len(runner._running)}"] = running
            return super().__contains__(address)

    running = _Running(job(cluster_work.tell_process), (), machine.address)
    runner._known = Known({machine.address: machine})
    runner._running["job 0"] = running
    assert [each.machine for each in runner.status.running] == [machine]


def test_a_job_goes_to_no_machine_that_comes_later() -> None:
    """Dask gives a job that waits to any idle machine, unless addresses are named."""
    runner = Runner(_BusyClient(), "cluster", lambda _: None, patience_s=1.0)
    board = Machine(address="tcp://a", host="a", key="k", tags=("board",), versions={})
    runner._machines = {board.address: board}
    assert runner._allowed(job(cluster_work.tell_process, "", "board"), []) == [board.address]
    assert runner._allowed(job(cluster_work.tell_process), []) == [board.address]


def test_a_machine_that_does_not_answer_is_named_during_the_wait() -> None:
    """Dask waits five minutes for a worker that hangs."""

    async def ask(*, hangs: bool) -> list[str]:
        warnings: list[str] = []
        is_reported = asyncio.Event()

        def warn(text: str) -> None:
            warnings.append(text)
            is_reported.set()

        async def answer(*_: object, **__: object) -> dict[str, object]:
            if hangs:
                await is_reported.wait()
            return {}

        client = _BusyClient()
        client.run = answer  # type: ignore[method-assign]  # it answers when the test lets it
        loop = asyncio.get_running_loop()
        # Time passes at once.
        loop.call_later = lambda _, *call: loop.call_soon(*call)  # type: ignore[method-assign,assignment]
        await Runner(client, "tcp://here", lambda _: None, 1.0, warn)._find_machines(None)
        await asyncio.sleep(0)
        return warnings

    assert asyncio.run(ask(hangs=False)) == []
    (warning,) = asyncio.run(ask(hangs=True))
    assert warning.startswith("a worker of tcp://here does not say what machine it is. ")


def test_a_machine_that_goes_while_it_is_asked_is_not_kept() -> None:
    """A job for it would wait for ever."""

    async def come() -> tuple[Machine, ...]:
        client = _BusyClient()
        runner = Runner(client, "cluster", lambda _: None, patience_s=1.0)

        async def gone(*_: object, **__: object) -> dict[str, object]:
            runner._on_scheduler_event((0.0, {"action": "remove-worker", "worker": "tcp://a"}))
            return await _BusyClient().run(None, [], "return")

        client.run = gone  # type: ignore[method-assign]  # the event comes before the answer
        await runner._find_machines(["tcp://a"])
        return runner.machines

    assert asyncio.run(come()) == ()


class _RefusingClient(_BusyClient):
    """A client of machines of which some lack what an engine needs; Dask takes the first."""

    def __init__(self, *unable: str) -> None:
        super().__init__()
        self.given: list[str] = []
        self._unable = unable

    def submit(
        self,
        _function: object,
        _expression: str,
        variables: dict[str, str],
        *,
        workers: list[str],
        **_: object,
    ) -> asyncio.Future[str]:
        order, address = from_text(variables["order"], JobOrder), workers[0]
        self.given.append(address)
        self._handlers[order.topic]((0.0, to_text(Message(key=order.key, address=address))))
        answer = JobAnswer(text="done")
        if address in self._unable:
            answer = JobAnswer(error="EngineOptionError", message=f"no CUDA at {address}.")
        return _Answered(to_text(answer))


class _Answered(asyncio.Future[str]):
    """The future of a Dask client, which is released."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.set_result(text)

    def release(self) -> None:
        pass


@pytest.mark.parametrize("unable", [("tcp://a",), ("tcp://a", "tcp://b")])
def test_a_machine_that_cannot_run_the_engine_leaves_its_job_to_another(
    unable: tuple[str, ...],
) -> None:
    client, warnings = _RefusingClient(*unable), list[str]()

    async def carry_out() -> str:
        runner = Runner(client, "cluster", lambda _: None, 1.0, warnings.append)
        await runner.start()
        for name in "ab":
            machine = Machine(address=f"tcp://{name}", host=name, key="k", versions={})
            runner._machines[machine.address] = runner._known[machine.address] = machine
        runner._turns.set_machines(runner.machines)
        return await runner.carry_out(job(cluster_work.tell_process))

    if unable == ("tcp://a",):
        assert asyncio.run(carry_out()) == "done"
        assert warnings == ["a (k) left its cases to others: no CUDA at tcp://a."]
    else:
        message = r"at tcp://b\.\nEvery .* was asked: a \(k\), b \(k\)\.\na \(k\) said: no CUDA at tcp://a\."
        with pytest.raises(EngineOptionError, match=message):
            asyncio.run(carry_out())
        assert warnings == []
    assert client.given == ["tcp://a", "tcp://b"]


def test_a_job_that_came_to_a_machine_too_late_is_taken_back() -> None:
    """Dask reports a lost machine only to the jobs that it had."""

    async def lose(address: str | None) -> bool:
        runner = Runner(_BusyClient(), "cluster", lambda _: None, patience_s=1.0)
        machine = Machine(address="tcp://a", host="a", key="k", versions={})
        runner._machines = {machine.address: machine}
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        running = _Running(
            job(cluster_work.tell_process), [machine.address], address, answer=answer
        )
        runner._running["job"] = running
        event = {"action": "remove-worker", "worker": "tcp://a", "expected": False}
        runner._on_scheduler_event((0.0, event))
        return running.is_stranded

    assert asyncio.run(lose(None))
    assert not asyncio.run(lose("tcp://a"))


def test_a_job_goes_to_a_machine_that_has_its_cores() -> None:
    runner = Runner(_BusyClient(), "cluster", lambda _: None, patience_s=1.0)
    small, large = (
        Machine(address=f"tcp://{cores}", host="a", key="k", versions={}, cores=cores)
        for cores in (2, 4)
    )
    runner._machines = {each.address: each for each in (small, large)}
    wanted = [runner._allowed(job(cluster_work.tell_process, cores=n), []) for n in (2, 4, 8)]
    assert wanted == [["tcp://2", "tcp://4"], ["tcp://4"], ["tcp://2", "tcp://4"]]


def test_a_machine_that_comes_with_another_engine_is_not_used() -> None:
    """Its figures would be mixed with those of the version that the run began with."""

    async def come(engine: str, *names: str) -> tuple[list[str], list[str]]:
        warnings: list[str] = []
        runner = Runner(_BusyClient(), "cluster", lambda _: None, 1.0, warnings.append)
        await runner.demand(NeededSoftware(wanted=(names,), engine=engine, modules=()))
        for _ in range(2):
            runner._on_scheduler_event((0.0, {"action": "add-worker", "worker": "tcp://a"}))
            await asyncio.gather(*runner._background)
        return [machine.host for machine in runner.machines], warnings

    assert asyncio.run(come("timed")) == (["a"], [])
    assert asyncio.run(come("onnxruntime", "board")) == (["a"], [])
    used, (warning,) = asyncio.run(come("onnxruntime"))
    assert used == []
    assert re.fullmatch(
        r"a machine that joined gets no jobs: here onnxruntime is .*, and on a \(k\) it is none: "
        r".*`pip install onnxruntime==.*` there\. Then start its worker again\.",
        warning,
    )
