"""The folder of a model's profiles: listing, reading, keeping and removing them.

    profiles/<model>/<name>.json

Readers take no lock: a file is there whole or not at all.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.errors import ModelPerfError, OutputError, UsageError
from pytest_modelperf.files.documents import DocumentFile, FileAdvice
from pytest_modelperf.files.store import find_closed, locked, write_file
from pytest_modelperf.profiles.document import dump_named, read_named
from pytest_modelperf.profiles.place import check_name, unknown_name
from pytest_modelperf.profiles.records import FLOPS, NamedProfile, UnusableProfile
from pytest_modelperf.text.escaping import printable

SUFFIX = ".json"
# The samples of a case take some 100 kB, and a profile may have many cases.
_MAX_BYTES = 256 << 20


class KeptProfiles(Struct, frozen=True):
    """The readable profiles of a model, oldest first, and the unusable ones."""

    kept: tuple[NamedProfile, ...]
    unusable: tuple[UnusableProfile, ...]


class ProfileStore(Struct, frozen=True):
    """The profiles of one model; its folder need not exist yet.

    `model` is the name as it was typed; `is_elsewhere` says whether the folder of all profiles was
    typed too. Messages use both in the commands that they advise.
    """

    root: Path
    folder: str
    model: str
    is_elsewhere: bool = False

    @property
    def path(self) -> Path:
        """The folder of the model; UsageError if it is a link, which could lead anywhere."""
        path = self.root / self.folder
        if path.is_symlink():
            raise UsageError(
                f"{printable(str(path))} is a link, which could lead anywhere. "
                "Put the folder itself there, or give another with --profile-dir."
            )
        return path

    @property
    def command(self) -> str:
        """The command that lists these profiles."""
        words = ["modelperf", "profiles", self.model]
        if self.is_elsewhere:
            words += ["--profile-dir", str(self.root)]
        return printable(shlex.join(words))

    def names(self) -> tuple[str, ...]:
        """The names of all profiles, readable or not."""
        return tuple(sorted(n.removesuffix(SUFFIX) for n in self._files() if n.endswith(SUFFIX)))

    def read_all(self) -> KeptProfiles:
        kept: list[NamedProfile] = []
        unusable: list[UnusableProfile] = []
        for file in sorted(self._files()):
            name = file.removesuffix(SUFFIX)
            try:
                if name == file:
                    raise UsageError(
                        f"{printable(str(self.path / file))} is no profile: its name does not end "
                        f"in {SUFFIX}. Move it to another folder."
                    )
                kept.append(self.read(name))
            except ModelPerfError as error:
                unusable.append(UnusableProfile(name, str(error)))
        kept.sort(key=lambda named: (_time(named), named.name))
        return KeptProfiles(tuple(kept), tuple(unusable))

    def read(self, name: str) -> NamedProfile:
        """The profile of that name; UsageError if there is none, or if it is not valid."""
        return read_named(self._read_bytes(name), self._file(name))

    def read_text(self, name: str) -> str:
        """The text of its file, with any keys that a newer version wrote into it."""
        return self._read_bytes(name).decode("utf-8")

    def check_there(self, names: Sequence[str]) -> None:
        """Raise a UsageError for the first name without a kept profile."""
        known = self.names()
        for name in names:
            check_name(name)
            if name not in known:
                raise unknown_name(name, known, self.command)

    def check_free(self, name: str, *, replaces: bool = False) -> None:
        """Raise a UsageError if a kept profile has this name, or differs only in capitals.

        Some file systems do not tell `a` from `A`, and a project may be on several.
        """
        check_name(name)
        for there in self.names():
            if there == name and not replaces:
                raise UsageError(
                    f"{printable(self.model)} has a profile {name!r} already. To replace it add "
                    f"--replace; to see it: {self.command} --show {name}"
                )
            if there != name and there.lower() == name.lower():
                raise UsageError(
                    f"{printable(self.model)} has a profile {printable(there)!r}, which some file "
                    f"systems do not tell from {name!r}. Give another --name."
                )

    def check_writable(self) -> None:
        """Raise an OutputError if nothing can be kept, before minutes are spent on measuring."""
        closed = find_closed(self.path)
        if closed is not None:
            raise OutputError(
                f"no profile can be kept in {printable(str(self.path))}: "
                f"{printable(str(closed))} cannot be written. Give another --profile-dir."
            )

    def keep(self, named: NamedProfile, *, replaces: bool = False) -> dt.datetime | None:
        """Write a profile, and return the date of the replaced one; None: there was none.

        An unreadable profile is replaced like any other. Its date is the date of its file.
        """
        check_name(named.name)
        file = self._file(named.name)
        content = dump_named(named).encode("ascii")
        # A profile that could not be read again is not written.
        read_named(content, file)
        with self._alone():
            self.path.mkdir(exist_ok=True)
            self.check_free(named.name, replaces=replaces)
            before = self._date_of(named.name)
            write_file(file.path, content)
        return before

    def remove(self, name: str) -> None:
        """Remove a profile, readable or not."""
        check_name(name)
        with self._alone():
            try:
                self._file(name).path.unlink()
            except FileNotFoundError:
                raise unknown_name(name, self.names(), self.command) from None
            with contextlib.suppress(OSError):
                # Other files in the folder stay.
                self.path.rmdir()

    def _read_bytes(self, name: str) -> bytes:
        check_name(name)
        data = self._file(name).content(_MAX_BYTES)
        if data is None:
            raise unknown_name(name, (FLOPS, *self.names()), self.command)
        return data

    def _file(self, name: str) -> DocumentFile:
        told = (
            f"Restore it from version control, or remove it with `{self.command} --remove "
            f"{printable(name)}` and measure again."
        )
        advice = FileAdvice(broken=told, conflict=told)
        return DocumentFile(self.path / f"{name}{SUFFIX}", advice, UsageError)

    def _files(self) -> tuple[str, ...]:
        """The names in the folder. Hidden files belong to a writer, or are of no concern."""
        try:
            return tuple(p.name for p in self.path.iterdir() if not p.name.startswith("."))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise UsageError(
                f"{printable(str(self.path))} cannot be read as a folder of profiles: "
                f"{error.strerror or error}. Give another with --profile-dir."
            ) from error

    def _date_of(self, name: str) -> dt.datetime | None:
        try:
            return self.read(name).date
        except UsageError:
            path = self._file(name).path
            if not path.exists():
                return None
            return dt.datetime.fromtimestamp(path.stat().st_mtime, dt.timezone.utc)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock that writers share; an error of the file system becomes an OutputError."""
        try:
            with locked(self.root):
                yield
        except OSError as error:
            raise OutputError(
                f"the profiles in {printable(str(self.path))} could not be changed: "
                f"{error.strerror or error}. Make room, or make the folder writable, or give "
                "another with --profile-dir."
            ) from error


def _time(named: NamedProfile) -> dt.datetime:
    return named.date or dt.datetime.min.replace(tzinfo=dt.timezone.utc)
