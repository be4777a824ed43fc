"""The first code that a worker runs: it receives the agent's modules, and serves.

The modules get their full names, so that their imports work as they do here. This package need not
be installed there, and may be another version.
"""

from __future__ import annotations

import linecache
import marshal
import platform
import sys
import types
from functools import partial
from typing import Any

_OLDEST = (3, 9)


def take_module(name: str, source: str, file: str, code: bytes | None = None) -> Any:  # noqa: ANN401  # a module
    """A module of this text, to be imported as `name` from now on.

    `code` is what the same Python compiled it to.
    """
    module = types.ModuleType(name)
    module.__file__ = file
    # A traceback can then show lines of a file that may not be on this machine.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[name] = module
    compiled = compile(source, file, "exec") if code is None else marshal.loads(code)  # noqa: S302
    exec(compiled, module.__dict__)  # noqa: S102  # our own, or a plugin's
    return module


def start(channel: Any) -> None:  # noqa: ANN401  # execnet's channel
    """Receive the modules, each after the modules that it imports, and let the last one serve."""
    parts = channel.receive()
    if sys.version_info < _OLDEST:
        raise RuntimeError(
            f"this is Python {platform.python_version()}, and a worker takes "
            f"{'.'.join(map(str, _OLDEST))} or newer"
        )
    taken = [take_module(*part) for part in parts]
    serve = partial(taken[-1].serve, channel)
    # A worker on this machine keeps its main thread for this.
    host = getattr(sys.modules["__main__"], "modelperf_host", None)
    if host is None:
        serve()
    else:
        host.run(serve)


if __name__ == "__channelexec__":
    start(channel)  # type: ignore[name-defined]  # noqa: F821  # execnet puts it there
