"""A cluster that uses TLS, by the certificates of Dask's configuration."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import dask
import distributed  # noqa: F401  # brings its settings before any is changed
import pytest

from pytest_modelperf.cluster.cluster import open_cluster
from pytest_modelperf.errors import ClusterError
from tests.cluster.test_real_jobs import job, result
from tests.support import cluster_work
from tests.support.certificates import as_environment, write_certificates
from tests.support.clusters import ClusterProcesses, joined
from tests.support.processes import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.version_info >= (3, 14),
        reason="connections of Dask with TLS break there on a busy machine (docs/cluster.md)",
    ),
]


def test_only_clients_with_a_certificate_are_accepted(tmp_path: Path) -> None:
    settings = write_certificates(tmp_path / "certificates")
    foreign = write_certificates(tmp_path / "foreign")
    processes = ClusterProcesses(tmp_path, as_environment(settings))
    try:
        processes.start_scheduler("--protocol", "tls")
        processes.start_worker("first")
        address = json.loads(processes.file.read_text())["address"]
        assert address.startswith("tls://")
        with dask.config.set(settings), joined(address, machines=1) as (cluster, _):
            assert cluster.machines[0].address.startswith("tls://")
            assert result(cluster.submit(job(cluster_work.tell_process)))
        wait_until(lambda: "measuring for" in processes.log)
        assert "without TLS" not in processes.log
        with dask.config.set(foreign):
            refuse(address)
        refuse(address)
        refuse(address.replace("tls://", "tcp://"))
    finally:
        processes.close()


def refuse(address: str) -> None:
    with (
        pytest.raises(
            ClusterError, match=r"no Dask scheduler answers at .*tls\.ca-file"
        ) as refused,
        open_cluster(address, timeout_s=1.0),
    ):
        pass
    # The error holds the frames, and so the client: it has nevertheless stopped completely.
    assert refused.value.__cause__ is not None
    assert "IO loop" not in {thread.name for thread in threading.enumerate()}
