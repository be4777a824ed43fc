"""The connection to a cluster, closed while something is still under way."""

from __future__ import annotations

import asyncio
import pickle
import platform
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="needs the extra `cluster`")

from pytest_modelperf.cluster.connection import connected, require_our_python
from pytest_modelperf.cluster.places import ClusterPlace
from pytest_modelperf.cluster.records import JobOrder
from pytest_modelperf.cluster.runner import task_of
from pytest_modelperf.cluster.wire import to_text
from pytest_modelperf.errors import ClusterError
from tests.support.clusters import ClusterProcesses


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes no more connections: the next one waits."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)  # noqa: FBT003  # it takes no name
            each.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]
        for each in waiting:
            each.close()


def test_a_connection_that_is_under_way_leaves_no_socket_open(
    tmp_path: Path, silent_port: int
) -> None:
    processes = ClusterProcesses(tmp_path)
    try:
        processes.start_scheduler()
        before = open_sockets()
        with connected(ClusterPlace(scheduler_file=processes.file)) as client:

            async def begin() -> asyncio.Task[Any]:
                connecting = client.rpc.connect(f"tcp://127.0.0.1:{silent_port}")
                task: asyncio.Task[Any] = asyncio.ensure_future(connecting)
                # Another socket may be closed meanwhile.
                while open_sockets() <= client_sockets:  # noqa: ASYNC110  # there is no event to wait for
                    await asyncio.sleep(0)
                return task

            client_sockets = open_sockets()
            under_way = client.sync(begin)
        assert under_way.done()
        assert isinstance(under_way.exception(), OSError)
        assert open_sockets() <= before
    finally:
        processes.close()


def test_a_task_is_read_by_any_version_of_python() -> None:
    """It holds names and texts alone: plain pickle sends no code."""
    order = JobOrder(key="k", topic="t", work="m:f", request="'", models=(), version="0")
    function, *arguments = pickle.loads(pickle.dumps(task_of(order)))  # noqa: S301  # our own
    assert function is eval
    assert arguments[1] == {"order": to_text(order)}


def test_a_scheduler_of_another_python_is_one_error() -> None:
    place = ClusterPlace(address="tcp://s:8786")
    require_our_python(platform.python_version(), place)
    with pytest.raises(
        ClusterError, match=r"at tcp://s:8786 runs Python 3\.4, and this is Python 3"
    ):
        require_our_python("3.4.1.final.0", place)


def open_sockets() -> set[str]:
    found = set()
    for file in Path("/proc/self/fd").iterdir():
        try:
            target = str(file.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found
