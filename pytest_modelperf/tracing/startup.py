"""The `sitecustomize` module of each Python that a watched program starts.

`launch` copies this file into a temporary folder, first in PYTHONPATH. Any Python may load it, even
without this package, so it imports only the standard library at its top. Python would report an
exception here as an error of its own, so until the program begins, Ctrl-C ends the process
immediately.
"""

import os
import signal
import sys

NOTES_NAME = "started.txt"


def _run_own_sitecustomize() -> None:
    """Run the environment's own `sitecustomize`, if it has one, in place of this one."""
    import importlib.machinery
    import importlib.util
    from pathlib import Path

    # The program gets the path that it would have without this module.
    sys.path[:] = [path for path in sys.path if path != str(Path(__file__).absolute().parent)]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _start_watching() -> None:
    """Watch this process, and note for the launcher whether that was possible."""
    from contextlib import suppress
    from pathlib import Path

    problem = ""
    try:
        # The import of either begins the watch.
        if os.environ.get("MODELPERF_TRACE"):
            import pytest_modelperf.tracing.autostart
        if os.environ.get("MODELPERF_SESSION_LOG"):
            import pytest_modelperf.tracing.session_log  # noqa: F401
    except ImportError as error:
        # A note is one line.
        problem = " ".join(str(error).split())
    # The folder may be gone: a process can outlive the command that it was started for.
    with (
        suppress(OSError),
        Path(__file__).with_name(NOTES_NAME).open("a", encoding="utf-8") as notes,
    ):
        notes.write(f"{sys.executable}\t{problem}\n")


def _start() -> None:
    try:
        _run_own_sitecustomize()
    finally:
        if os.environ.get("MODELPERF_TRACE") or os.environ.get("MODELPERF_SESSION_LOG"):
            _start_watching()


if __name__ == "sitecustomize":
    _before = signal.getsignal(signal.SIGINT)
    # A process that ignores interrupts goes on doing so.
    if _before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _start()
    if _before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _before)
