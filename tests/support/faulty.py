"""An engine that obeys its options: it answers at once, or crashes, hangs, fails, starts others.

What to do is an option, as texts: `at` is the number of the inference in which it happens, `do` is
`signal`, `hang`, `fail`, `grow`, `spawn`, `print`, `exit`, or `end` another process: the one of the
option `process`, or the one that started this; `note` is a file to write the process into, `once`
one whose presence says that it has happened, and `after` one without which `end` waits. It needs
nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class OptionError(ValueError):
    """An option that this engine does not know."""


def describe(options: dict[str, str]) -> dict[str, Any]:
    return {"name": "faulty", "version": "1", "options": options, "providers": []}


def load(model: object, threads: int, options: dict[str, str]) -> _Session:  # noqa: ARG001  # the contract's
    if "unknown" in options:
        raise OptionError("this engine has no option 'unknown'.")
    if "note" in options:
        Path(options["note"]).write_text(str(os.getpid()))
    return _Session(options)


class _Session:
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._runs = 0

    def prepare(self, inputs: object, dtypes: object) -> Callable[[], None]:  # noqa: ARG002  # the contract's
        return self._infer

    def peak_bytes(self) -> int | None:
        return 4096

    def close(self) -> None:
        pass

    def _infer(self) -> None:
        self._runs += 1
        if self._runs == int(self._options.get("at", "0")) and not self._has_happened():
            getattr(self, "_" + self._options["do"])()

    def _has_happened(self) -> bool:
        if "once" not in self._options:
            return False
        once = Path(self._options["once"])
        has_happened = once.exists()
        once.touch()
        return has_happened

    def _signal(self) -> None:
        os.kill(os.getpid(), getattr(signal, self._options["signal"]))

    def _hang(self) -> None:
        while True:
            time.sleep(60)

    def _fail(self) -> None:
        raise ValueError("the input does not fit")

    def _grow(self) -> None:
        self._kept = bytearray(1 << 40)

    def _spawn(self) -> None:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(self._options["note"]).write_text(str(child.pid))
        self._signal()

    def _print(self) -> None:
        sys.stdout.write("a word from the engine\n")
        sys.stderr.write("\x1b[31mand another\n")
        self._signal()

    def _end(self) -> None:
        while "after" in self._options and not Path(self._options["after"]).exists():
            time.sleep(0.01)
        os.kill(int(self._options.get("process", os.getppid())), signal.SIGKILL)
        self._hang()

    def _exit(self) -> None:
        os._exit(7)
