"""The first that a worker runs: it takes the agent's modules through the channel, and serves.

Under their full names, so that they find one another as they do here; this package need not be
there, and where it is, it may be another version of it.
"""

from __future__ import annotations

import linecache
import sys
import types
from typing import Any


def take_module(name: str, source: str, file: str) -> Any:  # noqa: ANN401  # a module
    """A module of this text, to be imported as `name` from now on."""
    module = types.ModuleType(name)
    module.__file__ = file
    # So that a traceback shows lines of a file that may not be on this machine.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[name] = module
    exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102  # our own, or a plugin's
    return module


def start(channel: Any) -> None:  # noqa: ANN401  # execnet's channel
    """Take the modules, each of which comes after those that it imports, and let the last serve."""
    taken = [take_module(*part) for part in channel.receive()]
    taken[-1].serve(channel)


if __name__ == "__channelexec__":
    start(channel)  # type: ignore[name-defined]  # noqa: F821  # execnet puts it there
