"""The addresses at which a machine of a cluster listens."""

from __future__ import annotations

import re
import socket

import pytest

from tests.support.clusters import ClusterProcesses
from tests.support.processes import on_linux, wait_until

pytestmark = pytest.mark.slow

_PORT = re.compile(r" at:? +'?(?:tcp://)?127\.0\.0\.[12]:([0-9]+)")


def is_open(host: str, port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex((host, port)) == 0


def ports_of_worker(processes: ClusterProcesses, host: str | None) -> list[int]:
    """The ports that a machine announces: of its nanny, its worker, and its metrics."""
    processes.start_scheduler("--host", "127.0.0.1")
    before = len(processes.log)
    processes.start_worker(host=host)
    wait_until(lambda: "measuring for" in processes.log)
    return [int(port) for port in dict.fromkeys(_PORT.findall(processes.log[before:]))]


@on_linux
@pytest.mark.parametrize(
    ("host", "opened", "closed"),
    [(None, "127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.2", "127.0.0.1")],
)
def test_a_machine_listens_at_one_address_only(
    own_processes: ClusterProcesses, host: str | None, opened: str, closed: str
) -> None:
    """By default, it is the one that leads to the scheduler."""
    ports = ports_of_worker(own_processes, host)
    assert len(ports) == 3
    assert [is_open(opened, port) for port in ports] == [True] * 3
    assert [is_open(closed, port) for port in ports] == [False] * 3
    wait_until(lambda: "cluster/#tls\n" in own_processes.log)
    (warned,) = [line for line in own_processes.log.splitlines() if "without TLS" in line]
    assert warned == (
        f"warning: without TLS, anyone who reaches tcp://{opened}:{ports[1]} can run code here as "
        "this user: see https://pytest-modelperf.github.io/pytest-modelperf/cluster/#tls"
    )
