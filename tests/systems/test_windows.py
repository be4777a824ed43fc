"""The calls to Windows, checked against a kernel32 that is written in Python."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from pytest_modelperf.systems.kernel32 import (
    JobLimits,
    MemoryCounters,
    MemoryStatus,
    ProcessorRelation,
)
from pytest_modelperf.systems.process import WindowsProcess
from pytest_modelperf.systems.trees import Trees, WindowsTree, WindowsTrees
from tests.support.kernel32 import FakeKernel32

KILL_ON_JOB_CLOSE = 0x2000


@pytest.mark.parametrize(
    ("structure", "size"),
    [(MemoryCounters, 72), (MemoryStatus, 64), (ProcessorRelation, 32), (JobLimits, 144)],
)
def test_a_structure_has_the_size_that_windows_has(
    structure: type[ctypes.Structure], size: int
) -> None:
    assert ctypes.sizeof(structure) == size


@pytest.mark.parametrize(
    ("field", "place"), [("flags", 16), ("affinity", 48), ("transfers", 64), ("memory", 112)]
)
def test_a_limit_of_a_job_is_where_windows_has_it(field: str, place: int) -> None:
    assert getattr(JobLimits, field).offset == place


def test_a_process_runs_where_it_is_put() -> None:
    process = WindowsProcess(FakeKernel32())
    assert process.allowed_processors() == [0, 1, 2, 3]
    process.use_processors([1, 3])
    assert process.allowed_processors() == [1, 3]


def test_the_threads_of_a_core_are_known() -> None:
    process = WindowsProcess(FakeKernel32())
    assert [process.siblings_of(each) for each in (0, 3)] == [{0, 1}, {2, 3}]
    assert WindowsProcess(None).siblings_of(3) == {3}


def test_processors_that_are_not_there_are_refused() -> None:
    process = WindowsProcess(FakeKernel32())
    with pytest.raises(OSError, match="the system refused it"):
        process.use_processors([9])
    assert process.allowed_processors() == [0, 1, 2, 3]


def test_memory_is_that_of_the_process_and_its_machine() -> None:
    process = WindowsProcess(FakeKernel32(peak=3, resident=2, available=1))
    assert (process.peak_bytes(), process.resident_bytes(), process.available_bytes()) == (3, 2, 1)


def test_a_worker_runs_before_the_background() -> None:
    kernel32 = FakeKernel32()
    WindowsProcess(kernel32).settle()
    assert kernel32.calls == ["priority 0x8000 of 1"]


def test_a_system_that_reports_nothing_has_no_figures() -> None:
    process = WindowsProcess(None)
    process.settle()
    assert process.allowed_processors() is None
    assert process.peak_bytes() is None
    assert process.resident_bytes() is None
    assert process.available_bytes() is None


def test_a_tree_is_a_job_that_ends_with_its_owner_and_is_ended_once() -> None:
    kernel32 = FakeKernel32()
    trees: Trees = WindowsTrees(kernel32)
    tree = trees.tree_of(4711)
    assert kernel32.flags == KILL_ON_JOB_CLOSE
    assert kernel32.calls == ["open 4711", "assign 7 to 9", "close 7"]
    kernel32.calls.clear()
    tree.kill()
    tree.kill()
    assert kernel32.calls == ["terminate 9", "close 9"]


def test_a_tree_that_is_forgotten_lets_go_of_its_job() -> None:
    kernel32 = FakeKernel32()
    tree = WindowsTree(4711, kernel32)
    del tree
    assert kernel32.calls[-1] == "close 9"


@pytest.mark.parametrize("kernel32", [None, FakeKernel32(takes_jobs=False)], ids=["none", "no job"])
def test_a_process_without_a_job_is_ended_alone(kernel32: FakeKernel32 | None) -> None:
    trees = WindowsTrees(kernel32)
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, **trees.popen_options()
    ) as process:
        trees.tree_of(process.pid).kill()
        assert process.wait(60) != 0
