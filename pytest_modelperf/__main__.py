"""The `modelperf` command as a process, also started by `python -m pytest_modelperf`.

An interrupt can come at any moment. So this file imports next to nothing before it can report one.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

# Same as in `typing`, whose import takes long enough for an interrupt to come.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# Importing makes hundreds of thousands of objects that stay, so collecting garbage finds none.
_OBJECTS_BEFORE_COLLECTION = 100_000
# The exit code that a shell gives to a program ended by SIGINT.
_INTERRUPTED = 130


def run() -> None:
    """Run the command, and end the process without tearing the interpreter down.

    Unloading onnx and numpy takes about as long as a static profile of a small model.
    """
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    try:
        _end(_exit_code())
    except KeyboardInterrupt:
        # A second interrupt does not wait for the exit handlers.
        os._exit(_report_interrupt())


def _exit_code() -> int:
    try:
        from pytest_modelperf.cli import main

        main(prog_name="modelperf")
    except SystemExit as ended:
        if isinstance(ended.code, int):
            return ended.code
        # The interpreter reports a stream that cannot be flushed.
        raise
    except KeyboardInterrupt:
        return _report_interrupt()
    return 0


def _end(code: int) -> NoReturn:
    """Run the exit handlers of other code, then end the process.

    Examples are the end of a recording and the removal of a temporary folder.
    """
    from contextlib import suppress

    from pytest_modelperf.files.interrupts import interrupt_held, lost_interrupts_raised

    with lost_interrupts_raised(), interrupt_held() as held:
        with suppress(OSError, ValueError):
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
        atexit._run_exitfuncs()  # noqa: SLF001  # has no public name, unchanged since Python 3.0
    os._exit(_report_interrupt() if held.has_come else code)


def _report_interrupt() -> int:
    if sys.stderr is not None:
        sys.stderr.write("interrupted\n")
    return _INTERRUPTED


if __name__ == "__main__":
    run()
