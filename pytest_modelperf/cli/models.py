"""A model as a user names it in a command, and help if it does not run at the given sizes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_modelperf.cli.settings import COMMAND_WORDING
from pytest_modelperf.errors import ModelPerfError, UsageError
from pytest_modelperf.spec.case_definitions import COMMAND_GATEWAY, GUESS
from pytest_modelperf.spec.run_definitions import ENGINE, STATIC_ONLY
from pytest_modelperf.text.escaping import printable, quoted_text

if TYPE_CHECKING:
    from pytest_modelperf.obtaining.origins import ModelOrigin
    from pytest_modelperf.sizing.records import FoundSizes


def find_model(name: str, root: Path | None = None) -> str:
    """Return the path of a model. If the name is not a path, the model is made or fetched.

    Functions are imported from the folder `root`, which is the working folder by default.
    """
    origin = origin_of(name)
    return name if origin is None else str(obtain_model(origin, root or Path.cwd()))


def origin_of(name: str) -> ModelOrigin | None:
    """Return where a model comes from, or None if the name is a path."""
    if ":" not in name:
        # Most names are paths, for which the imports below are not needed.
        return None
    from pytest_modelperf.obtaining.origins import is_address, read_address
    from pytest_modelperf.profiles.store import is_function
    from pytest_modelperf.spec.readers import read_function

    if is_address(name):
        return read_address(name, "MODEL")
    return read_function(name, "MODEL") if is_function(name) else None


def obtain_model(origin: ModelOrigin, root: Path) -> Path:
    """Return the file of a model.

    Raises UsageError if its function fails or it cannot be fetched.
    """
    import secrets

    from pytest_modelperf.obtaining.making import Making
    from pytest_modelperf.obtaining.origins import OriginKind, fetch_model

    if origin.kind is OriginKind.URL:
        return fetch_model(origin)
    making = Making(root=root, session=secrets.token_hex())
    try:
        # Standard output may be needed for a document of the command.
        with redirect_stdout(sys.stderr):
            made = making.make(origin, origin.short_name)
    except ModelPerfError:
        raise
    except Exception as error:
        raise _failed(origin, error) from error
    if made.is_kept:
        click.echo(
            f"{printable(origin.name)}: reusing the model of an earlier run, as nothing that "
            "the function read has changed. To make it again, remove "
            f"{printable(str(made.path.parent))}",
            err=True,
        )
    return made.path


def table_line(origin: ModelOrigin) -> str:
    """Return the key of a table that says where its model comes from."""
    from pytest_modelperf.obtaining.origins import OriginKind
    from pytest_modelperf.spec.case_definitions import MAKE, URL

    if origin.kind is OriginKind.URL:
        address = f"{origin.name}#sha256={origin.sha256}"
        return f"{URL.table_key} = {quoted_text(address)}"
    return f"{MAKE.table_key} = {quoted_text(origin.name)}"


def _failed(origin: ModelOrigin, error: Exception) -> UsageError:
    """Return the error of a user's function, with the place where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    what = traceback.format_exception_only(error)[-1].strip()
    failed = UsageError(f"{printable(origin.name)} made no model: {printable(what)}")
    failed.details = (f'  File "{printable(last.filename)}", line {last.lineno}, in {last.name}',)
    return failed


# -- help for a model that does not run at the sizes that were typed


# With these options, an inference of ONNX Runtime on this machine does not show whether the sizes
# are good.
_ELSEWHERE = (
    ENGINE.command_flag, COMMAND_GATEWAY.command_flag, STATIC_ONLY.command_flag, "--requirement",
)  # fmt: skip
_NO_RUN = ("shapes",)


def find_for(error: ModelPerfError, typed: Sequence[str]) -> FoundSizes | None:
    """Return the sizes that help with an error of a command, or None if it has another cause."""
    if error.asked is None:
        return None
    from pytest_modelperf.sizing.finding import sizes_for

    options = {word.partition("=")[0] for word in typed}
    runs = typed[0] not in _NO_RUN and options.isdisjoint(_ELSEWHERE)
    return sizes_for(error, runs=runs)


def worded_with(error: ModelPerfError, found: FoundSizes, typed: Sequence[str]) -> str:
    """Return the error with the whole command that avoids it, or with what was tried."""
    if not found.is_found:
        return f"{error.worded(COMMAND_WORDING)}\n{found.error}"
    from pytest_modelperf.sizing.finding import render_advice, render_command

    return f"{error.message} {render_advice(found, render_command(found, typed))}"


def guessed(found: FoundSizes | None, typed: Sequence[str]) -> tuple[str, ...] | None:
    """Return the words of a command with guessed sizes, if it requests these and there are any."""
    if found is None or not found.is_found or GUESS.command_flag not in typed:
        return None
    from pytest_modelperf.sizing.finding import with_sizes

    return with_sizes(found, typed)
