"""How much of the machine the control groups of Linux leave to this process.

Only version 2 is read. Every group above the one of a process limits it as well.
https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from msgspec import Struct

from pytest_modelperf.profiler.machine.system_files import parse_natural, read_line, read_text

_DEFAULT_PERIOD_US = 100_000
# The line of version 2 in the list of a process's groups.
_GROUP = re.compile(r"^0::(.*)$", re.MULTILINE)
# mountinfo writes spaces and the like as three octal digits (proc_pid_mountinfo(5)).
_OCTAL = re.compile(r"\\([0-7]{3})")
# Real groups are nested a few deep, and mounted once or twice.
_MAX_DEPTH = 64
_MAX_MOUNTS = 64


class Limits(Struct, frozen=True):
    """The tightest limits on this process; None if there is none, or it is unknown."""

    quota_cores: float | None
    memory_bytes: int | None


class _Mount(Struct, frozen=True):
    """A place where the groups are mounted, or the part of them below `top`."""

    top: PurePosixPath
    folder: PurePosixPath


_USUAL_MOUNT = _Mount(PurePosixPath("/"), PurePosixPath("/sys/fs/cgroup"))


def read_limits(root: Path) -> Limits:
    """The limits of this process's groups at all levels."""
    folders = cgroup_folders(root)
    quotas = [quota for folder in folders if (quota := _quota(folder)) is not None]
    memory = [
        limit for folder in folders if (limit := parse_natural(read_line(folder / "memory.max")))
    ]
    return Limits(min(quotas, default=None), min(memory, default=None))


def cgroup_folders(root: Path) -> tuple[Path, ...]:
    """The groups of this process, each before the one that holds it."""
    group = _GROUP.search(read_text(root / "proc/self/cgroup") or "")
    if group is None:
        return ()
    path = PurePosixPath(group[1])
    mounts = tuple(islice(_read_mounts(root), _MAX_MOUNTS)) or (_USUAL_MOUNT,)
    folders = (folder for mount in mounts for folder in _groups(root, mount, path))
    return tuple(dict.fromkeys(folders))


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
    """The places where the groups are mounted (proc_pid_mountinfo(5))."""
    for line in (read_text(root / "proc/self/mountinfo", 8 << 20) or "").split("\n"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) >= 5 and kind and kind[0] == "cgroup2":
            top, folder = (PurePosixPath(_unescaped(field)) for field in fields[3:5])
            yield _Mount(top, folder)


def _unescaped(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def _quota(folder: Path) -> float | None:
    """`cpu.max`: a quota or `max`, and a period, in microseconds."""
    quota_text, _, period_text = (read_line(folder / "cpu.max") or "").partition(" ")
    quota = parse_natural(quota_text)
    period = parse_natural(period_text or str(_DEFAULT_PERIOD_US))
    return quota / period if quota and period else None
