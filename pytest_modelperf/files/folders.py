"""Writing a new folder of files, or a ZIP archive of it, which replaces others only if allowed."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import mkdtemp

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.files.output import cannot_write, check_output, write_all, written_bytes
from pytest_modelperf.text.escaping import printable, shell_path

_ARCHIVE = ".zip"
# The first time that an archive can hold; a fixed time makes the same archive of the same files.
_TIME = (1980, 1, 1, 0, 0, 0)


def check_folder(target: str, *, may_replace: bool) -> None:
    """Raise an error if the folder or archive cannot be written, before its files are made."""
    path, shown = Path(target), printable(target)
    if os.path.lexists(path) and not may_replace:
        raise UsageError(
            f"{shown} exists already: give --output another name, or --force to write into it."
        )
    if is_archive(target):
        check_output(target)
        return
    if path.exists() and not path.is_dir():
        raise OutputError(
            f"cannot write {shown}: it is not a folder. Give --output the name of a folder, or one "
            f"that ends in {_ARCHIVE}."
        )
    parent = path if path.is_dir() else path.absolute().parent
    if not parent.is_dir():
        raise OutputError(
            f"cannot write {shown}: there is no folder {printable(str(path.parent))}. Make it with "
            f"mkdir -p {shell_path(str(path.parent))}, or give --output another place."
        )
    try:
        # Trying is more reliable than looking at permissions: root has them even in places where it
        # cannot make anything.
        Path(mkdtemp(dir=parent)).rmdir()
    except OSError as error:
        raise cannot_write(target, error) from error


def write_folder(files: Mapping[str, bytes], target: str, stale: Iterable[str] = ()) -> None:
    """Write all files, by their names, or none of them.

    An archive holds them in a folder of its own name. The `stale` files of an earlier folder are
    removed.
    """
    if is_archive(target):
        name = Path(target).stem
        with written_bytes(target) as stream, zipfile.ZipFile(stream, "w") as archive:
            for each, data in files.items():
                entry = zipfile.ZipInfo(f"{name}/{each}", _TIME)
                entry.external_attr = 0o644 << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, data)
        return
    folder = Path(target)
    with ExitStack() as failed:
        try:
            if not folder.exists():
                folder.mkdir()
                failed.callback(_remove_folder, folder)
            for each in files:
                if not (folder / each).exists():
                    failed.callback(_remove, folder / each)
            write_all({folder / each: data for each, data in files.items()})
            for each in stale:
                (folder / each).unlink(missing_ok=True)
        except OSError as error:
            raise cannot_write(target, error) from error
        failed.pop_all()


def is_archive(target: str) -> bool:
    return target.lower().endswith(_ARCHIVE)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    with suppress(OSError):
        path.rmdir()
