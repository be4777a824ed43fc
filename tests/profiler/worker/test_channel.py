"""The channel to a worker: plain values alone, and an end whatever the other side does."""

from __future__ import annotations

import datetime as dt
import os
import pickle
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from pytest_modelperf.profiler.worker.starter import Channel

Pipe = tuple[Channel, BinaryIO]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A channel that reads what it sends, and its other end, for other bytes."""
    source, target = os.pipe()
    writing = os.fdopen(target, "wb")
    channel = Channel(os.fdopen(source, "rb"), writing)
    yield channel, writing
    channel.close()


@pytest.mark.parametrize(
    "value",
    [None, {"a": (1, 2.5, True), "b": [b"bytes", "text"]}, bytes(1 << 20), "half \udcff", 1 << 80],
)
def test_a_plain_value_arrives_as_it_is(pipe: Pipe, value: object) -> None:
    channel, _ = pipe
    channel.send(value)
    assert channel.receive(60.0) == value


@pytest.mark.parametrize(
    "data",
    [
        b"hello\n",
        pickle.dumps(print, 4),
        pickle.dumps(dt.date(2000, 1, 1), 4),
        pickle.dumps("cut off", 4)[:-3],
        b"\x80\x04garbage",
        b"",
    ],
)
def test_bytes_that_are_no_plain_value_are_the_end(pipe: Pipe, data: bytes) -> None:
    channel, writing = pipe
    channel.send("before")
    writing.write(data)
    writing.close()
    assert list(channel) == ["before"]
    with pytest.raises(EOFError):
        channel.receive(60.0)


def test_silence_has_an_end(pipe: Pipe) -> None:
    channel, _ = pipe
    with pytest.raises(TimeoutError):
        channel.receive(0.01)
