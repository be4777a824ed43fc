"""The folders in which a measurement keeps its files; each goes when its work is done."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.units import printable


def make_working_folder(prefix: str, within: Path | None = None) -> Path:
    """A new folder in that of temporary files, or in another; MeasureError where it cannot be."""
    try:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    except OSError as error:
        place = "" if error.filename is None else f" {printable(str(error.filename))}"
        raise MeasureError(
            f"the temporary folder{place} cannot be made: {error.strerror or error}. Make room, or "
            "set TMPDIR to another folder."
        ) from error


@contextmanager
def working_folder(prefix: str, within: Path | None = None) -> Iterator[Path]:
    """Such a folder, for as long as the context."""
    folder = make_working_folder(prefix, within)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
