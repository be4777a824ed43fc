"""A worker that stays for the next model, and the memory that such workers share."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.pairs.plans import save_plan
from pytest_modelperf.profiler.prepare import Model, PreparedModel, prepare
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup, worker_request
from pytest_modelperf.profiler.sampling.worker_bench import Rig
from pytest_modelperf.profiler.shared_worker import SharedTime, SharedWorker, SharedWorkers
from pytest_modelperf.profiler.worker.client import ProcessWorker
from tests.support.known import known
from tests.support.project import write_dense
from tests.support.small_models import parse

TIME = SharedTime()


@pytest.fixture
def shared() -> Iterator[SharedWorker]:
    worker = SharedWorker(0, TIME)
    yield worker
    worker.end()


@pytest.fixture
def model(tmp_path: Path) -> PreparedModel:
    path = tmp_path / "dense.onnx"
    write_dense(path)
    return prepare(Model.load(path, ProfileRequest(), Extensions()))


@contextmanager
def rig_of(shared: SharedWorker, model: PreparedModel) -> Iterator[Rig]:
    place = CasePlace(model.case(1), 1, 1, lambda _: None)
    with TIME.turn(), shared.rig(model, Setup(), place) as rig:
        yield rig


def pid_of(rig: Rig) -> int:
    interpreter = getattr(rig.worker, "_interpreter")  # noqa: B009  # which of them runs
    return int(interpreter.process.pid)


def test_the_next_model_has_the_same_process_and_no_file_of_the_one_before(
    shared: SharedWorker, model: PreparedModel
) -> None:
    with rig_of(shared, model) as rig:
        first, folder = pid_of(rig), rig.worker.folder
        assert save_plan(rig, 0) is not None
        assert [*folder.glob("plan*")]
    assert not [*folder.glob("*plan*"), *folder.glob("*.onnx")]
    with rig_of(shared, model) as rig:
        assert pid_of(rig) == first
        rig.open()
        assert rig.take(1, 0)


def test_after_an_error_the_next_model_has_another_process(
    shared: SharedWorker, model: PreparedModel
) -> None:
    folders: list[Path] = []
    pids: list[int] = []

    def fail() -> None:
        with rig_of(shared, model) as rig:
            folders.append(rig.worker.folder)
            pids.append(pid_of(rig))
            raise MeasureError("out of order")

    with pytest.raises(MeasureError, match="out of order"):
        fail()
    assert not folders[0].exists()
    with rig_of(shared, model) as rig:
        assert pid_of(rig) not in pids


def test_a_worker_that_is_over_starts_no_process(model: PreparedModel) -> None:
    shared = SharedWorker(0, TIME)
    shared.end()
    with pytest.raises(MeasureError, match="the run has ended"), rig_of(shared, model):
        pass


def test_the_session_that_made_the_plan_runs(shared: SharedWorker, model: PreparedModel) -> None:
    with rig_of(shared, model) as rig:
        saved = save_plan(rig, 0, keeps_session=True)
        (load,) = rig.open()
        (block,) = rig.take(3, 1_000_000_000)
        rig.close()
        assert len(block.times_ns) == 3
        # The next session is loaded by itself, and makes the same plan.
        (again,) = rig.open()
        assert known(again.begun_ns) > known(load.begun_ns)
        plain = known(save_plan(rig, 0))
        assert plain.plan.digest.value == known(saved).plan.digest.value


def test_a_session_that_made_a_plan_and_did_not_run_is_none_of_the_next_model(
    shared: SharedWorker, model: PreparedModel, tmp_path: Path
) -> None:
    with rig_of(shared, model) as rig:
        assert save_plan(rig, 0, keeps_session=True) is not None
    wide = tmp_path / "wide.onnx"
    onnx.save(parse("g (float[1, 7] x) => (float[1, 7] y) { y = Relu (x) }"), wide)
    other = prepare(Model.load(wide, ProfileRequest(), Extensions()))
    with rig_of(shared, other) as rig:
        # Its inputs fit no other session.
        rig.open()
        (block,) = rig.take(2, 1_000_000_000)
        assert len(block.times_ns) == 2


def test_a_running_worker_takes_a_new_import_path(
    shared: SharedWorker, model: PreparedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    plain = ProcessWorker.use_paths

    def note(self: ProcessWorker, paths: Sequence[str]) -> None:
        asked.append(list(paths))
        plain(self, paths)

    monkeypatch.setattr(ProcessWorker, "use_paths", note)
    for _ in range(2):
        with rig_of(shared, model) as rig:
            pid = pid_of(rig)
    assert not asked
    monkeypatch.syspath_prepend(tmp_path)
    with rig_of(shared, model) as rig:
        assert pid_of(rig) == pid
    assert asked == [worker_request(Setup(), 1).paths]
    assert str(tmp_path) in worker_request(Setup(), 1).paths


# -- several workers


def test_the_workers_start_before_a_model_is_there_and_load_the_engine(
    model: PreparedModel, started: list[subprocess.Popen[bytes]]
) -> None:
    workers, place = SharedWorkers(TIME), CasePlace(model.case(1), 1, 1, lambda _: None)
    try:
        workers.start(Setup(), 1, 1)
        workers.start(Setup(), 1, 2)
        workers.start(Setup(), 1, 2)
        with (
            TIME.turn(),
            workers.rig(model, Setup(), place) as one,
            workers.rig(model, Setup(), place) as other,
        ):
            pids = {pid_of(one), pid_of(other)}
        assert pids == {process.pid for process in started}
    finally:
        workers.end()
    assert all(process.poll() is not None for process in started)


def test_workers_that_end_as_they_start_leave_no_process(
    started: list[subprocess.Popen[bytes]],
) -> None:
    workers = SharedWorkers(TIME)
    workers.start(Setup(), 1, 2)
    workers.end()
    assert all(process.poll() is not None for process in started)


def test_a_worker_that_cannot_start_fails_with_its_first_model(model: PreparedModel) -> None:
    setup = Setup(spec="command=false")
    workers, place = SharedWorkers(TIME), CasePlace(model.case(1), 1, 1, lambda _: None)
    workers.start(setup, 1, 1)
    try:
        for _ in range(2):
            with pytest.raises(MeasureError), TIME.turn(), workers.rig(model, setup, place):
                pass
    finally:
        workers.end()


# -- turns and memory


@pytest.mark.parametrize(("limit", "waits"), [(None, False), (60, False), (59, True)])
def test_models_that_do_not_fit_together_come_one_after_another(
    limit: int | None, *, waits: bool
) -> None:
    time = SharedTime(limit)
    has_room = threading.Event()

    def take() -> None:
        with time.turn(), time.memory(10):
            has_room.set()

    other = threading.Thread(target=take)
    with time.turn(), time.memory(10):
        other.start()
        with time.waiting():
            if not waits:
                assert has_room.wait(60)
        assert has_room.is_set() is not waits
    other.join(60)
    assert has_room.is_set()


def test_a_model_that_is_too_large_comes_alone() -> None:
    time = SharedTime(1)
    with time.turn(), time.memory(1 << 40):
        pass


def test_one_thread_runs_until_it_waits() -> None:
    time = SharedTime()
    steps: list[str] = []
    has_run = threading.Event()

    def run() -> None:
        with time.turn():
            steps.append("other")
            has_run.set()

    other = threading.Thread(target=run)
    with time.turn():
        other.start()
        steps.append("own")
        with time.waiting():
            assert has_run.wait(60)
        steps.append("own again")
    other.join(60)
    assert steps == ["own", "other", "own again"]


def test_a_worker_starts_while_a_thread_reads_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    time, has_started = SharedTime(), threading.Event()
    plain = SharedWorker.start

    def start(self: SharedWorker, setup: Setup, cores: int) -> None:
        plain(self, setup, cores)
        has_started.set()

    monkeypatch.setattr(SharedWorker, "start", start)
    workers = SharedWorkers(time)
    try:
        with time.turn():
            workers.start(Setup(), 1, 1)
            assert has_started.wait(60)
    finally:
        workers.end()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps the working folder")
def test_workers_can_start_in_a_removed_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    workers = SharedWorkers(TIME)
    folder.rmdir()
    assert not workers.are_as_new
    assert SharedWorkers(TIME).are_as_new
