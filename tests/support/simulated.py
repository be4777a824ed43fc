"""A worker in this process for the engine of the tests that has a clock of its own.

What such an engine measures is the same in any process, and a process takes longer to start than
most of its cases take to be measured.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import pytest

from pytest_modelperf.profiler import model_in_worker
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import start_worker
from pytest_modelperf.profiler.worker.agent import Agent
from pytest_modelperf.profiler.worker.client import Meanwhile, ProcessWorker, WorkerRequest
from pytest_modelperf.profiler.worker.endings import failure
from pytest_modelperf.profiler.worker.gateway import is_this_python
from pytest_modelperf.profiler.worker.process import Meter

_SIMULATED = ("tests.support.timed", "tests.support.planned")
_MIB = 1 << 20
# The memory of a process that runs this engine does not grow.
_MEMORY = MappingProxyType(
    {
        "peak_rss_bytes": 50 * _MIB,
        "rss_bytes": 50 * _MIB,
        "engine_peak_bytes": None,
        "available_bytes": 8192 * _MIB,
    }
)

_QUIET = MappingProxyType(
    {
        "cpu_ns": None,
        "involuntary_switches": 0,
        "busy_ns": None,
        "stolen_ns": None,
        "throttled_ns": None,
    }
)


class _QuietMeter(Meter):
    """An engine with a clock of its own has no other processes to wait for."""

    def read(self) -> dict[str, int | None]:
        return {**_QUIET, "wall_ns": time.perf_counter_ns()}


class SimulatedWorker(ProcessWorker):
    """Answers as a process of its own would."""

    def __init__(self, request: WorkerRequest) -> None:
        super().__init__(request)
        self._agent = Agent(meter=_QuietMeter((), None))

    def _start(self) -> None:
        self.processors = tuple(range(self._request.cores))
        self.executable, self.python = sys.executable, platform.python_version()

    def ask(
        self,
        command: str,
        step: str,
        limit_s: float | None = None,  # noqa: ARG002  # nothing is silent here
        meanwhile: Meanwhile | None = None,
        **arguments: object,
    ) -> Any:  # noqa: ANN401  # as a worker's
        if meanwhile is not None:
            meanwhile()
        if command == "memory":
            return _MEMORY
        answer = self._agent.handle({"command": command, **arguments})
        if "error" in answer:
            raise failure(answer["error"], step, self.executable)
        return answer["ok"]


def start_simulated(setup: Setup, cores: int, cgroup_files: Sequence[str] = ()) -> ProcessWorker:
    """A simulated worker if the engine has its clock, otherwise a process."""
    if setup.engine.module in _SIMULATED and is_this_python(setup.spec):
        return SimulatedWorker(WorkerRequest(cores=cores))
    return start_worker(setup, cores, cgroup_files)


def simulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have cases of the engines with a clock of their own measured in this process."""
    monkeypatch.setattr(model_in_worker, "start_worker", start_simulated)
