"""The group of commands, and how errors of this package reach the user."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import click

from pytest_modelperf.cli.parameters import COMMAND_WORDING, find_for, guessed, worded_with
from pytest_modelperf.errors import ModelPerfError, OutputError, UsageError, find_lack_of_memory
from pytest_modelperf.files.interrupts import TerminatedExit, lost_interrupts_raised
from pytest_modelperf.spec.case_definitions import GUESS
from pytest_modelperf.text.escaping import printable, printable_lines
from pytest_modelperf.text.version import __version__, page_url
from pytest_modelperf.text.words import shell_word

# The exit codes that a shell gives to a program ended by SIGINT, SIGPIPE and SIGTERM.
_INTERRUPTED = 130
_CLOSED = 141
_TERMINATED = 143
_FAULT = 3
_TYPED = "pytest_modelperf.typed"
_STDERR_NUMBER = 2
# The commands, each a function, with its module and the page about it in docs/.
_COMMANDS = {
    "baselines": ("history", "baselines"),
    "bisect": ("bisect", "bisect"),
    "compare": ("compare", "comparing"),
    "doctor": ("machine", "noise"),
    "env": ("machine", "upgrades"),
    "history": ("history", "history"),
    "init": ("init", "init"),
    "profile": ("profile", "profiling"),
    "profiles": ("profiles", "profiles"),
    "reduce": ("handing_on", "reducing"),
    "shapes": ("handing_on", "counting"),
    "share": ("handing_on", "sharing"),
    "sweep": ("sweep", "sweep"),
    "trace": ("trace", "tracing"),
    "tune": ("speedups", "tuning"),
    "whatif": ("speedups", "whatif"),
    "worker": ("machine", "cluster"),
}
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class _Failure(click.ClickException):
    def __init__(self, error: ModelPerfError, text: str | None = None) -> None:
        # Names in the text are already escaped; typed values may not be.
        super().__init__(printable_lines(text or error.worded(COMMAND_WORDING)))
        self.error = error

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click reads it and never sets it
        return self.error.exit_code


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an orderly end, which removes workers and their files."""

    def terminate(number: int, frame: object) -> None:  # noqa: ARG001  # a signal handler's
        raise TerminatedExit(_TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _ended_from_outside() -> Iterator[None]:
    """End the command with its own exit codes for an error, an interrupt and a closed pipe.

    Click would end with 1, which here means a worse model. It would do so even for an error that it
    cannot show because standard error is closed or full.
    """
    try:
        yield
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        with suppress(OSError):
            click.echo("interrupted", err=True)
        raise SystemExit(_INTERRUPTED) from None
    except BrokenPipeError:
        raise SystemExit(_CLOSED) from None


def _settle_streams() -> None:
    """Open closed standard streams on the null device.

    Otherwise the next opened files would get their numbers. Raises OutputError if standard output
    is closed.
    """
    # Each call uses the lowest free number.
    while (nowhere := os.open(os.devnull, os.O_RDWR)) <= _STDERR_NUMBER:
        os.set_inheritable(nowhere, True)  # noqa: FBT003  # it has no keyword
    os.close(nowhere)
    # Python has None for a stream that was closed.
    streams: dict[str, object] = vars(sys)
    if streams["stderr"] is None:
        streams["stderr"] = open(_STDERR_NUMBER, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if streams["stdout"] is None:
        raise OutputError(
            "standard output is closed, but results go there: redirect it, as in > report.txt, or "
            "to /dev/null if you only want files."
        )


def _has_working_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _no_room(error: OSError) -> OutputError:
    """Return the error for a full disk. Standard output has no file name."""
    name = "standard output or a temporary file"
    if error.filename is not None:
        name = printable(str(error.filename))
    return OutputError(
        f"cannot write {name}: {error.strerror}. Make room, or give another place; for "
        "temporary files, set TMPDIR."
    )


def _too_long(error: OSError) -> UsageError:
    name = "a path" if error.filename is None else printable(str(error.filename))
    return UsageError(f"{name} is too long for a file name: give a shorter one.")


@contextmanager
def _system_limits_reported() -> Iterator[None]:
    """Turn an error of a full disk, or of a name that is too long, into a one-line message."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise _Failure(_no_room(error)) from error
        if error.errno == errno.ENAMETOOLONG:
            raise _Failure(_too_long(error)) from error
        raise


class _Commands(Mapping[str, click.Command]):
    """The commands by name. The module of a command is imported when the command is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        module, page = _COMMANDS[name]
        found = import_module(f"pytest_modelperf.cli.{module}")
        command = cast("click.Command", getattr(found, name))
        command.epilog = f"Guide: {page_url(page)}"
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Group(click.Group):
    """A group that shows errors of this package as click does: message, exit code, no traceback."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        *arguments: Any,  # noqa: ANN401  # click's own signature
        **named: Any,  # noqa: ANN401  # the same
    ) -> click.Context:
        typed = tuple(args)
        with _ended_from_outside(), _system_limits_reported():
            context = super().make_context(info_name, args, *arguments, **named)
        context.meta[_TYPED] = typed
        return context

    def invoke(self, context: click.Context) -> Any:  # noqa: ANN401  # click's own signature
        with _ended_from_outside():
            return self._invoke(context)

    def _invoke(self, context: click.Context) -> Any:  # noqa: ANN401  # as `invoke`
        try:
            _settle_streams()
            with _ended_by_sigterm(), lost_interrupts_raised(), _system_limits_reported():
                return super().invoke(context)
        except ModelPerfError as error:
            return self._at_other_sizes(error, context)
        except click.UsageError as error:
            raise self._worded(error) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            # The callers show these, or end the command.
            raise
        except Exception as error:  # no exception may look like a verdict
            lack = find_lack_of_memory(error)
            if lack is not None:
                raise _Failure(lack) from error
            if isinstance(error, FileNotFoundError) and not _has_working_folder():
                gone = UsageError(
                    "the working folder was removed: change to one that exists, as in cd .., and "
                    "try again."
                )
                raise _Failure(gone) from error
            import traceback

            with suppress(OSError):
                traceback.print_exc()
                click.echo("this is a bug in modelperf: report it with the above", err=True)
            raise SystemExit(_FAULT) from None

    def _at_other_sizes(self, error: ModelPerfError, context: click.Context) -> Any:  # noqa: ANN401  # the same
        """Run the command with guessed sizes if allowed, or raise the error that names them."""
        typed: tuple[str, ...] = context.meta[_TYPED]
        found = find_for(error, typed)
        again = guessed(found, typed)
        if found is None or again == typed:
            raise _Failure(error) from error
        if again is None:
            raise _Failure(error, worded_with(error, found, typed)) from error
        shown = " ".join(shell_word(word) for word in again if word != GUESS.command_flag)
        click.echo(printable_lines(f"guessed: {context.info_name} {shown}"), err=True)
        with self.make_context(context.info_name, list(again), obj=context.obj) as other:
            return self.invoke(other)

    def _worded(self, error: click.UsageError) -> click.UsageError:
        """Add to the error the commands that have an option, and escape what was typed."""
        if isinstance(error, click.NoSuchOption):
            homes = [
                name
                for name, each in self.commands.items()
                if any(error.option_name in parameter.opts for parameter in each.params)
            ]
            if homes:
                text = f"{error.message} It belongs to modelperf {' and modelperf '.join(homes)}."
                return click.NoSuchOption(error.option_name, text, ctx=error.ctx)
        # Click shows an unexpected word unescaped.
        return click.UsageError(printable_lines(error.format_message()), ctx=error.ctx)


@click.group(
    cls=_Group, commands=_Commands(), context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="modelperf")
def main() -> None:
    """Measure what ONNX models cost in time, work and memory.

    Guide: https://pytest-modelperf.github.io/pytest-modelperf/

    Exit codes: 0 nothing got worse, 1 something is shown to be worse, 2 wrong usage or bad input,
    3 something could not be measured.
    """
