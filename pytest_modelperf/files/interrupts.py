"""Holds an interrupt back while something is finished that would be lost otherwise."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from msgspec import Struct


class HeldInterrupt(Struct):
    """Whether an interrupt came that nothing has acted upon yet."""

    has_come: bool = False


@contextmanager
def interrupt_held() -> Iterator[HeldInterrupt]:
    """Keep the first Ctrl-C for whoever looks at what is yielded; a second one acts at once.

    Outside of the main thread, which alone gets interrupts, nothing is held.
    """
    held = HeldInterrupt()
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    # Another language's handler is None, and a process that ignores interrupts goes on doing so.
    if not is_main or before in {None, signal.SIG_IGN}:
        yield held
        return

    def hold(_number: int, _frame: FrameType | None) -> None:
        held.has_come = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, hold)
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)
