"""Run any Python function as an engine.

Its source is sent to a worker, so it needs only Python.

The model is a function, or the name of one: `package.module:function`. It gets the inputs as
keyword arguments, and one call of it is timed. There are no options. If `threads` is set,
environment variables pass it to kernel libraries; 0 leaves the program as it is.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Array

NAME = "callable"

_FORM = "package.module:function"
# Kernel libraries read their number of threads from these variables, at import.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class OptionError(ValueError):
    """The function is missing or runs nothing when it is called, or an option was given."""


def describe(options: Mapping[str, str]) -> dict[str, Any]:
    if options:
        raise OptionError(
            f"the engine {NAME} takes no options, and {', '.join(sorted(options))} was given. "
            "Set what the function needs in its module."
        )
    return {"name": NAME, "version": None, "options": {}, "providers": []}


def load(model: Any, threads: int, options: Mapping[str, str]) -> _Session:  # noqa: ANN401, ARG001  # its path may be a function; `describe` has refused options
    function = model.path
    reference = getattr(function, "__qualname__", str(function))
    if isinstance(function, str):
        if threads:
            os.environ.update(dict.fromkeys(_THREADS, str(threads)))
        function = _find(function)
    _check(function, reference)
    return _Session(function)


class _Session:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.file = _file_of(function)

    def prepare(
        self,
        inputs: Mapping[str, Array],
        dtypes: Mapping[str, str],  # noqa: ARG002  # arrays come as they are
    ) -> Callable[[], Any]:
        # A function expects a single text as a plain `str`, not as an array without a shape.
        arguments = {
            name: array.item() if array.dtype.hasobject and array.ndim == 0 else array
            for name, array in inputs.items()
        }
        return functools.partial(self._function, **arguments) if arguments else self._function

    # A function that several threads call at once must be thread-safe.
    prepare_another = prepare

    def peak_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        del self._function


def find_named(
    reference: str,
    no_module: Callable[[str], Exception],
    no_part: Callable[[str, object], Exception],
) -> Any:  # noqa: ANN401  # any object may have that name
    """Return the object that `package.module:function` names. Dots after the colon are allowed.

    `no_module` makes the error for a missing module, from its name. `no_part` makes the error for a
    missing attribute, from its name and the object that lacks it.
    """
    name, _, path = reference.partition(":")
    try:
        found: Any = importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A missing import inside the function's own module is another error.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise no_module(error.name) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise no_part(part, found)
        found = getattr(found, part)
    return found


def _find(reference: str) -> Any:  # noqa: ANN401
    name, _, path = reference.partition(":")
    if not name or not path:
        raise OptionError(f"{reference!r} does not name a function. Write it as {_FORM}.")
    return find_named(
        reference,
        lambda module: OptionError(
            f"there is no module {module!r} for {reference!r}. Start from the folder that it "
            "is in, or put that folder into PYTHONPATH."
        ),
        lambda part, owner: OptionError(
            f"there is no {part!r} in {name!r} for {reference!r}. Functions there: "
            f"{', '.join(_functions(owner)) or 'none'}."
        ),
    )


def _file_of(function: Any) -> str | None:  # noqa: ANN401  # anything callable
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isfunction(function):
        function = inspect.unwrap(function)
    module = sys.modules.get(str(getattr(function, "__module__", "")))
    for owner in (function, type(function), module):
        # Code written in C has no file, but its module may have one.
        with contextlib.suppress(TypeError, OSError):
            return os.path.abspath(inspect.getfile(cast("Any", owner)))  # noqa: PTH100  # paths are strings here
    return None


def _functions(owner: object) -> list[str]:
    return [name for name, _ in inspect.getmembers(owner, inspect.isroutine) if name[0] != "_"]


def _check(function: Any, reference: str) -> None:  # noqa: ANN401
    """Raise OptionError for objects whose call runs nothing."""
    if not callable(function):
        raise OptionError(
            f"{reference!r} is a {type(function).__name__}, which cannot be called. "
            f"Name a function: {_FORM}."
        )
    if isinstance(function, type):
        raise OptionError(
            f"{reference!r} is a class: calling it only creates an instance. Name a "
            "function, or a method of an instance: package.module:instance.method."
        )
    called = (function, type(function).__call__)
    if any(map(inspect.iscoroutinefunction, called)):
        raise OptionError(
            f"{reference!r} is a coroutine function: calling it runs nothing. Write a function "
            "that runs it to its end with asyncio.run, and name that one."
        )
    if any(inspect.isgeneratorfunction(f) or inspect.isasyncgenfunction(f) for f in called):
        raise OptionError(
            f"{reference!r} is a generator function: calling it runs nothing. Write a function "
            "that iterates over all that it yields, and name that one."
        )
