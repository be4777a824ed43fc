"""How much of the machine the control groups of Linux leave to this process.

A process is in a group of each hierarchy, and every group above limits it as well. Version 2 has
one hierarchy, version 1 one for each controller or for a few; a machine may have both.
https://docs.kernel.org/admin-guide/cgroup-v2.html
https://docs.kernel.org/admin-guide/cgroup-v1/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from msgspec import Struct

from pytest_modelperf.profiler.machine.system_files import parse_natural, read_line, read_text

_DEFAULT_PERIOD_US = 100_000
# mountinfo writes spaces and the like as three octal digits (proc_pid_mountinfo(5)).
_OCTAL = re.compile(r"\\([0-7]{3})")
# Real groups are nested a few deep, and there are some ten hierarchies.
_MAX_DEPTH = 64
_MAX_HIERARCHIES = 64


class Limits(Struct, frozen=True):
    """The tightest limits on this process; None if there is none, or it is unknown."""

    quota_cores: float | None
    memory_bytes: int | None


class _Mount(Struct, frozen=True):
    """A mounted hierarchy, or the part of it below `top`. Version 2 has no names."""

    controllers: frozenset[str]
    top: PurePosixPath
    folder: PurePosixPath


def read_limits(root: Path) -> Limits:
    """The limits of this process's groups, of all versions and at all levels."""
    quotas = [
        quota
        for folder in cgroup_folders(root, "cpu")
        for quota in (_quota(folder), _quota_of_version_1(folder))
        if quota is not None
    ]
    memory = [
        limit
        for folder in cgroup_folders(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := parse_natural(read_line(folder / name)))
    ]
    return Limits(min(quotas, default=None), min(memory, default=None))


def cgroup_folders(root: Path, controller: str) -> tuple[Path, ...]:
    """The groups of this process that may limit `controller`, each before the one that holds it."""
    mounts = tuple(islice(_read_mounts(root), _MAX_HIERARCHIES)) or (
        _Mount(frozenset(), PurePosixPath("/"), PurePosixPath("/sys/fs/cgroup")),
        _Mount(
            frozenset((controller,)),
            PurePosixPath("/"),
            PurePosixPath("/sys/fs/cgroup", controller),
        ),
    )
    folders: dict[Path, None] = {}
    lines = (read_text(root / "proc/self/cgroup") or "").split("\n")
    for line in lines[:_MAX_HIERARCHIES]:
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon or (controllers and controller not in controllers.split(",")):
            continue
        for mount in mounts:
            if (controller in mount.controllers) if controllers else not mount.controllers:
                folders.update(dict.fromkeys(_groups(root, mount, PurePosixPath(path))))
    return tuple(folders)


def _groups(root: Path, mount: _Mount, path: PurePosixPath) -> Iterator[Path]:
    """The folders of a group and of its parents, as far up as they are visible."""
    if mount.top not in (path, *path.parents):
        return
    below = path.relative_to(mount.top).parts
    # A process may have been moved to a group that it cannot see, `/../other`: no mounted folder is
    # above it.
    if ".." in below or ".." in mount.folder.parts or len(below) > _MAX_DEPTH:
        return
    folder = root.joinpath(*mount.folder.parts[1:])
    for depth in range(len(below), -1, -1):
        yield folder.joinpath(*below[:depth])


def _read_mounts(root: Path) -> Iterator[_Mount]:
    """The hierarchies that are mounted (proc_pid_mountinfo(5))."""
    for line in (read_text(root / "proc/self/mountinfo", 8 << 20) or "").split("\n"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in {"cgroup", "cgroup2"}:
            continue
        # Version 1 lists its controllers among its options; other options match no controller.
        named = frozenset(kind[2].split(",")) if kind[0] == "cgroup" else frozenset[str]()
        top, folder = (PurePosixPath(_unescaped(field)) for field in fields[3:5])
        yield _Mount(named, top, folder)


def _unescaped(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def _quota(folder: Path) -> float | None:
    """`cpu.max` of version 2: a quota or `max`, and a period, in microseconds."""
    quota, _, period = (read_line(folder / "cpu.max") or "").partition(" ")
    return _ratio(parse_natural(quota), parse_natural(period or str(_DEFAULT_PERIOD_US)))


def _quota_of_version_1(folder: Path) -> float | None:
    """Quota and period in files of their own; a quota of -1 is none."""
    quota = parse_natural(read_line(folder / "cpu.cfs_quota_us"))
    return _ratio(quota, parse_natural(read_line(folder / "cpu.cfs_period_us")))


def _ratio(quota: int | None, period: int | None) -> float | None:
    return quota / period if quota and period else None
