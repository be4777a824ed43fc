"""The line that shows the state of the jobs of a cluster."""

from __future__ import annotations

from pytest_modelperf.cluster.machines import status_line
from pytest_modelperf.cluster.records import ClusterStatus, Machine, RunningJob
from pytest_modelperf.profiler.measurements import Progress

MACHINE = Machine(address="tcp://a", host="board-1", key="k", versions={})
STATUS = ClusterStatus(waiting=7, ended=2, running=(RunningJob("model.onnx b1", MACHINE),))


def test_the_line_has_what_there_is_room_for() -> None:
    whole = "2 ended, 1 running, 7 waiting: model.onnx b1 on board-1"
    assert status_line(STATUS, len(whole)) == whole
    assert status_line(STATUS, len(whole) - 1) == "2 ended, 1 running, 7 waiting"
    assert status_line(STATUS, 7) == "2 ended"
    assert status_line(ClusterStatus(1, 0, ()), 80) == "0 ended, 0 running, 1 waiting"


def test_the_only_job_shows_its_progress() -> None:
    progress = Progress(case_id="b1-c2", case_number=3, cases=4, step="timing", round=5)
    running = RunningJob("sweep of model.onnx", MACHINE, progress)
    whole = "sweep of model.onnx on board-1  [3/4] b1-c2  timing, round 5"
    assert status_line(ClusterStatus(0, 0, (running,)), len(whole)) == whole
    assert status_line(ClusterStatus(0, 0, (running,)), 59) == whole[:43]
    assert status_line(ClusterStatus(0, 0, (running,)), 50) == ("0 ended, 1 running, 0 waiting")
    assert status_line(ClusterStatus(1, 0, (running,)), 90).startswith("0 ended, 1 running, 1 w")
