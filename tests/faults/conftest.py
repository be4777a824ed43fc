"""The project to run pytest in is that of the tests of the plugin; and no test waits for ever."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import pytest

from tests.testing.conftest import run

__all__ = ["run"]

# Enough for a hundred times the work: what takes longer waits for something.
_SECONDS = 300


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """A test that waits for what never comes fails."""

    def fail(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """A shell starts what runs in its background deaf to SIGINT, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
