"""A cluster with two machines, one started by our command and one by Dask's."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_modelperf.cluster.cluster import Cluster
from tests.support.clusters import ClusterProcesses, Watched, joined

# `make` installs the extra; these are the tests that a Python without it can run too.
collect_ignore_glob = [] if find_spec("distributed") else ["test_real_*.py"]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    started = ClusterProcesses(tmp_path_factory.mktemp("cluster"))
    try:
        started.start_scheduler()
        started.start_worker("first", "board")
        started.start_dask_worker("second")
        yield started
    finally:
        started.close()


@pytest.fixture
def watched_cluster(processes: ClusterProcesses) -> Iterator[tuple[Cluster, Watched]]:
    with joined(processes.file, machines=2) as both:
        yield both


@pytest.fixture
def cluster(watched_cluster: tuple[Cluster, Watched]) -> Cluster:
    return watched_cluster[0]


@pytest.fixture
def own_processes(tmp_path: Path) -> Iterator[ClusterProcesses]:
    """Processes that a test may end."""
    started = ClusterProcesses(tmp_path)
    try:
        yield started
    finally:
        started.close()
