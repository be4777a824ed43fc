"""The accepted changes written: each file in one step, and none if one of them cannot be."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.errors import OutputError
from pytest_modelperf.files.output import cannot_write, check_output, written_text
from pytest_modelperf.init.planning import read_text
from pytest_modelperf.init.records import FileChange
from pytest_modelperf.text.escaping import printable


def write_changes(changes: Sequence[FileChange]) -> None:
    """Writes the files; OutputError if one cannot be written, or was changed since it was read."""
    for change in changes:
        try:
            change.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(str(change.path), error) from error
        check_output(change.path)
        if read_text(change.path) != change.before:
            raise OutputError(
                f"{printable(str(change.path))} was changed by another program meanwhile: run "
                "modelperf init again."
            )
    for change in changes:
        with written_text(change.path) as file:
            file.write(change.after)
