"""Replace methods of ONNX Runtime's sessions for a while.

The replacement belongs to one process: a forked process has the original methods.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import onnxruntime as ort

# The argument with the inputs of each method that runs a model.
RUNS: Mapping[str, tuple[int, str]] = {
    "run": (1, "input_feed"),
    "run_with_ort_values": (1, "input_dict_ort_values"),
    "run_with_iobinding": (0, "iobinding"),
    "run_with_ortvaluevector": (2, "feeds"),
}


class WrappedMethods:
    """Methods of a class, wrapped until they are restored."""

    def __init__(self, owner: Any = ort.InferenceSession) -> None:  # noqa: ANN401  # no types
        self._owner = owner
        self.originals: dict[str, Callable[..., Any]] = {}
        self._wrapped: dict[str, Callable[..., Any]] = {}
        self._inherited: set[str] = set()

    def wrap(self, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replace a method by its wrapper, if this runtime has the method."""
        original = getattr(self._owner, name, None)
        if original is None:
            return
        if name not in vars(self._owner):
            self._inherited.add(name)
        self.originals[name] = original
        self._wrapped[name] = functools.wraps(original)(make(original))
        setattr(self._owner, name, self._wrapped[name])

    def is_in_place(self, name: str) -> bool:
        """Whether the class has our wrapper, and no other code has wrapped it again."""
        return getattr(self._owner, name) is self._wrapped.get(name)

    def put_back(self) -> None:
        for name in self._wrapped:
            # A later wrapper calls ours, which from now on only calls the original.
            if not self.is_in_place(name):
                continue
            if name in self._inherited:
                delattr(self._owner, name)
            else:
                setattr(self._owner, name, self.originals[name])


class FirstUse:
    """A callback that is called once, before this process creates or runs its first session."""

    def __init__(self, on_use: Callable[[], None]) -> None:
        self._on_use = on_use
        self._methods = WrappedMethods()
        self._is_awaited = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        self._is_awaited = True
        _AWAITED.add(self)
        for name in ("__init__", "run_async", *RUNS):
            self._methods.wrap(name, functools.partial(self._first, name))

    def put_back(self) -> None:
        self._methods.put_back()

    def leave(self) -> None:
        """Do not call back in a process that was forked."""
        self._is_awaited = False
        # A thread of the parent process may have held the lock.
        self._lock = threading.Lock()
        self._methods.put_back()

    def _first(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(session: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # no types
            is_plain = self._is_awaited and self._methods.is_in_place(name)
            with self._lock:
                if self._is_awaited:
                    self._on_use()
                    self._is_awaited = False
                    self._methods.put_back()
            # Call the method that has replaced this one by now; its wrappers have already run.
            now = getattr(ort.InferenceSession, name) if is_plain else original
            return now(session, *arguments, **named)

        return method


_AWAITED: weakref.WeakSet[FirstUse] = weakref.WeakSet()


def make_way() -> None:
    """Remove the wrappers that wait for the first use, because it happens now."""
    for awaited in list(_AWAITED):
        awaited.put_back()


def _leave_forked() -> None:
    for awaited in list(_AWAITED):
        awaited.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_forked)
