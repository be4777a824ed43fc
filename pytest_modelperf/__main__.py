"""The `modelperf` command as a process, also as `python -m pytest_modelperf`."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys

from pytest_modelperf.cli import main

# Importing makes hundreds of thousands of objects that stay, so looking for garbage finds none.
_OBJECTS_BEFORE_COLLECTION = 50_000


def run() -> None:
    """Run the command, and end the process without tearing the interpreter down.

    Unloading onnx and numpy takes about as long as a static profile of a small model.
    """
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    try:
        main(prog_name="modelperf")
    except SystemExit as ended:
        code = ended.code
        if not isinstance(code, int):
            raise
        with contextlib.suppress(OSError, ValueError):
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            # What others registered still runs: a recording of this program, a temporary folder.
            atexit._run_exitfuncs()  # noqa: SLF001  # no public name, unchanged since Python 3.0
            os._exit(code)
        # A stream that cannot be flushed is reported by the interpreter.
        raise


if __name__ == "__main__":
    run()
