"""Find which machine this is, and how much of it a measurement may use."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.profiler.machine.hardware import (
    MachineFacts,
    online_processors,
    parse_natural,
    read_line,
    read_linux,
    read_macos,
    read_sysctl,
    read_text,
    readable,
)
from pytest_modelperf.systems.process import OWN_PROCESS

_DEFAULT_PERIOD_US = 100_000
# The line of cgroup version 2 in the list of a process's groups.
_GROUP = re.compile(r"^0::(.*)$", re.MULTILINE)
# mountinfo writes spaces and the like as three octal digits (proc_pid_mountinfo(5)).
_OCTAL = re.compile(r"\\([0-7]{3})")
# Real groups are a few levels deep, and mounted once or twice.
_MAX_DEPTH = 64
_MAX_MOUNTS = 64


class Limits(Struct, frozen=True):
    """The tightest limits on this process. None if a limit is absent or unknown."""

    quota_cores: float | None
    memory_bytes: int | None


class _Mount(Struct, frozen=True):
    """A place where the groups are mounted, or the part of them below `top`."""

    top: PurePosixPath
    folder: PurePosixPath


_USUAL_MOUNT = _Mount(PurePosixPath("/"), PurePosixPath("/sys/fs/cgroup"))


def read_limits(root: Path) -> Limits:
    """Return the limits of this process's groups at all levels."""
    folders = cgroup_folders(root)
    quotas = [quota for folder in folders if (quota := _quota(folder)) is not None]
    memory = [
        limit for folder in folders if (limit := parse_natural(read_line(folder / "memory.max")))
    ]
    return Limits(min(quotas, default=None), min(memory, default=None))


def cgroup_folders(root: Path) -> tuple[Path, ...]:
    """Return the groups of this process, each before the one that contains it."""
    group = _GROUP.search(read_text(root / "proc/self/cgroup") or "")
    if group is None:
        return ()
    path = PurePosixPath(group[1])
    mounts = tuple(islice(_read_mounts(root), _MAX_MOUNTS)) or (_USUAL_MOUNT,)
    folders = (folder for mount in mounts for folder in _groups(root, mount, path))
    return tuple(dict.fromkeys(folders))


def _groups(root: Path, mount: _Mount, path: PurePosixPath) -> Iterator[Path]:
    """Yield the folders of a group and of its parents, as far up as they are visible."""
    if mount.top not in (path, *path.parents):
        return
    below = path.relative_to(mount.top).parts
    # A process may be in a group that it cannot see, `/../other`, which no mounted folder has.
    if ".." in below or ".." in mount.folder.parts or len(below) > _MAX_DEPTH:
        return
    folder = root.joinpath(*mount.folder.parts[1:])
    for depth in range(len(below), -1, -1):
        yield folder.joinpath(*below[:depth])


def _read_mounts(root: Path) -> Iterator[_Mount]:
    """Yield the places where the groups are mounted (proc_pid_mountinfo(5))."""
    for line in (read_text(root / "proc/self/mountinfo", 8 << 20) or "").split("\n"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) >= 5 and kind and kind[0] == "cgroup2":
            top, folder = (PurePosixPath(_unescaped(field)) for field in fields[3:5])
            yield _Mount(top, folder)


