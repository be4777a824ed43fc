"""Writing results: files and folders in one step, pipes and devices, and standard output.

A file is written next to its place and then moved there, so that no reader finds half a result. A
pipe or a device cannot be replaced: it is opened once and written to. Files that are already open,
such as /dev/stdout or the /dev/fd/63 of a shell, are continued at their current position.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import BinaryIO, TextIO, TypeAlias

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.files.store import name_next_to, unfinished_next_to
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shell_path

Target: TypeAlias = str | os.PathLike[str]

STDOUT = "-"
_STDOUT_NUMBER = 1
_SLASHES = tuple(filter(None, (os.sep, os.altsep)))
# The most links that Linux follows.
_MOST_LINKS = 40


@contextmanager
def written_text(target: Target) -> Iterator[TextIO]:
    """Yield a stream for a new text. It replaces a file only once it is complete."""
    if is_stdout(target):
        with _naming(target):
            yield _open_stdout()
            # Flushed here to report an error now and not at the end of the program.
            sys.stdout.flush()
        return
    with written_bytes(target) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        try:
            yield text
        except BaseException:
            with suppress(OSError):
                text.detach()
            raise
        # The caller opened the file, and closes it.
        text.detach()


@contextmanager
def written_bytes(target: Target) -> Iterator[BinaryIO]:
    """Yield a stream for new bytes. They replace a file only once they are complete."""
    with _naming(target):
        if is_stdout(target):
            yield _open_stdout().buffer
            sys.stdout.buffer.flush()
            return
        number = _number_of_open_file(target)
        path = Path(target)
        if number is not None:
            with os.fdopen(os.dup(number), "wb") as file:
                yield file
        elif _is_file_or_missing(path):
            with _replaced(path.resolve()) as file:
                yield file
        else:
            with os.fdopen(os.open(path, os.O_WRONLY), "wb") as file:
                yield file


def write_all(contents: Mapping[Target, bytes]) -> None:
    """Write all files. No file is moved to its place before all contents have been written."""
    with ExitStack() as stack:
        for target, content in contents.items():
            file = stack.enter_context(written_bytes(target))
            with _naming(target):
                file.write(content)
                file.flush()


def check_outputs(targets: Mapping[str, Target | None], *inputs: Target | None) -> bool:
    """Check the targets, and return whether standard output is free for a report.

    `targets` are named by their options. Raises UsageError if two of them are standard output or
    the same file, or if one is also an input. Raises OutputError if one cannot be written, before
    there is anything to write.
    """
    given = {option: target for option, target in targets.items() if target is not None}
    wanting = [option for option, target in given.items() if is_stdout(target)]
    if len(wanting) > 1:
        raise UsageError(
            f"only one of {' and '.join(wanting)} can go to standard output: give a file for the "
            "others."
        )
    files: dict[str, str] = {}
    for option, target in given.items():
        if option in wanting:
            continue
        if any(each is not None and _is_same(each, target) for each in inputs):
            raise UsageError(
                f"{option} would overwrite {_shown(target)}, which is read: give another file."
            )
        other = option
        if not _takes_several(target):
            other = files.setdefault(os.path.realpath(target), option)
        if other != option:
            raise UsageError(
                f"{other} and {option} would both write {_shown(target)}: give another file to "
                "one of them."
            )
    for option, target in given.items():
        with _prefixed(option):
            check_output(target)
    return not wanting


def check_output(target: Target) -> None:
    """Raise OutputError if a target cannot be written, before there is anything to write.

    A pipe is not opened: its reader would take that for the whole result.
    """
    with _naming(target):
        if is_stdout(target):
            _open_stdout()
            return
        _require_file_name(os.fspath(target))
        number = _number_of_open_file(target)
        if number is not None:
            os.fstat(number)
            return
        path = Path(target)
        if not _is_file_or_missing(path):
            _require_writable(path)
            if stat.S_ISSOCK(path.stat().st_mode):
                raise OSError(errno.ENXIO, "Is a socket")
            return
        place = path.resolve()
        if not place.parent.is_dir():
            # A link in an existing folder may point into a missing one.
            folder = str(place.parent if path.is_symlink() else path.parent)
            raise OutputError(
                f"cannot write {_shown(target)}: there is no folder {printable(folder)}. Make it "
                f"with mkdir -p {shell_path(folder)}, or give another place."
            )
        if _can_be_replaced(place):
            temporary = name_next_to(place)
            temporary.touch(exist_ok=False)
            temporary.unlink()


def is_stdout(target: Target) -> bool:
    """Whether the target is standard output, by any of its names."""
    return target == STDOUT or _number_of_open_file(target) == _STDOUT_NUMBER


def has_folder(target: Target) -> bool:
    """Whether the target is or will be a file, so that other files can be put next to it."""
    if target == STDOUT or _number_of_open_file(target) is not None:
        return False
    path = Path(target)
    return path.is_file() or not path.exists()


def cannot_write(name: str, error: OSError) -> OutputError:
    return OutputError(f"cannot write {printable(name)}: {error.strerror or error}.")


def _takes_several(target: Target) -> bool:
    """Whether the target accepts several results, as /dev/null does. A pipe takes only one."""
    if _number_of_open_file(target) is not None:
        return True
    try:
        return stat.S_ISCHR(Path(target).stat().st_mode)
    except OSError:
        return False


@contextmanager
def _prefixed(option: str) -> Iterator[None]:
    try:
        yield
    except OutputError as error:
        raise OutputError(f"{option}: {error}") from error


def _is_same(read: Target, target: Target) -> bool:
    try:
        return Path(read).samefile(target) and not Path(target).is_dir()
    except OSError:
        return False


def _shown(target: Target) -> str:
    return printable(os.fspath(target))


@contextmanager
def _naming(target: Target) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if is_stdout(target):
            if isinstance(error, BrokenPipeError):
                # The reader closed the pipe, as `head` does, which is not an error.
                raise
            raise cannot_write("standard output", error) from error
        raise cannot_write(os.fspath(target), error) from error


def _open_stdout() -> TextIO:
    # `sys.stdout` is None if standard output is closed.
    found: TextIO | None = sys.stdout
    if found is None:
        raise OSError(errno.EBADF, "it is closed")
    return found


def _number_of_open_file(target: Target) -> int | None:
    """Return the number of the open file to which a path such as /dev/fd/63 leads, or None."""
    place = Path(target).absolute()
    own = {os.path.realpath("/dev/fd"), f"/proc/{os.getpid()}/fd"}
    for _ in range(_MOST_LINKS):
        if place.name.isdecimal() and os.path.realpath(place.parent) in own:
            return int(place.name)
        try:
            place = place.parent / place.readlink()
        except OSError:
            break
    return None


def _is_file_or_missing(path: Path) -> bool:
    """Whether the path is a regular file or does not exist yet. Raises OSError for a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return stat.S_ISREG(mode)


