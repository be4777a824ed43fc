"""Interrupts: held back while something is finished, and raised again if they would be lost."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# A callback ends within this time.
_CALLBACK_S = 0.01


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


@contextmanager
def lost_interrupts_raised() -> Iterator[None]:
    """Raise each interrupt again that came in a callback of the interpreter, as a finalizer is.

    Such a callback has no caller that an exception could reach: Python prints it and goes on.
    """
    before = sys.unraisablehook

    def raise_again(lost: UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            before(lost)
            return
        # A real signal also wakes a main thread that waits.
        main = threading.main_thread().ident
        again = threading.Timer(_CALLBACK_S, signal.pthread_kill, (main, signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        sys.unraisablehook = before
