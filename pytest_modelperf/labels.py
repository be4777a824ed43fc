"""`label`, which names a part of a program for any recorder.

A program may use it in production: it costs next to nothing unless a recorder is active.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias

Recorder: TypeAlias = Callable[[str], AbstractContextManager[None]]

_NOT_RECORDED = contextlib.nullcontext()
# Global to the process, because a program cannot pass a recorder to each of its functions.
_recorders: tuple[Recorder, ...] = ()


def label(name: str) -> AbstractContextManager[None]:
    """Name the code inside the `with` statement, for a checked program or an active trace.

    Labels can be nested. Without a check or trace, this does nothing.

        with label("resize"):
            pages = resize(pages)
    """
    recorders = _recorders
    if not recorders:
        return _NOT_RECORDED
    if len(recorders) == 1:
        return recorders[0](name)
    return _recorded_by(recorders, name)


def add_recorder(recorder: Recorder) -> None:
    global _recorders  # noqa: PLW0603  # written only by these two functions
    _recorders = (*_recorders, recorder)


def remove_recorder(recorder: Recorder) -> None:
    global _recorders  # noqa: PLW0603
    _recorders = tuple(each for each in _recorders if each != recorder)


@contextlib.contextmanager
def _recorded_by(recorders: tuple[Recorder, ...], name: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for recorder in recorders:
            stack.enter_context(recorder(name))
        yield
