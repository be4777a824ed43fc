"""The folder in which the peaks of machines are kept, one file for each kind of machine.

It is a cache: peaks that cannot be read are measured anew, and a note says so.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from pytest_modelperf.errors import BaselineError
from pytest_modelperf.files.caches import user_cache_folder
from pytest_modelperf.files.documents import DocumentFile, Positive
from pytest_modelperf.files.reading import require_file
from pytest_modelperf.files.store import write_file
from pytest_modelperf.report.document import SCHEMA, dump_document
from pytest_modelperf.roofline.records import Peaks
from pytest_modelperf.text.escaping import printable

# No peaks take more than a few kilobytes.
_MOST_BYTES = 1 << 20


class KeptPeaks(Struct, frozen=True):
    """The peaks in a file, and a note if they cannot be read."""

    peaks: tuple[Peaks, ...] = ()
    note: str | None = None


class PeaksFile(Struct, frozen=True, kw_only=True):
    """The content of a file: the peaks of one kind of machine."""

    schema: Positive
    peaks: tuple[Peaks, ...]


class _NewerError(Exception):
    """The file was written by a later version, and is left as it is."""


def cache_folder() -> Path:
    """The folder of peaks among the caches of this user."""
    return user_cache_folder() / "peaks"


def find_peaks(folder: Path, machine_key: str) -> KeptPeaks:
    """All kept peaks of a machine; a problem with the file becomes a note."""
    path = _path(folder, machine_key)
    name = printable(str(path))
    try:
        return KeptPeaks(_read(path))
    except FileNotFoundError:
        return KeptPeaks()
    except _NewerError:
        return KeptPeaks(
            (),
            f"{name} was written by a later version, so the peaks that are measured now are not "
            "kept",
        )
    except OSError as error:
        reason = error.strerror or str(error)
        return KeptPeaks((), f"{name} cannot be read: {reason}. The peaks are measured anew")
    except BaselineError:
        return KeptPeaks((), f"{name} has no peaks that can be read: they are measured anew")


def keep_peaks(folder: Path, peaks: Peaks) -> str | None:
    """Add peaks to those of their machine, in the place of older ones; a note if that failed."""
    path = _path(folder, peaks.machine_key)
    try:
        others = _read(path)
    except _NewerError:
        return None
    except (BaselineError, OSError):
        others = ()
    kept = [other for other in others if other.subject != peaks.subject]
    document = PeaksFile(schema=SCHEMA, peaks=(*kept, peaks))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(path, dump_document(document).encode())
    except OSError as error:
        reason = error.strerror or str(error)
        return f"{printable(str(path))} cannot be written: {reason}. The peaks are not kept"
    return None


def _path(folder: Path, machine_key: str) -> Path:
    return folder / f"{machine_key}.json"


def _read(path: Path) -> tuple[Peaks, ...]:
    require_file(path)
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    document_file = DocumentFile(path)
    if len(content) > _MOST_BYTES:
        raise document_file.error("the file is too large")
    document = document_file.parse(content)
    schema = document.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise _NewerError
    found = document_file.convert(document, PeaksFile)
    if any(each.machine_key != path.stem for each in found.peaks):
        raise document_file.error("the peaks belong to another machine")
    return found.peaks
