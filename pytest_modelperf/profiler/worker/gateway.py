"""Start a Python through a gateway: on this machine, through ssh, or by any command.

A spec is `popen`, `popen//python=/other/venv/bin/python`, `ssh=host//python=python3`, or `command=`
with any command that runs a Python, such as `command=docker exec -i box python3`. That Python only
needs numpy and the engine.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import cast

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.interrupts import interrupt_delayed
from pytest_modelperf.profiler.engines.source import compile_module, find_source
from pytest_modelperf.profiler.worker.endings import GRACE_S
from pytest_modelperf.profiler.worker.starter import Channel
from pytest_modelperf.systems.trees import TREES, Tree
from pytest_modelperf.text.escaping import printable

_STARTER = f"{__package__}.starter"
# Reads the starter, which is one line. It has no quotes, because some shells interpret them.
_BOOT = "import io,os;source=io.BufferedReader(io.FileIO(os.dup(0)));exec(eval(source.readline()))"
LOCAL = "popen"
# The ways to a worker, the keys without a value, and all keys of a spec.
_WAYS = (LOCAL, "ssh", "command")
_FLAGS = frozenset({LOCAL, "dont_write_bytecode"})
_SPEC_KEYS = frozenset({*_WAYS, *_FLAGS, "chdir", "nice", "python", "ssh_config"})
_SPEC_EXAMPLES = "popen//python=/path/to/python, ssh=host or command=docker exec -i box python3"

# Python and an engine start within this time even on a busy machine.
LEAST_START_LIMIT_S = 60.0


class Interpreter:
    """A Python that a gateway started, and that waits for the modules of a worker.

    Raise OSError if its program does not start.
    """

    def __init__(self, spec: str, limit_s: float = LEAST_START_LIMIT_S) -> None:
        self.is_given_up = False
        self._trees: list[Tree] = []
        # A worker does not get the terminal's Ctrl-C, which would make it print a traceback. The
        # program of another way, such as ssh, may ask the user for a password in the terminal.
        options = TREES.popen_options() if is_local(spec) else {}
        with ExitStack() as stack:
            with interrupt_delayed():
                self.process = subprocess.Popen(  # noqa: S603  # the user's gateway
                    command_of(spec),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    # If stderr is closed here, a pipe would have its number in the worker.
                    stderr=subprocess.DEVNULL if sys.__stderr__ is None else None,
                    # Nothing is imported from the working folder, because a folder that came with a
                    # model may hold a `numpy.py`. Pythons before 3.11 ignore the variable.
                    env={**os.environ, "PYTHONSAFEPATH": "1"},
                    **options,
                )
                source = cast("io.BufferedReader", self.process.stdout)
                target = cast("io.BufferedWriter", self.process.stdin)
                self._trees.append(TREES.tree_of(self.process.pid))
                for undo in (self._wait, source.close, target.close, self.kill):
                    stack.callback(_try, undo)
            with watchdog(limit_s, self.give_up), suppress(OSError):
                target.write(f"{_starter_for(spec)}\n".encode())
                target.flush()
            self.channel = Channel(source, target)
            stack.pop_all()

    def watch(self, pid: int) -> None:
        """End this process as well: a program that starts as a Python may start another one."""
        self._trees.append(TREES.tree_of(pid))

    def give_up(self) -> None:
        self.is_given_up = True
        self.kill()

    def kill(self) -> None:
        """End a local Python, or the program that connects to a remote one, which then ends too."""
        while self._trees:
            self._trees.pop().kill()

    def end(self) -> None:
        self.kill()
        self._wait()
        self.channel.close()

    def _wait(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_S)


def _try(action: Callable[[], object]) -> None:
    with suppress(OSError):
        action()


def _starter_for(spec: str) -> str:
    """Return the starter as one line of Python, compiled if it is for this Python."""
    source = find_source(_STARTER)
    code = compile_module(_STARTER, source.file, "<string>") if is_this_python(spec) else None
    return f"{source.text!a}" if code is None else f"__import__('marshal').loads({code!r})"


@contextmanager
def watchdog(limit_s: float, give_up: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(limit_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def is_local(spec: str) -> bool:
    """Whether a gateway is a process on this machine that we start ourselves."""
    return spec.split("//", maxsplit=1)[0] == LOCAL


def interpreter_spec(path: str, option: str) -> str:
    """Return the spec of a Python interpreter on this machine. Raise UsageError without one."""
    if shutil.which(path) is None:
        raise UsageError(
            f"{option} names {printable(path)}, which is not a program that can be run. Give the "
            "path of a Python interpreter, such as old-venv/bin/python."
        )
    return python_spec(path)


def python_spec(path: str) -> str:
    """Return the spec of a Python interpreter, without checking that it exists."""
    # Two slashes would end the path, and the system reads them as one. Split it as in a shell.
    return f"{LOCAL}//python={shlex.quote(re.sub('//+', '/', path))}"


def command_of(spec: str) -> list[str]:
    check_form(spec, "a worker")
    given = read_spec(spec)
    if "ssh" in given:
        config = ["-F", given["ssh_config"]] if "ssh_config" in given else []
        remote = f'{given.get("python", "python")} -c "{_BOOT}"'
        return ["ssh", "-C", *config, *given["ssh"].split(), remote]
    python = given.get("command", given.get("python"))
    flags = ["-B"] if "dont_write_bytecode" in given else []
    return [*([sys.executable] if python is None else _words(python)), *flags, "-c", _BOOT]


def read_spec(spec: str) -> dict[str, str]:
    return {key: value for key, _, value in (part.partition("=") for part in spec.split("//"))}


def _words(command: str) -> list[str]:
    # `shlex` would read the backslash of Windows as an escape.
    return shlex.split(command.replace(os.sep, "/"))


def check_spec(spec: str, place: str) -> None:
    """Raise UsageError for a text that is not a gateway, or names a Python that is not here."""
    check_form(spec, place)
    if is_local(spec) and not is_this_python(spec):
        interpreter_spec(command_of(spec)[0], place)


def check_form(spec: str, place: str) -> None:
    """Raise UsageError for a text that is not a gateway. Its Python may be on another machine."""
    parts = [part.partition("=") for part in spec.split("//")]
    keys = [key for key, _, _ in parts]
    shown, known = printable(spec), {key for key in keys if not key.startswith("env:")}
    problem = ""
    if unknown := sorted(known - _SPEC_KEYS):
        problem = f"unknown key {printable(unknown[0])!r}"
    elif len(set(keys)) < len(keys):
        problem = "it has one key twice"
    elif sum(way in known for way in _WAYS) != 1:
        problem = f"it takes one of {', '.join(_WAYS)}"
    elif empty := [key for key, eq, value in parts if not value and (eq or key not in _FLAGS)]:
        problem = f"{printable(empty[0])} needs a value, as in {printable(empty[0])}=VALUE"
    elif {"command", "python"} <= known:
        problem = "a command already names its Python"
    else:
        given = read_spec(spec)
        try:
            int(given.get("nice", 0))
            _words(given.get("command", given.get("python", "")))
        except ValueError as error:
            problem = printable(str(error))
    if problem:
        raise UsageError(
            f"{place}: the gateway {shown!r} cannot be read: {problem}. Give {_SPEC_EXAMPLES}."
        )


def is_this_python(spec: str) -> bool:
    return is_local(spec) and not any(part.startswith("python=") for part in spec.split("//"))