def _unescaped(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def _quota(folder: Path) -> float | None:
    """Return the cores in `cpu.max`, which has a quota or `max`, and a period, in microseconds."""
    quota_text, _, period_text = (read_line(folder / "cpu.max") or "").partition(" ")
    quota = parse_natural(quota_text)
    period = parse_natural(period_text or str(_DEFAULT_PERIOD_US))
    return quota / period if quota and period else None


ROOT = Path("/")
# The packages that a profile depends on.
PACKAGES = ("pytest-modelperf", "onnx", "onnxruntime", "numpy", "scipy", "openvino")

_PRETTY_NAME = re.compile(r"^PRETTY_NAME=[ \t]*(.*)$", re.MULTILINE)
_QUOTED = re.compile(r"""(["'])(.*)\1\s*""")


class CoreLimit(Struct, frozen=True):
    """The number of cores that this process may use at once, and the reason for that limit."""

    cores: int | None
    reason: str


class Host(Struct, frozen=True, kw_only=True):
    """Facts from the interpreter, libraries and sysctl, not from files."""

    system: str | None = None
    kernel: str | None = None
    distribution: str | None = None
    architecture: str | None = None
    microarchitecture: str | None = None
    processors: int | None = None
    allowed_processors: int | None = None
    python: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    sysctl: Mapping[str, str] = field(default_factory=dict)


def describe_machine(root: Path = ROOT, host: Host | None = None) -> MachineFacts:
    """Return the machine whose files are below `root`. Other facts come from this machine."""
    host = host or ask_host()
    hardware = read_macos(host.sysctl) if host.system == "Darwin" else read_linux(root)
    limits = read_limits(root)
    logical_cores = hardware.logical_cores or host.processors
    return replace(
        hardware,
        microarchitecture=host.microarchitecture,
        logical_cores=logical_cores,
        usable_cores=limit_cores(logical_cores, host.allowed_processors, limits.quota_cores).cores,
        quota_cores=limits.quota_cores,
        memory_limit_bytes=_effective_limit(limits.memory_bytes, hardware.memory_bytes),
        system=host.system,
        kernel=readable(read_line(root / "proc/sys/kernel/osrelease")) or host.kernel,
        distribution=_distribution(root) or host.distribution,
        architecture=host.architecture,
        python=host.python,
        packages=host.packages,
    )


def machine_key() -> str:
    """Return the kind of this machine, such as `linux-x86_64-icelake-2c`.

    Baselines keep their measurements under this key, and patterns of budgets are compared with it:

        is_board = machine_key().startswith("linux-aarch64")
    """
    return describe_machine().key


def cores_available(root: Path = ROOT) -> CoreLimit:
    """Return how many cores a measurement by this process, or by a child of it, can have."""
    logical_cores = len(online_processors(root)) or os.cpu_count()
    return limit_cores(logical_cores, count_allowed_processors(), read_limits(root).quota_cores)


def limit_cores(
    logical_cores: int | None, allowed_processors: int | None, quota_cores: float | None
) -> CoreLimit:
    """Return the tightest of three limits: the machine, the affinity mask, and the cgroup's quota.

    A quota is rounded down, because threads on more cores would be halted in turn. The limit is at
    least one core.
    """
    known = [count for count in (logical_cores, allowed_processors) if count]
    processors = min(known, default=None)
    if quota_cores is not None and (processors is None or quota_cores < processors):
        unit = "CPU" if quota_cores == 1 else "CPUs"
        return CoreLimit(max(1, int(quota_cores)), f"the cgroup allows {quota_cores:.4g} {unit}")
    if processors is None:
        return CoreLimit(None, "the number of processors is unknown")
    if logical_cores and processors < logical_cores:
        reason = f"the process may use {processors} of {logical_cores} processors"
        return CoreLimit(processors, reason)
    noun = "processor" if processors == 1 else "processors"
    return CoreLimit(processors, f"the machine has {processors} {noun}")


def ask_host() -> Host:
    system = platform.system() or None
    is_macos = system == "Darwin"
    return Host(
        system=system,
        kernel=platform.release() or None,
        distribution=f"macOS {platform.mac_ver()[0]}".strip() if is_macos else None,
        architecture=platform.machine() or None,
        microarchitecture=_detect_microarchitecture(),
        processors=os.cpu_count(),
        allowed_processors=count_allowed_processors(),
        python=platform.python_version(),
        packages=dict(_own_versions()),
        sysctl=read_sysctl() if is_macos else {},
    )


def count_allowed_processors() -> int | None:
    """Return how many processors the affinity mask has, or None if the system has no masks."""
    try:
        allowed = OWN_PROCESS.allowed_processors()
    except OSError:
        return None
    return None if allowed is None else len(allowed)


def find_versions(names: Iterable[str]) -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in names:
        try:
            version: str | None = importlib.metadata.version(name)
        except Exception:  # noqa: BLE001, S112  # metadata may be broken in any way
            continue
        if version:
            versions[name] = version
    return versions


@cache
def _own_versions() -> Mapping[str, str]:
    """Return the versions of `PACKAGES`. They are cached, because reading them takes longest."""
    return find_versions(PACKAGES)


def _detect_microarchitecture() -> str | None:
    """Return archspec's name, such as `icelake` or `zen4`, or None if it is only `x86_64`."""
    try:
        with warnings.catch_warnings():
            # archspec warns if it cannot read something, and goes on.
            warnings.simplefilter("ignore")
            from archspec import cpu  # type: ignore[import-untyped]  # it ships no types

            found = cpu.host()
            return None if found == found.family else str(found.name)
    except Exception:  # noqa: BLE001  # archspec may raise anything for an unknown processor
        return None


def _effective_limit(limit_bytes: int | None, memory_bytes: int | None) -> int | None:
    is_tight = limit_bytes is not None and (memory_bytes is None or limit_bytes < memory_bytes)
    return limit_bytes if is_tight else None


def _distribution(root: Path) -> str | None:
    """Return the name that a distribution gives itself (os-release(5))."""
    for path in ("etc/os-release", "usr/lib/os-release"):
        match = _PRETTY_NAME.search(read_text(root / path) or "")
        if match:
            quoted = _QUOTED.fullmatch(match[1])
            return readable(re.sub(r"\\(.)", r"\1", quoted[2] if quoted else match[1]))
    return None
