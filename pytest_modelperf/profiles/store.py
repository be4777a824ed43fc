"""The folder of a model's profiles: their names, listing, reading, keeping and removing them."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from pytest_modelperf.errors import ModelError, ModelPerfError, OutputError, UsageError, Wording
from pytest_modelperf.files.documents import (
    ContradictionError,
    DocumentFile,
    FileAdvice,
    read_table,
    shortened,
)
from pytest_modelperf.files.names import folder_name
from pytest_modelperf.files.store import find_closed, locked, write_file
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Operators
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.request import ProfileRequest, model_facts, profile_model
from pytest_modelperf.profiler.shown.document import profile_document, read_profile
from pytest_modelperf.profiles.records import (
    FLOPS,
    NAMED,
    PROFILE_LIST,
    NamedProfile,
    ProfileList,
    UnusableProfile,
)
from pytest_modelperf.report.document import SCHEMA, dump_document
from pytest_modelperf.roofline.records import ROOFLINE, Roofline, read_roofline, rooflines_to_json
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import suggestion

FOLDER = "profiles"
MAX_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
# The form in which `--engine callable` gets its function.
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def project_root(start: Path) -> Path:
    """Return the nearest folder upward with `[tool.modelperf]` or a git repository, or `start`."""
    for folder in (start, *start.parents):
        is_project = (folder / ".git").exists()
        if is_project or read_table(folder / "pyproject.toml") is not None:
            return folder
    return start


def model_folder(model: str, root: Path) -> str:
    """Return the name of a model's folder, formed from its path like that of its baseline.

    The path is relative to the root of the project. A Python function has its own name.
    """
    if is_function(model):
        return folder_name(model)
    return folder_name(Path(relative_path(model, root)).as_posix())


def relative_path(path: str, start: Path) -> str:
    """Return the path relative to a folder, or the whole path if it is on another Windows drive."""
    try:
        return os.path.relpath(path, start)
    except ValueError:
        return str(Path(path).absolute())


def is_function(model: str) -> bool:
    """Whether it names a Python function, `package.module:function`, and not a file."""
    return _FUNCTION.fullmatch(model) is not None and not Path(model).exists()


def check_name(name: str) -> None:
    """Raise a UsageError if no profile can be kept under this name."""
    if name.lower() == FLOPS:
        raise UsageError(
            f"{printable(name)!r} is the name of the counts, which are always there and cannot "
            "be kept or removed. Give another name, such as baseline."
        )
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise UsageError(
            f"{printable(name)!r} cannot name a profile. A name has up to {MAX_NAME} letters, "
            "digits, '.', '_' and '-', and does not start with '.'."
        )


def unknown_name(name: str, known: Iterable[str], command: str) -> UsageError:
    """Return the error for a name that is not `known`.

    `command` lists the profiles. The counts are among the `known` names, except when a profile is
    to be removed.
    """
    names = tuple(known)
    are = "There are" if FLOPS in names else "Kept are"
    there = f"{are}: {printable(', '.join(names))}." if names else "None is kept."
    return UsageError(
        f"there is no profile {printable(name)!r}.{suggestion(name, names)} {there} To list them: "
        f"{command}"
    )


# -- the folder of a model's profiles


SUFFIX = ".json"
# The samples of a case take some 100 kB, and a profile may have many cases.
_MAX_BYTES = 256 << 20


class KeptProfiles(Struct, frozen=True):
    """The readable profiles of a model, oldest first, and the unusable ones."""

    kept: tuple[NamedProfile, ...]
    unusable: tuple[UnusableProfile, ...]


class ProfileStore(Struct, frozen=True):
    """The profiles of one model, whose folder need not exist yet.

    `model` is the name as it was typed; `is_elsewhere` says whether the folder of all profiles was
    typed too. Messages use both in the commands that they advise.
    """

    root: Path
    folder: str
    model: str
    is_elsewhere: bool = False

    @property
    def path(self) -> Path:
        """The folder of the model. Raises UsageError if it is a link, which could lead anywhere."""
        path = self.root / self.folder
        if path.is_symlink():
            raise UsageError(
                f"{printable(str(path))} is a link, which could lead anywhere. "
                "Put the folder itself there, or give another with --profile-dir."
            )
        return path

    @property
    def command(self) -> str:
        words = ["modelperf", "profiles", self.model]
        if self.is_elsewhere:
            words += ["--profile-dir", str(self.root)]
        return printable(shlex.join(words))

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(n.removesuffix(SUFFIX) for n in self._files() if n.endswith(SUFFIX)))

    def read_all(self) -> KeptProfiles:
        kept: list[NamedProfile] = []
        unusable: list[UnusableProfile] = []
        for file in sorted(self._files()):
            name = file.removesuffix(SUFFIX)
            try:
                if name == file:
                    raise UsageError(
                        f"{printable(str(self.path / file))} is not a profile: its name does not "
                        f"end in {SUFFIX}. Move it to another folder."
                    )
                kept.append(self.read(name))
            except ModelPerfError as error:
                unusable.append(UnusableProfile(name, str(error)))
        kept.sort(key=lambda named: (_time(named), named.name))
        return KeptProfiles(tuple(kept), tuple(unusable))

    def read(self, name: str) -> NamedProfile:
        """Return the profile of that name. Raise UsageError if it is missing or not valid."""
        return read_named(self._read_bytes(name), self._file(name))

    def read_text(self, name: str) -> str:
        """Return the text of its file, including keys of newer versions."""
        return self._read_bytes(name).decode("utf-8")

    def check_there(self, names: Sequence[str]) -> None:
        """Raise a UsageError for the first name without a kept profile."""
        known = self.names()
        for name in names:
            check_name(name)
            if name not in known:
                raise unknown_name(name, known, self.command)

    def check_free(self, name: str, *, replaces: bool = False) -> None:
        """Raise a UsageError if the name of a kept profile equals this one, apart from capitals.

        Some file systems do not distinguish `a` from `A`, and a project may be on several.
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
                    f"systems do not distinguish from {name!r}. Give another --name."
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
        """Write a profile, and return the date of the replaced one, or None if there was none.

        An unreadable profile is replaced like any other. Its date is the date of its file.
        """
        check_name(named.name)
        file = self._file(named.name)
        content = dump_named(named).encode("ascii")
        # A profile is written only if it can be read again.
        read_named(content, file)
        with self._alone():
            self.path.mkdir(exist_ok=True)
            self.check_free(named.name, replaces=replaces)
            before = self._date_of(named.name)
            write_file(file.path, content)
        return before

    def remove(self, name: str) -> None:
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
        hint = (
            f"Restore it from version control, or remove it with `{self.command} --remove "
            f"{printable(name)}` and measure again."
        )
        advice = FileAdvice(broken=hint, conflict=hint)
        return DocumentFile(self.path / f"{name}{SUFFIX}", advice, UsageError)

    def _files(self) -> tuple[str, ...]:
        """Return the names in the folder, except hidden files.

        Hidden files belong to a writer, or do not matter.
        """
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
        """Hold the lock that writers share. File system errors become an OutputError."""
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


