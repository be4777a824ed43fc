"""An engine that does what it should not, at a moment that is decided outside of it.

The first of its calls that finds the file `sign` removes that and does what the option `do` says:
it hangs, dies, interrupts who asked it, or changes the file `victim`, for which it may take
`other`. It needs nothing but the standard library, and registers itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_modelperf.profiler.hookspecs import Engines


def modelperf_register_engines(engines: Engines) -> None:
    engines.register("disturbing", module="tests.faults.disturbing")


def describe(options: dict[str, str]) -> dict[str, Any]:
    return {"name": "disturbing", "version": "1", "options": options, "providers": []}


def load(model: object, threads: int, options: dict[str, str]) -> _Session:  # noqa: ARG001  # the contract's
    return _Session(_Disturbance(options))


def load_profiled(
    model: object,
    threads: int,
    options: dict[str, str],
    folder: str,  # noqa: ARG001  # the contract's
) -> _Session:
    return load(model, threads, options)


class _Session:
    def __init__(self, disturb: _Disturbance) -> None:
        self._disturb = disturb
        disturb()

    def prepare(self, inputs: object, dtypes: object) -> Callable[[], None]:  # noqa: ARG002  # the contract's
        return self._infer

    prepare_another = prepare

    def read_outputs(self) -> dict[str, object]:
        self._disturb()
        return {}

    def report(self, runs: int) -> dict[str, Any]:
        self._disturb()
        kernel = {"name": "none", "op_type": "MatMul", "self_ns": [1000] * runs, "calls": 1}
        unknown = {"provider": None, "precision": None, "originals": None}
        return {"kernels": [{**kernel, **unknown}], "plan": None, "peak_bytes": None}

    def peak_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        self._disturb()

    def _infer(self) -> None:
        self._disturb()
        # Long enough that a block is not of hundreds, each of which looks for the sign.
        end = time.perf_counter_ns() + 100_000
        while time.perf_counter_ns() < end:
            pass


class _Disturbance:
    """Do the action of one session if the sign is found."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def __call__(self) -> None:
        try:
            os.unlink(self._options["sign"])  # noqa: PTH108  # paths are texts on this side
        except (FileNotFoundError, KeyError):
            return
        getattr(self, "_" + self._options["do"])()

    def _hang(self) -> None:
        while True:
            time.sleep(60)

    def _interrupt(self) -> None:
        os.kill(os.getppid(), signal.SIGINT)
        self._hang()

    def _terminate(self) -> None:
        os.kill(os.getppid(), signal.SIGTERM)
        self._hang()

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _kill_parent(self) -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        self._hang()

    def _replace(self) -> None:
        """Replace the file as a build does that writes elsewhere first."""
        victim = self._options["victim"]
        shutil.copyfile(self._options["other"], f"{victim}.new")
        os.replace(f"{victim}.new", victim)  # noqa: PTH105  # the same

    def _overwrite(self) -> None:
        """Overwrite the file as `cp` does: the same file, with other bytes."""
        shutil.copyfile(self._options["other"], self._options["victim"])

    def _truncate(self) -> None:
        os.truncate(self._options["victim"], 10)

    def _delete(self) -> None:
        os.unlink(self._options["victim"])  # noqa: PTH108  # the same

    def _confine(self) -> None:
        """Take processors away as from a container: all threads keep one."""
        left = {min(os.sched_getaffinity(0))}
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208  # the same
            os.sched_setaffinity(int(thread), left)
