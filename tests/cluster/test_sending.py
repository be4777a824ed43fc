"""Models sent to a machine that may vanish meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_modelperf.cluster.models import PIECE_BYTES, Sender
from pytest_modelperf.cluster.records import ModelContent, SentFile


@pytest.mark.parametrize(
    ("answers", "sent"),
    [
        ({"tcp://a": None}, ["modelperf_put", "modelperf_put", "modelperf_put", "modelperf_end"]),
        ({}, ["modelperf_put", "modelperf_end"]),
    ],
)
def test_no_more_of_a_model_is_sent_to_a_machine_that_is_gone(
    tmp_path: Path, answers: dict[str, None], sent: list[str]
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(bytes(PIECE_BYTES + 1))
    content = ModelContent(str(path), "digest", (SentFile(path.name, PIECE_BYTES + 1),))
    messages: list[dict[str, Any]] = []

    async def connect(_: str) -> None:
        raise OSError("unreachable")

    async def broadcast(msg: dict[str, Any], **_: object) -> dict[str, None]:
        messages.append(msg)
        return answers

    client = SimpleNamespace(
        rpc=SimpleNamespace(connect=connect, reuse=None),
        scheduler=SimpleNamespace(broadcast=broadcast),
    )
    asyncio.run(Sender(client).send(content, "tcp://a", "key"))
    assert [each["op"] for each in messages] == sent
    assert (messages[-1]["error"] is None) is bool(answers)
