"""The first code that a worker runs: a channel over its pipes, through which it gets the agent.

The modules get their full names, so that their imports work as they do here. The worker's Python
need not have this package, or may have another version. The side that starts a worker uses the same
channel.
"""

from __future__ import annotations

import _thread
import io
import linecache
import marshal
import os
import pickle
import platform
import queue
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

_OLDEST = (3, 9)
# Python 3.9 can read it, and it writes large values without a copy.
_PROTOCOL = 4
# How long a worker may go on after the other side has gone, and then how long it may clean up.
_GRACE_S = 5.0
_END = object()


# An engine may return objects of subclasses of these types, which these functions turn into plain
# ones. They do not use the methods of the value: an enum's member would become its name.
_PLAIN: Mapping[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: bytes,
    list: list,
    tuple: tuple,
    dict: dict,
}


class _PlainPickler(pickle.Pickler):
    """A pickler of numbers, texts, bytes and containers. It writes subclasses as the plain type."""

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401  # the standard library's
        for kind, plain in _PLAIN.items():
            if isinstance(value, kind):
                return kind, (plain(value),)
        if isinstance(value, type) and value in _PLAIN:
            return NotImplemented
        found = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(f"the engine returned {value!r}, which is a {found}, not a plain value")


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler of the same types, which runs no other code."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401  # the same
        for kind in _PLAIN:
            if (module, name) == ("builtins", kind.__name__):
                return kind
        raise pickle.UnpicklingError(f"{module}.{name} is not a plain value")


class Channel:
    """A channel of plain values from and to the other side. It iterates over those received."""

    def __init__(
        self, source: io.BufferedReader, target: IO[bytes], *, is_worker: bool = False
    ) -> None:
        self._target = target
        self._received: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(source, is_worker), daemon=True)
        self._reader.start()

    def send(self, value: object) -> None:
        """Send a value. Raise TypeError if it is not plain, OSError if the other side is gone."""
        data = io.BytesIO()
        _PlainPickler(data, _PROTOCOL).dump(value)
        self._target.write(data.getbuffer())
        self._target.flush()

    def receive(self, limit_s: float | None = None) -> Any:  # noqa: ANN401  # a plain value
        """Return the next value. Raise EOFError after the last, or TimeoutError if none comes."""
        try:
            value = self._received.get(timeout=limit_s)
        except queue.Empty:
            raise TimeoutError from None
        if value is _END:
            self._received.put(_END)
            raise EOFError
        return value

    def __iter__(self) -> Iterator[Any]:
        with suppress(EOFError):
            while True:
                yield self.receive()

    def close(self) -> None:
        """Close the pipes. The process on the other side has ended."""
        # Data that it did not read can no longer be written.
        with suppress(OSError):
            self._target.close()
        self._reader.join(_GRACE_S)

    def _read(self, source: io.BufferedReader, is_worker: bool) -> None:  # noqa: FBT001  # of a thread
        # Anything other than a value is the end: a program that is not a worker, or half a value.
        with suppress(Exception), source:
            while source.peek(1)[:1] == pickle.PROTO:
                self._received.put(_PlainUnpickler(source).load())
        self._received.put(_END)
        if is_worker:
            time.sleep(_GRACE_S)
            # The agent is still busy. The interrupt ends Python code, which removes its files.
            _thread.interrupt_main()
            time.sleep(_GRACE_S)
            os._exit(1)


def take_module(name: str, source: str, file: str, code: bytes | None = None) -> Any:  # noqa: ANN401  # a module
    """Make a module from its text, or from `code` compiled from it, to be imported as `name`."""
    module = types.ModuleType(name)
    module.__file__ = file
    # A traceback can then show lines of a file that may not be on this machine.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[name] = module
    compiled = compile(source, file, "exec") if code is None else marshal.loads(code)  # noqa: S302
    exec(compiled, module.__dict__)  # noqa: S102  # our own code, or a plugin's
    return module


def start(source: io.BufferedReader) -> None:
    """Receive the modules, each after the modules that it imports, and let the last one serve.

    If a worker ends with an error, the last value that it sends is the error as text.
    """
    channel = Channel(source, os.fdopen(os.dup(1), "wb"), is_worker=True)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    # Printed text must not get among the values.
    os.dup2(2, 1)
    try:
        # The other side sends nothing more to a program that does not answer.
        channel.send({})
        place, parts = channel.receive()
        _settle(**place)
        [take_module(*part) for part in parts][-1].serve(channel)
    except BaseException as error:  # noqa: BLE001  # the other side raises it
        with suppress(OSError):
            channel.send(traceback.format_exception_only(type(error), error)[-1].strip())


def _settle(chdir: str | None, nice: int, env: Mapping[str, str]) -> None:
    """Change to a folder, which may be new, and set a niceness and some variables."""
    if sys.version_info < _OLDEST:
        raise RuntimeError(
            f"this is Python {platform.python_version()}, and a worker needs "
            f"{'.'.join(map(str, _OLDEST))} or newer"
        )
    os.environ.update(env)
    if chdir is not None:
        os.makedirs(chdir, exist_ok=True)  # noqa: PTH103  # paths are strings on this side
        os.chdir(chdir)
    if nice and hasattr(os, "nice"):
        os.nice(nice)


if __name__ == "__main__":
    start(source)  # type: ignore[name-defined]  # noqa: F821  # the command line puts it there
