"""Delaying interrupts while something is finished, and raising lost ones again.

SIGTERM ends a program by an exception too, which can be lost in the same way.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, cast

from msgspec import Struct

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# A callback is expected to end within this time.
_CALLBACK_S = 0.01


class TerminatedExit(SystemExit):
    """The exit that a handler of SIGTERM raises."""


class HeldInterrupt(Struct):
    """Whether an interrupt has come that is not yet acted upon."""

    has_come: bool = False


@contextmanager
def interrupt_held() -> Iterator[HeldInterrupt]:
    """Record the first Ctrl-C in the yielded object instead of raising it.

    A second one acts at once. Outside the main thread, the only one that gets interrupts, this does
    nothing.
    """
    held = HeldInterrupt()
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    # A handler set by C code shows as None. A process that ignores interrupts continues to do so.
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
def interrupt_delayed() -> Iterator[None]:
    """Delay the first Ctrl-C to the end of the short body. A second one acts at once."""
    held = HeldInterrupt()
    try:
        with interrupt_held() as held:
            yield
    finally:
        # Even if the body failed.
        if held.has_come:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def lost_interrupts_raised(callback_s: float = _CALLBACK_S) -> Iterator[None]:
    """Raise each interrupt again that came in a callback of the interpreter, such as a finalizer.

    Such a callback has no caller that an exception could reach: Python prints it and continues. The
    callback is expected to end within `callback_s`; if it takes longer, the interrupt is raised
    once more. The same holds for a `TerminatedExit`.
    """
    before = sys.unraisablehook

    def raise_again(lost: UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            number = signal.SIGINT
        elif issubclass(lost.exc_type, TerminatedExit):
            number = signal.SIGTERM
        else:
            before(lost)
            return
        while True:
            try:
                _thread.start_new_thread(_interrupt_after, (callback_s, number))
            except (KeyboardInterrupt, TerminatedExit):
                # On a busy machine the new interrupt can come before this callback has returned.
                continue
            return

    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        sys.unraisablehook = before


def _interrupt_after(seconds: float, number: signal.Signals) -> None:
    time.sleep(seconds)
    if hasattr(signal, "pthread_kill"):
        # Unlike `interrupt_main`, a real signal also wakes a waiting main thread.
        signal.pthread_kill(cast("int", threading.main_thread().ident), number)
    else:
        _thread.interrupt_main(number)
