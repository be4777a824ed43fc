"""A trace of a program that is not changed: `MODELPERF_TRACE=trace.json python program.py`.

`start.pth` lies beside what is installed, and Python runs its one line as it starts: where the
variable is set, that imports this module. Nothing is recorded, and no file is written, before the
program imports onnxruntime. The trace is written when the program ends.

So does each process that the program starts or forks, into a file of its own. But that begins when
it first uses the runtime: many processes inherit it, or import it, and have another task.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_modelperf.tracing.profiling import Profiling

VARIABLE = "MODELPERF_TRACE"
# The process that the file is for. Those that it starts write files of their own beside it.
OWNER = "MODELPERF_TRACE_PROCESS"
_RUNTIME = "onnxruntime"
_STDOUT = "-"
# After all else that multiprocessing does as a process ends: it goes from high numbers to low ones.
_LAST = -1_000_000


def start() -> None:
    """Wait for the runtime, if a trace is asked for."""
    file = os.environ.get(VARIABLE)
    if file == _STDOUT:
        # Programs that it starts need not say it once more.
        del os.environ[VARIABLE]
        _say("it takes a file: standard output is the program's own.")
    elif file:
        os.environ.setdefault(OWNER, str(os.getpid()))
        # Absolute from here on, for the program may change its folder.
        try:
            path = Path(file).absolute()
        except FileNotFoundError:
            _say(f"cannot write {file}: the working folder was removed.")
            return
        sys.meta_path.insert(0, _RuntimeFinder(path))


class _RuntimeFinder(importlib.abc.MetaPathFinder):
    """Begins the profile when the runtime has been imported."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _RUNTIME:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _RuntimeLoader(spec.loader, self._file)
                return spec
        return None


class _RuntimeLoader(importlib.abc.Loader):
    """Loads the runtime as it would be, and then begins."""

    def __init__(self, loader: importlib.abc.Loader, file: Path) -> None:
        self._loader = loader
        self._file = file

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            # The program finds the loader that it would find without us.
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        # A process that measures takes the variable away again as it starts.
        if os.environ.get(VARIABLE):
            _Tracing(self._file).begin()


class _Tracing:
    """The trace of this process, and of each that is forked from it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._has_failed = False

    def begin(self) -> None:
        """Begin in the process that the file is for; in any other when it uses the runtime."""
        if os.environ.get(OWNER) == str(os.getpid()):
            self._record()
        else:
            self._await_use()
        # After what the modules in use have registered, for it is called in that order.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._follow)

    def _follow(self) -> None:
        """In a process that was forked: what was recorded so far is of the other one."""
        # What was said once is not said by every process.
        if os.environ.get(VARIABLE) and not self._has_failed:
            self._await_use()

    def _await_use(self) -> None:
        from pytest_modelperf.profiler.engines.onnxruntime_methods import FirstUse

        FirstUse(self._record).begin()

    def _record(self) -> None:
        from pytest_modelperf.errors import ModelPerfError
        from pytest_modelperf.tracing.profiling import profile

        made = profile(_own(self._file))
        try:
            made.__enter__()
        except (ModelPerfError, OSError) as error:
            # The program runs, as it would without a trace.
            self._has_failed = True
            _say(str(error))
            return
        _end_with_process(made)


def _own(file: Path) -> Path:
    """The file of this process."""
    process = str(os.getpid())
    if os.environ.get(OWNER) == process:
        return file
    return file.with_name(f"{file.stem}-{process}{file.suffix}")


def _end_with_process(made: Profiling) -> None:
    atexit.register(_end, made)
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:
        _end_with_child(made)
        # What was registered in a process that it had not set up yet is forgotten.
        multiprocessing.register_after_fork(made, _end_with_child)


def _end_with_child(made: Profiling) -> None:
    """End it with a process of multiprocessing: one that is forked exits without atexit."""
    import multiprocessing
    import multiprocessing.util

    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _end, args=(made,), exitpriority=_LAST)


def _end(made: Profiling) -> None:
    if not made.is_recording:
        return
    import warnings

    from pytest_modelperf.errors import ModelPerfError

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made.__exit__(None, None, None)
    except ModelPerfError as error:
        _say(str(error))
        return
    finally:
        # Where the process ends at once, nothing else would remove it.
        made.discard()
    for warning in caught:
        _say(str(warning.message))


def _say(text: str) -> None:
    # Where it is closed there is none, and print would take standard output.
    if sys.stderr is not None:
        print(f"{VARIABLE}: {text}", file=sys.stderr)  # noqa: T201  # the program has no other place


start()