# -- all profiles of a model: its counts, and the kept ones


def count_flops(model: str, request: ProfileRequest, operators: Operators) -> NamedProfile:
    return NamedProfile(name=FLOPS, date=None, profile=profile_model(model, request, operators))


def list_profiles(
    store: ProfileStore, request: ProfileRequest, operators: Operators, wording: Wording
) -> ProfileList:
    """Return the counts and the kept profiles, with the reasons of unusable ones.

    A missing model raises a ModelError, unless a profile of it was kept.
    """
    contents = store.read_all()
    unusable = list(contents.unusable)
    flops = None
    if not is_function(store.model):
        try:
            flops = count_flops(store.model, request, operators)
        except ModelPerfError as error:
            if not contents.kept and not contents.unusable:
                raise
            unusable.insert(0, UnusableProfile(FLOPS, error.worded(wording)))
    return ProfileList(
        model=store.model,
        flops=flops,
        kept=contents.kept,
        unusable=tuple(unusable),
        older=find_older(store.model, contents.kept),
        folder=str(store.root) if store.is_elsewhere else None,
    )


def find_older(model: str, kept: Sequence[NamedProfile]) -> frozenset[str] | None:
    """Return the profiles of a model file other than the present one.

    The result is None if there is no file.
    """
    digests = {named.name: named.profile.model.sha256 for named in kept}
    if not any(digests.values()):
        return None
    try:
        now = model_facts(open_model(model), reads_all=True).sha256
    except ModelError:
        return None
    return frozenset(name for name, digest in digests.items() if digest not in {None, now})


# -- kept profiles as JSON: how one is written and read, and the list of a model


def dump_named(named: NamedProfile) -> str:
    profile = profile_document(named.profile, rooflines_to_json(named.rooflines))
    return NAMED.dump(named, profile=profile)


def read_named(data: bytes, file: DocumentFile) -> NamedProfile:
    """Read the kept profile in a file. The file has the name of the profile."""
    document = file.parse(data)
    file.check_schema(document, SCHEMA)
    profile = document.get("profile")
    if isinstance(profile, dict):
        # A profile of a newer schema need not have the keys of this one.
        file.check_schema(profile, SCHEMA, "profile")
    found = file.convert(document, NAMED.json_type)
    if found.name != file.path.stem:
        raise file.error(
            f'the name is "{shortened(found.name)}", but the file is {printable(file.path.name)}',
            "name",
            "Name the file after the profile that is in it.",
        )
    if found.date is None or found.date.utcoffset():
        raise file.error("expected a time in UTC such as 2026-01-31T12:00:00Z", "date")
    with _contradictions(file, "profile"):
        made = read_profile(found.profile)
    return NamedProfile(
        name=found.name,
        date=found.date,
        profile=made,
        rooflines=_read_rooflines(found.profile, made, file),
    )


def _read_rooflines(
    found: Any,  # noqa: ANN401  # an object of `PROFILE`
    profile: Profile,
    file: DocumentFile,
) -> dict[str, Roofline]:
    rooflines = {}
    for index, (kept, case) in enumerate(zip(found.cases, profile.cases, strict=True)):
        if kept.roofline is None:
            continue
        place = f"profile.cases[{index}].roofline"
        roofline = file.convert(kept.roofline, ROOFLINE.json_type, place)
        # If several layers share an id, it means the first, as for fused layers.
        layers = () if case.counted is None else reversed(case.counted.layers)
        with _contradictions(file, place):
            names = {layer.id: layer.name for layer in layers}
            rooflines[case.case.id] = read_roofline(roofline, names)
    return rooflines


@contextmanager
def _contradictions(file: DocumentFile, place: str) -> Iterator[None]:
    """Turn a ContradictionError at `place` into an error of the file."""
    try:
        yield
    except ContradictionError as error:
        raise file.error(error.problem, f"{place}.{error.place}") from None


def dump_profile_list(found: ProfileList) -> str:
    document = PROFILE_LIST.of(found)
    for named, entry in zip(found.profiles, document["profiles"], strict=True):
        entry["is_older_model"] = found.is_of_older_model(named)
    return dump_document(document)