def _require_file_name(name: str) -> None:
    """Raise OutputError for an empty name, or for a final slash, which `Path` would drop."""
    if not name:
        raise OutputError("the name of the file is empty: give one, or - for standard output.")
    if name.endswith(_SLASHES):
        raise OutputError(
            f"cannot write {printable(name)}: it names a folder. Give the name of a file in it."
        )


def _require_writable(path: Path) -> None:
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _can_be_replaced(place: Path) -> bool:
    """Whether another file can replace it. Raises OSError if it cannot be written at all."""
    if not place.exists():
        return True
    _require_writable(place)
    return os.access(place.parent, os.W_OK | os.X_OK)


@contextmanager
def _replaced(place: Path) -> Iterator[BinaryIO]:
    """Yield a new file that is moved to its place at the end, or removed after an error."""
    if not _can_be_replaced(place):
        try:
            with place.open("wb") as file:
                yield file
        except BaseException:
            # Half a result could be mistaken for a whole one.
            os.truncate(place, 0)
            raise
        return
    with unfinished_next_to(place) as unfinished:
        yield unfinished.file
        # The lock of the new file is held until it is in its place.
        unfinished.flush()
        if place.exists():
            unfinished.path.chmod(stat.S_IMODE(place.stat().st_mode))
        _move(unfinished.path, place)


def _move(temporary: Path, place: Path) -> None:
    try:
        temporary.replace(place)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        # A file mounted into a container cannot be replaced; only its content can change.
        shutil.copyfile(temporary, place)


_ARCHIVE = ".zip"
# The earliest time of an archive. With a fixed time, equal files give equal archives.
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
