"""Real clusters of processes on this machine: a scheduler, and the workers that join it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_modelperf.cluster.cluster import Cluster, open_cluster
from pytest_modelperf.cluster.machines import PATIENCE_S
from pytest_modelperf.cluster.records import ClusterStatus
from tests.support.checkout import ROOT
from tests.support.processes import LIMIT_S, wait_until


class ClusterProcesses:
    """A scheduler and its workers, each in a process group of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.cache = folder / "cache"
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "MODELPERF_CACHE_DIR": str(self.cache),
            **(environment or {}),
        }
        self._all: list[subprocess.Popen[bytes]] = []

    def start_scheduler(self, *options: str) -> subprocess.Popen[bytes]:
        arguments = ["--scheduler-file", str(self.file), "--port", "0", "--no-dashboard", *options]
        scheduler = self._start("-m", "distributed.cli.dask_scheduler", *arguments)
        wait_until(lambda: self.file.is_file() and self.file.stat().st_size > 0)
        return scheduler

    @property
    def log(self) -> str:
        """Return the output of all processes."""
        return (self.folder / "log").read_text("utf-8")

    def start_worker(
        self, *tags: str, host: str | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """A machine as `modelperf worker` starts it."""
        options = [option for tag in tags for option in ("--tag", tag)]
        options += [] if host is None else ["--host", host]
        place = str(self.file)
        return self._start(
            "-m", "pytest_modelperf", "worker", place, *options, environment=environment
        )

    def start_dask_worker(self, *tags: str) -> subprocess.Popen[bytes]:
        """A machine as Dask's own command starts it: one process, which is not started again."""
        place = ("--scheduler-file", str(self.file))
        arguments = (*place, "--nthreads", "1", "--no-dashboard", "--no-nanny")
        preload = ("--preload", "pytest_modelperf.cluster.preload")
        environment = {"MODELPERF_TAGS": ",".join(tags)}
        return self._start(
            "-m", "distributed.cli.dask_worker", *arguments, *preload, environment=environment
        )

    def _start(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env={**self._environment, **(environment or {})},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._all.append(process)
        return process

    def close(self) -> None:
        for process in self._all:
            kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """A machine that is gone: the process and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Watched:
    """A listener to each change, so that a test can wait for a state."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def __call__(self, status: ClusterStatus) -> None:  # noqa: ARG002  # it is asked for again
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, LIMIT_S)


@contextmanager
def joined(
    place: Path | str, machines: int, patience_s: float = PATIENCE_S
) -> Iterator[tuple[Cluster, Watched]]:
    """A cluster to which the given number of machines have come."""
    watched = Watched()
    with open_cluster(str(place), watched, patience_s=patience_s) as cluster:
        watched.wait_for(lambda: len(cluster.machines) == machines)
        yield cluster, watched
