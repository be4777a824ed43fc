"""The `sitecustomize` module of each Python that `modelperf trace -- COMMAND` starts.

`launch` copies this file into a temporary folder, first in PYTHONPATH. Any Python may load it, with
this package or without, so it imports nothing but the standard library at its top.
"""

import importlib.machinery
import importlib.util
import os
import sys
from contextlib import suppress
from pathlib import Path

FOLDER = Path(__file__).absolute().parent
NOTES_NAME = "started.txt"


def _run_own_sitecustomize() -> None:
    """Run the environment's own `sitecustomize`, if it has one, in place of this one."""
    # The program sees the path that it would have without us.
    sys.path[:] = [path for path in sys.path if path != str(FOLDER)]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _start_tracing() -> None:
    """Trace this process, and note for the launcher whether that was possible."""
    problem = ""
    try:
        import pytest_modelperf.tracing.autostart  # noqa: F401  # its import begins the tracing
    except ImportError as error:
        problem = str(error)
    # The folder may be gone: a process can outlive the command that it was started for.
    with suppress(OSError), (FOLDER / NOTES_NAME).open("a", encoding="utf-8") as notes:
        notes.write(f"{sys.executable}\t{problem}\n")


if __name__ == "sitecustomize":
    try:
        _run_own_sitecustomize()
    finally:
        if os.environ.get("MODELPERF_TRACE"):
            _start_tracing()
