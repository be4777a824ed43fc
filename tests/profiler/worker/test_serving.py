"""A worker that answers over a channel: what it leaves when the channel ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pytest_modelperf.profiler.worker.agent import serve
from pytest_modelperf.systems.process import OWN_PROCESS

if TYPE_CHECKING:
    from pytest_modelperf.profiler.worker.starter import Channel


class Line:
    """A channel whose other side is gone after some requests."""

    def __init__(self, *requests: dict[str, Any]) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._requests)

    def send(self, answer: dict[str, Any]) -> None:
        assert "ok" in answer


def test_a_worker_leaves_nothing_where_the_other_side_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    begin = {"command": "begin", "cores": 1, "is_child": False, "folder": str(folder)}
    put = {"command": "put", "name": "model/m.onnx", "data": b"model", "start": True}
    was_restored: list[bool] = []

    def run() -> None:
        before = OWN_PROCESS.allowed_processors()
        serve(cast("Channel", Line(begin, put)))
        was_restored.append(OWN_PROCESS.allowed_processors() == before)

    # Only this thread is pinned.
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert was_restored == [True]
    assert not folder.exists()
