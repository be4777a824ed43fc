"""The work of jobs in the tests of the cluster, in a module that its workers can import."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from pytest_modelperf.cluster.records import JobContext
from pytest_modelperf.errors import BindingError, Remedy
from pytest_modelperf.profiler.measurements import Progress


def tell_process(request: str, context: JobContext) -> str:  # noqa: ARG001  # a work's
    """The process that runs it."""
    return str(os.getpid())


def tell_environment(request: str, context: JobContext) -> str:  # noqa: ARG001  # a work's
    """The variables of the process that runs it."""
    return json.dumps(dict(os.environ))


def wait(request: str, context: JobContext) -> str:  # noqa: ARG001  # a work's
    """Says in the file `begun` which process runs it, and reads the pipe `go` to its end."""
    folder = Path(request)
    with (folder / "begun").open("a") as file:
        file.write(f"{os.getpid()}\n")
    return (folder / "go").read_text()


def end_process(request: str, context: JobContext) -> str:  # a work's
    """Do what `wait` does, then end the Dask worker; the progress says that it began."""
    context.watch(PROGRESS)
    wait(request, context)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def measure_forever(request: str, context: JobContext) -> str:  # noqa: ARG001  # a work's
    while True:
        context.watch(PROGRESS)
        time.sleep(0.01)


def fail(request: str, context: JobContext) -> str:  # noqa: ARG001  # a work's
    raise BindingError(request, Remedy("Give {dims}.", dims=["seq"]))


def have_a_fault(request: str, context: JobContext) -> str:  # noqa: ARG001  # a work's
    raise ZeroDivisionError(request)


def show_models(request: str, context: JobContext) -> str:  # noqa: ARG001  # a work's
    """The path of each model, and which file it is."""
    return json.dumps(
        {digest: (str(path), path.stat().st_ino) for digest, path in context.paths.items()}
    )


PROGRESS = Progress(case_id="b1-c1", case_number=1, cases=1, step="timing", round=3)
