"""The folder in which the peaks of machines are kept, one file for each kind of machine.

It is a cache: what cannot be read is measured anew, and said to be.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.files.reading import require_file
from pytest_modelperf.roofline.records import Bandwidth, Peaks
from pytest_modelperf.text.escaping import printable

SCHEMA = 1
# Names a folder of one's own.
FOLDER_VARIABLE = "MODELPERF_CACHE_DIR"
_XDG_VARIABLE = "XDG_CACHE_HOME"
# No peaks take more than a few kilobytes.
_MOST_BYTES = 1 << 20
# Nothing has more of anything, nor does less than one a second.
_MOST = 2**63


class KeptPeaks(Struct, frozen=True):
    """The peaks in a file, and why there are none where there should be some."""

    peaks: tuple[Peaks, ...] = ()
    note: str | None = None


class _NewerError(Exception):
    """The file is of a later version, whose own it stays."""


def cache_folder(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> Path:
    """Where this user's caches are, and there the folder of peaks."""
    own = environment.get(FOLDER_VARIABLE)
    if own:
        return Path(own) / "peaks"
    named = environment.get(_XDG_VARIABLE, "")
    # As its specification says, a relative path is not heeded.
    if named and Path(named).is_absolute():
        folder = Path(named)
    elif system == "darwin":
        folder = Path.home() / "Library" / "Caches"
    else:
        folder = Path.home() / ".cache"
    return folder / "modelperf" / "peaks"


def find_peaks(folder: Path, machine_key: str) -> KeptPeaks:
    """All that is kept of a machine; whatever is wrong with the file is a note."""
    path = _path(folder, machine_key)
    name = printable(str(path))
    try:
        return KeptPeaks(_read(path))
    except FileNotFoundError:
        return KeptPeaks()
    except _NewerError:
        return KeptPeaks((), f"{name} is of a later version: the peaks are measured, and not kept")
    except OSError as error:
        reason = error.strerror or str(error)
        return KeptPeaks((), f"{name} cannot be read: {reason}. The peaks are measured anew")
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return KeptPeaks((), f"{name} has no peaks that can be read: they are measured anew")


def keep_peaks(folder: Path, peaks: Peaks) -> str | None:
    """Add peaks to those of their machine, in the place of older ones; why not, where it fails."""
    path = _path(folder, peaks.machine_key)
    try:
        others = _read(path)
    except _NewerError:
        return None
    except (
        ArithmeticError,
        AttributeError,
        KeyError,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
    ):
        others = ()
    kept = [other for other in others if not _is_same_setup(other, peaks)]
    document = {"schema": SCHEMA, "peaks": [_encode(each) for each in (*kept, peaks)]}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, json.dumps(document, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        reason = error.strerror or str(error)
        return f"{printable(str(path))} cannot be written: {reason}. The peaks are not kept"
    return None


def _path(folder: Path, machine_key: str) -> Path:
    return folder / f"{machine_key}.json"


def _is_same_setup(one: Peaks, other: Peaks) -> bool:
    return (one.engine, one.version, dict(one.options), one.cores) == (
        other.engine,
        other.version,
        dict(other.options),
        other.cores,
    )


def _read(path: Path) -> tuple[Peaks, ...]:
    require_file(path)
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError("the file is too large")
    # Bytes would be taken for any text that JSON may be in, and for halves of characters.
    document = json.loads(content.decode("utf-8"))
    schema = document["schema"]
    if not isinstance(schema, int):
        raise TypeError("the schema is no number")
    if schema > SCHEMA:
        raise _NewerError
    return tuple(_decode(entry, path.stem) for entry in document["peaks"])


def _write(path: Path, text: str) -> None:
    """Put the file in its place in one step: another process may read it meanwhile."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _encode(peaks: Peaks) -> dict[str, object]:
    return {
        "engine": peaks.engine,
        "version": peaks.version,
        "options": dict(peaks.options),
        "cores": peaks.cores,
        "macs_per_second": dict(peaks.macs_per_second),
        "runs_as": dict(peaks.runs_as),
        "bandwidths": [[each.nbytes, each.bytes_per_second] for each in peaks.bandwidths],
        "measured": peaks.measured.isoformat(),
    }


def _decode(entry: Mapping[str, object], machine_key: str) -> Peaks:
    """The peaks of an entry; an error of Python's own where it is none."""
    version = entry["version"]
    bandwidths = entry["bandwidths"]
    if not isinstance(bandwidths, list) or not bandwidths:
        raise ValueError("there is no bandwidth")
    return Peaks(
        machine_key=machine_key,
        engine=_text(entry["engine"]),
        version=None if version is None else _text(version),
        options={key: _text(value) for key, value in _mapping(entry["options"]).items()},
        cores=_count(entry["cores"]),
        macs_per_second={
            name: _rate(value) for name, value in _mapping(entry["macs_per_second"]).items()
        },
        runs_as={name: _text(value) for name, value in _mapping(entry["runs_as"]).items()},
        bandwidths=tuple(Bandwidth(_count(nbytes), _rate(rate)) for nbytes, rate in bandwidths),
        measured=dt.date.fromisoformat(_text(entry["measured"])),
    )


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError("no object")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
        raise ValueError("no count")
    return value


def _rate(value: object) -> float:
    """A rate that something can be divided by."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError("no number")
    rate = float(value)
    if not 1 <= rate <= _MOST:
        raise ValueError("no rate")
    return rate
